//! The example senders: in each language that this machine has, they sign, send, and try again
//! where that helps and nowhere else.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use letterbox_tests::{Proxy, Webhook, World, folder, sign};
use serde_json::Value;
use tokio::process::Command;

/// A language: what must be there for it, and the command; `SENDERS` and `SCRATCH` are folders.
const LANGUAGES: [(&str, &[&str], &str); 8] = [
    ("Bash", &["bash", "openssl", "curl"], "bash SENDERS/send.sh"),
    ("Python", &["python3"], "python3 SENDERS/send.py"),
    ("Node.js", &["node"], "node SENDERS/send.mjs"),
    ("Go", &["go"], "go run SENDERS/send.go"),
    ("Java", &["java", "javac"], "java SENDERS/Send.java"),
    ("PHP", &["php"], "php SENDERS/send.php"),
    ("Ruby", &["ruby"], "ruby SENDERS/send.rb"),
    ("C#", &["mcs", "mono"], "mono SCRATCH/Send.exe"),
];

fn senders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway/senders")
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The commands of the languages that are there; the one in Rust is, always.
async fn commands(scratch: &Path) -> Vec<(&'static str, Vec<String>)> {
    let mut commands = Vec::new();
    for (language, needs, command) in LANGUAGES {
        if !needs.iter().all(|program| is_there(program)) {
            println!("{language}: not here");
            continue;
        }
        if language == "C#" {
            let out = format!("-out:{}", scratch.join("Send.exe").display());
            let source = senders().join("Send.cs");
            let mut compiler = Command::new("mcs");
            compiler.args(["-r:System.Net.Http", &out]).arg(source);
            assert!(compiler.status().await.unwrap().success());
        }
        let command = command.split(' ').map(|word| {
            let word = word.replace("SENDERS", senders().to_str().unwrap());
            word.replace("SCRATCH", scratch.to_str().unwrap())
        });
        commands.push((language, command.collect()));
    }
    let rust = letterbox_tests::binary("examples/send");
    commands.push(("Rust", vec![rust.to_str().unwrap().to_owned()]));
    commands
}

async fn send(command: &[String], webhook: &Webhook, secret: &str, body: &Path) -> Output {
    let mut sender = Command::new(&command[0]);
    sender
        .args(&command[1..])
        .arg(body)
        .env("WEBHOOK_URL", &webhook.url)
        .env("WEBHOOK_SECRET", secret)
        .env("RETRY_FIRST_WAIT", "0.2")
        .stdin(Stdio::null());
    sender.output().await.unwrap()
}

/// How many deliveries were answered so, as a metric.
fn answers(status: u16) -> String {
    let count = "letterbox_request_duration_seconds_count";
    format!("{count}{{route=\"incoming_webhook\",status=\"{status}\"}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sender_signs_sends_and_tries_again() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let settings = [
        ("AMQP_URL", broker.url.as_str()),
        ("LETTERBOX_SPILL_MESSAGES", "0"),
    ];
    let gateway = world.gateway_with(&settings).await;
    let _worker = world.worker().await;
    let webhook = world.webhook(&gateway).await;
    let name = format!("senders-{}", webhook.address.webhook);
    let scratch = folder().join(name);
    std::fs::create_dir(&scratch).unwrap();
    let commands = commands(&scratch).await;
    for (number, (language, command)) in commands.iter().enumerate() {
        let body = scratch.join(format!("{number}.json"));
        let text = format!("{{\"eventId\": \"{number}\",\r\n \"text\":\"\u{e9}\u{1f4ee}\"}}");
        std::fs::write(&body, text).unwrap();
        let sent = send(command, &webhook, &webhook.secret, &body).await;
        let told = String::from_utf8_lossy(&sent.stdout);
        assert!(
            sent.status.success() && told.trim() == r#"{"received":true}"#,
            "{language}: {sent:?}"
        );
        let again = send(command, &webhook, &webhook.secret, &body).await;
        let told = String::from_utf8_lossy(&again.stdout);
        assert!(told.contains("deduplicated"), "{language}: {again:?}");
        let wrong = send(command, &webhook, &"0".repeat(64), &body).await;
        let told = String::from_utf8_lossy(&wrong.stderr);
        assert!(
            !wrong.status.success() && told.contains("401"),
            "{language}: {wrong:?}"
        );
    }
    // Who was refused has not tried again.
    let refused = gateway.metric(&answers(401)).await;
    assert!((refused - commands.len() as f64).abs() < 0.5, "{refused}");
    let stored = commands.len() as i64;
    world.await_signals(stored).await;

    // The service is away while all of them send.
    broker.cut();
    let body = scratch.join("outage.json");
    std::fs::write(&body, "{\"outage\":true}").unwrap();
    let commands = &commands;
    let sending = commands.iter().map(|(language, command)| {
        let (webhook, body) = (&webhook, &body);
        async move {
            (
                language,
                send(command, webhook, &webhook.secret, body).await,
            )
        }
    });
    let coming_back = async {
        let away = answers(503);
        let was_refused = async || gateway.metric(&away).await >= 1.0;
        letterbox_tests::eventually("one was refused", was_refused).await;
        broker.pass();
        gateway.await_ready().await;
    };
    let (sent, ()) = tokio::join!(futures_util::future::join_all(sending), coming_back);
    for (language, output) in sent {
        assert!(output.status.success(), "{language}: {output:?}");
    }
    world.await_signals(stored + 1).await;
}

#[test]
fn vectors_are_signed_as_here() {
    let vectors = std::fs::read_to_string(senders().join("vectors.json")).unwrap();
    let vectors: Vec<Value> = serde_json::from_str(&vectors).unwrap();
    assert!(vectors.len() >= 12);
    for vector in &vectors {
        let text = |name: &str| vector[name].as_str().unwrap();
        let body = BASE64_STANDARD.decode(text("body_base64")).unwrap();
        assert_eq!(sign(text("secret"), &body), text("signature"), "{vector}");
        if let Some(shown) = vector["body"].as_str() {
            assert_eq!(shown.as_bytes(), body);
        }
    }
}
