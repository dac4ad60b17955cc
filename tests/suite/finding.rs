//! What an operator finds, and how it is told: runs by what was submitted, things by their names,
//! a run as a story, what waits for an answer, and a form's answers as CSV.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use letterbox_common::states::MemberRole;
use letterbox_tests::{
    Form, Peer, Reply, Scene, World, asking, assert_holds, assert_tells, binary, command_file,
    folder, post, script,
};
use serde_json::{Value, json};

async fn submit(form: &Form, key: &str, values: Value) {
    form.assert_accepts_with(key, values).await;
}

/// What people read of a command.
fn read(world: &World, command: &str) -> String {
    let output = world.letterbox(command);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

fn count(listed: &Value) -> usize {
    listed.as_array().unwrap().len()
}

#[tokio::test]
async fn runs_are_found_by_what_was_submitted() {
    let scene = Scene::recording().await;
    let (world, form) = (&scene.world, &scene.form);
    submit(form, "a", json!({"email": "ada@example.com", "seats": 7})).await;
    submit(form, "b", json!({"email": "bob@example.com", "seats": 7.5})).await;
    submit(
        form,
        "c",
        json!({"email": "ada@example.com", "name": "=Ada"}),
    )
    .await;
    world.await_state("succeeded", 3).await;
    let workspace = form.workspace;
    let found = |field: &str| {
        count(&world.order(format!("run list --workspace {workspace} --field {field}")))
    };
    for (field, runs) in [
        ("email=ada@example.com", 2),
        ("email=ADA@example.com", 2),
        ("email=ada", 0),
        ("seats=7", 1),
        ("seats=7.50", 1),
        ("name==Ada", 1),
        ("terms=true", 3),
        ("nothing=7", 0),
    ] {
        assert_eq!(found(field), runs, "{field}");
    }
    let filter = "--field email=ada@example.com --state succeeded --limit 1";
    let listed = world.order(format!("run list --workspace {workspace} {filter}"));
    assert_eq!(count(&listed), 1);
    let (code, _) = world.refusal(format!("run list --workspace {workspace} --field email"));
    assert_eq!(code, 2);

    // What is erased is not found any more, and nothing that is kept tells of it.
    let newest = listed[0]["run_id"].as_str().unwrap();
    world.order(format!("run erase {newest} --yes"));
    assert_eq!(found("email=ada@example.com"), 1);
    let kept = "SELECT count(*) FROM runs WHERE found_by IS NOT NULL";
    world.assert_count(kept, 2).await;
    let told = "SELECT count(*) FROM audit_log WHERE before ? 'found_by' OR after ? 'found_by'";
    world.assert_count(told, 0).await;
    // Of a person: shown first, and what it does not reach is said.
    let erase = format!("run erase --workspace {workspace}");
    let bob = format!("{erase} --field email=BOB@example.com");
    assert!(read(world, &bob).starts_with("1 runs would be erased"));
    world.assert_count(kept, 2).await;
    assert!(read(world, &format!("{bob} --yes")).contains("Not reached: "));
    world.assert_count(kept, 1).await;
    assert_eq!(found("email=bob@example.com"), 0);
    assert_eq!(world.refusal(format!("{erase} --yes")).0, 2);

    // The owner takes it back, for what is there and for what comes.
    world.order(format!(
        "workspace settings {workspace} --is-searchable off"
    ));
    world.assert_count(kept, 0).await;
    submit(form, "d", json!({"email": "ada@example.com"})).await;
    world.await_state("succeeded", 4).await;
    world.assert_count(kept, 0).await;
    let looking = format!("run list --workspace {workspace} --field email=ada@example.com");
    world.assert_refused(&looking, "workspace settings");
    world.order(format!("workspace settings {workspace} --is-searchable on"));
    submit(form, "e", json!({"email": "ada@example.com"})).await;
    world.await_state("succeeded", 5).await;
    assert_eq!(found("email=ada@example.com"), 1);
}

/// Of states that indexes know, and of all others: each run is in one of them.
#[tokio::test]
async fn every_state_is_listed() {
    let peer = Peer::start(|_, before| Reply::Status(if before == 0 { 400 } else { 200 })).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    let workspace = form.workspace;
    scene.submit_until("failed", "failed", 1).await;
    scene.submit_until("succeeded", "succeeded", 1).await;
    world.order(format!("workspace hold {workspace}"));
    scene.submit_until("queued", "queued", 1).await;
    world.order(format!("workspace settings {workspace} --run-allowance 0"));
    scene.submit_until("refused", "refused", 1).await;
    for (states, runs) in [
        ("--state failed", 1),
        ("--state succeeded", 1),
        ("--state queued", 1),
        ("--state refused", 1),
        ("--state failed --state refused", 2),
        ("--state queued --state running", 1),
        ("--state succeeded --state queued --state refused", 3),
        ("--state cancelled", 0),
        ("--failure 400", 1),
        ("--failure 400 --state queued", 0),
    ] {
        let listed = world.order(format!("run list --workspace {workspace} {states}"));
        assert_eq!(count(&listed), runs, "{states}");
    }
}

/// Wherever an id is wanted, a name or its beginning will do, if it is clear which one is meant.
#[tokio::test]
async fn things_are_named_by_names_and_beginnings_of_ids() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    let acme = world.order("workspace create --name acme");
    let acme = acme["workspace_id"].as_str().unwrap();
    world.order("user create --email eve@example.com --name Eve");
    world.order("member set --workspace acme --user Eve@example.com --role editor");
    let members = world.order(format!("member list --workspace {}", &acme[..13]));
    assert_eq!(members[0]["email"], "eve@example.com");
    let shown = world.order("user show eve@example.com");
    assert_eq!(shown["name"], "Eve");

    let file = command_file("named.json", &letterbox_tests::definition_with(json!([])));
    let create = "workflow create --workspace acme --owner eve@example.com --definition";
    world.order(format!("{create} {file} --name trial"));
    world.order("workflow deploy trial");
    world.order("form-link create trial");
    assert_eq!(world.order("workflow show trial")["state"], "deployed");
    world.order("webhook create --workspace acme --name crm");

    scene.submit_until("k", "succeeded", 1).await;
    let run = scene.the_run().await.row.run_id.to_string();
    let shown = world.order(format!("run show {}", &run[..30]));
    assert_eq!(shown["run_id"], run);

    // What could be two is none: also where one is called as the other's id begins.
    let cafe = world.order(format!("workspace create --name {}", &acme[..8]));
    let (code, told) = world.refusal(format!("workspace usage {}", &acme[..8]));
    assert_eq!(code, 1);
    assert!(told.contains(acme) && told.contains(cafe["workspace_id"].as_str().unwrap()));
    // In one workspace, that of another one is not meant.
    let listing = format!("run list --workspace {} --workflow trial", form.workspace);
    world.assert_refused(&listing, "");
    let of_acme = world.order("run list --workspace acme --workflow trial");
    assert_eq!(of_acme, json!([]));
    // What can't be undone takes a whole id.
    let lasting = [
        "webhook delete crm",
        "workflow delete trial",
        "run erase 0123",
    ];
    for order in lasting {
        assert_eq!(world.refusal(order).0, 2, "{order}");
    }
    let second = world.order("workspace create --name acme");
    let second = second["workspace_id"].as_str().unwrap();
    let (code, told) = world.refusal("member list --workspace acme");
    assert_eq!(code, 1);
    assert_tells(&told, &[acme, second]);
    for nothing in [
        "workspace usage nobody",
        "workflow show gone",
        "run show 0000",
        "run show abc",
        "approval show ffffffff",
        "user show eve",
    ] {
        world.assert_refused(nothing, "there is no ");
    }
}

/// A run tells on one screen how it stands and why, what was submitted, and by whose leave what was
/// done; what a stranger wrote does not steer the terminal.
#[tokio::test]
async fn a_run_is_a_story() {
    let peer = Peer::start(script("yes")).await;
    // What a submitter wrote stands in the way of what is approved.
    let mut actions = asking();
    actions[0]["then"][0]["path"] = "/{{ form.message }}/steered".into();
    let scene = Scene::new(&peer, actions).await;
    let (world, form) = (&scene.world, &scene.form);
    submit(
        form,
        "k",
        json!({"name": "\u{1b}[2JAda", "message": "x".repeat(3_000)}),
    )
    .await;
    let approval = scene.the_approval().await.approval_id;
    let run = scene.the_run().await.row.run_id;
    let waiting = read(world, &format!("run show {run}"));
    assert_tells(&waiting, &[&format!("letterbox approval show {approval}")]);

    let shown = read(world, &format!("approval show {approval}"));
    for part in [
        "steered waits for an answer",
        "ask (ai.condition): Is it urgent? -> then",
        "steered by ai.condition",
        "email: ada@example.com",
        "may answer Owner <",
        &format!("{}/steered\n", "x".repeat(3_000)),
        "--by USER",
    ] {
        assert_tells(&shown, &[part]);
    }
    world.approve(approval, form.owner).await;
    world.await_state("succeeded", 1).await;
    let story = read(world, &format!("run show {run}"));
    for part in [
        &format!("{run} succeeded"),
        "name: \\u{1b}[2JAda",
        "/chat/completions -> 200 -> then",
        "rule 1 of the default policy asks for approval: approved by Owner, ",
        "done      steered  POST http://127.0.0.1",
    ] {
        assert_tells(&story, &[part]);
    }
    assert!(story.lines().count() <= 24, "{story}");
    assert!(
        story.lines().all(|line| line.chars().count() < 300),
        "{story}"
    );
    let whole = world.order(format!("run show {run}"));
    assert_eq!(whole["input"]["message"], "x".repeat(3_000));
    let answered = read(world, &format!("approval show {approval}"));
    assert!(answered.contains("steered approved"), "{answered}");
}

/// What waits is listed of all workspaces, by workflow; a form that is flooded takes a few lines.
#[tokio::test]
async fn a_flooded_form_takes_a_few_lines() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, gateway) = (&scene.world, &scene.gateway);
    let other = world
        .acting_form(gateway, &peer.url, json!([post("other")]))
        .await;
    let asking = json!({"rules": [], "default": "approve", "approve_by": "another"});
    for workspace in [scene.form.workspace, other.workspace] {
        world.set_policy(workspace, asking.clone()).await;
    }
    for number in 0..5 {
        scene.form.assert_accepts(&format!("k{number}")).await;
    }
    world.submit_until(&other, "k", "waiting_approval", 6).await;

    let listed = world.order("approval list --limit 2");
    assert_eq!(count(&listed), 3);
    for waiting in [5, 1] {
        let mut all = listed.as_array().unwrap().iter();
        assert!(all.any(|one| one["waiting"] == waiting), "{listed}");
    }
    let text = read(world, "approval list --limit 2");
    assert_tells(&text, &[": 5 waiting", "and 3 more"]);
    let one = world.order(format!("approval list --workspace {}", other.workspace));
    assert_eq!(count(&one), 1);

    // Nobody may answer for the only member but another.
    let id = one[0]["approval_id"].as_str().unwrap();
    let shown = world.order(format!("approval show {id}"));
    assert_eq!(shown["may_answer"], json!([]));
    world
        .member(other.workspace, "eve", MemberRole::Editor)
        .await;
    let shown = world.order(format!("approval show {id}"));
    assert_eq!(shown["may_answer"][0]["email"], "eve@example.com");
    world.order("workspace create --name empty");
    let nothing = read(world, "approval list --workspace empty");
    assert_eq!(nothing.trim(), "no request waits for an answer");
}

/// A form's answers as a spreadsheet takes them, also of fields that the form has no more.
#[tokio::test]
async fn answers_are_exported_as_csv() {
    let scene = Scene::recording().await;
    let (world, form) = (&scene.world, &scene.form);
    submit(
        form,
        "a",
        json!({"name": "=HYPERLINK(\"http://x\")", "message": "one\r\ntwo,\"3\""}),
    )
    .await;
    submit(form, "b", json!({"seats": -2, "message": "-"})).await;
    world.await_state("succeeded", 2).await;
    let definition = json!({"form": {"title": "T", "fields": [
        {"key": "city", "label": "City", "type": "text", "required": true}]}, "actions": []});
    let operator = world.operator().await;
    let definition = definition.to_string();
    let deploying = operator.deploy(form.workflow, Some(&definition));
    deploying.await.map(drop).unwrap();

    let csv = read(world, &format!("workflow export {}", form.workflow));
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let titles = reader.headers().unwrap().iter().collect::<Vec<_>>();
    let expected = "run_id,received_at,state,city,name,email,message,seats,";
    assert!(titles.join(",").starts_with(expected), "{titles:?}");
    let lines: Vec<Vec<String>> = reader
        .records()
        .map(|line| line.unwrap().iter().map(str::to_owned).collect())
        .collect();
    let formula = "'=HYPERLINK(\"http://x\")";
    let expected = [
        "succeeded",
        "",
        formula,
        "ada@example.com",
        "one\ntwo,\"3\"",
        "3",
        "true",
    ];
    assert_eq!(lines[0][2..], expected);
    assert_eq!(lines[1][6..], ["'-", "-2", "true"]);
    assert_eq!(lines.len(), 2);
    let none = format!(
        "workflow export {} --until 2020-01-01T00:00:00Z",
        form.workflow
    );
    assert_eq!(read(world, &none).lines().count(), 1);
}

/// Letters that can't be seen are a part of what people write in many languages: what is handed
/// over has them, JSON every byte; on a screen they stand where they join, and nowhere else.
#[tokio::test]
async fn what_people_write_comes_out_as_it_went_in() {
    let scene = Scene::recording().await;
    let (world, form) = (&scene.world, &scene.form);
    let (persian, family) = (
        "می\u{200c}خواهم",
        "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f} क्\u{200d}ष",
    );
    let hostile = "=1\u{202e}x\u{200b}y\r\nz\u{0}\u{1b}[2J";
    submit(form, "a", json!({"name": persian, "message": family})).await;
    submit(form, "b", json!({"name": "Ada", "message": hostile})).await;
    world.await_state("succeeded", 2).await;

    let export = format!("workflow export {}", form.workflow);
    let told = world.order(&export);
    let answers = told.as_array().unwrap();
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0]["answers"]["name"], persian);
    assert_eq!(answers[0]["answers"]["message"], family);
    assert_eq!(answers[1]["answers"]["message"], hostile);
    assert_eq!(answers[1]["state"], "succeeded");
    assert!(answers[0]["run_id"].is_string() && answers[0]["received_at"].is_string());
    let none = world.order(format!("{export} --until 2020-01-01T00:00:00Z"));
    assert_eq!(none, json!([]));

    let csv = read(world, &export);
    assert!(csv.contains(persian) && csv.contains(family), "{csv}");
    let kept = "\"'=1\u{202e}x\u{200b}y\nz\u{fffd}\u{fffd}[2J\"";
    assert!(csv.contains(kept), "{csv}");

    let shown = |answer: &Value| {
        let run = answer["run_id"].as_str().unwrap();
        read(world, &format!("run show {run}"))
    };
    let text = shown(&answers[0]);
    assert!(text.contains(persian) && text.contains(family), "{text}");
    let text = shown(&answers[1]);
    assert!(text.contains("1\\u{202e}x\\u{200b}y"), "{text}");
}

/// A gateway that was taken over can have anything stored: operators see it as it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_is_not_json_is_shown() {
    let scene = Scene::recording().await;
    let (world, form) = (&scene.world, &scene.form);
    scene.submit_until("a", "succeeded", 1).await;
    world.change("UPDATE runs SET input = '\\x7bff'").await;
    let id = scene.the_run().await.row.run_id;
    let shown = world.order(format!("run show {id}"));
    assert_eq!(shown["input"], "{\u{fffd}");
    let csv = read(world, &format!("workflow export {}", form.workflow));
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

/// A command that goes on until somebody ends it.
struct Following {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Following {
    fn start(world: &World, command: &str) -> Self {
        let mut child = Command::new(binary("letterbox"))
            .args(command.split(' '))
            .current_dir(folder())
            .env_clear()
            .env("DATABASE_URL", &world.database_url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_followed() {
    let scene = Scene::recording().await;
    let (world, form) = (&scene.world, &scene.form);
    scene.submit_until("a", "succeeded", 1).await;
    let first = scene.the_run().await.row.run_id.to_string();
    let command = format!("run list --workspace {} --follow", form.workspace);
    let mut following = Following::start(world, &command);
    let line = following.line();
    assert!(
        line.starts_with(&first) && line.contains("succeeded"),
        "{line}"
    );

    world.order(format!("workspace hold {}", form.workspace));
    scene.submit_until("b", "queued", 1).await;
    let second = scene.the_run().await.row.run_id.to_string();
    let line = following.line();
    assert!(
        line.starts_with(&second) && line.contains("queued"),
        "{line}"
    );
    world.order(format!("run cancel {second} --reason enough"));
    let line = following.line();
    assert!(
        line.starts_with(&second) && line.contains("cancelled: enough"),
        "{line}"
    );
}

/// What a policy was, who has set it, and back to the default; its JSON is what sets it.
#[tokio::test]
async fn policies_have_a_history() {
    let world = World::new().await;
    world.order("workspace create --name acme");
    world.order("user create --email eve@example.com --name Eve");
    let default = world.order("policy show acme");
    assert_eq!(default["default"], "allow");
    let deny = command_file("deny.json", r#"{"rules": [], "default": "deny"}"#);
    let by = "--by eve@example.com --reason trial";
    world.order(format!("policy set acme {deny} {by}"));
    let set = world.order("policy reset acme");
    assert_eq!(set["version"], 2);
    assert_eq!(world.order("policy show acme"), default);
    let former = read(&world, "policy show acme --version 1");
    let again = command_file("again.json", &former);
    let set = world.order(format!("policy set acme {again}"));
    assert_eq!(set["version"], 3);

    let history = world.order("policy history acme");
    let by_eve = json!({"version": 1, "set_by_name": "Eve", "reason": "trial"});
    assert_holds(&history[2], by_eve);
    let by_nobody = json!({"set_by_name": null, "reason": null});
    assert_holds(&history[1], by_nobody);
    assert_eq!(history[1]["policy"], default);
    world.assert_refused("policy show acme --version 9", "");
}

/// A deploy says what will hardly work as it is meant.
#[tokio::test]
async fn a_deploy_warns_of_traps() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let comparing = |id: &str, expression: &str| {
        let mut condition = json!({"id": id, "type": "condition", "then": [], "else": []});
        condition["if"] = expression.into();
        condition
    };
    let (world, gateway) = World::with_gateway().await;
    let actions = json!([post("send"), comparing("many", "form.seats > 10"),
        comparing("asked", "form.seats is defined and form.seats > 10"),
        comparing("named", "form.name == 'Ada'"),
        {"id": "other", "type": "http.request", "account": "gone", "method": "GET", "path": "/"}]);
    let form = world.acting_form(&gateway, &peer.url, actions).await;
    let deployed = world.order(format!("workflow deploy --yes {}", form.workflow));
    let warnings = deployed["warnings"].as_array().unwrap();
    let said = |text: &str| {
        let saying = warnings.iter().map(|one| one.as_str().unwrap());
        saying.filter(|one| one.contains(text)).count()
    };
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert_eq!(said("\"many\" compares form.seats"), 1);
    assert_eq!(said("\"crm\" is at 127.0.0.1, which is private"), 1);
    assert_eq!(said("no connected account \"gone\""), 1);
}
