//! The operator command line, as people and programs use it.

use letterbox_tests::{
    DEFINITION, Process, Webhook, World, assert_hides, assert_holds, assert_tells, command_file,
    definition_with, eventually, payload,
};
use serde_json::{Value, json};

#[tokio::test]
async fn from_a_workspace_to_a_signal() {
    let (world, gateway, _worker) = World::with_both().await;
    let base = gateway.public_url();
    let workspace = text(&world.order("workspace create --name Acme")["workspace_id"]);
    assert_eq!(
        text(&world.order("workspace list")[0]["workspace_id"]),
        workspace
    );
    let user = text(&world.order("user create --email a@example.com --name Ann")["user_id"]);
    for role in ["owner", "viewer"] {
        let member = world.order(format!(
            "member set --workspace {workspace} --user {user} --role {role}"
        ));
        assert_eq!(member["role"], role);
    }
    let members = || world.order(format!("member list --workspace {workspace}"));
    assert_eq!(members().as_array().unwrap().len(), 1);
    let remove = format!("member remove --workspace {workspace} --user {user}");
    world.order(remove);
    assert_eq!(members(), json!([]));

    let webhook = world.order(format!(
        "--base-url {base} webhook create --workspace {workspace} --name crm"
    ));
    let [url, secret] = ["url", "secret"].map(|name| webhook[name].as_str().unwrap());
    assert_eq!(secret.len(), 64);
    let listed = world.order(format!("webhook list --workspace {workspace}"));
    assert_eq!(listed[0]["webhook_id"], webhook["webhook_id"]);
    assert_hides(&listed.to_string(), &[secret]); // it is shown once

    let body = r#"{"type":"client.created","entity":"\u001b[2J","sourceTool":"t"}"#;
    let file = command_file(&format!("{workspace}.json"), body);
    let signed = [("LETTERBOX_WEBHOOK_SECRET", secret)];
    let sent = world.order_with(&signed, format!("send webhook --url {url} {file}"));
    assert_holds(&sent, json!({"status": 202, "answer": {"received": true}}));
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
    // A terminal is not to be steered from outside.
    assert!(!table.stdout.contains(&0x1b));

    let id = webhook["webhook_id"].as_str().unwrap();
    world.order(format!("webhook delete {id} --yes"));
    let refused = world.letterbox_with(&signed, format!("send webhook --url {url} {file}"));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert_tells(&error, &["401", "invalid_signature"]);
    let kept = "SELECT count(*) FROM webhooks WHERE secret_sealed IS NOT NULL";
    world.assert_count(kept, 0).await; // a deleted webhook's secret is destroyed
}

/// A workflow of an editor, in a workspace of its own.
struct Acme {
    world: World,
    gateway: Process,
    _worker: Process,
    workspace: String,
    user: String,
    workflow: String,
}

impl Acme {
    /// It is a draft.
    async fn new() -> Self {
        let (world, gateway, _worker) = World::with_both().await;
        let created = world.order("workspace create --name Acme --run-allowance 1");
        assert_eq!(created["run_allowance"], 1);
        let workspace = text(&created["workspace_id"]);
        let user = text(&world.order("user create --email a@example.com --name Ann")["user_id"]);
        let definition = command_file(&format!("{workspace}.definition"), DEFINITION);
        let create = format!(
            "workflow create --workspace {workspace} --owner {user} --name Contact \
             --definition {definition}"
        );
        // The owner is no member yet.
        world.assert_refused(&create, "may run");
        let member = format!("member set --workspace {workspace} --user {user} --role editor");
        world.order(member);
        let workflow = world.order(&create);
        assert_holds(&workflow, json!({"state": "draft", "release_id": null}));
        Self {
            workflow: text(&workflow["workflow_id"]),
            world,
            gateway,
            _worker,
            workspace,
            user,
        }
    }

    /// `workflow VERB W …`
    fn order(&self, verb: &str, more: &str) -> Value {
        let command = format!("workflow {verb} {} {more}", self.workflow);
        self.world.order(command.trim_end())
    }

    /// Makes a link; its URL and token.
    fn link(&self, options: &str, more: &str) -> (String, String) {
        let base = self.gateway.public_url();
        let create = format!("form-link create {}{more}", self.workflow);
        let link = format!("--base-url {base}{options} {create}");
        let link = self.world.order(link);
        (text(&link["url"]), text(&link["token"]))
    }

    fn runs(&self, more: &str) -> Value {
        let command = format!("run list --workspace {} {more}", self.workspace);
        self.world.order(command.trim_end())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_workflow_is_deployed_and_gets_links() {
    let acme = Acme::new().await;
    let (world, workflow, base) = (&acme.world, &acme.workflow, acme.gateway.public_url());
    world.assert_refused(format!("form-link create {workflow}"), "not deployed");
    // A wrong definition deploys nothing and names every mistake.
    let wrong = DEFINITION.replace("Contact us", "");
    let wrong = wrong.replace("textarea", "essay");
    let wrong = command_file(&format!("{workflow}.wrong"), &wrong);
    let (code, error) = world.refusal(format!("workflow deploy {workflow} --definition {wrong}"));
    assert_eq!(code, 1, "{error}");
    assert_tells(&error, &["form.title", "form.fields[2].type"]);
    assert_eq!(acme.order("deploy", "")["state"], "deployed");
    let (url, token) = acme.link("", "");
    assert_eq!(url, format!("{base}/forms?token={token}"));
    let (elsewhere, second) = acme.link(" --app-url https://app.example.com/", " --yes");
    let app = "https://app.example.com/forms?token=";
    assert_eq!(elsewhere, format!("{app}{second}"));
    let file = command_file(&format!("{workflow}.payload"), &payload().to_string());
    // The first link is dead.
    world.assert_refused(format!("send form --url {url} {file}"), "404");
}

#[tokio::test]
async fn what_is_sent_to_a_form_becomes_runs() {
    let acme = Acme::new().await;
    let (world, workspace) = (&acme.world, &acme.workspace);
    let deployed = acme.order("deploy", "");
    let (url, _) = acme.link("", "");
    let file = command_file(&format!("{workspace}.payload"), &payload().to_string());
    for _ in 0..2 {
        let sent = world.order(format!("send form --url {url} --idempotency-key k {file}"));
        let expected = json!({"answer": {"status": "accepted"}, "idempotency_key": "k"});
        assert_holds(&sent, expected);
    }
    world.await_runs(1).await;
    world.order(format!("send form --url {url} {file}"));
    world.await_runs(2).await;
    world.await_state("succeeded", 1).await;
    let runs = acme.runs("");
    let refused = json!({"state": "refused", "refused_reason": "allowance_exhausted"});
    assert_holds(&runs[0], refused);
    assert_holds(&runs[1], json!({"state": "succeeded", "run_as": acme.user}));
    assert_eq!(acme.runs(&format!("--workflow {}", acme.workflow)), runs);
    assert_eq!(acme.runs("--limit 1")[0], runs[0], "newest first");
    let run = world.order(format!("run show {}", text(&runs[1]["run_id"])));
    assert_eq!(run["input_trust"], "untrusted");
    assert_eq!(run["input"], payload());
    assert_eq!(run["release_id"], deployed["release_id"]);

    let usage = world.order(format!("workspace usage {workspace}"));
    assert_holds(&usage, json!({"run_allowance": 1, "runs_started": 1}));
    let lifting = format!("workspace settings {workspace} --run-allowance unlimited");
    let unlimited = world.order(lifting);
    assert_eq!(unlimited["run_allowance"], Value::Null);
    acme.order("delete", "--yes");
    assert_eq!(acme.runs("").as_array().unwrap().len(), 2, "runs stay");
}

#[tokio::test]
async fn a_workflow_is_moved_and_deleted() {
    let acme = Acme::new().await;
    let (world, workflow) = (&acme.world, &acme.workflow);
    acme.order("deploy", "");
    acme.link("", "");
    for (verb, state) in [
        ("pause", "paused"),
        ("activate", "deployed"),
        ("activate", "deployed"),
        ("draft", "draft"),
    ] {
        assert_eq!(acme.order(verb, "--yes")["state"], state);
        let shown = acme.order("show", "");
        assert_eq!(shown["form_link_id"], Value::Null, "no link survives");
    }
    world.assert_refused(format!("workflow pause {workflow}"), "draft");
    let definition = command_file(&format!("{workflow}.definition"), DEFINITION);
    acme.order("deploy", &format!("--definition {definition}"));
    let shown = acme.order("show", "");
    let second = json!({"release_number": 2, "definition": {"form": {"title": "Contact us"}}});
    assert_holds(&shown, second);
    assert_eq!(acme.order("delete", "")["state"], "deleted");
    for verb in ["deploy", "activate", "pause", "draft", "delete"] {
        world.assert_refused(format!("workflow {verb} {workflow}"), "");
    }
    let listed = world.order(format!("workflow list --workspace {}", acme.workspace));
    assert_eq!(listed[0]["state"], "deleted");
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
        "workspace usage NOBODY",
        "policy show NOBODY",
        "account list --workspace NOBODY",
        "account disconnect NOBODY --yes",
        "approval list --workspace NOBODY",
        "approval approve NOBODY --by NOBODY",
        "workspace settings NOBODY --run-allowance 1",
        "workspace create --name x --run-allowance 3000000000",
        "workflow deploy NOBODY --definition /nowhere/at/all",
        "send form --url http://127.0.0.1:1/elsewhere /dev/null",
        "workspace create --name \u{3000}",
        "user create --email nobody --name x",
        "workspace usage 0000",
        "workspace create --name all",
    ] {
        let (code, error) = world.refusal(nobody(command));
        assert_eq!(code, 1, "{command}: {error}");
        assert!(error.starts_with("letterbox: "), "{error}");
        assert_hides(&error, &["SQLSTATE"]);
    }
    for command in [
        "workspace",
        "workspace usage ",
        "webhook delete x",
        "workspace create --name x --run-allowance -1",
        "workspace settings NOBODY --run-allowance many",
        "account connect --workspace NOBODY --user NOBODY --name x --base-url http://x",
        "member set --workspace NOBODY --user NOBODY --role king",
        "--database-url canary workspace list",
    ] {
        let (code, error) = world.refusal(nobody(command));
        assert_eq!(code, 2, "{command}: {error}");
        assert!(!error.contains("canary"), "{error}");
    }
    world.order("user create --email a@example.com --name x");
    world.assert_refused("user create --email A@example.com --name x", "");
}

/// What a deploy would do is said before; a link is ended, a workflow given to another member, and
/// somebody who leaves loses all rights.
#[tokio::test]
async fn links_end_and_workflows_change_hands() {
    let (world, _gateway, form) = World::with_form().await;
    let (workspace, workflow) = (form.workspace, form.workflow);
    let wrong = command_file(&format!("{workflow}.wrong.json"), r#"{"form": {}}"#);
    world.assert_refused(format!("workflow check {wrong}"), "");
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
    world.assert_refused(format!("form-link end {workflow} --yes"), "");
    let shown = world.order(format!("workflow show {workflow}"));
    assert_eq!(shown["state"], "deployed");

    let bob = format!("bob-{workflow}@example.com");
    world.order(format!("user create --email {bob} --name Bob"));
    let transfer = format!("workflow transfer {workflow} --to {bob} --yes");
    assert_eq!(world.refusal(&transfer).0, 1, "not a member");
    let join = format!("member set --workspace {workspace} --user {bob} --role editor");
    world.order(join);
    let living = async || {
        let link = world.order(format!("form-link create {workflow}"));
        let living = form.with_token(link["token"].as_str().unwrap());
        living.assert_lives().await;
        living
    };
    let first = living().await;
    let given = world.order(&transfer);
    assert_ne!(given["owner_id"], json!(form.owner));
    first.assert_dead().await;
    let second = living().await;
    let deactivated = world.order(format!("user deactivate {bob} --yes"));
    assert!(deactivated[0]["deactivated_at"].is_string());
    second.assert_dead().await;
}

/// A tool that makes its secret when it knows the address: nothing is accepted before it is set.
#[tokio::test]
async fn a_secret_is_set_later() {
    let (world, gateway) = World::with_gateway().await;
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
    world.assert_refused(late, "");
    assert_eq!(with("a third one, too late").send("3").await.status, 401);
}
