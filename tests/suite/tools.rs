//! Tools: each of the table is understood as it signs, asks, and says what an event is.

use std::{collections::BTreeSet, process::Command};

use base64::{Engine, prelude::BASE64_STANDARD};
use letterbox_common::{
    json_object,
    sealing::{KeyRing, Secret},
    webhook::{Headers, KeptNames, KindPlace, Rules, SecretMaker, Tool, WebhookRequest},
};
use letterbox_operator::WebhookSettings;
use letterbox_tests::{
    Answer, Webhook, World, assert_tells, command_file, eventually, folder, http_client, post_with,
    sign, table,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::schemes::webhook_of;

/// A request that a tool's own library has signed or confirmed, that its vendor has published, or
/// that a few lines of Python have signed.
struct Vector {
    tool: String,
    source: String,
    /// Or the public key.
    secret: String,
    method: String,
    url: String,
    /// Seconds since 1970.
    now: u64,
    headers: std::collections::BTreeMap<String, String>,
    body: String,
}

impl Vector {
    fn headers(&self) -> Headers {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        headers.collect()
    }

    fn verifies(&self, rules: &Rules, body: &str) -> bool {
        let secret = Secret::new(self.secret.clone().into_bytes());
        let keys = rules.keys(&secret).unwrap();
        let at = self.url.find("/webhooks").unwrap();
        let request = WebhookRequest {
            method: &self.method,
            base: &self.url[..at],
            target: &self.url[at..],
            headers: &self.headers(),
            body: body.as_bytes(),
        };
        rules.verifies(&keys, &request, self.now)
    }
}

impl Vector {
    /// What its tool calls the event.
    fn kind(&self) -> Option<String> {
        let tool: Tool = self.tool.parse().unwrap();
        match tool.described().kind.as_ref()? {
            KindPlace::Header(name) => self.headers.get(name).cloned(),
            KindPlace::Pointer(pointer) => {
                serde_json::from_str(json_object::at(&self.body, pointer)?).ok()
            }
        }
    }
}

fn vectors() -> Vec<Vector> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../providers/vectors.json")).unwrap();
    let read = |one: &Value| {
        let text = |name: &str| one[name].as_str().map(str::to_owned);
        let headers = one["headers"].as_object().unwrap().iter();
        let headers =
            headers.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
        Vector {
            tool: text("tool").unwrap(),
            source: text("source").unwrap(),
            secret: text("secret").or_else(|| text("public_key")).unwrap(),
            method: text("method").unwrap(),
            url: text("url").unwrap(),
            now: one["now"].as_u64().unwrap(),
            headers: headers.collect(),
            body: text("body").unwrap(),
        }
    };
    all.iter().map(read).collect()
}

#[test]
fn every_tool_has_a_vector_that_others_made() {
    let vectors = vectors();
    for vector in &vectors {
        let name = &vector.tool;
        let tool: Tool = name.parse().unwrap();
        let rules = tool.rules().unwrap();
        assert!(!vector.source.is_empty(), "{name}");
        assert!(
            vector.verifies(&rules, &vector.body),
            "{name}: {}",
            vector.source
        );
        for changed in [
            format!("{} ", vector.body),
            vector.body.replacen(':', ": ", 1),
        ] {
            assert!(!vector.verifies(&rules, &changed), "{name}");
        }
        // What is to be kept, can be.
        let all = tool.described().kept.iter();
        let all: Headers = all
            .map(|name| (name.parse().unwrap(), "x".parse().unwrap()))
            .collect();
        let keeps = KeptNames::new(tool, &rules, &[]).unwrap().keep(&all);
        let missing = tool
            .described()
            .kept
            .iter()
            .find(|name| keeps.get(name).is_none());
        assert_eq!(missing, None, "{name}");
    }
    let tried: BTreeSet<&str> = vectors.iter().map(|vector| &*vector.tool).collect();
    let typed = vectors.iter().filter(|vector| vector.kind().is_some());
    let typed: BTreeSet<&str> = typed.map(|vector| &*vector.tool).collect();
    let says_kind = |name: &&&str| name.parse::<Tool>().unwrap().described().kind.is_some();
    let untyped: Vec<_> = tried.difference(&typed).filter(says_kind).collect();
    assert!(
        untyped.is_empty(),
        "nothing is where their events' type is to be: {untyped:?}"
    );
    let known: BTreeSet<&str> = Tool::all().map(Tool::as_str).collect();
    let without: Vec<_> = known.difference(&tried).collect();
    assert_eq!(without, [&"custom"], "tools without a vector");
}

/// Steps say where the address goes, and each tool says what a person needs to know.
#[test]
fn every_tool_says_how_it_is_set_up() {
    for tool in Tool::all().filter(|tool| !["custom", "letterbox"].contains(&tool.as_str())) {
        let steps = tool.described().steps("ADDRESS", Some("SECRET")).join(" ");
        assert_tells(&steps, &["ADDRESS"]);
        assert!(!steps.contains(['{', '}']), "{tool}: {steps}");
    }
}

/// The page of tools for people; `LETTERBOX_TEST_WRITE=1` writes it.
#[test]
fn the_page_of_tools_is_what_is_known() {
    let mut page = String::from(
        "# Tools\n\nThe tools that `letterbox webhook create --tool NAME` knows, made of \
         [tools.toml](../common/src/webhook/tools/tools.toml). [Others](README.md#tools) are \
         described by rules.\n\n| name | tool | secret from | type of an event \
         | what won't work |\n|---|---|---|---|---|\n",
    );
    let known: Vec<_> = Tool::all()
        .filter(|tool| tool.as_str() != "custom")
        .collect();
    for tool in &known {
        let described = tool.described();
        let from = match (described.secret_from, tool.rules().unwrap().algorithm) {
            (_, algorithm) if algorithm.has_public_key() => "the tool (public key)",
            (SecretMaker::Ours, _) => "Letterbox",
            (SecretMaker::Tool, _) => "the tool",
        };
        let kind = match &described.kind {
            Some(KindPlace::Header(name)) => format!("`{name}`"),
            Some(KindPlace::Pointer(pointer)) => format!("body, `{pointer}`"),
            None => String::new(),
        };
        let cannot = described
            .cannot
            .as_deref()
            .unwrap_or_default()
            .replace('\n', " ");
        page += &format!(
            "| `{tool}` | {} | {from} | {kind} | {cannot} |\n",
            described.title
        );
    }
    for tool in known {
        let described = tool.described();
        if described.setup.is_empty() {
            continue;
        }
        page += &format!("\n## {}\n\n", described.title);
        for (number, step) in described.steps("the address", None).iter().enumerate() {
            page += &format!("{}. {step}\n", number + 1);
        }
        if let Some(retries) = &described.retries {
            page += &format!("\nSends again: {retries}.\n");
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/TOOLS.md");
    if std::env::var_os("LETTERBOX_TEST_WRITE").is_some() {
        std::fs::write(file, &page).unwrap();
    }
    let written = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        written == page,
        "gateway/TOOLS.md is not what tools.toml says"
    );
}

/// A webhook for a tool, with this secret.
async fn webhook(world: &World, gateway: &str, tool: Tool, workspace: &Webhook) -> Webhook {
    let keys: KeyRing = world.webhook_keys.parse().unwrap();
    let settings = WebhookSettings {
        tool: Some(tool),
        ..WebhookSettings::of(tool.as_str())
    };
    let operator = world.operator().await;
    let workspace = workspace.address.workspace;
    let creating = operator.create_webhook(&keys, workspace, &settings, None);
    let made = creating.await.unwrap();
    Webhook::new(gateway, made.address, made.secret_text().unwrap())
}

async fn post(url: &str, headers: &[(String, String)], body: &str) -> Answer {
    post_with(url, headers, body.to_owned()).await
}

/// Every tool with a secret: an event as its vector has it is taken once, under the name that the
/// tool gives it.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_every_tool_are_received() {
    let (world, gateway, _worker, first) = World::with_recorded_webhook().await;
    let public = gateway.public_url();
    let mut seen = BTreeSet::new();
    let mut expected = Vec::new();
    let mut vectors = vectors();
    vectors.sort_by_key(|vector| vector.kind().is_none());
    for vector in vectors {
        let tool: Tool = vector.tool.parse().unwrap();
        let rules = tool.rules().unwrap();
        if rules.algorithm.has_public_key() || !seen.insert(vector.tool.clone()) {
            continue;
        }
        let webhook = webhook(&world, &public, tool, &first).await;
        let keys = rules
            .keys(&Secret::new(webhook.secret.clone().into_bytes()))
            .unwrap();
        let now = jiff::Timestamp::now().as_second().unsigned_abs();
        let url = webhook.url.replace(&public, "http://127.0.0.1:8080");
        let signed = rules.sign(&keys, &url, vector.body.as_bytes(), now, "id-1");
        let mut headers = signed.unwrap().headers;
        let others = vector
            .headers
            .iter()
            .filter(|(name, _)| !signed_by(&rules, name));
        headers.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        headers.retain(|(name, _)| name != "content-type");
        let answer = post(&webhook.url, &headers, &vector.body).await;
        assert!(answer.is_first(), "{tool}: {answer:?}");
        let again = post(&webhook.url, &headers, &vector.body).await;
        assert!(again.is_duplicate(), "{tool}: {again:?}");
        expected.push((webhook.address.webhook.to_string(), vector.kind()));
    }
    world.await_signals(expected.len() as i64).await;
    let workspace = first.address.workspace;
    let listed = world.order(format!("signal list --workspace {workspace} --limit 1000"));
    let mut told: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let kind = one["event_type"].as_str().map(str::to_owned);
            (one["webhook_id"].as_str().unwrap().to_owned(), kind)
        })
        .collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
    let named = expected.iter().find_map(|(_, kind)| kind.clone()).unwrap();
    let listed = world.order(format!(
        "signal list --workspace {workspace} --kind {named}"
    ));
    assert!(!listed.as_array().unwrap().is_empty());
}

fn signed_by(rules: &Rules, name: &str) -> bool {
    let more = [&rules.timestamp_header, &rules.id_header];
    let is = |one: &String| one.eq_ignore_ascii_case(name);
    rules.header.names().iter().any(is) || more.into_iter().flatten().any(is)
}

/// Runs openssl, and gives what it prints.
fn openssl(arguments: &str, input: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut running = Command::new("openssl")
        .current_dir(folder())
        .args(arguments.split(' '))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    running.stdin.take().unwrap().write_all(input).unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "openssl {arguments}");
    output.stdout
}

/// Tools that sign with a private key, as openssl signs; the owner gives the public one, two while
/// they change. Nobody else's key counts, and none counts before it is given.
#[tokio::test(flavor = "multi_thread")]
async fn public_keys_verify() {
    let (world, gateway, _worker) = World::with_both().await;
    let workspace = world.webhook(&gateway).await.address.workspace.to_string();
    let mut signals = 0;
    for [algorithm, key, digest] in table(
        "ed25519    | ed25519                              |
         ecdsa-p256 | EC -pkeyopt ec_paramgen_curve:P-256  | -digest sha256
         rsa-sha256 | RSA -pkeyopt rsa_keygen_bits:2048    | -digest sha256",
    ) {
        let [old, new, foreign] = ["old", "new", "foreign"].map(|name| {
            let key = openssl(&format!("genpkey -algorithm {key}"), b"");
            let name = format!("{workspace}.{algorithm}.{name}");
            command_file(&name, std::str::from_utf8(&key).unwrap())
        });
        let public = |key: &str| openssl(&format!("pkey -in {key} -pubout"), b"");
        let both = String::from_utf8([public(&old), public(&new)].concat()).unwrap();
        let both = command_file(&format!("{workspace}.{algorithm}.public"), &both);
        let rules = json!({"header": "x-sign", "algorithm": algorithm, "encoding": "base64",
            "timestamp_header": "x-time", "signed": "{timestamp}{body}"});
        let name = format!("{workspace}.{algorithm}.rules");
        let rules = command_file(&name, &rules.to_string());
        let by = format!("--tool custom --rules {rules}");
        let create = format!("webhook create --workspace {workspace} --name K {by}");
        world.assert_refused(create.clone(), "give its public key");
        let made = world.order(format!("{create} --public-key-file {both}"));
        let webhook = webhook_of(&gateway, &made);
        let signed = |key: &str, body: &str| {
            let time = jiff::Timestamp::now().as_second().to_string();
            let content = command_file(&format!("{workspace}.content"), &format!("{time}{body}"));
            let sign = format!("pkeyutl -sign -rawin -inkey {key} -in {content} {digest}");
            let made = openssl(sign.trim_end(), b"");
            let encoded = BASE64_STANDARD.encode(made);
            vec![("x-sign".to_owned(), encoded), ("x-time".to_owned(), time)]
        };
        for (key, body, status) in [
            (&old, r#"{"n":1}"#, 202),
            (&new, r#"{"n":2}"#, 202),
            (&foreign, r#"{"n":3}"#, 401),
        ] {
            let answer = post(&webhook.url, &signed(key, body), body).await;
            assert_eq!(answer.status, status, "{algorithm}");
        }
        signals += 2;
        let refused = post(&webhook.url, &signed(&old, r#"{"n":4}"#), r#"{"n":5}"#).await;
        assert_eq!(refused.status, 401);
        for wrong in ["", "AAAA", &"A".repeat(344), "MEQCIA=="] {
            let headers = [
                ("x-sign".to_owned(), wrong.to_owned()),
                ("x-time".into(), "1".into()),
            ];
            assert_eq!(
                post(&webhook.url, &headers, "{}").await.status,
                401,
                "{wrong}"
            );
        }

        let made = world.order(format!("{create} --secret-later"));
        let later = webhook_of_later(&gateway.public_url(), &made);
        let body = r#"{"n":6}"#;
        assert_eq!(post(&later, &signed(&old, body), body).await.status, 401);
        let id = made["webhook_id"].as_str().unwrap();
        let log = format!("webhook log {id}");
        let is_seen = async || world.order(&log)[0]["reason"] == "no_secret_yet";
        eventually("the owner sees why", is_seen).await;
        world.order(format!("webhook set-secret {id} --secret-file {both}"));
        assert_eq!(post(&later, &signed(&old, body), body).await.status, 202);
        signals += 1;
        let wrong = openssl(&format!("req -x509 -key {old} -subj /CN=x"), b"");
        let wrong = String::from_utf8(wrong).unwrap();
        let wrong = command_file(&format!("{workspace}.certificate"), &wrong);
        let words = "no key of any kind".repeat(3);
        let words = command_file(&format!("{workspace}.wrong"), &words);
        for wrong in [wrong, words] {
            let create = format!("{create} --public-key-file {wrong}");
            world.assert_refused(create, "no public key");
        }
    }
    world.await_signals(signals).await;
}

/// The address of a webhook whose secret is set later.
fn webhook_of_later(gateway: &str, made: &Value) -> String {
    let (workspace, id) = (&made["workspace_id"], &made["webhook_id"]);
    let (workspace, id) = (workspace.as_str().unwrap(), id.as_str().unwrap());
    format!("{gateway}/webhooks/incoming/{workspace}.{id}")
}

async fn ask(method: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
    ask_with(method, url, headers, "").await
}

async fn ask_with(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> Answer {
    let method: Method = method.parse().unwrap();
    let mut request = http_client().request(method, url).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::to(request).await
}

/// Questions that only a tool can ask are answered to it; to others all addresses are alike.
#[tokio::test(flavor = "multi_thread")]
async fn handshakes_are_answered_to_tools_only() {
    let (world, gateway, first) = World::with_webhook().await;
    let workspace = first.address.workspace.to_string();
    let create = |tool: &str| {
        let create = format!("webhook create --workspace {workspace} --name T --tool {tool}");
        let told = world.order(create);
        let token = told["verify_token"].as_str().unwrap_or_default().to_owned();
        (webhook_of(&gateway, &told), token)
    };
    let (meta, token) = create("meta");
    let (x, none) = create("x");
    assert!(token.len() == 64 && none.is_empty());
    let deleted = create("meta").0;
    world.delete_webhook(deleted.address.webhook).await;
    let unknown = first
        .url
        .replace(&workspace, &deleted.address.webhook.to_string());
    let everywhere = [&meta.url, &x.url, &first.url, &deleted.url, &unknown];

    // Meta.
    let hub = |token: &str, challenge: &str| {
        format!("?hub.mode=subscribe&hub.challenge={challenge}&hub.verify_token={token}")
    };
    let url = format!("{}{}", meta.url, hub(&token, "1158201444"));
    let answer = ask("GET", &url, &[]).await;
    assert_eq!((answer.status, &*answer.body), (200, "1158201444"));
    let kind = answer.header("content-type").unwrap();
    assert!(kind.starts_with("text/plain"));
    let refused = ask("GET", &format!("{unknown}{}", hub(&token, "1")), &[]).await;
    assert_eq!(refused.status, 401);
    for url in everywhere {
        for query in [
            hub(&token[1..], "1"),
            hub("", "1"),
            "?crc_token=abc&nonce=1".to_owned(),
        ] {
            let url = format!("{url}{query}");
            assert_eq!(ask("GET", &url, &[]).await, refused, "{url}");
        }
    }
    // Of another webhook, the right token is a wrong one; and what a browser could run is no
    // challenge.
    let elsewhere = ask("GET", &format!("{}{}", x.url, hub(&token, "1")), &[]).await;
    assert_eq!(elsewhere, refused);
    let script = format!("{}{}", meta.url, hub(&token, "%3Cscript%3E"));
    assert_eq!(ask("GET", &script, &[]).await, refused);
    let log = format!("webhook log {}", meta.address.webhook);
    let is_seen = async || world.order(&log)[0]["reason"] == "handshake";
    eventually("the owner sees it", is_seen).await;

    // X: signed over its query.
    let query = "crc_token=c2VjcmV0&nonce=7";
    let mac = |text: &str| {
        let digits = sign(&x.secret, text.as_bytes());
        let bytes = hex::decode(digits).unwrap();
        format!("sha256={}", BASE64_STANDARD.encode(bytes))
    };
    let url = format!("{}?{query}", x.url);
    let header = "x-twitter-webhooks-signature";
    let answer = ask("GET", &url, &[(header, &mac(query))]).await;
    assert_eq!(answer.status, 200);
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(told, json!({"response_token": mac("c2VjcmV0")}));
    let wrong = mac("crc_token=other&nonce=7");
    assert_eq!(ask("GET", &url, &[(header, &wrong)]).await, refused);

    // Signed events that are questions; for another tool they are events.
    let zoom = json!({"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8"}});
    let slack = json!({"type": "url_verification", "token": "x", "challenge": "3eZbrw1aB"});
    let told = r#"{"challenge":"3eZbrw1aB"}"#;
    for (number, (tool, body, short, reply)) in (1..).zip([
        ("zoom", zoom, "zm", "encryptedToken"),
        ("slack", slack, "slack", told),
    ]) {
        let (webhook, _) = create(tool);
        let time = jiff::Timestamp::now().as_second().to_string();
        let signature = sign(&webhook.secret, format!("v0:{time}:{body}").as_bytes());
        let headers = [
            (format!("x-{short}-request-timestamp"), time),
            (format!("x-{short}-signature"), format!("v0={signature}")),
        ];
        let body = body.to_string();
        let answer = post(&webhook.url, &headers, &body).await;
        assert_eq!(answer.status, 200, "{tool}");
        assert_tells(&answer.body, &[reply]);
        assert!(tool == "zoom" || answer.body == reply, "{answer:?}");
        let unsigned = post(&webhook.url, &headers[..1], &body).await;
        assert_eq!(unsigned, refused, "{tool}");
        assert!(first.send(body).await.is_first(), "{tool}");
        world.assert_rows("webhook_deliveries", number).await;
    }

    // Questions whose answer is their own words: every address says the same.
    for url in everywhere {
        let dropbox = ask("GET", &format!("{url}?challenge=ab%2Dc"), &[]).await;
        assert_eq!((dropbox.status, &*dropbox.body), (200, "ab-c"));
        assert_eq!(ask("HEAD", url, &[]).await.status, 200);
        let events = ask("OPTIONS", url, &[("webhook-request-origin", "example.com")]).await;
        let allowed = events.header("webhook-allowed-origin");
        assert_eq!(allowed, Some("example.com"));
        let secret = ("x-hook-secret", "b537207f20cbfa02357cf448134da559");
        assert_eq!(ask("POST", url, &[secret]).await.status, 200);
        let script = ask("GET", &format!("{url}?challenge=%3Cscript%3E"), &[]).await;
        assert_eq!(script.status, 405);
        assert_eq!(ask("GET", url, &[]).await.status, 405);
    }
}

/// A member of the body makes two deliveries one; a webhook says which, or its tool does.
#[tokio::test]
async fn a_member_of_the_body_can_be_the_id() {
    let (world, gateway) = World::with_gateway().await;
    let workspace = world.webhook(&gateway).await.address.workspace;
    let create = format!("webhook create --workspace {workspace} --name T");
    let made = world.order(format!("{create} --same-by /data/id"));
    let webhook = webhook_of(&gateway, &made);
    for (body, is_first) in [
        (r#"{"data":{"id":"a"},"try":1}"#, true),
        (r#"{"data":{"id":"a"},"try":2}"#, false),
        (r#"{"data":{"id":"\u0061"},"try":3}"#, false),
        (r#"{"data":{"id":7},"try":1}"#, true),
        (r#"{"data":{"id":7},"try":2}"#, false),
        // Nothing that could be an id: the body counts.
        (r#"{"data":{"id":""},"try":1}"#, true),
        (r#"{"data":{"id":""},"try":2}"#, true),
        (r#"{"data":{"id":1.5},"try":1}"#, true),
        (r#"{"data":{"id":1.5},"try":2}"#, true),
        (r#"[1]"#, true),
    ] {
        let answer = webhook.send(body).await;
        assert_eq!(answer.is_first(), is_first, "{body}: {answer:?}");
    }
    let show = format!("webhook show {}", webhook.address.webhook);
    let are_counted = async || world.order(&show)["repeats"] == 3;
    eventually("repeats are counted", are_counted).await;
    assert_eq!(world.refusal(format!("{create} --same-by data.id")).0, 2);
    // Of its tool, if the webhook says nothing.
    let of_tool = Tool::all()
        .find(|tool| tool.described().same_by.is_some())
        .unwrap();
    let made = world.order(format!("{create} --tool {of_tool} --secret-later"));
    let id = made["webhook_id"].as_str().unwrap();
    let shown = world.order(format!("webhook show {id}"));
    let expected = of_tool.described().same_by.as_ref().unwrap();
    assert_eq!(shown["same_by"], *expected);
}

/// A webhook gets another secret under its address: both count for a while, then the new one only.
#[tokio::test]
async fn a_secret_is_changed_under_the_same_address() {
    let (world, _gateway, _worker, old) = World::with_recorded_webhook().await;
    let id = old.address.webhook;
    assert!(old.send("[1]").await.is_first());
    let file = command_file(&format!("{id}.new"), "another secret of this tool");
    let set = format!("webhook set-secret {id} --secret-file {file}");
    world.assert_refused(set.clone(), "secret is to be set");
    let shown = world.order(format!("{set} --overlap 1h"));
    assert!(shown["former_until"].is_string());
    let [new, wrong] = ["another secret of this tool", "a third one"].map(|secret| Webhook {
        secret: secret.to_owned(),
        ..old.clone()
    });
    assert!(old.send("[2]").await.is_first() && new.send("[3]").await.is_first());
    assert!(new.send("[1]").await.is_duplicate());
    assert_eq!(wrong.send("[4]").await.status, 401);
    let former = "webhooks WHERE former_secret_sealed IS NOT NULL";
    let past = "UPDATE webhooks SET former_until = now() - interval '1 second'";
    world.change(past).await;
    assert_eq!(old.send("[5]").await.status, 401);
    assert!(new.send("[6]").await.is_first());
    world.assert_rows(former, 0).await;
    // A deleted webhook has neither.
    world.order(format!("{set} --overlap 1h"));
    world.delete_webhook(id).await;
    world.assert_rows(former, 0).await;
    assert_eq!(new.send("[7]").await.status, 401);
}

/// What is not JSON is told by what came; a type that is based on JSON is.
#[tokio::test]
async fn the_owner_learns_what_came_instead_of_json() {
    let (world, _gateway, webhook) = World::with_webhook().await;
    let send = async |body: &str, headers: &[(&str, &str)]| {
        let signature = sign(&webhook.secret, body.as_bytes());
        let signed = [("x-service-signature", signature.as_str())];
        let headers = [&signed, headers].concat();
        ask_with("POST", &webhook.url, &headers, body.to_owned())
            .await
            .status
    };
    let cloud = "application/cloudevents+json; charset=utf-8";
    assert_eq!(send("{}", &[("content-type", cloud)]).await, 202);
    let notify = "UPDATE workspaces SET notify_by_email = true";
    world.change(notify).await;
    let json = ("content-type", "application/json");
    let encoded = "application/x-www-form-urlencoded";
    for (headers, body) in [
        (vec![("content-type", encoded)], "a=1"),
        (vec![("content-type", "text/plain")], "{}"),
        (vec![], "{}"),
        (vec![json, ("content-encoding", "gzip")], "\u{1f}"),
        (vec![json], "{"),
    ] {
        assert_eq!(send(body, &headers).await, 400, "{headers:?}");
    }
    let github = [("x-hub-signature-256", "x")];
    let github = ask_with("POST", &webhook.url, &github, "{}").await;
    assert_eq!(github.status, 401);
    let log = format!("webhook log {}", webhook.address.webhook);
    let expected = [
        ["missing", "it has x-hub-signature-256, as sent by"],
        ["not_json", "not valid JSON"],
        ["compressed", "gzip"],
        ["content_type", "none"],
        ["content_type", "text/plain"],
        ["form_encoded", "application/x-www-form-urlencoded"],
    ];
    let are_told = async || world.order(&log).as_array().unwrap().len() == 6;
    eventually("all are told", are_told).await;
    // Whoever is told of anything is told of this, once.
    let news = "SELECT count(*) FROM news WHERE kind = 'deaf_webhook'";
    world.assert_count(news, 1).await;
    let told = world.order(&log);
    for (one, [reason, detail]) in told.as_array().unwrap().iter().zip(expected) {
        assert_eq!(one["reason"], reason);
        assert_tells(one["detail"].as_str().unwrap(), &[detail]);
        assert!(one["advice"].as_str().unwrap().ends_with('.'));
    }
}

/// A request that fits the secret in another way is told by what would have to be different, once a
/// minute; a secret that a tool sends first is shown to its owner.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_learns_how_a_signature_would_fit() {
    let (world, gateway) = World::with_gateway().await;
    let url = gateway.public_url();
    let base = world.webhook(&gateway).await;
    let refused = async |id: &str, count: usize| {
        let log = format!("webhook log {id}");
        let is_told = async || world.order(&log).as_array().unwrap().len() == count;
        eventually("it is told", is_told).await;
        world.order(&log)[0].clone()
    };
    let github = webhook(&world, &url, "github".parse().unwrap(), &base).await;
    let id = github.address.webhook.to_string();
    let header = "x-hub-signature-256".to_owned();
    let plain = [(header, sign(&github.secret, b"{}"))];
    for (count, detail) in [(1, json!("it is right with prefix \"\"")), (2, Value::Null)] {
        assert_eq!(post(&github.url, &plain, "{}").await.status, 401);
        assert_eq!(refused(&id, count).await["detail"], detail);
    }
    let secret = Secret::new(base.secret.clone().into_bytes());
    let rules = "stripe".parse::<Tool>().unwrap().rules().unwrap();
    let now = jiff::Timestamp::now().as_second().unsigned_abs();
    let signed = rules.sign(&rules.keys(&secret).unwrap(), &base.url, b"{}", now, "");
    let answer = post(&base.url, &signed.unwrap().headers, "{}").await;
    assert_eq!(answer.status, 401);
    let detail = &refused(&base.address.webhook.to_string(), 1).await["detail"];
    assert_eq!(detail, "it is right for the tool stripe");
    let workspace = base.address.workspace;
    let create = format!("webhook create --workspace {workspace} --name N --tool notion");
    let made = world.order(format!("{create} --secret-later"));
    let body = r#"{"verification_token": "secret_aBc"}"#;
    let answer = post(&webhook_of_later(&url, &made), &[], body).await;
    assert_eq!(answer.status, 401);
    let told = refused(made["webhook_id"].as_str().unwrap(), 1).await;
    assert_eq!(told["reason"], "no_secret_yet");
    assert_eq!(told["detail"], "verification_token secret_aBc");
}
