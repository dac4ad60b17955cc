//! Tools that sign in ways of their own, and what the owner of a webhook learns of what was
//! refused.

use futures_util::future::join_all;
use jiff::Timestamp;
use letterbox_common::{sealing::Secret, webhook::Tool};
use letterbox_tests::{
    Answer, Process, Webhook, World, assert_hides, assert_tells, command_file, eventually,
    post_with, sign, table,
};
use serde_json::{Value, json};

async fn workspace(world: &World) -> String {
    let gateway = world.gateway().await;
    world.webhook(&gateway).await.address.workspace.to_string()
}

/// A webhook, made on the command line.
fn made(world: &World, gateway: &Process, workspace: &str, more: &str) -> Webhook {
    let create = format!("webhook create --workspace {workspace} --name T{more}");
    webhook_of(gateway, &world.order(create))
}

/// What a command tells of a new webhook, as its sender knows it.
pub fn webhook_of(gateway: &Process, told: &Value) -> Webhook {
    let text = |name: &str| told[name].as_str().unwrap().to_owned();
    let address = format!("{}.{}", text("workspace_id"), text("webhook_id"));
    let address = address.parse().unwrap();
    let secret = told["secret"].as_str().unwrap_or_default().to_owned();
    Webhook::new(&gateway.public_url(), address, secret)
}

/// The header of Letterbox's own scheme.
fn signed(webhook: &Webhook, body: &str) -> (&'static str, String) {
    let signature = sign(&webhook.secret, body.as_bytes());
    ("x-service-signature", signature)
}

async fn post(url: &str, headers: &[(&str, String)], body: &str) -> Answer {
    post_with(url, headers, body.to_owned()).await
}

/// The files from which the command line signs for a webhook: its secret, and a body.
fn files(webhook: &Webhook, body: &str) -> (String, String) {
    let id = webhook.address.webhook;
    let secret = command_file(&format!("{id}.secret"), &webhook.secret);
    (secret, command_file(&format!("{id}.json"), body))
}

/// A webhook that takes the place of another one for an hour.
fn replaced(world: &World, gateway: &Process, webhook: &Webhook) -> Webhook {
    let replace = format!("webhook replace {} --overlap 1h", webhook.address.webhook);
    webhook_of(gateway, &world.order(replace))
}

/// An address at which there is no webhook.
fn nowhere(gateway: &Process, workspace: &str) -> String {
    let base = gateway.public_url();
    format!("{base}/webhooks/incoming/{workspace}.{workspace}")
}

fn rules() -> String {
    json!({"header": "x-acme-sign", "prefix": "sig=", "encoding": "base64", "secret": "hex",
        "timestamp_header": "x-acme-time", "tolerance_seconds": 60, "id_header": "x-acme-id",
        "signed": "{id}:{timestamp}:{body}:end"})
    .to_string()
}

/// Signed by `letterbox send webhook`, taken once; signed otherwise, refused like everything else,
/// byte for byte. One tool for each way of signing.
#[tokio::test]
async fn every_way_of_signing_is_verified() {
    let (world, gateway, _worker) = World::with_both().await;
    let workspace = workspace(&world).await;
    let unknown = post(&nowhere(&gateway, &workspace), &[], "{}").await;
    assert_eq!(unknown.status, 401);
    let custom = command_file(&format!("{workspace}.rules"), &rules());
    let ways = "letterbox github shopify stripe slack standard-webhooks svix paystack vercel \
                zendesk front paddle";
    let custom = format!("custom --rules {custom}");
    let ways: Vec<&str> = ways.split(' ').chain([&*custom]).collect();
    for tool in &ways {
        let by = format!(" --tool {tool}");
        let webhook = made(&world, &gateway, &workspace, &by);
        let (secret, body) = files(&webhook, r#"{"type":"x"}"#);
        let url = &webhook.url;
        let send = format!("send webhook --url {url} --secret-file {secret}{by}");
        let sent = world.order(format!("{send} {body}"));
        assert_eq!(sent["answer"], json!({"received": true}), "{tool}");
        let again = world.order(format!("{send} {body}"));
        assert_eq!(again["answer"]["deduplicated"], true, "{tool}");

        let told = world.order(format!("{send} --explain {body}"));
        assert_tells(told["hashed"].as_str().unwrap(), &[r#"{"type":"x"}"#]);
        assert_hides(&told.to_string(), &[&webhook.secret]);

        // The headers of an explanation are those of a request: as they are, for another body, and
        // none at all.
        let shown = told.as_object().unwrap().iter();
        let headers: Vec<_> = shown
            .filter_map(|(name, value)| {
                Some((name.strip_prefix("header ")?, value.as_str()?.to_owned()))
            })
            .collect();
        let replayed = post(&webhook.url, &headers, r#"{"type":"x"}"#).await;
        assert!(replayed.is_duplicate(), "{tool}: {replayed:?}");
        for (headers, body) in [(&headers[..], "[]"), (&[], r#"{"type":"x"}"#)] {
            assert_eq!(post(&webhook.url, headers, body).await, unknown, "{tool}");
        }
        // Nobody is let in by the service's own signature but where it is the webhook's.
        if *tool != "letterbox" {
            let own = [signed(&webhook, "[]")];
            assert_eq!(post(&webhook.url, &own, "[]").await, unknown, "{tool}");
        }
    }
    world.await_signals(ways.len() as i64).await;
}

/// What a tool says in headers goes with the signal, what is signed apart; of a repeat nothing.
#[tokio::test]
async fn headers_go_with_the_signal() {
    let (world, gateway, _worker) = World::with_both().await;
    let workspace = workspace(&world).await;
    letterbox_tests::marks::mark("canary-of-a-header");
    let never = "Bearer canary-of-a-header";

    let github = made(&world, &gateway, &workspace, " --tool github");
    let body = r#"{"zen":"Design for failure."}"#;
    let signature = format!("sha256={}", sign(&github.secret, body.as_bytes()));
    let id = "72d3162e-cc78-11e3-81ab-4c9367dc0958";
    let sent = |event: &str| {
        vec![
            ("x-hub-signature-256", signature.clone()),
            ("X-GitHub-Event", event.to_owned()),
            ("x-github-delivery", id.to_owned()),
            ("authorization", never.to_owned()),
            ("cookie", never.to_owned()),
            ("x-forwarded-for", "192.0.2.77".to_owned()),
        ]
    };
    assert_eq!(post(&github.url, &sent("ping"), body).await.status, 202);
    assert!(post(&github.url, &sent("push"), body).await.is_duplicate());
    world.await_signals(1).await;
    let kept = || {
        let listed = world.order(format!("signal list --workspace {workspace}"));
        let id = listed[0]["signal_id"].as_str().unwrap().to_owned();
        world.order(format!("signal show {id}"))["headers"].clone()
    };
    let unsigned = json!({"x-github-event": "ping", "x-github-delivery": id});
    assert_eq!(kept(), json!({ "unsigned": unsigned }));

    let svix = made(&world, &gateway, &workspace, " --tool svix");
    let (secret, file) = files(&svix, body);
    let by = format!("--url {} --secret-file {secret} --tool svix", svix.url);
    world.order(format!("send webhook {by} {file}"));
    world.await_signals(2).await;
    let headers = kept();
    assert!(headers["signed"]["svix-id"].is_string() && headers["unsigned"].is_null());

    let keep = " --kept-headers X-Event,x-tenant";
    let own = made(&world, &gateway, &workspace, keep);
    let headers = [
        signed(&own, body),
        ("x-event", "made".to_owned()),
        ("x-other", "left out".to_owned()),
    ];
    assert_eq!(post(&own.url, &headers, body).await.status, 202);
    world.await_signals(3).await;
    assert_eq!(kept(), json!({"unsigned": {"x-event": "made"}}));
    let successor = replaced(&world, &gateway, &own);
    let again = [signed(&successor, "[]"), ("x-tenant", "7".to_owned())];
    assert_eq!(post(&successor.url, &again, "[]").await.status, 202);
    world.await_signals(4).await;
    assert_eq!(kept(), json!({"unsigned": {"x-tenant": "7"}}));

    // What the gateway could not read is not stored, whoever stores it.
    for stored in ["{NULL}", "{{a},{b}}"] {
        let store = format!("UPDATE webhooks SET kept_headers = '{stored}'");
        let storing = world.database.batch_execute(&store).await;
        assert!(storing.is_err(), "{stored}");
    }
    for refused in ["X-Gitlab-Token", "X-Hub-Signature-256 --tool github"] {
        let create = format!("webhook create --workspace {workspace} --name T --kept-headers");
        world.assert_refused(format!("{create} {refused}"), "can hold a credential");
    }
}

/// A webhook that goes by the sender's id: one id is one event, whatever its body, through a
/// successor, too; equal bodies under two ids are two. A changed repeat is counted, and not told.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_can_go_by_the_senders_id() {
    let (world, gateway, _worker) = World::with_both().await;
    let workspace = workspace(&world).await;
    let by_body = made(&world, &gateway, &workspace, " --tool svix");
    let by_id = made(&world, &gateway, &workspace, " --tool svix --same-by id");
    let rules = "svix".parse::<Tool>().unwrap().rules().unwrap();
    let send = async |webhook: &Webhook, id: &str, body: &str| {
        let keys = rules.keys(&Secret::new(webhook.secret.clone().into_bytes()));
        let now = Timestamp::now().as_second().unsigned_abs();
        let signed = rules.sign(&keys.unwrap(), "", body.as_bytes(), now, id);
        let signed = signed.unwrap();
        let headers = signed.headers.iter();
        let headers = headers.map(|(name, value)| (&**name, value.clone()));
        post(&webhook.url, &headers.collect::<Vec<_>>(), body).await
    };
    for (webhook, id, body, is_first) in [
        (&by_body, "msg_1", "[1]", true),
        (&by_body, "msg_2", "[1]", false),
        (&by_body, "msg_1", "[2]", true),
        (&by_id, "msg_1", "[1]", true),
        (&by_id, "msg_2", "[1]", true),
        (&by_id, "msg_1", "[1]", false),
        (&by_id, "msg_1", "[2]", false),
        // Without an id, the body counts.
        (&by_id, "", "[7]", true),
        (&by_id, "", "[8]", true),
        (&by_id, "", "[7]", false),
    ] {
        let answer = send(webhook, id, body).await;
        assert_eq!(answer.status, 202);
        assert_eq!(answer.is_first(), is_first, "{id} {body}");
    }
    // At once: one of them is the first, whichever, and each of the others a repeat.
    let bodies = ["[3]", "[4]", "[5]", "[6]"];
    let answers = join_all(bodies.map(|body| send(&by_id, "msg_3", body))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_first()).count(), 1);
    world.await_signals(7).await;
    let changed = "letterbox_changed_repeats_total";
    eventually("counted", async || gateway.metric(changed).await >= 1.0).await;

    let successor = replaced(&world, &gateway, &by_id);
    assert!(send(&successor, "msg_1", "[9]").await.is_duplicate());
    assert!(send(&successor, "msg_4", "[1]").await.is_first());
    world.await_signals(8).await;
    let bodies = "SELECT count(*) FROM signals WHERE convert_from(body, 'UTF8') = '[1]'";
    world.assert_count(bodies, 4).await;
    let refused = format!("webhook create --workspace {workspace} --name T --same-by id");
    world.assert_refused(refused, "signs no id");
}

#[tokio::test]
async fn a_secret_that_a_tool_has_given_is_used() {
    let (world, gateway) = World::with_gateway().await;
    let workspace = workspace(&world).await;
    let secret = "It's a Secret to Everybody\n";
    let file = command_file(&format!("{workspace}.github"), secret);
    let by = format!(" --tool github --secret-file {file}");
    let webhook = made(&world, &gateway, &workspace, &by);
    assert_eq!(webhook.secret, "", "it is known");
    let signature = sign("It's a Secret to Everybody", b"[1]");
    let signed = [("x-hub-signature-256", format!("sha256={signature}"))];
    assert!(post(&webhook.url, &signed, "[1]").await.is_first());

    let bad = r#"{"header":"x","signed":"{body}"}"#;
    let bad = command_file(&format!("{workspace}.bad"), bad);
    let unknown = r#"{"header":"x","encoding":"hex","signed":"{host}:{body}"}"#;
    let unknown = command_file(&format!("{workspace}.unknown"), unknown);
    let order = format!("webhook create --workspace {workspace} --name x --tool");
    for [more, problem] in table(
        "standard-webhooks --secret-file GIVEN | format of this tool
         github --allow-from nowhere --secret-file GIVEN | networks
         custom --rules BAD | encoding
         custom --rules UNKNOWN | unknown placeholder {host}; known: {body}, {timestamp}, {id}
         stripe --rules BAD | its own rules",
    ) {
        let more = more.replace("GIVEN", &file).replace("BAD", &bad);
        let more = more.replace("UNKNOWN", &unknown);
        world.assert_refused(format!("{order} {more}"), problem);
    }
    assert_eq!(world.refusal(format!("{order} custom")).0, 2);
}

#[tokio::test]
async fn who_sends_from_elsewhere_is_refused_as_ever() {
    let (world, gateway) = World::with_gateway().await;
    let workspace = workspace(&world).await;
    let by = " --allow-from 192.0.2.0/24,2001:db8::/32";
    let webhook = made(&world, &gateway, &workspace, by);
    let from = async |address: &str| {
        let client = address.trim_matches('"').to_owned();
        let headers = [signed(&webhook, address), ("x-forwarded-for", client)];
        post(&webhook.url, &headers, address).await
    };
    assert!(from("\"192.0.2.7\"").await.is_first());
    assert!(from("\"2001:db8::1\"").await.is_first());
    let unsigned = post(&webhook.url, &[], "[]").await;
    assert_eq!(from("\"192.0.3.7\"").await, unsigned);
    assert_eq!(from("\"2001:db9::1\"").await, unsigned);
    let log = format!("webhook log {}", webhook.address.webhook);
    eventually("it is written down", async || {
        let told = world.order(&log);
        let reasons = told.as_array().unwrap().iter();
        reasons.filter(|one| one["reason"] == "address").count() == 3
    })
    .await;
}

/// The owner is told what was wrong; the sender is told the same every time.
#[tokio::test]
async fn the_owner_learns_why_a_delivery_was_refused() {
    let (world, gateway) = World::with_gateway().await;
    let workspace = workspace(&world).await;
    let webhook = made(&world, &gateway, &workspace, "");
    let right = sign(&webhook.secret, b"[1]");
    let header = |value: String| vec![("x-service-signature", value)];
    let other = sign("another", b"[1]");
    let twice = [header(right.clone()), header(right.clone())].concat();
    let unsigned = [
        ("missing", vec![]),
        ("repeated", twice),
        ("prefix", header(format!("sha256={right}"))),
        ("upper_case", header(right.to_uppercase())),
        ("length", header(right[..63].to_owned())),
        ("not_hex", header(format!("{}g", &right[..63]))),
        ("digest", header(other)),
    ];
    let mut expected: Vec<(String, String)> = Vec::new();
    let first = post(&webhook.url, &[], "[1]").await;
    expected.push(("missing".into(), first.request_id.0.clone()));
    for (reason, headers) in unsigned {
        let answer = post(&webhook.url, &headers, "[1]").await;
        assert_eq!(answer, first, "{reason}");
        expected.push((reason.into(), answer.request_id.0));
    }
    let signed = sign(&webhook.secret, b"{");
    let answer = post(&webhook.url, &header(signed), "{").await;
    assert_eq!(answer.status, 400);
    expected.push(("not_json".into(), answer.request_id.0));
    let large = "x".repeat(65_537);
    let answer = post(&webhook.url, &[], &large).await;
    assert_eq!(answer.status, 413);
    expected.push(("too_large".into(), answer.request_id.0));
    let log = async |limit: u32| -> Vec<(String, String)> {
        let id = webhook.address.webhook;
        let told = world.order(format!("webhook log {id} --limit {limit}"));
        let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
        let told = told.as_array().unwrap().iter().rev();
        told.map(|one| (text(one, "reason"), text(one, "request_id")))
            .collect()
    };
    eventually("all are written down", async || log(100).await == expected).await;

    // What nobody has is written down nowhere, and of what there is, the last hundred.
    post(&nowhere(&gateway, &workspace), &[], "[1]").await;
    let count = async || log(100).await.len();
    let before = count().await;
    for together in (1..=4).map(|round| (before + 30 * round).min(100)) {
        for _ in 0..30 {
            post(&webhook.url, &[], "[1]").await;
        }
        eventually("so many are kept", async || count().await == together).await;
    }
    eventually("the last hundred", async || {
        let kept = log(100).await;
        kept.len() == 100 && kept.iter().all(|(reason, _)| reason == "missing")
    })
    .await;
    world.assert_rows("webhook_refusals", 100).await;
    let stored = "SELECT string_agg(r::text, ' ') FROM webhook_refusals r";
    let stored: String = world.value(stored).await;
    letterbox_tests::marks::assert_unmarked("the log of refusals", &stored);
}

/// While gateways are replaced, an older one meets a tool that it does not know: it waits for its
/// successor with that webhook, and with no other that is looked up at the same moment.
#[tokio::test]
async fn a_tool_of_a_newer_version_keeps_nobody_else_waiting() {
    let (world, gateway) = World::with_gateway().await;
    let workspace = workspace(&world).await;
    let (known, newer) = (
        made(&world, &gateway, &workspace, ""),
        made(&world, &gateway, &workspace, " --tool github"),
    );
    let change = "UPDATE webhooks SET tool = 'newer' WHERE tool = 'github'";
    world.change(change).await;
    let delivered = (0..40).map(|number| {
        let webhook = if number % 2 == 0 { &known } else { &newer };
        let body = number.to_string();
        async move { webhook.send(body).await.status }
    });
    assert_eq!(join_all(delivered).await, [202, 503].repeat(20));
}

/// Providers' own libraries sign, and what they say in headers is at the signal. Of JavaScript only
/// where Node.js is.
#[tokio::test(flavor = "multi_thread")]
async fn providers_own_libraries_are_understood() {
    let (world, gateway, _worker) = World::with_both().await;
    let workspace = workspace(&world).await;
    let kept = [
        ("slack", "signed", "x-slack-request-timestamp"),
        ("github", "unsigned", "x-github-event"),
        ("stripe", "", ""),
        ("svix", "signed", "svix-id"),
        ("standard-webhooks", "signed", "webhook-id"),
    ];
    for (provider, place, name) in kept {
        let signer = if provider == "slack" {
            letterbox_tests::python("sign.py")
        } else if let Some(signer) = letterbox_tests::node("sign.mjs") {
            signer
        } else {
            println!("{provider}: Node.js is not here");
            continue;
        };
        let by = format!(" --tool {provider}");
        let webhook = made(&world, &gateway, &workspace, &by);
        let body = format!(r#"{{"from": "{provider}", "text":"é\u0041"}}"#);
        let signed = sign_by(signer, provider, &webhook.secret, &body).await;
        let headers = signed.as_object().unwrap().iter();
        let headers = headers.map(|(name, value)| (&**name, value.as_str().unwrap().to_owned()));
        let headers: Vec<(&str, String)> = headers.collect();
        let answer = post(&webhook.url, &headers, &body).await;
        assert!(answer.is_first(), "{provider}: {answer:?}");
        let changed = post(&webhook.url, &headers, &body.replace("text", "test")).await;
        assert_eq!(changed.status, 401, "{provider}");
        let id = &answer.request_id.0;
        let list = format!("signal list --workspace {workspace} --request-id {id}");
        eventually("the signal is there", async || {
            world.order(&list).as_array().unwrap().len() == 1
        })
        .await;
        let signal = world.order(&list)[0]["signal_id"].clone();
        let shown = world.order(format!("signal show {}", signal.as_str().unwrap()));
        assert_eq!(shown["body"], *body);
        if place.is_empty() {
            assert_eq!(shown["headers"], json!({}), "{provider}");
        } else {
            assert_eq!(shown["headers"][place][name], signed[name], "{provider}");
        }
    }
}

/// The headers that a provider's library makes.
async fn sign_by(
    mut signer: tokio::process::Command,
    provider: &str,
    secret: &str,
    body: &str,
) -> Value {
    use tokio::io::AsyncWriteExt;
    let mut running = signer
        .args([provider, secret])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = running.stdin.take().unwrap();
    input.write_all(body.as_bytes()).await.unwrap();
    drop(input);
    let output = running.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{provider}");
    serde_json::from_str(std::str::from_utf8(&output.stdout).unwrap()).unwrap()
}
