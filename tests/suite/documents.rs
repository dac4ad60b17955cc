//! Workspaces from files: planned, applied as a whole, exported, and applied elsewhere.

use std::{collections::BTreeSet, fmt::Write as _};

use letterbox_database::Role;
use letterbox_tests::{
    Form, Process, World, command_file, definition_with, eventually, folder, one_of, post,
    problems_of_definition, problems_of_documents, problems_of_policy,
};
use serde_json::{Value, json};

/// One with an action, about which a policy decides.
fn definition() -> Value {
    serde_json::from_str(&definition_with(json!([post("send")]))).unwrap()
}

/// All kinds of documents.
fn acme() -> Value {
    json!([
        {"kind": "workspace", "name": "Acme", "run_allowance": 1000, "retry_attempts": 5,
         "retry_first_milliseconds": 200, "keep_answers": true, "is_searchable": false,
         "notify_by_email": true},
        {"kind": "member", "email": "ada@example.com", "name": "Ada", "role": "owner"},
        {"kind": "member", "email": "bob@example.com", "name": "Bob", "role": "editor",
         "is_deactivated": true},
        {"kind": "policy", "policy": {"rules": [
            {"when": {"method": ["DELETE"]}, "decision": "deny"}], "default": "approve"}},
        {"kind": "workflow", "name": "Leads", "owner": "ada@example.com", "state": "deployed",
         "definition": definition()},
        {"kind": "workflow", "name": "Draft", "owner": "ada@example.com", "state": "draft",
         "definition": definition()},
        {"kind": "workflow", "name": "Paused", "owner": "ada@example.com", "state": "paused",
         "definition": definition()},
        {"kind": "webhook", "name": "crm", "kept_headers": ["x-topic"]},
        {"kind": "webhook", "name": "pay", "tool": "standard-webhooks", "same_by": "id",
         "allow_from": "192.0.2.0/24"},
        {"kind": "webhook", "name": "own", "tool": "custom", "rules": {"header": "x-acme-sign",
         "prefix": "sig=", "encoding": "base64", "secret": "hex", "signed": "{body}"}},
        {"kind": "subscription", "queue": "acme.crm", "webhook": "crm",
         "signal_kind": "proposal.won"},
        {"kind": "subscription", "queue": "acme.all", "is_paused": true},
    ])
}

/// The document of a kind and a name.
fn of<'a>(documents: &'a mut Value, kind: &str, name: &str) -> &'a mut Value {
    let all = documents.as_array_mut().unwrap().iter_mut();
    let names = ["name", "email", "queue"];
    all.into_iter()
        .find(|one| one["kind"] == kind && names.iter().any(|member| one[*member] == name))
        .unwrap()
}

struct Files<'w> {
    world: &'w World,
    prefix: String,
}

impl<'w> Files<'w> {
    fn of(world: &'w World) -> Self {
        let prefix = uuid::Uuid::new_v4().simple().to_string();
        Self { world, prefix }
    }

    fn command(&self, documents: &Value, more: &str) -> String {
        let name = command_file(&format!("{}.json", self.prefix), &documents.to_string());
        format!("apply {name} {more}")
    }

    fn settings(&self) -> [(&str, &str); 1] {
        [("AMQP_URL", &self.world.amqp_url)]
    }

    fn apply(&self, documents: &Value, more: &str) -> Value {
        let command = self.command(documents, more);
        self.world.order_with(&self.settings(), command.trim_end())
    }

    /// Everything is as these documents say.
    fn assert_so(&self, documents: &Value, more: &str) {
        let plan = self.apply(documents, format!("{more} --plan").trim_start());
        assert_eq!(plan["steps"], json!([]));
    }

    /// Gives what is told, in which this is.
    fn assert_refused(&self, documents: &Value, more: &str, why: &str) -> String {
        let command = self.command(documents, more);
        let output = self
            .world
            .letterbox_with(&self.settings(), command.trim_end());
        assert!(!output.status.success());
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(why), "{why}: {told}");
        told
    }
}

/// The documents of the workspace Acme that say no more of it than its name, and these.
fn acme_with<const N: usize>(more: [Value; N]) -> Value {
    let workspace = json!({"kind": "workspace", "name": "Acme"});
    [workspace].into_iter().chain(more).collect()
}

/// What each step does, to what.
fn steps(told: &Value) -> Vec<String> {
    let steps = told["steps"].as_array().unwrap().iter();
    let text = |step: &Value, member: &str| step[member].as_str().unwrap().to_owned();
    steps
        .map(|step| {
            let mut told = text(step, "verb");
            let _ = write!(told, " {} {}", text(step, "kind"), text(step, "name"));
            told.trim_end().to_owned()
        })
        .collect()
}

/// The form of a workflow that a file has deployed.
fn form_of(world: &World, gateway: &Process, workflow: &str) -> Form {
    let found = world.order(format!("workflow show {workflow}"));
    let id = |member: &str| found[member].as_str().unwrap().to_owned();
    let link = world.order(format!("form-link create {}", id("workflow_id")));
    Form::new(
        &gateway.public_url(),
        id("workspace_id").parse().unwrap(),
        id("owner_id").parse().unwrap(),
        id("workflow_id").parse().unwrap(),
        link["token"].as_str().unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_as_its_file_says() {
    let world = World::new().await;
    let (gateway, files) = (world.gateway().await, Files::of(&world));
    let mut wanted = acme();
    assert_eq!(problems_of_documents(&wanted), [""; 0]);
    let plan = files.apply(&wanted, "--plan");
    assert_eq!(plan["is_applied"], false);
    let policy = &one_of(&plan["steps"], "kind", "policy")["changes"];
    let told = "send of Leads: allow -> approve".into();
    assert!(policy.as_array().unwrap().contains(&told), "{policy}");
    assert_eq!(steps(&plan).len(), 12);
    assert_eq!(
        world.order("workspace list"),
        json!([]),
        "a plan makes nothing"
    );
    files.assert_refused(&wanted, "", "create workspace Acme");
    let applied = files.apply(&wanted, "--yes");
    assert_eq!(applied["steps"], plan["steps"], "as it was planned");
    let made = applied["webhooks"].as_array().unwrap();
    assert_eq!(made.len(), 3);
    assert!(made.iter().all(|webhook| webhook["secret"].is_string()));
    let shown = world.order_with(&files.settings(), "signal subscriptions --workspace Acme");
    assert_eq!(shown[1]["queue"], "acme.crm");
    assert_eq!(world.messages("acme.crm").await, 0, "the queue is there");

    // The same again changes nothing, and the link lives.
    let form = form_of(&world, &gateway, "Leads");
    assert_eq!(files.apply(&wanted, "--yes")["steps"], json!([]));
    form.assert_lives().await;

    // Another form ends the link, and the plan says so before.
    of(&mut wanted, "workflow", "Leads")["definition"]["form"]["title"] = "Other".into();
    let plan = files.apply(&wanted, "--plan");
    assert_eq!(steps(&plan), ["change workflow Leads"]);
    let ends = plan["steps"][0]["ends"][0].as_str().unwrap();
    assert!(ends.contains("form link"), "{ends}");
    form.assert_lives().await;
    files.assert_refused(&wanted, "", "ENDS the form link");
    files.apply(&wanted, "--yes");
    eventually("the link is dead", async || form.read().await.status != 200).await;
    form.assert_dead().await;

    // What can be another in place.
    of(&mut wanted, "webhook", "crm")["kept_headers"] = json!(["x-topic", "x-shop"]);
    of(&mut wanted, "webhook", "pay")["allow_from"] = Value::Null;
    of(&mut wanted, "member", "bob@example.com")["role"] = "viewer".into();
    of(&mut wanted, "workspace", "Acme")["run_allowance"] = Value::Null;
    of(&mut wanted, "subscription", "acme.all")["is_paused"] = false.into();
    of(&mut wanted, "workflow", "Draft")["definition"]["form"]["title"] = "Later".into();
    of(&mut wanted, "workflow", "Paused")["state"] = "deployed".into();
    let changed = files.apply(&wanted, "--yes");
    let expected = [
        "change workspace Acme",
        "change member bob@example.com",
        "change workflow Draft",
        "change workflow Paused",
        "change webhook crm",
        "change webhook pay",
        "change subscription acme.all",
    ];
    assert_eq!(steps(&changed), expected);
    let told = changed["steps"][4]["changes"][0].as_str().unwrap();
    assert!(told.contains("x-shop"), "{told}");
    files.assert_so(&wanted, "");
    // A member who may run nothing any more loses the links.
    let lost = form_of(&world, &gateway, "Leads");
    let mut fewer = wanted.clone();
    of(&mut fewer, "member", "ada@example.com")["role"] = "viewer".into();
    let plan = files.apply(&fewer, "--plan");
    assert_eq!(steps(&plan), ["change member ada@example.com"]);
    let ends = plan["steps"][0]["ends"][0].as_str().unwrap();
    assert!(ends.contains("the form link of Leads"), "{ends}");
    lost.assert_lives().await;
    let members = world.order("member list --workspace Acme");
    let bob = &members[1];
    assert_eq!(bob["role"], "viewer");
    assert!(
        bob["deactivated_at"].is_string(),
        "nobody has said otherwise"
    );
    let audited = world.order("audit list --limit 200");
    let orders = audited.as_array().unwrap().iter();
    assert!(orders.clone().count() > 15);
    assert!(orders.into_iter().any(|entry| entry["command"] == "apply"));
}

/// One mistake anywhere, and nothing is done in that workspace.
#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_changes_nothing() {
    let world = World::new().await;
    let files = Files::of(&world);
    files.apply(&acme(), "--yes");
    let before = world.order("workspace export Acme");
    let audited = || {
        world
            .order("audit list --limit 1000")
            .as_array()
            .unwrap()
            .len()
    };
    let orders = audited();
    let workspace = json!({"kind": "workspace", "name": "Acme", "run_allowance": 1});
    let webhook = json!({"kind": "webhook", "name": "new"});
    let link = format!("{}.link", files.prefix);
    std::os::unix::fs::symlink("/etc/hostname", folder().join(&link)).unwrap();
    let leads = |owner: &str, state: &str, definition: Value| {
        json!({"kind": "workflow", "name": "Leads", "owner": owner, "state": state,
            "definition": definition})
    };
    let ada = "ada@example.com";
    let formless = json!({"form": {}, "actions": []});
    let secret = |from: Value| json!({"kind": "webhook", "name": "x", "secret": from});
    let pay = |member: &str, value: &str| json!({"kind": "webhook", "name": "pay", member: value});
    let rules = json!({"header": "x", "encoding": "hex", "signed": "{time}.{body}"});
    let custom = json!({"kind": "webhook", "name": "x", "tool": "custom", "rules": rules});
    let of_nobody = "LETTERBOX_SECRET_OF_NOBODY";
    let beside = "in no file beside the document";
    let subscription =
        |queue: &str, of: &str| json!({"kind": "subscription", "queue": queue, "webhook": of});
    for (mistake, why) in [
        (
            leads("nobody@example.com", "deployed", definition()),
            "no member",
        ),
        (leads(ada, "deployed", formless), "form.title"),
        (leads(ada, "deleted", definition()), "--prune"),
        (pay("tool", "github"), "tool"),
        (custom, "unknown placeholder {time}"),
        (pay("same_by", "body"), "same_by"),
        (webhook.clone(), "two documents"),
        (secret(json!({"file": "nowhere"})), "nowhere: No such file"),
        (
            secret(json!({"environment": of_nobody})),
            "LETTERBOX_SECRET_OF_NOBODY is not set",
        ),
        // Nothing else that this process can read is sealed into what a document names.
        (
            secret(json!({"environment": "DATABASE_URL"})),
            "begins with LETTERBOX_SECRET_",
        ),
        (secret(json!({"file": "/etc/hostname"})), beside),
        (secret(json!({"file": "a/../../b"})), beside),
        (secret(json!({"file": link})), beside),
        (
            json!({"kind": "webhook", "name": "x", "secrets": 1}),
            "document 3: unknown field",
        ),
        (subscription("acme.all", "crm"), "already"),
        (subscription("x", "none"), "no webhook"),
        (json!({"kind": "policy", "policy": {"rules": []}}), "policy"),
        (
            json!({"kind": "form", "name": "x"}),
            "document 3: unknown variant",
        ),
    ] {
        let documents = json!([workspace, webhook, mistake]);
        for how in ["--yes", "--plan"] {
            files.assert_refused(&documents, how, why);
        }
    }
    files.assert_refused(&json!([webhook]), "--yes", "which workspace");
    assert_eq!(world.order("workspace export Acme"), before);
    assert_eq!(audited(), orders, "not even the log knows of it");
}

/// What was exported and applied to an empty installation is the same there.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_makes_the_same_elsewhere() {
    let (here, there) = (World::new().await, World::new().await);
    let _workers = (here.worker().await, there.worker().await);
    let mut wanted = acme();
    let url = "https://crm.example.com/hook";
    let posted = json!({"kind": "subscription", "url": url, "in_flight": 4, "is_paused": true,
        "where": ["/a=b=c"]});
    wanted.as_array_mut().unwrap().push(posted);
    let made = Files::of(&here).apply(&wanted, "--yes");
    let signing = &made["subscriptions"][0];
    assert_eq!(signing["url"], url);
    assert!(signing["secret"].as_str().unwrap().starts_with("whsec_"));
    let exported = here.order("workspace export Acme");
    assert_eq!(problems_of_documents(&exported), [""; 0]);
    // Everything that can be said is, but where a secret is: else it would be lost on the way.
    let schema: Value = serde_json::from_str(letterbox_operator::DOCUMENT_SCHEMA).unwrap();
    let members = |value: &Value| Vec::from_iter(value.as_object().unwrap().keys().cloned());
    let kinds = "workspace member policy workflow webhook subscription";
    for kind in kinds.split(' ') {
        let mut allowed = members(&schema["$defs"][kind]["properties"]);
        allowed.retain(|member| !["$schema", "secret"].contains(&member.as_str()));
        let documents = exported.as_array().unwrap().iter();
        let documents = documents.filter(|one| one["kind"] == kind);
        let said: BTreeSet<String> = documents.flat_map(members).collect();
        assert_eq!(said, BTreeSet::from_iter(allowed), "{kind}");
    }
    Files::of(&here).assert_so(&exported, "");
    let text = exported.to_string();
    for made in made["webhooks"].as_array().unwrap().iter().chain([signing]) {
        assert!(!text.contains(made["secret"].as_str().unwrap()), "{text}");
    }
    // What may change without another secret.
    let changed = |member: &str, value: Value| {
        let mut changed = exported.clone();
        let all = changed.as_array_mut().unwrap().iter_mut();
        { all }.find(|one| one["url"] == url).unwrap()[member] = value;
        changed
    };
    let told = Files::of(&here).apply(&changed("in_flight", 5.into()), "--yes");
    assert_eq!(told["steps"][0]["changes"], json!(["in_flight: 4 -> 5"]));
    assert_eq!(told["subscriptions"], json!([]));
    for (member, value) in [("queue", json!("q")), ("in_flight", json!(33))] {
        let why = "a subscription is to a queue or to a URL";
        Files::of(&here).assert_refused(&changed(member, value), "--plan", why);
    }
    let elsewhere = changed("where", json!(["/a=c"]));
    Files::of(&here).assert_refused(&elsewhere, "--plan", "to other signals");
    let other = changed("url", "https://crm.example.com/other".into());
    let plan = Files::of(&here).apply(&other, "--plan --prune");
    let last = plan["steps"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["name"], &last["ends"]),
        (&json!(url), &json!(["its secret"]))
    );
    let files = Files::of(&there);
    files.apply(&exported, "--yes");
    files.assert_so(&exported, "");
    assert_eq!(there.order("workspace export Acme"), exported);
    // Into another workspace, by its name on the command line.
    there.order("workspace create --name Copy");
    let mut few = exported.clone();
    few.as_array_mut()
        .unwrap()
        .retain(|one| one["kind"] != "subscription");
    files.apply(&few, "--workspace Copy --yes");
    files.assert_so(&few, "--workspace Copy");
}

/// What no document names is left alone, and deleted only where that is wanted.
#[tokio::test(flavor = "multi_thread")]
async fn only_pruning_deletes() {
    let world = World::new().await;
    let (gateway, files) = (world.gateway().await, Files::of(&world));
    files.apply(&acme(), "--yes");
    let form = form_of(&world, &gateway, "Leads");
    let mut few = acme();
    let kept = |one: &Value| {
        ["workspace", "subscription"].contains(&one["kind"].as_str().unwrap())
            || [json!("Draft"), json!("crm")].contains(&one["name"])
    };
    few.as_array_mut().unwrap().retain(kept);
    few.as_array_mut().unwrap().pop();
    files.assert_so(&few, "");
    let expected = [
        "delete subscription acme.all",
        "delete webhook pay",
        "delete webhook own",
        "delete workflow Paused",
        "delete workflow Leads",
    ];
    let plan = files.apply(&few, "--prune --plan");
    assert_eq!(steps(&plan), expected);
    assert_eq!(plan["steps"][4]["ends"].as_array().unwrap().len(), 1);
    form.assert_lives().await;
    assert_eq!(steps(&files.apply(&few, "--prune --yes")), expected);
    form.assert_dead().await;
    let members = world.order("member list --workspace Acme");
    assert_eq!(
        members.as_array().unwrap().len(),
        2,
        "no document names a member"
    );
    files.assert_so(&few, "--prune");
}

/// A webhook that is being replaced ends with its successor, or it would go on.
#[tokio::test(flavor = "multi_thread")]
async fn pruning_a_successor_ends_both() {
    let world = World::new().await;
    let files = Files::of(&world);
    let webhook = |name: &str| json!({"kind": "webhook", "name": name});
    files.apply(&acme_with([webhook("old"), webhook("kept")]), "--yes");
    let listed = world.order("webhook list --workspace Acme");
    let old = one_of(&listed, "name", "old")["webhook_id"].as_str();
    let old = old.unwrap();
    world.order(format!("webhook replace {old} --overlap 1h"));
    let few = acme_with([webhook("kept")]);
    let pruned = files.apply(&few, "--prune --yes");
    assert_eq!(steps(&pruned), ["delete webhook old"]);
    files.assert_so(&few, "--prune");
    let listed = world.order("webhook list --workspace Acme");
    let living = listed.as_array().unwrap().iter();
    let living = living.filter(|one| one["deleted_at"].is_null());
    assert_eq!(living.count(), 1);
    // Two of one name can't be told apart.
    world.order("webhook create --workspace Acme --name kept");
    files.assert_refused(&few, "--plan", "more than one webhook");
    let (_, told) = world.refusal("workspace export Acme");
    assert!(told.contains("more than one webhook"), "{told}");
}

/// Nothing in a file is passed over, and nothing is begun that the broker would not let end.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_refused() {
    let world = World::new().await;
    let prefix = uuid::Uuid::new_v4().simple().to_string();
    let beside = "[[documents]]\nkind = \"workspace\"\nname = \"A\"\n[[document]]\nx = 1";
    let workspace = r#"{"kind": "workspace", "name": "A"}"#;
    let policy = r#"{"rules": [], "default": "deny", "default": "allow"}"#;
    let policy = format!(r#"[{workspace}, {{"kind": "policy", "policy": {policy}}}]"#);
    let twice = format!(r#"[{workspace}, {{"kind": "webhook", "name": "w"}}, {workspace}]"#);
    for (extension, text, why) in [
        ("toml", beside, "beside"),
        (
            "json",
            &workspace.replace('}', r#", "name": "B"}"#),
            "twice",
        ),
        ("json", &policy, "twice"),
        ("json", &twice, "another document"),
    ] {
        let file = command_file(&format!("{prefix}.{extension}"), text);
        let (_, told) = world.refusal(format!("apply {file} --yes"));
        assert!(told.contains(why), "{told}");
    }
    let subscribed = json!([{"kind": "workspace", "name": "A"}, {"kind": "webhook", "name": "w"},
        {"kind": "subscription", "queue": "q"}]);
    let file = command_file(&format!("{prefix}.json"), &subscribed.to_string());
    let away = [("AMQP_URL", "amqp://u:p@127.0.0.1:9/v")];
    let output = world.letterbox_with(&away, format!("apply {file} --yes"));
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert_eq!(
        world.order("workspace list"),
        json!([]),
        "nothing was begun"
    );
}

/// Several files, TOML, and secrets that are elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_json_or_toml_and_name_secrets() {
    let world = World::new().await;
    let prefix = uuid::Uuid::new_v4().simple().to_string();
    let secret = command_file(&format!("{prefix}.secret"), "a-secret-of-a-tool\n");
    let toml = format!(
        r#"
[[documents]]
kind = "workspace"
name = "Toml"
notify_by_email = true

[[documents]]
kind = "webhook"
name = "given"
secret = {{ file = "{secret}" }}

[[documents]]
kind = "webhook"
name = "later"
tool = "stripe"
secret = "later"
"#
    );
    let first = command_file(&format!("{prefix}.toml"), &toml);
    let more = json!([
        {"$schema": "x", "kind": "webhook", "name": "variable",
         "secret": {"environment": "LETTERBOX_SECRET_OF_A_TOOL"}},
        {"kind": "workspace", "name": "Second"},
    ]);
    let second = command_file(&format!("{prefix}.json"), &more.to_string());
    let settings = [("LETTERBOX_SECRET_OF_A_TOOL", "another-secret-of-a-tool")];
    let command = format!("apply {first} {second} --yes");
    let applied = world.order_with(&settings, &command);
    assert_eq!(applied["webhooks"].as_array().unwrap().len(), 3);
    let shown = applied.to_string();
    assert!(!shown.contains("-of-a-tool"), "{shown}");
    assert_eq!(world.order_with(&settings, &command)["steps"], json!([]));
    let webhooks = world.order("webhook list --workspace Toml");
    assert_eq!(one_of(&webhooks, "name", "later")["awaits_secret"], true);
    assert_eq!(world.order("webhook list --workspace Second"), json!([]));
    // The secret that was given signs.
    let gateway = world.gateway().await;
    let url = applied["webhooks"][0]["url"].as_str().unwrap();
    let path = url::Url::parse(url).unwrap().path().to_owned();
    let signature = letterbox_tests::sign("a-secret-of-a-tool", b"{}");
    let sending = letterbox_tests::http_client()
        .post(gateway.public_url() + &path)
        .header("content-type", "application/json")
        .header("x-service-signature", signature)
        .body("{}");
    assert_eq!(sending.send().await.unwrap().status(), 202);
}

/// The printed schemas are those that the suite holds everything against; they refuse what the
/// programs refuse, and the definitions in the tree name them.
#[test]
fn schemas_say_what_the_programs_take() {
    let good = definition();
    let change = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        value.to_string()
    };
    assert_eq!(problems_of_definition(&good.to_string()), [""; 0]);
    let action = |action: Value| change(&|value| value["actions"] = json!([action]));
    for bad in [
        change(&|value| value["more"] = 1.into()),
        change(&|value| value["form"]["title"] = " ".into()),
        change(&|value| value["form"]["title"] = "x".repeat(121).into()),
        change(&|value| value["form"]["fields"] = json!([])),
        change(&|value| value["form"]["fields"][0]["type"] = "date".into()),
        change(&|value| value["page"] = json!({"locale": "xx"})),
        change(&|value| value["spam_defence"] = json!({"least_seconds": 61})),
        action(json!({"id": "a", "type": "nothing"})),
        action(json!({"id": "a", "type": "delay", "for": "2h"})),
        action(
            json!({"id": "a", "type": "http.request", "account": "x", "method": "get",
            "path": "/"}),
        ),
        action(json!({"id": "a", "type": "condition", "if": "true", "question": "?"})),
    ] {
        assert!(!problems_of_definition(&bad).is_empty(), "{bad}");
        assert!(
            letterbox_workflow::Definition::check(&bad).is_err(),
            "{bad}"
        );
    }
    for (policy, is_good) in [
        (json!({"rules": [], "default": "allow"}), true),
        (
            json!({"$schema": "x", "rules": [], "default": "deny", "approve_by": "another"}),
            true,
        ),
        (
            json!({"rules": [{"when": {"method": []}, "decision": "deny"}], "default": "allow"}),
            false,
        ),
        (
            json!({"rules": [{"when": {"action": "delay"}, "decision": "deny"}],
            "default": "allow"}),
            false,
        ),
        (json!({"rules": []}), false),
        (json!({"rules": [], "default": "maybe"}), false),
    ] {
        assert_eq!(problems_of_policy(&policy).is_empty(), is_good, "{policy}");
        let parsed = letterbox_workflow::Policy::parse(&policy.to_string());
        assert_eq!(parsed.is_ok(), is_good, "{policy}");
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in [
        "deploy/lib/demo-workflow.json",
        "worker/desk/static/definition.json",
    ] {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        assert_eq!(problems_of_definition(&text), [""; 0], "{name}");
        let value: Value = serde_json::from_str(&text).unwrap();
        if let Some(schema) = value["$schema"].as_str() {
            let folder = root.join(name);
            assert!(
                folder.parent().unwrap().join(schema).is_file(),
                "{name}: {schema}"
            );
        }
    }
    let printed = std::process::Command::new(letterbox_tests::binary("letterbox"))
        .args(["schema", "definition"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(
        printed.stdout,
        letterbox_workflow::DEFINITION_SCHEMA.as_bytes()
    );
}

/// A plan reads what somebody keeps locked, and is not able to write or to lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_changes_and_locks_nothing() {
    let (world, gateway, _worker) = World::with_both().await;
    let files = Files::of(&world);
    let mut wanted = acme();
    of(&mut wanted, "workspace", "Acme")["is_searchable"] = true.into();
    files.apply(&wanted, "--yes");
    let form = form_of(&world, &gateway, "Leads");
    world.submit_until(&form, "a", "failed", 1).await;
    // Of every kind something is new, another or gone.
    of(&mut wanted, "workspace", "Acme")["is_searchable"] = false.into();
    of(&mut wanted, "member", "ada@example.com")["role"] = "viewer".into();
    of(&mut wanted, "member", "bob@example.com")["is_deactivated"] = false.into();
    for name in ["Leads", "Draft"] {
        let workflow = of(&mut wanted, "workflow", name);
        workflow["owner"] = "bob@example.com".into();
        workflow["definition"]["form"]["title"] = "Other".into();
    }
    of(&mut wanted, "webhook", "crm")["allow_from"] = "192.0.2.0/24".into();
    of(&mut wanted, "subscription", "acme.all")["is_paused"] = false.into();
    let all = wanted.as_array_mut().unwrap();
    let gone = [json!("own"), json!("Paused"), json!("acme.crm")];
    all.retain(|one| !gone.contains(&one["name"]) && !gone.contains(&one["queue"]));
    for one in all.iter_mut().filter(|one| one["kind"] == "policy") {
        one["policy"]["default"] = "deny".into();
    }
    all.push(json!({"kind": "webhook", "name": "new"}));
    all.push(json!({"kind": "subscription", "queue": "acme.new", "webhook": "new"}));
    let everything = "BEGIN; SELECT FROM workspaces FOR UPDATE; SELECT FROM members FOR UPDATE;
        SELECT FROM users FOR UPDATE; SELECT FROM policies FOR UPDATE;
        SELECT FROM workflows FOR UPDATE; SELECT FROM releases FOR UPDATE;
        SELECT FROM form_links FOR UPDATE; SELECT FROM webhooks FOR UPDATE;
        SELECT FROM subscriptions FOR UPDATE; SELECT FROM runs FOR UPDATE";
    let holding = world.session(Role::Login).await;
    holding.batch_execute(everything).await.unwrap();
    let planned = files.apply(&wanted, "--prune --plan");
    holding.batch_execute("ROLLBACK").await.unwrap();
    let policy = &one_of(&planned["steps"], "kind", "policy")["changes"];
    assert_eq!(policy[1], "send of Leads: approve -> deny", "{policy}");
    let separator = if world.database_url.contains('?') {
        '&'
    } else {
        '?'
    };
    let reading = "options=-c%20default_transaction_read_only%3Don";
    let url = format!("{}{separator}{reading}", world.database_url);
    let settings = [
        ("AMQP_URL", world.amqp_url.as_str()),
        ("DATABASE_URL", &url),
    ];
    let plan = files.command(&wanted, "--prune --plan");
    assert_eq!(world.order_with(&settings, &plan), planned);
    let refused = world.letterbox_with(&settings, files.command(&wanted, "--prune --yes"));
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("read-only"), "{refused}");
    form.assert_lives().await;
    let applied = files.apply(&wanted, "--prune --yes");
    assert_eq!(applied["steps"], planned["steps"]);
    files.assert_so(&wanted, "--prune");
}

/// What could not be done is refused before anything is.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_finds_what_the_database_would_refuse() {
    let world = World::new().await;
    let files = Files::of(&world);
    files.apply(&acme(), "--yes");
    world.order("webhook create --workspace Acme --name twice");
    world.order("webhook create --workspace Acme --name twice");
    let many = |network: &str| vec![network; 400].join(",");
    let policy = json!({"rules": [], "default": "deny", "$schema": "x".repeat(262_144)});
    let crm = json!({"kind": "webhook", "name": "crm", "allow_from": many("192.0.2.1/32")});
    let paused = json!({"kind": "workflow", "name": "Paused", "owner": "bob@example.com",
        "state": "paused", "definition": definition()});
    let queue = |name: &str| json!({"kind": "subscription", "queue": name});
    let twice = json!({"kind": "subscription", "queue": "q", "webhook": "twice"});
    let policy = json!({"kind": "policy", "policy": policy});
    for (workspace, mistake, why) in [
        ("Acme", twice, "more than one webhook"),
        ("Other", queue("acme.all"), "has a subscription"),
        ("Acme", crm, "at most 4096"),
        ("Other", policy, "at most 262144"),
        ("Acme", paused, "may run"),
    ] {
        let documents = json!([{"kind": "workspace", "name": workspace}, mistake]);
        files.assert_refused(&documents, "--plan", why);
    }
    let attempts = json!([{"kind": "workspace", "name": "Other", "retry_attempts": 31}]);
    files.assert_refused(&attempts, "--plan", "1 to 30 times");
}

/// Who comes back has the accounts that they had.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_knows_the_accounts_of_who_comes_back() {
    let world = World::new().await;
    let files = Files::of(&world);
    let ada = json!({"kind": "member", "email": "ada@example.com", "role": "owner"});
    let few = acme_with([ada.clone()]);
    files.apply(&few, "--yes");
    let token = command_file(&format!("{}.token", files.prefix), "a-token-of-a-crm");
    world.order(format!(
        "account connect --workspace Acme --user ada@example.com --name crm \
         --base-url https://crm.example --bearer-file {token}"
    ));
    world.order("member remove --workspace Acme --user ada@example.com");
    let leads = json!({"kind": "workflow", "name": "Leads", "owner": "ADA@example.com",
        "state": "deployed", "definition": definition()});
    let wanted = acme_with([ada, leads]);
    let plan = files.apply(&wanted, "--plan");
    assert_eq!(
        steps(&plan),
        ["create member ada@example.com", "create workflow Leads"]
    );
    assert_eq!(plan["steps"][1]["warnings"], json!([]));
    files.apply(&wanted, "--yes");
    files.assert_so(&wanted, "");
}

/// What was seen in a plan and is another when it is carried out ends that: no link dies that
/// nobody was told of.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_made_after_the_plan_lives() {
    let world = World::new().await;
    let (gateway, files) = (world.gateway().await, Files::of(&world));
    files.apply(&acme(), "--yes");
    let mut wanted = acme();
    of(&mut wanted, "workspace", "Acme")["run_allowance"] = 7.into();
    of(&mut wanted, "workflow", "Leads")["definition"]["form"]["title"] = "Other".into();
    let holding = world.session(Role::Login).await;
    let held = "BEGIN; SELECT FROM workspaces FOR NO KEY UPDATE";
    holding.batch_execute(held).await.unwrap();
    let applying = files.command(&wanted, "--yes");
    let form = std::thread::scope(|scope| {
        let applying = scope.spawn(|| world.letterbox_with(&files.settings(), &applying));
        let runtime = tokio::runtime::Handle::current();
        let meanwhile = async {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                AND datname = current_database() AND application_name = 'letterbox'";
            world.await_count("it has been compared", waits, 1).await;
            let form = form_of(&world, &gateway, "Leads");
            holding.batch_execute("ROLLBACK").await.unwrap();
            form
        };
        let form = tokio::task::block_in_place(|| runtime.block_on(meanwhile));
        let told = String::from_utf8(applying.join().unwrap().stderr).unwrap();
        assert!(told.contains("look at the plan again"), "{told}");
        form
    });
    form.assert_lives().await;
    let plan = files.apply(&wanted, "--plan");
    assert_eq!(
        steps(&plan),
        ["change workspace Acme", "change workflow Leads"]
    );
    assert_eq!(plan["steps"][1]["ends"].as_array().unwrap().len(), 1);
}

/// Workers move the cursors of subscriptions all the time, which is nothing that a plan is about.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_subscription_is_paused_and_deleted() {
    let world = World::new().await;
    let files = Files::of(&world);
    files.apply(&acme(), "--yes");
    let busy = world.session(Role::Login).await;
    let moving = tokio::spawn(async move {
        let moves = "UPDATE subscriptions SET due_at = clock_timestamp()
            WHERE leased_until IS NULL";
        while busy.batch_execute(moves).await.is_ok() {}
    });
    let mut wanted = acme();
    for is_paused in [true, false, true, false] {
        of(&mut wanted, "subscription", "acme.crm")["is_paused"] = is_paused.into();
        let applied = files.apply(&wanted, "--yes");
        assert_eq!(steps(&applied), ["change subscription acme.crm"]);
    }
    wanted
        .as_array_mut()
        .unwrap()
        .retain(|one| one["queue"] != "acme.all");
    let applied = files.apply(&wanted, "--prune --yes");
    assert_eq!(steps(&applied), ["delete subscription acme.all"]);
    moving.abort();
}

/// A search that ends is off with the commit; what runs were found by is deleted afterwards, and
/// what could not be deleted is by the order that is named.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_ends_after_the_commit() {
    let (world, gateway, _worker) = World::with_both().await;
    let files = Files::of(&world);
    let wanted = |is_searchable: bool| {
        let mut wanted = acme();
        of(&mut wanted, "workspace", "Acme")["is_searchable"] = is_searchable.into();
        wanted
    };
    files.apply(&wanted(true), "--yes");
    let form = form_of(&world, &gateway, "Leads");
    let found = "SELECT count(*) FROM runs WHERE found_by IS NOT NULL";
    let is_off = || {
        let (_, told) = world.refusal("run list --workspace Acme --field name=Ada");
        assert!(told.contains("search by submitted value is off"), "{told}");
    };
    world.submit_until(&form, "a", "failed", 1).await;
    world.assert_count(found, 1).await;
    files.apply(&wanted(false), "--yes");
    world.assert_count(found, 0).await;
    is_off();

    files.apply(&wanted(true), "--yes");
    world.submit_until(&form, "b", "failed", 2).await;
    let holding = world.session(Role::Login).await;
    let held = "BEGIN; SELECT FROM runs FOR UPDATE; SELECT FROM run_usage FOR UPDATE";
    holding.batch_execute(held).await.unwrap();
    let plan = files.apply(&wanted(false), "--plan");
    assert_eq!(
        steps(&plan),
        ["change workspace Acme"],
        "it waits for no run"
    );
    let told = files.assert_refused(&wanted(false), "--yes", "the search is off");
    let named = "workspace settings WORKSPACE --is-searchable off";
    assert!(told.contains(named), "{told}");
    is_off();
    holding.batch_execute("ROLLBACK").await.unwrap();
    world.assert_count(found, 1).await;
    world.order("workspace settings Acme --is-searchable off");
    world.assert_count(found, 0).await;
    files.assert_so(&wanted(false), "");
}
