//! The command line as shells and programs use it: failures by kind, completion, man pages.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    process::{Command, Output},
};

use letterbox_tests::{Servers, World, binary, command_file, payload};
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

#[tokio::test]
async fn shells_complete_commands() {
    let script = "source <(\"$1\" completion bash)
        COMP_WORDS=(letterbox dead-letters r); COMP_CWORD=2
        _letterbox letterbox r dead-letters; echo \"${COMPREPLY[@]}\"";
    let letterbox = binary("letterbox");
    let completed = Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(&letterbox)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&completed.stdout),
        "redrive\n",
        "{completed:?}"
    );
    for shell in ["zsh", "fish"] {
        let made = Command::new(&letterbox)
            .args(["completion", shell])
            .output()
            .unwrap();
        assert!(String::from_utf8(made.stdout).unwrap().contains("redrive"));
    }
}

#[tokio::test]
async fn every_command_has_a_man_page() {
    let world = World::new().await;
    let folder = Servers::shared().folder.join("man");
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
    let world = World::new().await;
    let gateway = world.gateway().await;
    let form = world.form(&gateway).await;
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
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let form = world.form(&gateway).await;
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
