//! The prover: what an intake acknowledged beside what came out of it.

use std::process::Output;

use letterbox_tests::{Peer, Reply, World, command_file, folder};
use serde_json::{Value, json};

/// Runs it; exit code and ledger.
fn prove(world: &World, url: &str, more: &str) -> (i32, Value) {
    let secret = command_file("prover-secret", "a secret of the prover's, long enough");
    let settings = [("AMQP_URL", world.amqp_url.as_str())];
    let command = format!("prove {url} --secret-file {secret} --seconds 2 --json {more}");
    let Output {
        status,
        stdout,
        stderr,
    } = world.letterbox_with(&settings, command);
    let ledger = serde_json::from_slice(&stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&stderr)));
    (status.code().unwrap(), ledger)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_comes_out_once() {
    let (world, mut gateway, _worker, webhook) = World::with_recorded_webhook().await;
    let secret = command_file("prover-own-secret", &webhook.secret);
    let settings = [("AMQP_URL", world.amqp_url.as_str())];
    let subscribe = format!(
        "signal subscribe --workspace {} --queue prove",
        webhook.address.workspace
    );
    world.order_with(&settings, subscribe);
    // The second one is killed while the first goes on.
    let doomed = world.gateway().await;
    let pid = doomed.pid();
    let fault = command_file(
        "prover-fault",
        &format!("mkdir once-{pid} && kill -KILL {pid}\n"),
    );
    let fault = folder().join(fault).display().to_string();
    let options = format!("--secret-file {secret} --seconds 3 --fault-seconds 1 --queue prove");
    let command = format!("prove {} {options} --json --fault", webhook.url);
    let proving = std::process::Command::new(letterbox_tests::binary("letterbox"))
        .args(command.split(' '))
        .arg(format!("sh {fault}"))
        .current_dir(folder())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("AMQP_URL", &world.amqp_url)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&proving.stderr);
    assert_eq!(proving.status.code(), Some(0), "{told}");
    let ledger: Value = serde_json::from_slice(&proving.stdout).unwrap();
    assert!(ledger["attempts"].as_u64().unwrap() > 50, "{ledger}");
    assert_eq!(ledger["ok"], ledger["attempts"]);
    assert_eq!(ledger["acknowledged"], ledger["attempts"]);
    for none in ["lost", "doubled", "unexpected", "recovered"] {
        assert_eq!(ledger[none], 0, "{none}: {ledger}");
    }
    assert_eq!(
        ledger["faults"], 1,
        "the second time nobody is left to kill"
    );
    assert!(ledger["failed_faults"].as_u64().unwrap() >= 1, "{ledger}");
    let refused = world.letterbox_with(&settings, "prove http://127.0.0.1:9 --queue nothing");
    assert_ne!(refused.status.code(), Some(0));
    gateway.kill().await;
}

/// Intakes that forget, and that do things twice.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_or_doubled_is_told() {
    let world = World::new().await;
    let file = folder().join("prover-came-out");
    std::fs::write(&file, "").unwrap();
    let listing = file.clone();
    // Every third is forgotten, every fourth done twice, every fifth refused and done.
    let peer = Peer::start(move |request, number| {
        let line = format!("{}\n", request.body);
        let lines = match number {
            number if number % 3 == 0 => String::new(),
            number if number % 4 == 0 => line.repeat(2),
            _ => line,
        };
        let mut options = std::fs::File::options();
        let mut file = options.append(true).open(&listing).unwrap();
        std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
        Reply::Status(if number % 5 == 0 { 500 } else { 202 })
    })
    .await;
    let more = format!("--file {} --tries 1 --wait 4", file.display());
    let (code, ledger) = prove(&world, &peer.url, &more);
    assert_eq!(code, 3, "{ledger}");
    let attempts = ledger["attempts"].as_u64().unwrap();
    let count = |is: fn(u64) -> bool| (0..attempts).filter(|number| is(*number)).count();
    for (name, is) in [
        ("acknowledged", (|n| n % 5 != 0) as fn(u64) -> bool),
        ("lost", |n| n % 3 == 0 && n % 5 != 0),
        ("doubled", |n| n % 3 != 0 && n % 4 == 0),
        ("recovered", |n| n % 3 != 0 && n % 4 != 0 && n % 5 == 0),
    ] {
        assert_eq!(ledger[name], count(is), "{name} of {attempts}: {ledger}");
    }

    // An intake that is its own way out.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (code, ledger) = prove(
        &world,
        &format!("http://{address}/"),
        &format!("--listen {address}"),
    );
    assert_eq!(
        (code, &ledger["lost"], &ledger["doubled"]),
        (0, &json!(0), &json!(0)),
        "{ledger}"
    );
}
