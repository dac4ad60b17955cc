//! Accounts that get their tokens by OAuth 2.0, from a server that gives tokens which end, and an
//! account that takes none but the one that lasts.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use letterbox_common::{ids::WorkspaceId, sealing::Secret, states::MemberRole};
use letterbox_operator::{AccountSecret, AccountSettings};
use letterbox_tests::{
    Desk, Form, Peer, Process, Received, Reply, Visitor, World, assert_hides, assert_holds,
    assert_tells, command_file, definition_with, eventually, page_of, post,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use url::{Url, form_urlencoded};

const SECRET: &str = "canary-client-secret";

/// What the server has granted.
#[derive(Default)]
struct Granted {
    /// How long a token lasts.
    lasts: Duration,
    /// The tokens that are taken, each until its end.
    tokens: Vec<(String, Instant)>,
    /// The refresh token that works next: each works once.
    refresh: String,
    is_revoked: bool,
    /// Exchanges that gave a token.
    given: usize,
}

/// A server that gives tokens at `/token`, and is the account that takes them elsewhere.
struct Server {
    peer: Peer,
    granted: Arc<Mutex<Granted>>,
}

impl Server {
    async fn start(lasts: Duration) -> Self {
        let granted = Arc::new(Mutex::new(Granted {
            lasts,
            ..Granted::default()
        }));
        let own = granted.clone();
        let peer = Peer::start(move |request, _| {
            let mut granted = own.lock().unwrap();
            match request.target.as_str() {
                "/token" => granted.give(request),
                _ => granted.take(request),
            }
        });
        Self {
            peer: peer.await,
            granted,
        }
    }

    fn granted<T>(&self, look: impl FnOnce(&mut Granted) -> T) -> T {
        look(&mut self.granted.lock().unwrap())
    }

    /// What came to the account.
    fn called(&self) -> Vec<Received> {
        let mut received = self.peer.received();
        received.retain(|request| request.target != "/token");
        received
    }
}

impl Granted {
    fn give(&mut self, request: &Received) -> Reply {
        let given: Vec<(String, String)> = form_urlencoded::parse(request.body.as_bytes())
            .into_owned()
            .collect();
        let of = |name: &str| {
            let found = given.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        let refuse = |error: &str| Reply::With(400, vec![], json!({ "error": error }).to_string());
        if of("client_secret") != Some(SECRET) {
            // As servers do that look for it in the body only.
            return refuse("invalid_client");
        }
        let is_granted = match of("grant_type") {
            Some("client_credentials") => true,
            Some("authorization_code") => of("code") == Some("a-code"),
            Some("refresh_token") => of("refresh_token") == Some(&self.refresh),
            _ => false,
        };
        if self.is_revoked || !is_granted {
            return refuse("invalid_grant");
        }
        self.given += 1;
        let token = format!("canary-token-{}", self.given);
        self.refresh = format!("canary-refresh-{}", self.given);
        self.tokens
            .push((token.clone(), Instant::now() + self.lasts));
        let answer = json!({
            "access_token": token, "token_type": "bearer", "expires_in": self.lasts.as_secs(),
            "refresh_token": self.refresh,
        });
        Reply::With(200, vec![], answer.to_string())
    }

    fn take(&self, request: &Received) -> Reply {
        let given = request.header("authorization");
        let lasts = self.tokens.iter().any(|(token, until)| {
            Instant::now() < *until && given == Some(&format!("Bearer {token}"))
        });
        Reply::Status(if lasts { 200 } else { 401 })
    }
}

/// An account whose first token has served a run.
struct Connected {
    world: World,
    server: Server,
    form: Form,
    account: String,
    _processes: [Process; 2],
}

impl Connected {
    async fn new() -> Self {
        let (world, gateway, worker) = World::with_both().await;
        let server = Server::start(Duration::from_secs(3_600)).await;
        let (form, account) = connected(&world, &gateway, &server).await;
        world.submit_until(&form, "first", "succeeded", 1).await;
        Self {
            world,
            server,
            form,
            account,
            _processes: [gateway, worker],
        }
    }

    /// Ends all tokens without notice.
    fn end_tokens(&self) {
        self.server.granted(|granted| granted.tokens.clear());
    }

    fn given(&self) -> usize {
        self.server.granted(|granted| granted.given)
    }
}

/// The account waits until its owner lets Letterbox in.
async fn await_owner(world: &World, workspace: WorkspaceId) {
    eventually("the account waits", async || {
        waits_for(world, workspace).await == "owner"
    })
    .await;
}

/// A form whose actions call the account `crm`, which is connected by OAuth 2.0.
async fn connected(world: &World, gateway: &Process, server: &Server) -> (Form, String) {
    let plain = world.form(gateway).await;
    let (workspace, owner, url) = (plain.workspace, plain.owner, &server.peer.url);
    let secret = command_file(&format!("{workspace}.client-secret"), SECRET);
    letterbox_tests::marks::mark(SECRET);
    let account = world.order(format!(
        "account connect --workspace {workspace} --user {owner} --name crm --base-url {url} \
         --token-url {url}/token --client-id letterbox --client-secret-file {secret}"
    ));
    let definition = definition_with(json!([post("send")]));
    let form = world.form_of(gateway, workspace, owner, &definition).await;
    let id = account["account_id"].as_str().unwrap().to_owned();
    (form, id)
}

async fn waits_for(world: &World, workspace: WorkspaceId) -> Value {
    world.order(format!("account list --workspace {workspace}"))[0]["waits_for"].clone()
}

/// Tokens of seconds, and runs all the time: none meets a token that has ended, and one exchange
/// serves all, whichever worker makes it.
async fn no_run_meets_a_token_that_has_ended(lasts: u64, seconds: u64) {
    let server = Server::start(Duration::from_secs(lasts)).await;
    let (world, gateway, _worker) = World::with_both().await;
    let _other = world.worker().await;
    let (form, _) = connected(&world, &gateway, &server).await;
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        sent += 1;
        world.forget_hits().await;
        form.assert_accepts(&format!("k{sent}")).await;
        world.await_state("succeeded", sent).await;
    }
    let called = server.called();
    assert_eq!(called.len() as i64, sent, "each request was sent once");
    let given = server.granted(|granted| granted.given) as u64;
    let renewals = seconds / (lasts / 2) + 1;
    assert!(
        (2..=renewals + 1).contains(&given),
        "{given} for {renewals}"
    );
}

/// Two tokens in a row end before they are used, because whoever renews them is held up.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_outlives_tokens_that_end_too_soon() {
    let (world, gateway, _worker) = World::with_both().await;
    let (gate, given) = (Arc::new(Semaphore::new(0)), AtomicUsize::new(0));
    let shut = gate.clone();
    let peer = Peer::start(move |request, _| {
        let shown = request.header("authorization").map(str::to_owned);
        match (request.target.as_str(), shown.as_deref()) {
            ("/token", _) => {
                let token = format!("t{}", given.fetch_add(1, Relaxed));
                let answer = json!({"access_token": token, "token_type": "bearer"});
                Reply::With(200, vec![], answer.to_string())
            }
            (_, Some("Bearer t0")) => Reply::Status(401),
            (_, Some("Bearer t1")) => Reply::When(shut.clone(), 401),
            _ => Reply::Status(200),
        }
    });
    let server = Server {
        peer: peer.await,
        granted: Arc::default(),
    };
    let (form, _) = connected(&world, &gateway, &server).await;
    form.assert_accepts("k").await;
    eventually("the second one is shown", async || {
        server.called().len() == 2
    })
    .await;
    // Another worker is to renew it, and is slow.
    let due = "UPDATE grants SET renew_at = now() - interval '1 second', planned_at = now(),
        taken_until = now() + interval '1 minute'";
    world.change(due).await;
    gate.add_permits(1);
    let waits = "SELECT count(*) FROM connected_accounts WHERE waits_for = 'token'";
    world.await_count("waits for a token", waits, 1).await;
    world.change("UPDATE grants SET taken_until = NULL").await;
    world.await_state("succeeded", 1).await;
    assert_eq!(server.called().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_renewed_before_they_end() {
    no_run_meets_a_token_that_has_ended(12, 15).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "for --full"]
async fn tokens_are_renewed_for_ten_minutes() {
    no_run_meets_a_token_that_has_ended(60, 600).await;
}

/// A token that ends without notice is renewed once, and the request is sent again under its key.
/// An account that refuses the fresh one, too, has refused its credential.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_renewed_once() {
    let it = Connected::new().await;
    let (world, server, form) = (&it.world, &it.server, &it.form);
    it.end_tokens();
    for number in 0..10 {
        form.assert_accepts(&format!("k{number}")).await;
    }
    world.await_state("succeeded", 11).await;
    assert_eq!(it.given(), 2, "one for all");
    let called = server.called();
    let keys = called.iter().map(|one| one.header("idempotency-key"));
    let keys = BTreeSet::from_iter(keys);
    assert_eq!(keys.len(), 11, "a request keeps its key");
    assert!(!world.order("run list")[0].to_string().contains("canary"));

    // It takes none, whatever is given.
    server.granted(|granted| granted.lasts = Duration::ZERO);
    it.end_tokens();
    let later = "UPDATE grants SET refused_at = refused_at - interval '1 minute'";
    world.change(later).await;
    world.submit_until(form, "last", "failed", 1).await;
    let attempts = "SELECT max(attempts)::bigint FROM run_actions WHERE state = 'failed'";
    world.assert_count(attempts, 2).await;
    // Nobody makes it exchange all the time.
    for number in 2..=4 {
        form.assert_accepts(&format!("in vain {number}")).await;
        world.await_state("failed", number).await;
    }
    assert_eq!(it.given(), 3);
    let refused = "SELECT count(*) FROM connected_accounts WHERE is_refused";
    world.assert_count(refused, 1).await;
}

/// A token serves until the account refuses it, although its server gives no other one: only then
/// the account waits for its owner, and its runs with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_serves_although_the_next_one_is_refused() {
    let it = Connected::new().await;
    let (world, server, form) = (&it.world, &it.server, &it.form);
    server.granted(|granted| granted.is_revoked = true);
    world
        .change("UPDATE grants SET renew_at = clock_timestamp()")
        .await;
    let refused = "SELECT count(*) FROM connected_accounts WHERE is_refused";
    world.await_count("it gets no other", refused, 1).await;
    world.submit_until(form, "second", "succeeded", 2).await;
    it.end_tokens();
    form.assert_accepts("third").await;
    await_owner(world, form.workspace).await;
    world.await_state("queued", 1).await;
}

/// A worker is held up and renews too late, twice within a minute: each time the account refuses a
/// token that has ended, and runs wait for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_due_is_no_refused_credential() {
    let it = Connected::new().await;
    let (world, form) = (&it.world, &it.form);
    for number in 1..=2 {
        // Another worker has the grant, and is slow.
        let held = "UPDATE grants SET renew_at = now(), taken_until = now() + interval '1 minute'";
        world.change(held).await;
        it.end_tokens();
        form.assert_accepts(&format!("late {number}")).await;
        let waits = "connected_accounts WHERE waits_for = 'token'";
        world.await_rows(waits, 1).await;
        world.change("UPDATE grants SET taken_until = NULL").await;
        world.await_state("succeeded", 1 + number).await;
    }
    assert_eq!(it.given(), 3);
    // A clock that was ahead for a while has refused in the future, and renews then.
    let ahead = "UPDATE grants SET refused_at = now() + interval '1 hour',
        renew_at = now() + interval '2 hours'";
    world.change(ahead).await;
    it.end_tokens();
    world.submit_until(form, "ahead", "succeeded", 4).await;
    // One that was to be renewed then is renewed now, whoever has taken it then.
    let planned = "UPDATE grants SET planned_at = now() + interval '1 hour',
        renew_at = now() + interval '2 hours', taken_until = now() + interval '1 hour'";
    world.change(planned).await;
    eventually("renewed", async || it.given() == 5).await;
}

/// What gives the next token may work once only: what an exchange gave is kept when others have
/// taken the grant since, and when its worker is told to stop meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_gave_is_kept() {
    let world = World::new().await;
    let form = world.form(&world.gateway().await).await;
    let connect = async |workspace, user, name: String, token_url: &str| {
        let new = AccountSettings {
            token_url: Some(token_url.parse().unwrap()),
            client_id: Some("letterbox".to_owned()),
            ..AccountSettings::of(&name, "https://x.example".parse().unwrap())
        };
        let secret = AccountSecret::Client(Some(Secret::new(b"a secret".to_vec())));
        world.connect_with(workspace, user, &new, &secret).await
    };
    let (workspace, owner) = (form.workspace, form.owner);
    let own = connect(workspace, owner, "own".into(), "https://x.example").await;
    let own = format!("'{}', '{}'", own.workspace_id, own.account_id);
    let said = async |sql: &str| -> bool {
        let sql = sql.replace("$own", &own);
        world.value(&sql).await
    };
    let all = async |sql: &str| world.change(sql).await;
    all("UPDATE grants SET grant_sealed = 'r0'").await;
    assert!(said("SELECT count(*) = 1 FROM take_grants(9)").await);
    assert!(said("SELECT count(*) = 0 FROM take_grants(9)").await);
    all("UPDATE grants SET taken_until = now()").await;
    assert!(said("SELECT count(*) = 1 FROM take_grants(9)").await);
    assert!(said("SELECT keep_token($own, 1, 'r0', 't1', 'r1', false, 0)").await);
    assert!(!said("SELECT keep_failure($own, 2, 'invalid_grant', true, false)").await);
    assert!(!said("SELECT keep_token($own, 2, 'r0', 't0', 'r0', false, 0)").await);
    assert!(said("SELECT grant_sealed = 'r1' AND failures = 0 FROM grants").await);
    // Somebody else was refused the code with which this token was got.
    all("UPDATE grants SET grant_sealed = 'code'").await;
    assert!(said("SELECT max(revision) = 4 FROM take_grants(9)").await);
    all("UPDATE grants SET taken_until = now() + interval '1 hour'").await;
    assert!(said("SELECT max(revision) = 5 FROM take_grants(9)").await);
    assert!(said("SELECT keep_failure($own, 5, 'invalid_grant', true, true)").await);
    assert!(said("SELECT grant_sealed IS NULL FROM grants").await);
    assert!(said("SELECT keep_token($own, 4, 'code', 't1', 'r1', true, 0)").await);
    assert!(said("SELECT grant_sealed = 'r1' AND failures = 0 FROM grants").await);
    // Another code was accepted meanwhile, and gave no grant: the older one's token is void.
    all("UPDATE grants SET grant_sealed = NULL").await;
    assert!(!said("SELECT keep_token($own, 4, 'code', 't0', 'r0', true, 0)").await);
    all("UPDATE grants SET grant_sealed = 'r1', revision = 3").await;
    // Another secret meanwhile: the answer counts, a refusal of the former one does not.
    assert!(said("SELECT max(revision) = 4 FROM take_grants(9)").await);
    assert!(said("SELECT hand_in($own, 0, 'another secret', NULL)").await);
    assert!(!said("SELECT hand_in($own, 0, 'once more', NULL)").await);
    assert!(said("SELECT count(*) = 0 FROM take_grants(9)").await);
    assert!(!said("SELECT keep_failure($own, 4, 'invalid_client', true, false)").await);
    assert!(said("SELECT keep_token($own, 4, 'r1', 't2', 'r2', false, 0)").await);
    // Two tokens in a row are refused: it is something else, unless the second one was due, or
    // none was given when it was.
    for (renew_in, failures, is_again, is_renewed) in [
        ("1 hour", 1, true, true),
        ("1 hour", 0, false, true),
        ("1 hour", 0, true, false),
        ("-1 second", 0, true, true),
    ] {
        all("UPDATE connected_accounts SET credential_sealed = 't', waits_for = NULL").await;
        all(&format!(
            "UPDATE grants SET refused_at = NULL, planned_at = now(), failures = {failures},
             renew_at = now() + interval '{renew_in}'"
        ))
        .await;
        let refuse = format!("SELECT refuse_token($own, 't', {is_again}) = {is_renewed}");
        assert!(said(&refuse).await, "{renew_in} {failures} {is_again}");
    }
    // Who has many accounts keeps nobody waiting.
    let many = world.workspace("Many").await;
    world.set_role(many, form.owner, MemberRole::Owner).await;
    all("UPDATE grants SET renew_at = now() + interval '1 second'").await;
    for number in 0..30 {
        connect(many, form.owner, format!("a{number}"), "https://x.example").await;
    }
    all("UPDATE grants SET renew_at = now() WHERE grant_sealed = 'r2'").await;
    let others = format!("count(*) FILTER (WHERE workspace_id = '{many}')");
    let two = format!("SELECT count(*) = 2 AND {others} = 1 FROM take_grants(2)");
    assert!(said(&two).await);
    assert!(said(&format!("SELECT {others} = 9 FROM take_grants(50)")).await);
    assert!(said("SELECT count(*) = 0 FROM take_grants(50)").await);
    all("UPDATE connected_accounts SET disconnected_at = now(), credential_sealed = NULL").await;

    let gate = Arc::new(Semaphore::new(0));
    let shut = gate.clone();
    let peer = Peer::start(move |_, _| {
        let token = json!({"access_token": "t", "token_type": "bearer", "expires_in": 3600});
        Reply::WhenWith(shut.clone(), 200, token.to_string())
    })
    .await;
    let slow = connect(form.workspace, form.owner, "slow".into(), &peer.url).await;
    let mut worker = world.worker().await;
    peer.await_received(1).await;
    worker.terminate();
    worker.await_log("stopping").await;
    gate.add_permits(1);
    worker.ended().await;
    let found = "SELECT credential_sealed IS NOT NULL AND waits_for IS NULL
        FROM connected_accounts WHERE account_id = '$slow'";
    let found = found.replace("$slow", &slow.account_id.to_string());
    assert!(said(&found).await, "{}", worker.log());
    assert!(worker.log().contains("\"in_order\":true"));
}

/// A server that says anything in its refusal does not say it in the log, and to the owner without
/// the secret that it quotes.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_is_not_repeated() {
    let says = json!({"error": format!("no\u{0}\n{SECRET}")}).to_string();
    let peer = Peer::start(move |_, _| Reply::With(400, vec![], says.clone())).await;
    let server = Server {
        peer,
        granted: Arc::default(),
    };
    let (world, gateway, worker) = World::with_both().await;
    connected(&world, &gateway, &server).await;
    let told = r#"it answered with status 400: "no\0\n[hidden]""#;
    let is_told = format!("SELECT count(*) FROM grants WHERE error = '{told}'");
    world.await_count("it is written", &is_told, 1).await;
    worker.await_log("an account got no token").await;
    assert!(!worker.log().contains("hidden"));
    let (_, status) = crate::status::status(&world);
    assert_eq!(status["unconnected"][0]["error"], told);
}

/// The owner lets Letterbox in, takes that back, and lets it in again: what came meanwhile waits,
/// for the account and not for a person, and is done then.
#[tokio::test(flavor = "multi_thread")]
async fn runs_wait_for_who_has_revoked_a_grant() {
    let server = Server::start(Duration::from_secs(3_600)).await;
    let (world, gateway, _worker) = World::with_both().await;
    let (plain, desk) = (world.form(&gateway).await, Desk::start(&world).await);
    let (workspace, url) = (plain.workspace, &server.peer.url);
    let mut ada = desk.visitor(&world, plain.owner).await;
    let token_url = format!("{url}/token");
    let authorize_url = format!("{url}/authorize?prompt=consent");
    let named = workspace.to_string();
    let filled = [
        ("workspace", named.as_str()),
        ("name", "crm"),
        ("base_url", url),
        ("token_url", &token_url),
        ("authorize_url", &authorize_url),
        ("client_id", "letterbox"),
        ("client_secret", SECRET),
    ];
    letterbox_tests::marks::mark(SECRET);
    let connected = ada.order("/accounts/oauth", &filled).await;
    assert_eq!(connected.status(), 303);
    let place = connected.headers()["location"].to_str().unwrap();
    let account = place.split('/').nth(2).unwrap().to_owned();
    let page = page_of(ada.order("/accounts/oauth", &filled).await, 422).await;
    assert_tells(&page, &["value=\"letterbox\""]);
    assert_hides(&page, &["canary"]);
    let definition = definition_with(json!([post("send")]));
    let forming = world.form_of(&gateway, workspace, plain.owner, &definition);
    let form = forming.await;
    for number in 0..5 {
        form.assert_accepts(&format!("k{number}")).await;
    }
    world.await_state("queued", 5).await;
    assert_eq!(waits_for(&world, workspace).await, "owner");
    ada.assert_shows("/", "wait until you have connected").await;
    let run = world.run_of(&form).await.row.run_id.to_string();
    eventually("the run says why it waits", async || {
        let shown = world.letterbox(format!("run show {run}"));
        String::from_utf8_lossy(&shown.stdout).contains("for the account crm, until its owner")
    })
    .await;
    let said = "It waits for the account crm, until its owner connects it again";
    ada.assert_shows(&format!("/runs/{run}"), said).await;

    // A notice through an account without a token waits, and keeps none of the others back.
    world.order(format!(
        "workspace settings {workspace} --notify-account {account}"
    ));
    let news = "INSERT INTO news (workspace_id, kind, subject_id, happened_at)
        SELECT workspace_id, 'failure', gen_random_uuid(), '-infinity' FROM workspaces";
    world.change(news).await;
    let letters = "SELECT count(*) FROM letters WHERE error = 'the account is not connected'";
    world.await_count("the letter waits", letters, 1).await;

    authorize(&desk, &mut ada, &account).await;
    world.await_state("succeeded", 5).await;
    let redeemed = server.peer.received();
    let redeemed = redeemed.iter().rfind(|one| one.target == "/token").unwrap();
    assert!(redeemed.body.contains("code_verifier="), "{redeemed:?}");

    server.granted(|granted| {
        granted.is_revoked = true;
        granted.tokens.clear();
    });
    world.order(format!(
        "workspace settings {workspace} --notify-by-email on"
    ));
    for number in 5..10 {
        form.assert_accepts(&format!("k{number}")).await;
    }
    await_owner(&world, workspace).await;
    let told = "SELECT count(*) FROM news WHERE kind = 'refused_account'";
    let sent = "letters WHERE (told ->> 'refused_account')::integer = 1";
    assert_eq!(world.count(told).await + world.rows(sent).await, 1);
    let page = ada.page(&format!("/accounts?workspace={workspace}")).await;
    assert_tells(&page, &["invalid_grant"]);
    assert_hides(&page, &["canary"]);
    world.await_state("queued", 5).await;
    let status = world.order("status");
    let unconnected = &status["unconnected"][0];
    assert_holds(unconnected, json!({"account": "crm", "runs": 5}));
    let calls = server.called().len();
    world.submit_until(&form, "k10", "queued", 6).await;

    server.granted(|granted| granted.is_revoked = false);
    authorize(&desk, &mut ada, &account).await;
    world.await_state("succeeded", 11).await;
    assert_eq!(server.called().len(), calls + 6); // nothing was called meanwhile
    world.order("keys rotate");
    let secret = [("kind", "client_secret"), ("credential", SECRET)];
    let place = format!("/accounts/{account}/rotate");
    let rotated = ada.order(&place, &secret).await;
    assert_eq!(rotated.status(), 303);
    world.submit_until(&form, "k11", "succeeded", 12).await;
    world.order(format!("account disconnect {account} --yes"));
    world.assert_rows("grants", 0).await;
}

/// What a browser does that lets Letterbox in.
async fn authorize(desk: &Desk, visitor: &mut Visitor, account: &str) {
    let session = visitor.cookie.clone();
    let begun = visitor.get(&format!("/accounts/{account}/authorize")).await;
    assert_eq!(begun.status(), 200);
    let cookie = begun.headers()["set-cookie"].to_str().unwrap();
    visitor.cookie = format!("{session}; {}", cookie.split(';').next().unwrap());
    let page = begun.text().await.unwrap();
    let (_, to) = page.split_once("class=\"button\" href=\"").unwrap();
    let to = to.split('"').next().unwrap();
    let to = to.replace("&#38;", "&");
    let to: Url = to.parse().unwrap();
    let of = |name: &str| {
        let mut pairs = to.query_pairs();
        let found = pairs.find(|(given, _)| given == name);
        found.map(|(_, value)| value.into_owned())
    };
    assert_eq!(of("prompt").as_deref(), Some("consent"));
    assert_eq!(of("code_challenge_method").as_deref(), Some("S256"));
    let host = to.authority();
    let back = format!("{}/accounts/callback/{host}", desk.url);
    assert_eq!(of("redirect_uri"), Some(back));
    let state = of("state").unwrap();

    // Coming back changes nothing, and what was begun elsewhere is refused.
    let back = |state: &str| format!("/accounts/callback/{host}?code=a-code&state={state}");
    let other = visitor.get(&back("another")).await;
    assert_eq!(other.status(), 409);
    // What another server has given is not taken for what this one gave.
    let other = back(&state).replace(host, "another.example");
    let other = visitor.get(&other).await;
    assert_eq!(other.status(), 409);
    visitor
        .assert_shows(&back(&state), "You have authorized Letterbox")
        .await;
    let denied = format!("/accounts/callback/{host}?error=access_denied&state={state}");
    visitor.assert_shows(&denied, "nothing has changed").await;
    // And what is handed in twice counts once.
    let (other, own) = ("another", state.as_str());
    for (state, expected) in [(other, 409), (own, 303), (own, 404)] {
        let form = [("state", state), ("code", "a-code")];
        let handed = visitor.order("/accounts/callback", &form).await;
        assert_eq!(handed.status(), expected, "{:?}", handed.text().await);
    }
    visitor.cookie = session;
}

/// Accounts of others are connected by nobody else, and a client secret rotates.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_its_owners() {
    let it = Connected::new().await;
    let (world, form, account) = (&it.world, &it.form, &it.account);
    let wrong = command_file(&format!("{}.wrong-secret", form.workspace), "wrong");
    let rotate = format!("account rotate {account} --client-secret-file");
    world.order(format!("{rotate} {wrong}"));
    await_owner(world, form.workspace).await;
    let right = command_file(&format!("{}.client-secret", form.workspace), SECRET);
    world.order(format!("{rotate} {right}"));
    world.submit_until(form, "l", "succeeded", 2).await;
    let token = command_file(&format!("{}.token", form.workspace), "token");
    let by_token = format!("account rotate {account} --bearer-file {token}");
    world.assert_refused(by_token, "gets its tokens by OAuth 2.0");

    let desk = Desk::start(world).await;
    let operator = world.operator().await;
    let other = operator.invite(form.workspace, "o@example.com", "Other", MemberRole::Owner);
    let other = desk.visitor(world, other.await.unwrap().user_id).await;
    let page = format!("/accounts?workspace={}", form.workspace);
    let page = other.page(&page).await;
    assert_tells(&page, &["as letterbox"]);
    assert_hides(&page, &["canary"]);
    let foreign = other.get(&format!("/accounts/{account}/authorize")).await;
    assert_eq!(foreign.status(), 404);
    let stolen = [("kind", "client_secret"), ("credential", "stolen")];
    let place = format!("/accounts/{account}/rotate");
    let rotated = other.order(&place, &stolen).await;
    assert_eq!(rotated.status(), 404);
    assert!(waits_for(world, form.workspace).await.is_null());
}
