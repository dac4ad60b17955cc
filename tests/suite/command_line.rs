//! The command line as shells and programs use it: failures by kind, completion, man pages.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    process::{Command, Output},
};

use letterbox_tests::{Peer, Reply, Scene, World, binary, command_file, folder, payload, post};
use serde_json::{Value, json};

/// Exit code of a command that failed, and what programs are told.
fn failure(output: &Output) -> (i32, Value) {
    assert_eq!(output.stdout, b"", "errors go to standard error");
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(told["error"]["message"].is_string(), "{told}");
    (output.status.code().unwrap(), told["error"]["kind"].clone())
}

#[tokio::test]
async fn failures_are_told_by_their_kind() {
    let world = World::new().await;
    for (command, code, kind) in [
        ("run show 0000 --json", 1, "refused"),
        ("workspace create --json --name \u{3000}", 1, "refused"),
        ("workspace create --json", 2, "misused"),
        ("--json nothing", 2, "misused"),
        (
            "send form --json --url http://127.0.0.1:1/forms?token=x /dev/null",
            1,
            "refused",
        ),
    ] {
        let told = failure(&world.letterbox(command));
        assert_eq!(told, (code, json!(kind)), "{command}");
    }
    let away = [("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nowhere")];
    let told = failure(&world.letterbox_with(&away, "workspace list --json"));
    assert_eq!(told, (75, json!("try_again")));
    // Who is refused by a server will be refused again.
    let nobody = world.database_url.replacen("//letterbox", "//nobody", 1);
    let told = failure(&world.letterbox_with(&[("DATABASE_URL", &nobody)], "user list --json"));
    assert_eq!(told, (1, json!("refused")));
    let (_, server) = world.amqp_url.rsplit_once('@').unwrap();
    let (known, _) = world.amqp_url.rsplit_once('/').unwrap();
    for url in [
        format!("amqp://stranger:x@{server}"),
        format!("{known}/nowhere"),
    ] {
        let refused = [("AMQP_URL", url.as_str())];
        let told = failure(&world.letterbox_with(&refused, "dead-letters list --json"));
        assert_eq!(told, (1, json!("refused")));
        let output = world.letterbox_with(&refused, "migrate --json");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("the schema is at version "), "{told}");
    }
    let form = letterbox_tests::command_file("empty.json", "{}");
    let command = format!("send form --json --url http://127.0.0.1:1/forms?token=x {form}");
    assert_eq!(failure(&world.letterbox(command)), (75, json!("try_again")));
    assert!(world.letterbox("run cancel --help --json").status.success());
    let not_text = Command::new(binary("letterbox"))
        .args([OsStr::from_bytes(b"--\xff"), OsStr::new("--json")])
        .output()
        .unwrap();
    assert_eq!(failure(&not_text), (2, json!("misused")));
}

/// Shells complete commands, and the names and ids of what there is.
#[tokio::test]
async fn shells_complete_commands() {
    let world = World::new().await;
    let acme = world.order("workspace create --name Acme")["workspace_id"].to_string();
    let other = world.order("workspace create --name Two,words")["workspace_id"].to_string();
    let letterbox = binary("letterbox");
    let folder = letterbox.parent().unwrap().display().to_string();
    let path = format!("{folder}:/usr/bin:/bin");
    let completed = |words: &str| {
        let script = "source <(letterbox completion bash)
            COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _clap_complete_letterbox letterbox \"${COMP_WORDS[-1]}\" x
            printf '%s\\n' \"${COMPREPLY[@]}\"";
        let output = Command::new("bash")
            .args(["-c", script, "bash", words])
            .env("PATH", &path)
            .env("DATABASE_URL", &world.database_url)
            .output()
            .unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let shown = shown.lines().map(|line| line.trim_end().to_owned());
        shown.filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(completed("letterbox dead-letters r"), ["redrive"]);
    assert_eq!(completed("letterbox run list --workspace A"), ["Acme"]);
    assert_eq!(completed("letterbox use Ac"), ["Acme"]);
    let (acme, other) = (acme.trim_matches('"'), other.trim_matches('"'));
    // What a shell might take for several words, and what takes a whole id.
    assert_eq!(
        completed(&format!("letterbox use {}", &other[..9])),
        [other]
    );
    let doomed = format!("letterbox workspace delete {}", &acme[..20]);
    assert_eq!(completed(&doomed), [acme]);
    assert_eq!(completed("letterbox run list --state f"), ["failed"]);
    for shell in ["zsh", "fish"] {
        let made = Command::new(&letterbox)
            .args(["completion", shell])
            .output()
            .unwrap();
        let script = String::from_utf8(made.stdout).unwrap();
        assert!(script.contains("LETTERBOX_COMPLETE"), "{script}");
    }
}

/// A story tells every action of a run that a person can read through.
#[tokio::test]
async fn a_story_hides_no_action() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let ids: Vec<String> = (0..14).map(|n| format!("action-{n}-x")).collect();
    let actions: Vec<_> = ids.iter().map(|id| post(id)).collect();
    let scene = Scene::new(&peer, json!(actions)).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.submit_until("k", "succeeded", 1).await;
    let runs = world.order(format!("run list --workspace {}", form.workspace));
    let run = runs[0]["run_id"].as_str().unwrap();
    let story = world.read(format!("run show {run}"));
    for id in &ids {
        assert!(story.contains(id), "{id}: {story}");
    }
}

/// Without --workspace: the only one, the chosen one, that of the environment.
#[tokio::test]
async fn a_workspace_need_not_be_named_again() {
    let world = World::new().await;
    let home = folder().join(uuid::Uuid::new_v4().to_string());
    let home = home.display().to_string();
    let at_home = [("XDG_CONFIG_HOME", home.as_str())];
    let order = |command: &str| world.order_with(&at_home, command);
    let created = |name: &str| {
        let created = order(&format!("workspace create --name {name}"));
        created["workspace_id"].as_str().unwrap().to_owned()
    };
    let first = created("First");
    assert_eq!(order("workflow list"), json!([]));
    let webhook = order("webhook create --name alone");
    assert_eq!(webhook["workspace_id"], first);

    let second = created("Second");
    let told = failure(&world.letterbox_with(&at_home, "webhook list --json"));
    assert_eq!(told, (2, json!("misused")));
    assert_eq!(order("use")["workspace_id"], Value::Null);
    assert_eq!(order("use Second")["workspace_id"], second);
    assert_eq!(order("use")["name"], "Second");
    assert_eq!(order("webhook list"), json!([]));
    let listed = order("webhook list --workspace First");
    assert_eq!(listed[0]["name"], "alone");
    let in_first = [at_home[0], ("LETTERBOX_WORKSPACE", "First")];
    assert_eq!(world.order_with(&in_first, "webhook list"), listed);

    // An ending of an id is enough as well.
    let id = webhook["webhook_id"].as_str().unwrap();
    let log = order(&format!("webhook log {}", &id[id.len() - 9..]));
    assert_eq!(log, json!([]));
    let too_short = format!("webhook log {}", &id[id.len() - 6..]);
    assert_eq!(world.letterbox(too_short).status.code(), Some(1));
    // Rights and credentials are not given by what was chosen once.
    let login = "member set --user nobody@example.com --role owner --json";
    let told = failure(&world.letterbox_with(&at_home, login));
    assert_eq!(told, (2, json!("misused")));
    assert_eq!(order("use --none")["workspace_id"], Value::Null);
    let told = failure(&world.letterbox_with(&at_home, "webhook list --json"));
    assert_eq!(told.0, 2);
    // What people need next comes first.
    let shown = world.letterbox_with(&in_first, "webhook create --name next");
    let shown = String::from_utf8(shown.stdout).unwrap();
    let heads: Vec<_> = shown.lines().map(|line| line.split(' ').next()).collect();
    assert_eq!(heads[..3], [Some("url"), Some("secret"), Some("name")]);
    std::fs::remove_dir_all(&home).unwrap();
}

#[tokio::test]
async fn every_command_has_a_man_page() {
    let world = World::new().await;
    let folder = folder().join("man");
    std::fs::create_dir_all(&folder).unwrap();
    let written = world.order(format!("man {}", folder.display()));
    assert_eq!(written["folder"], folder.display().to_string());
    let page = std::fs::read_to_string(folder.join("letterbox-run-cancel.1")).unwrap();
    assert!(page.starts_with(".") && page.contains("--workspace".replace('-', "\\-").as_str()));
    assert!(page.contains("workflow Contact"), "its example");
    let nowhere = world.letterbox("man /nowhere/at/all --json");
    assert_eq!(failure(&nowhere), (1, json!("refused")));
}

/// Without a terminal nobody can be asked: what can't be undone needs `--yes`, and nothing is done
/// without it.
#[tokio::test]
async fn what_cannot_be_undone_needs_a_yes() {
    let (world, gateway, form) = World::with_form().await;
    let webhook = world.webhook(&gateway).await;
    for order in [
        format!("workflow pause {}", form.workflow),
        format!("form-link create {}", form.workflow),
        format!("workflow delete {}", form.workflow),
        format!(
            "member remove --workspace {} --user {}",
            form.workspace, form.owner
        ),
        format!("webhook delete {}", webhook.address.webhook),
    ] {
        let (code, told) = world.refusal(&order);
        assert_eq!(code, 2, "{order}: {told}");
        assert!(told.contains("--yes"), "{told}");
        form.assert_lives().await;
        assert!(webhook.send(order).await.status != 401);
    }
    world.order(format!("workflow pause {} --yes", form.workflow));
    form.assert_dead().await;
}

/// The mistakes of a definition, each with its place; what was submitted, digit for digit.
#[tokio::test]
async fn mistakes_have_places_and_numbers_keep_their_digits() {
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;
    let wrong = json!({"form": {"title": "T", "fields": []}, "actions": [{"id": "a"}]});
    let file = command_file(&format!("{}.json", form.workflow), &wrong.to_string());
    let output = world.letterbox(format!(
        "workflow deploy {} --definition {file} --yes --json",
        form.workflow
    ));
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    let problems = told["error"]["problems"].as_array().unwrap();
    assert!(
        problems.iter().any(|one| one["path"] == "actions[0].type"),
        "{told}"
    );

    let digits = "12345.50000000000000000000000000000001";
    let payload = payload()
        .to_string()
        .replace("\"seats\":3", &format!("\"seats\":{digits}"));
    let body = format!(
        r#"{{"token":"{}","idempotencyKey":"k","payload":{payload}}}"#,
        form.token
    );
    assert_eq!(form.post(body).await.status, 200);
    world.await_state("succeeded", 1).await;
    let run = world.run_of(&form).await.row.run_id;
    for json in ["", " --json"] {
        let shown = world.letterbox(format!("run show {run}{json}")).stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert!(shown.contains(digits), "{shown}");
    }
}
