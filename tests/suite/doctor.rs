//! The doctor: finds what is wrong, says what mends it, changes nothing.

use letterbox_tests::{MailServer, Servers, World, assert_hides, assert_tells, eventually, one_of};
use serde_json::Value;

fn verdict<'f>(found: &'f Value, about: &str) -> &'f str {
    one_of(found, "about", about)["verdict"].as_str().unwrap()
}

fn examine(world: &World, settings: &[(&str, &str)]) -> (i32, Value) {
    world.judge(settings, "doctor")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_found_with_its_mend() {
    let world = World::new().await;
    let dashboard = &Servers::shared().dashboard_url;
    let settings = [
        ("AMQP_URL", world.amqp_url.as_str()),
        ("LETTERBOX_DASHBOARD_URL", dashboard),
    ];
    let (code, found) = examine(&world, &settings);
    assert_eq!(code, 1, "nothing runs yet");
    // The servers of the tests need not survive a crash.
    for about in ["fsync", "gateways", "workers", "queues"] {
        assert_eq!(verdict(&found, about), "failure", "{found:#}");
    }
    let known = ["fine", "warning", "failure"];
    for one in found.as_array().unwrap() {
        assert!(known.contains(&one["verdict"].as_str().unwrap()));
        assert_eq!(one["mend"].is_null(), one["verdict"] == "fine", "{one}");
    }
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    eventually("processes and queues are fine", async || {
        let (_, found) = examine(&world, &settings);
        let about = ["gateways", "workers", "queues"];
        about.iter().all(|about| verdict(&found, about) == "fine")
    })
    .await;
    let (_, found) = examine(&world, &settings);
    for about in [
        "schema",
        "synchronous_commit",
        "clock",
        "subscriptions",
        "settings",
        "pools",
        "proxies",
        "policies",
        "broker alarms",
        "queue types",
        "queue arguments",
        "queue members",
    ] {
        assert_eq!(verdict(&found, about), "fine", "{about}: {found:#}");
    }
    // Nothing is deleted until somebody wants it.
    assert_eq!(verdict(&found, "retention"), "warning");
    let status = || world.read("status");
    assert!(status().contains("\nkept forever "), "{}", status());
    let keep = [("LETTERBOX_KEEP_RUNS_DAYS", "30")];
    let deleting = world.worker_with(&keep).await;
    let (_, found) = examine(&world, &settings);
    assert_eq!(verdict(&found, "retention"), "fine");
    assert!(!status().contains("kept forever"), "{}", status());
    drop(deleting);
    // Processes that disagree, a proxy that nobody believes, and a policy that makes all wait.
    let https = ("LETTERBOX_BASE_URL", "https://letterbox.example.com");
    let apart = [https, ("LETTERBOX_TRUSTED_PROXIES", "")];
    let _other = world.gateway_with(&apart).await;
    let form = world.form(&gateway).await;
    let operator = world.operator().await;
    let asking = r#"{"rules": [], "default": "approve"}"#;
    operator.set_policy(form.workspace, asking).await.unwrap();
    let audited = world.count("SELECT count(*) FROM audit_log").await;
    let base = gateway.public_url();
    let here = [&settings[..], &[("LETTERBOX_BASE_URL", base.as_str())]].concat();
    let (_, found) = examine(&world, &here);
    for about in ["settings", "proxies", "policies"] {
        assert_eq!(verdict(&found, about), "warning", "{about}: {found:#}");
    }
    assert_eq!(verdict(&found, "base URL"), "fine");
    let differing = one_of(&found, "about", "settings");
    let differing = differing["detail"].as_str().unwrap();
    assert_tells(differing, &["LETTERBOX_BASE_URL: "]);
    assert_hides(differing, &["LISTEN"]);
    // A transaction that was forgotten.
    let holding = world.session(letterbox_database::Role::Login).await;
    let begun = "BEGIN; SELECT pg_current_xact_id()";
    holding.batch_execute(begun).await.unwrap();
    let (code, without) = examine(&world, &[]);
    assert_eq!(code, 1);
    for about in ["queues", "broker"] {
        assert_eq!(verdict(&without, about), "warning", "not looked at");
    }
    let transactions = verdict(&without, "transactions");
    assert_eq!(transactions, "fine", "not open for long");
    let after = world.count("SELECT count(*) FROM audit_log").await;
    assert_eq!(after, audited, "it changes nothing");
    let shown = world.read("doctor");
    assert!(shown.starts_with("FAILURE"), "the worst first: {shown}");
    assert!(shown.contains("=> ALTER SYSTEM SET fsync = on"), "{shown}");
}

/// Notices by e-mail that no worker can send are found.
#[tokio::test(flavor = "multi_thread")]
async fn notices_that_nobody_sends_are_found() {
    let world = World::new().await;
    world.workspace("Silent").await;
    let _worker = world.worker().await;
    let said = async |about: &str| verdict(&examine(&world, &[]).1, about).to_owned();
    let is_alive = async || said("workers").await == "fine";
    eventually("the worker is alive", is_alive).await;
    assert_eq!(said("e-mail").await, "fine");
    let notify = "UPDATE workspaces SET notify_by_email = true";
    world.change(notify).await;
    assert_eq!(said("e-mail").await, "warning");
    let mail = MailServer::start().await;
    let settings = [
        ("LETTERBOX_SMTP_URL", mail.url.as_str()),
        ("LETTERBOX_SMTP_FROM", "letterbox@example.com"),
    ];
    let _other = world.worker_with(&settings).await;
    eventually("another one can", async || said("e-mail").await == "fine").await;
}
