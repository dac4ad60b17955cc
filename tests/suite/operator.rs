//! The operator command line, as people and programs use it.

use letterbox_tests::{DEFINITION, Webhook, World, command_file, definition_with, eventually};
use serde_json::{Value, json};

#[tokio::test]
async fn from_a_workspace_to_a_signal() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let base = gateway.public_url();
    let workspace = world.order("workspace create --name Acme")["workspace_id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        world.order("workspace list")[0]["workspace_id"],
        workspace.as_str()
    );
    let user = world.order("user create --email a@example.com --name Ann")["user_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for role in ["owner", "viewer"] {
        let member = world.order(format!(
            "member set --workspace {workspace} --user {user} --role {role}"
        ));
        assert_eq!(member["role"], role);
    }
    assert_eq!(
        world
            .order(format!("member list --workspace {workspace}"))
            .as_array()
            .unwrap()
            .len(),
        1
    );
    world.order(format!(
        "member remove --workspace {workspace} --user {user}"
    ));
    assert_eq!(
        world.order(format!("member list --workspace {workspace}")),
        serde_json::json!([])
    );

    let webhook = world.order(format!(
        "--base-url {base} webhook create --workspace {workspace} --name crm"
    ));
    let (url, secret) = (
        webhook["url"].as_str().unwrap(),
        webhook["secret"].as_str().unwrap(),
    );
    assert_eq!(secret.len(), 64);
    let listed = world.order(format!("webhook list --workspace {workspace}"));
    assert_eq!(listed[0]["webhook_id"], webhook["webhook_id"]);
    assert!(
        !listed.to_string().contains(secret),
        "a secret is shown once"
    );

    let body = r#"{"type":"client.created","entity":"\u001b[2J","sourceTool":"t"}"#;
    let file = command_file(&format!("{workspace}.json"), body);
    let signed = [("LETTERBOX_WEBHOOK_SECRET", secret)];
    let sent = world.order_with(&signed, format!("send webhook --url {url} {file}"));
    assert_eq!(
        (sent["status"].as_u64(), &sent["answer"]["received"]),
        (Some(202), &Value::Bool(true))
    );
    world.await_signals(1).await;
    eventually("what is used is told", async || {
        let usage = world.order(format!("workspace usage {workspace}"));
        assert_eq!(usage["runs_started"], 0);
        let bytes = body.len() + 512;
        usage["webhooks"][0]["bytes_today"] == bytes && usage["bytes_today"] == bytes
    })
    .await;
    let signals = world.order(format!("signal list --workspace {workspace}"));
    let id = signals[0]["signal_id"].as_str().unwrap();
    assert_eq!(world.order(format!("signal show {id}"))["body"], body);
    let table = world.letterbox(format!("signal list --workspace {workspace}"));
    assert!(
        !table.stdout.contains(&0x1b),
        "a terminal is not to be steered from outside"
    );

    world.order(format!(
        "webhook delete {} --yes",
        webhook["webhook_id"].as_str().unwrap()
    ));
    let refused = world.letterbox_with(&signed, format!("send webhook --url {url} {file}"));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        error.contains("401") && error.contains("invalid_signature"),
        "{error}"
    );
    let kept = world
        .count("SELECT count(*) FROM webhooks WHERE secret_sealed IS NOT NULL")
        .await;
    assert_eq!(kept, 0, "a deleted webhook's secret is destroyed");
}

#[tokio::test]
async fn from_a_workflow_to_a_run() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let base = gateway.public_url();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let created = world.order("workspace create --name Acme --run-allowance 1");
    assert_eq!(created["run_allowance"], 1);
    let workspace = text(&created["workspace_id"]);
    let user = text(&world.order("user create --email a@example.com --name Ann")["user_id"]);
    let definition = command_file(&format!("{workspace}.definition"), DEFINITION);
    let create = format!(
        "workflow create --workspace {workspace} --owner {user} --name Contact \
         --definition {definition}"
    );
    assert!(
        world.refusal(&create).1.contains("may run"),
        "the owner is no member yet"
    );
    world.order(format!(
        "member set --workspace {workspace} --user {user} --role editor"
    ));
    let workflow = world.order(&create);
    assert_eq!(
        (&workflow["state"], &workflow["release_id"]),
        (&Value::from("draft"), &Value::Null)
    );
    let workflow = text(&workflow["workflow_id"]);
    assert!(
        world
            .refusal(format!("form-link create {workflow}"))
            .1
            .contains("not deployed")
    );

    // A wrong definition deploys nothing and names every mistake.
    let wrong = command_file(
        &format!("{workspace}.wrong"),
        &DEFINITION
            .replace("Contact us", "")
            .replace("textarea", "essay"),
    );
    let (code, error) = world.refusal(format!("workflow deploy {workflow} --definition {wrong}"));
    assert!(
        code == 1 && error.contains("form.title") && error.contains("form.fields[2].type"),
        "{error}"
    );
    let deployed = world.order(format!("workflow deploy {workflow}"));
    assert_eq!(deployed["state"], "deployed");
    let link = world.order(format!("--base-url {base} form-link create {workflow}"));
    let (url, token) = (text(&link["url"]), text(&link["token"]));
    assert_eq!(url, format!("{base}/forms?token={token}"));
    let app = "--app-url https://app.example.com/";
    let elsewhere = format!("--base-url {base} {app} form-link create {workflow}");
    let elsewhere = world.order(format!("{elsewhere} --yes"));
    assert_eq!(
        text(&elsewhere["url"]),
        format!(
            "https://app.example.com/forms?token={}",
            text(&elsewhere["token"])
        )
    );
    let url = format!("{base}/forms?token={}", text(&elsewhere["token"]));

    let payload = command_file(
        &format!("{workspace}.payload"),
        &letterbox_tests::payload().to_string(),
    );
    let sent = world.order(format!(
        "send form --url {url} --idempotency-key k {payload}"
    ));
    assert_eq!(
        (&sent["answer"]["status"], &sent["idempotency_key"]),
        (&Value::from("accepted"), &Value::from("k"))
    );
    world.order(format!(
        "send form --url {url} --idempotency-key k {payload}"
    ));
    world.await_runs(1).await;
    world.order(format!("send form --url {url} {payload}"));
    world.await_runs(2).await;
    let over = "SELECT count(*) FROM runs WHERE state = 'succeeded'";
    eventually("the first is over", async || world.count(over).await == 1).await;
    let runs = world.order(format!("run list --workspace {workspace}"));
    assert_eq!(
        (&runs[0]["state"], &runs[0]["refused_reason"]),
        (&Value::from("refused"), &Value::from("allowance_exhausted"))
    );
    assert_eq!(
        (&runs[1]["state"], &runs[1]["run_as"]),
        (&Value::from("succeeded"), &Value::from(user.as_str()))
    );
    assert_eq!(
        world.order(format!(
            "run list --workspace {workspace} --workflow {workflow}"
        )),
        runs
    );
    assert_eq!(
        world.order(format!("run list --workspace {workspace} --limit 1"))[0],
        runs[0],
        "newest first"
    );
    let run = world.order(format!("run show {}", runs[1]["run_id"].as_str().unwrap()));
    assert_eq!(
        (&run["input_trust"], &run["input"]),
        (&Value::from("untrusted"), &letterbox_tests::payload())
    );
    assert_eq!(run["release_id"], deployed["release_id"]);

    let allowance = world.order(format!("workspace allowance {workspace}"));
    assert_eq!(
        (&allowance["run_allowance"], &allowance["started"]),
        (&Value::from(1), &Value::from(1))
    );
    assert_eq!(
        world.order(format!("workspace allowance {workspace} --set unlimited"))["run_allowance"],
        Value::Null
    );

    let (code, error) = world.refusal(format!(
        "send form --url {base}/forms?token={token} {payload}"
    ));
    assert!(
        code == 1 && error.contains("404"),
        "the first link is dead: {error}"
    );
    for (verb, state) in [
        ("pause", "paused"),
        ("activate", "deployed"),
        ("activate", "deployed"),
        ("draft", "draft"),
    ] {
        assert_eq!(
            world.order(format!("workflow {verb} {workflow} --yes"))["state"],
            state
        );
        assert_eq!(
            world.order(format!("workflow show {workflow}"))["form_link_id"],
            Value::Null,
            "no link survives"
        );
    }
    assert!(
        world
            .refusal(format!("workflow pause {workflow}"))
            .1
            .contains("draft")
    );
    world.order(format!(
        "workflow deploy {workflow} --definition {definition}"
    ));
    let shown = world.order(format!("workflow show {workflow}"));
    assert_eq!(
        (
            &shown["release_number"],
            &shown["definition"]["form"]["title"]
        ),
        (&Value::from(2), &Value::from("Contact us"))
    );
    assert_eq!(
        world.order(format!("workflow delete {workflow}"))["state"],
        "deleted"
    );
    for verb in ["deploy", "activate", "pause", "draft", "delete"] {
        assert_eq!(
            world.refusal(format!("workflow {verb} {workflow}")).0,
            1,
            "{verb}"
        );
    }
    assert_eq!(
        world.order(format!("workflow list --workspace {workspace}"))[0]["state"],
        "deleted"
    );
    assert_eq!(
        world
            .order(format!("run list --workspace {workspace}"))
            .as_array()
            .unwrap()
            .len(),
        2,
        "runs stay"
    );
}

#[tokio::test]
async fn exit_codes_tell_refusals_from_misuse() {
    let world = World::new().await;
    let nobody = |command: &str| command.replace("NOBODY", "00000000-0000-4000-8000-000000000000");
    for command in [
        "webhook create --workspace NOBODY --name x",
        "webhook delete NOBODY --yes",
        "webhook list --workspace NOBODY",
        "member set --workspace NOBODY --user NOBODY --role owner",
        "member remove --workspace NOBODY --user NOBODY",
        "signal show NOBODY",
        "run show NOBODY",
        "run list --workspace NOBODY",
        "workflow show NOBODY",
        "workflow deploy NOBODY",
        "workflow pause NOBODY",
        "workflow list --workspace NOBODY",
        "form-link create NOBODY",
        "workspace allowance NOBODY",
        "workspace policy NOBODY",
        "account list --workspace NOBODY",
        "account disconnect NOBODY --yes",
        "approval list --workspace NOBODY",
        "approval approve NOBODY --by NOBODY",
        "workspace allowance NOBODY --set 1",
        "workspace create --name x --run-allowance 3000000000",
        "workflow deploy NOBODY --definition /nowhere/at/all",
        "send form --url http://127.0.0.1:1/elsewhere /dev/null",
        "workspace create --name \u{3000}",
        "user create --email nobody --name x",
        "workspace allowance 0000",
        "workspace create --name all",
    ] {
        let (code, error) = world.refusal(nobody(command));
        assert_eq!(code, 1, "{command}: {error}");
        assert!(
            error.starts_with("letterbox: ") && !error.contains("SQLSTATE"),
            "{error}"
        );
    }
    for command in [
        "workspace",
        "workspace allowance ",
        "webhook delete x",
        "webhook delete x",
        "workspace create --name x --run-allowance -1",
        "workspace allowance NOBODY --set many",
        "account connect --workspace NOBODY --user NOBODY --name x --base-url http://x",
        "member set --workspace NOBODY --user NOBODY --role king",
        "--database-url canary workspace list",
    ] {
        let (code, error) = world.refusal(nobody(command));
        assert_eq!(code, 2, "{command}: {error}");
        assert!(!error.contains("canary"), "{error}");
    }
    world.order("user create --email a@example.com --name x");
    assert_eq!(
        world
            .refusal("user create --email A@example.com --name x")
            .0,
        1
    );
}

/// What a deploy would do is said before; a link is ended, a workflow given to another member, and
/// somebody who leaves loses all rights.
#[tokio::test]
async fn links_end_and_workflows_change_hands() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let form = world.form(&gateway).await;
    let (workspace, workflow) = (form.workspace, form.workflow);
    let wrong = command_file(&format!("{workflow}.wrong.json"), r#"{"form": {}}"#);
    assert_eq!(world.refusal(format!("workflow check {wrong}")).0, 1);
    let mut definition: Value = serde_json::from_str(&definition_with(json!([]))).unwrap();
    definition["form"]["fields"][0]["label"] = "Other".into();
    definition["form"]["fields"].as_array_mut().unwrap().pop();
    definition["actions"] = json!([{"id": "wait", "type": "delay", "for": "PT1M"}]);
    let file = command_file(&format!("{workflow}.json"), &definition.to_string());
    let checked = world.order(format!("workflow check {file}"));
    assert_eq!(checked, json!({"warnings": []}));
    let deploy = format!("workflow deploy {workflow} --definition {file}");
    let plan = world.order(format!("{deploy} --dry-run"));
    assert_eq!(plan["ends"].as_array().unwrap().len(), 1);
    assert_eq!(plan["fields"]["changed"].as_array().unwrap().len(), 1);
    assert_eq!(plan["fields"]["removed"].as_array().unwrap().len(), 1);
    assert_eq!(plan["actions"]["added"], json!(["wait"]));
    form.assert_lives().await;

    world.order(format!("form-link end {workflow} --yes"));
    form.assert_dead().await;
    assert_eq!(
        world.refusal(format!("form-link end {workflow} --yes")).0,
        1
    );
    assert_eq!(
        world.order(format!("workflow show {workflow}"))["state"],
        "deployed"
    );

    let bob = format!("bob-{workflow}@example.com");
    world.order(format!("user create --email {bob} --name Bob"));
    let transfer = format!("workflow transfer {workflow} --to {bob} --yes");
    assert_eq!(world.refusal(&transfer).0, 1, "not a member");
    world.order(format!(
        "member set --workspace {workspace} --user {bob} --role editor"
    ));
    let link = world.order(format!("form-link create {workflow}"));
    let living = form.with_token(link["token"].as_str().unwrap());
    living.assert_lives().await;
    let given = world.order(&transfer);
    assert_ne!(given["owner_id"], json!(form.owner));
    living.assert_dead().await;
    let link = world.order(format!("form-link create {workflow}"));
    let living = form.with_token(link["token"].as_str().unwrap());
    living.assert_lives().await;
    let deactivated = world.order(format!("user deactivate {bob} --yes"));
    assert!(deactivated[0]["deactivated_at"].is_string());
    living.assert_dead().await;
}

/// A tool that makes its secret when it knows the address: nothing is accepted before it is set.
#[tokio::test]
async fn a_secret_is_set_later() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let workspace = world.webhook(&gateway).await.address.workspace;
    let new = format!("webhook create --workspace {workspace} --name Later --secret-later");
    let created = world.order(new);
    assert_eq!(created["secret"], Value::Null);
    let id = created["webhook_id"].as_str().unwrap();
    let address = format!("{workspace}.{id}").parse().unwrap();
    let with = |secret: &str| Webhook::new(&gateway.public_url(), address, secret.to_owned());
    let secrets = ["the first one, wrong", "the second one, right"];
    assert_eq!(with(secrets[1]).send("1").await.status, 401);
    for secret in secrets {
        let file = command_file(&format!("{id}.secret"), secret);
        let set = world.order(format!("webhook set-secret {id} --secret-file {file}"));
        assert_eq!(set["awaits_secret"], false);
        assert!(with(secret).send(format!("\"{secret}\"")).await.is_first());
    }
    let hour = "UPDATE webhooks SET settable_until = now() WHERE settable_until IS NOT NULL";
    world.database.execute(hour, &[]).await.unwrap();
    let file = command_file(&format!("{id}.secret"), "a third one, too late");
    let late = format!("webhook set-secret {id} --secret-file {file}");
    assert_eq!(world.refusal(late).0, 1);
    assert_eq!(with("a third one, too late").send("3").await.status, 401);
}
