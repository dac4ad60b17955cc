//! People sign in to the desk by an issuer of OpenID Connect: a real one, with keys and discovery,
//! which tells the truth or not.

use std::{
    process::Command,
    sync::{Arc, Mutex, OnceLock},
};

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use letterbox_database::Role;
use letterbox_tests::{Desk, Peer, Received, Reply, Visitor, World, assert_tells};
use reqwest::Response;
use ring::{
    rand::SystemRandom,
    rsa::{KeyPair, PublicKeyComponents},
    signature::RSA_PKCS1_SHA256,
};
use serde_json::{Value, json};
use url::Url;

const CLIENT: &str = "the-desk";
const SECRET: &str = "secret-of-the-desk-at-the-issuer";

/// What the issuer says of who comes.
#[derive(Clone)]
struct Word {
    subject: &'static str,
    email: Option<&'static str>,
    is_verified: bool,
    audience: &'static str,
    /// The nonce that the desk has sent, or another one.
    nonce: String,
    /// Seconds from now until it ends.
    lasts: i64,
    /// Whether it is signed with a key that it has not published.
    is_forged: bool,
    /// Whether it calls itself by another name.
    is_another: bool,
}

/// What makes a word untrue.
type Lie = fn(&mut Word);

impl Word {
    fn of(subject: &'static str, email: Option<&'static str>) -> Self {
        Self {
            subject,
            email,
            is_verified: true,
            audience: CLIENT,
            nonce: String::new(),
            lasts: 60,
            is_forged: false,
            is_another: false,
        }
    }
}

/// An issuer.
struct Issuer {
    peer: Peer,
    word: Arc<Mutex<Word>>,
}

fn new_key() -> KeyPair {
    let bits = "rsa_keygen_bits:2048";
    let made = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", bits])
        .output()
        .expect("openssl is installed: use deploy/test");
    let pem = String::from_utf8(made.stdout).unwrap();
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    let key = BASE64_STANDARD.decode(lines.collect::<String>());
    KeyPair::from_pkcs8(&key.unwrap()).unwrap()
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// What an issuer publishes of its key.
fn published(key: &KeyPair) -> Value {
    let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
    json!({"kty": "RSA", "use": "sig", "kid": "one", "n": encoded(n), "e": encoded(e)})
}

impl Issuer {
    async fn start() -> Self {
        let word = Arc::new(Mutex::new(Word::of("nobody", None)));
        let (said, url) = (word.clone(), Arc::new(OnceLock::<String>::new()));
        let (own, forged) = (Arc::new(new_key()), Arc::new(new_key()));
        let known = url.clone();
        let peer = Peer::start(move |request, _| {
            let url = known.get().unwrap();
            let word = said.lock().unwrap().clone();
            let key = if word.is_forged { &forged } else { &own };
            let answer = match request.target.as_str() {
                "/.well-known/openid-configuration" => json!({
                    "issuer": url,
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "jwks_uri": format!("{url}/keys"),
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                }),
                "/keys" => json!({ "keys": [published(&own)] }),
                "/token" => json!({
                    "access_token": "a", "token_type": "Bearer",
                    "id_token": token(url, &word, key),
                }),
                _ => return Reply::Status(404),
            };
            let media_type = ("content-type", "application/json".to_owned());
            Reply::With(200, vec![media_type], answer.to_string())
        })
        .await;
        url.set(peer.url.clone()).unwrap();
        Self { peer, word }
    }

    /// What was asked when a code was redeemed.
    fn redeemed(&self) -> Vec<Received> {
        self.asked("/token")
    }

    fn asked(&self, target: &str) -> Vec<Received> {
        let mut received = self.peer.received();
        received.retain(|request| request.target == target);
        received
    }
}

fn token(url: &str, word: &Word, key: &KeyPair) -> String {
    let now = Timestamp::now().as_second();
    let claims = json!({
        "iss": if word.is_another { "http://127.0.0.1:1" } else { url },
        "aud": [word.audience],
        "exp": now + word.lasts,
        "iat": now,
        "nonce": word.nonce,
        "sub": word.subject,
        "email": word.email,
        "email_verified": word.is_verified,
    });
    let header = json!({ "alg": "RS256", "kid": "one" });
    let message = [header, claims].map(|part| encoded(part.to_string()));
    let message = message.join(".");
    let mut signature = vec![0; key.public().modulus_len()];
    let (random, bytes) = (SystemRandom::new(), message.as_bytes());
    let signing = key.sign(&RSA_PKCS1_SHA256, &random, bytes, &mut signature);
    signing.unwrap();
    format!("{message}.{}", encoded(signature))
}

/// A browser that was sent to the issuer, and what it was sent with.
struct Sent {
    visitor: Visitor,
    state: String,
    nonce: String,
}

async fn begin(desk: &Desk, address: &str) -> Sent {
    let mut visitor = Visitor::new(&desk.url);
    visitor.address = address.to_owned();
    visitor
        .assert_shows("/sign-in", "Sign in with 127.0.0.1")
        .await;
    let sent = visitor.get("/sign-in/oidc").await;
    assert_eq!(sent.status(), 303);
    let cookie = sent.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    visitor.cookie = cookie.split(';').next().unwrap().to_owned();
    let to = Url::parse(sent.headers()["location"].to_str().unwrap()).unwrap();
    let of = |name: &str| {
        let mut pairs = to.query_pairs();
        let found = pairs.find(|(given, _)| given == name);
        found.expect(name).1.into_owned()
    };
    assert_eq!(of("code_challenge_method"), "S256");
    assert_eq!(
        of("redirect_uri"),
        format!("{}/sign-in/oidc/callback", desk.url)
    );
    Sent {
        state: of("state"),
        nonce: of("nonce"),
        visitor,
    }
}

/// Comes back from the issuer, which says this.
async fn come(desk: &Desk, issuer: &Issuer, word: Word) -> (Visitor, Response) {
    come_from(desk, issuer, word, Visitor::ADDRESS).await
}

async fn come_from(desk: &Desk, issuer: &Issuer, word: Word, address: &str) -> (Visitor, Response) {
    let sent = begin(desk, address).await;
    come_back(issuer, word, sent).await
}

/// Comes back from the issuer in a browser that has this session.
async fn come_with(desk: &Desk, issuer: &Issuer, word: Word, session: &str) -> (Visitor, Response) {
    let mut sent = begin(desk, Visitor::ADDRESS).await;
    sent.visitor.cookie = format!("{session}; {}", sent.visitor.cookie);
    come_back(issuer, word, sent).await
}

async fn come_back(issuer: &Issuer, mut word: Word, mut sent: Sent) -> (Visitor, Response) {
    if word.nonce.is_empty() {
        word.nonce = sent.nonce;
    }
    *issuer.word.lock().unwrap() = word;
    let path = format!("/sign-in/oidc/callback?code=a-code&state={}", sent.state);
    let back = sent.visitor.get(&path).await;
    let cookies = back.headers().get_all("set-cookie").iter();
    let mut cookies = cookies.map(|cookie| cookie.to_str().unwrap());
    if let Some(session) = cookies.find(|cookie| cookie.starts_with("letterbox=")) {
        sent.visitor.cookie = session.split(';').next().unwrap().to_owned();
    }
    (sent.visitor, back)
}

/// A desk whose people sign in by this issuer.
async fn desk_with(world: &World, issuer: &Issuer) -> Desk {
    letterbox_tests::marks::mark(SECRET);
    Desk::start_with(world, &settings_for(&issuer.peer.url)).await
}

/// What a desk is told of its issuer.
fn settings_for(issuer: &str) -> [(&str, &str); 3] {
    [
        ("LETTERBOX_OIDC_ISSUER", issuer),
        ("LETTERBOX_OIDC_CLIENT_ID", CLIENT),
        ("LETTERBOX_OIDC_CLIENT_SECRET", SECRET),
    ]
}

/// Who makes sign-ins fail has the issuer asked thirty times a minute, for its own code alone:
/// nobody else waits for that, nor for what the issuer says of itself to be fetched again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_who_fails_keeps_nobody_waiting() {
    let (world, issuer) = (World::new().await, Issuer::start().await);
    let desk = desk_with(&world, &issuer).await;
    world.order("user create --email ada@example.com --name Ada");
    world.order(format!("user trust-issuer --issuer {}", issuer.peer.url));
    let lie = || Word {
        is_forged: true,
        ..Word::of("eve", Some("ada@example.com"))
    };
    for number in 0..34 {
        let (_, back) = come_from(&desk, &issuer, lie(), "192.0.2.1").await;
        let expected = match number {
            0..30 => 409,
            _ => 429,
        };
        assert_eq!(back.status(), expected, "{number}");
    }
    assert_eq!(issuer.redeemed().len(), 30);
    for _ in 0..32 {
        let word = Word::of("ada", Some("ada@example.com"));
        let (visitor, _) = come_from(&desk, &issuer, word, "192.0.2.2").await;
        visitor.assert_shows("/", "Ada").await;
    }
    assert_eq!(issuer.redeemed().len(), 62, "who succeeds is not counted");
    for of_itself in ["/.well-known/openid-configuration", "/keys"] {
        assert_eq!(issuer.asked(of_itself).len(), 1, "{of_itself}");
    }
}

/// Nobody trusts an issuer whose word, or the desk's secret, others could read and change.
#[tokio::test]
async fn an_issuer_is_asked_by_tls() {
    let world = World::new().await;
    let wrong = "http://issuer.example ftp://issuer.example http://192.0.2.1 issuer";
    for issuer in wrong.split(' ') {
        world.assert_refused(format!("user trust-issuer --issuer {issuer}"), "https://");
    }
    for issuer in [
        "https://issuer.example",
        "http://localhost:1",
        "http://[::1]:1",
    ] {
        world.order(format!("user trust-issuer --issuer {issuer}"));
    }
    let settings = settings_for("http://issuer.example");
    let mut desk = world.start("letterbox-desk", &settings);
    assert_eq!(desk.ended().await.code(), Some(1));
    let told = desk.log();
    assert_tells(&told, &["LETTERBOX_OIDC_ISSUER", "https://"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_by_an_issuer() {
    let (world, issuer) = (World::new().await, Issuer::start().await);
    let desk = desk_with(&world, &issuer).await;
    world.order("user create --email ada@example.com --name Ada");
    let ada = || Word::of("ada-at-the-issuer", Some("Ada@Example.com"));
    let sessions = async || world.count("SELECT count(*) FROM sessions").await;
    let assert_refused = async |word: Word, why: &str| {
        let before = sessions().await;
        let (visitor, back) = come(&desk, &issuer, word).await;
        assert_eq!(back.status(), 409, "{why}");
        assert_eq!(visitor.get("/").await.status(), 303, "{why}");
        assert_eq!(sessions().await, before, "{why}");
        back.text().await.unwrap()
    };
    // Nobody is signed in on the word of an issuer that no operator trusts.
    let told = assert_refused(ada(), "not trusted").await;
    assert!(told.contains("You are no user here"), "{told}");
    let trusted = format!("user trust-issuer --issuer {}", issuer.peer.url);
    assert_eq!(world.order(&trusted)[0]["users"], 0);

    let lies: [(&str, Lie); 5] = [
        ("another audience", |word| word.audience = "another"),
        ("expired", |word| word.lasts = -60),
        ("another nonce", |word| word.nonce = "another".into()),
        ("another key", |word| word.is_forged = true),
        ("another issuer", |word| word.is_another = true),
    ];
    for (why, lie) in lies {
        let mut word = ada();
        lie(&mut word);
        let told = assert_refused(word, why).await;
        assert!(told.contains("You were not signed in"), "{why}: {told}");
    }
    let unverified = Word {
        is_verified: false,
        ..ada()
    };
    assert_refused(unverified, "not verified").await;
    assert_refused(Word::of("eve", Some("eve@example.com")), "unknown").await;
    assert_refused(Word::of("eve", None), "no address").await;

    let (visitor, back) = come(&desk, &issuer, ada()).await;
    assert_eq!(back.status(), 303);
    visitor.assert_shows("/", "Nothing waits for you").await;
    let redeemed = issuer.redeemed();
    let asked = redeemed.last().unwrap();
    assert!(asked.body.contains("code=a-code") && asked.body.contains("code_verifier="));
    // Bound at the first time: by the subject from then on, whatever the address is.
    let (visitor, _) = come(&desk, &issuer, Word::of("ada-at-the-issuer", None)).await;
    visitor.assert_shows("/", "Ada").await;
    let other = Word::of("somebody-else", Some("ada@example.com"));
    assert_refused(other, "the address of who is bound").await;
    let unbind = "user unbind-issuer ada@example.com --issuer";
    world.order(format!("{unbind} {}", issuer.peer.url));
    // Who was here before is not bound on the word of a desk alone, nor from another's session.
    let moved = || Word::of("ada-elsewhere", Some("ada@example.com"));
    let told = assert_refused(moved(), "she was here before").await;
    assert!(told.contains("sign in by a link first"), "{told}");
    world.order("user create --email bob@example.com --name Bob");
    let of_another = desk.visitor(&world, "bob@example.com").await.cookie;
    let (_, back) = come_with(&desk, &issuer, moved(), &of_another).await;
    assert_eq!(back.status(), 409);
    let own = desk.visitor(&world, "ada@example.com").await.cookie;
    let by_issuer = "SELECT count(*) FROM audit_log WHERE subject = 'sessions'
        AND proven_by = 'oidc' AND before = '{}'";
    let before = world.count(by_issuer).await;
    let (visitor, _) = come_with(&desk, &issuer, moved(), &own).await;
    visitor.assert_shows("/", "Ada").await;
    world.assert_count(by_issuer, before + 1).await;
    let entries = world.order("audit list");
    let entries = entries.as_array().unwrap();
    let newest = |subject: &str| entries.iter().find(|entry| entry["subject"] == subject);
    assert_eq!(
        newest("subjects").unwrap()["after"]["subject"],
        "ada-elsewhere"
    );
    // Who is signed out by an operator is nobody's any more whom a desk may have made up.
    let shown = async || world.order("user show ada@example.com")["known_as"].clone();
    let known = json!([{ "issuer": issuer.peer.url, "subject": "ada-elsewhere" }]);
    assert_eq!(shown().await, known);
    let own = visitor.cookie.clone();
    world.order("user sign-out ada@example.com");
    assert_eq!(shown().await, json!([]));
    let moved = || Word::of("ada-again", Some("ada@example.com"));
    let (_, back) = come_with(&desk, &issuer, moved(), &own).await;
    assert_eq!(back.status(), 409, "her session is over");
    let own = desk.visitor(&world, "ada@example.com").await.cookie;
    let (visitor, _) = come_with(&desk, &issuer, moved(), &own).await;
    visitor.assert_shows("/", "Ada").await;

    // Who is being signed out signs in neither by a subject nor from a session that were theirs.
    for address in [None, Some("ada@example.com")] {
        let own = desk.visitor(&world, "ada@example.com").await.cookie;
        let ending = world.session(Role::Login).await;
        let sign_out = "BEGIN; SELECT sign_out(user_id) FROM users WHERE name = 'Ada'";
        ending.batch_execute(sign_out).await.unwrap();
        let coming = come_with(&desk, &issuer, Word::of("ada-again", address), &own);
        let meanwhile = async {
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                AND datname = current_database() AND query LIKE '%begin_session_by%'";
            world.await_count("it waits", waits, 1).await;
            ending.batch_execute("COMMIT").await.unwrap();
        };
        let ((_, back), ()) = tokio::join!(coming, meanwhile);
        assert_eq!(back.status(), 409, "{address:?}");
        let left = "SELECT (SELECT count(*) FROM sessions s JOIN users u USING (user_id)
            WHERE u.name = 'Ada') + (SELECT count(*) FROM subjects)";
        world.assert_count(left, 0).await;
    }

    // What was begun in another browser, or never.
    let sent = begin(&desk, Visitor::ADDRESS).await;
    let stranger = Visitor::new(&desk.url);
    for (visitor, state) in [(&stranger, &sent.state), (&sent.visitor, &"x".to_owned())] {
        let path = format!("/sign-in/oidc/callback?code=a-code&state={state}");
        let before = issuer.redeemed().len();
        let back = visitor.get(&path).await;
        assert_eq!(back.status(), 409);
        assert!(!back.headers().contains_key("set-cookie"));
        assert_eq!(issuer.redeemed().len(), before, "the code was not redeemed");
    }
    world.order(format!("user distrust-issuer --issuer {}", issuer.peer.url));
    assert_refused(Word::of("ada-again", Some("ada@example.com")), "no more").await;
}
