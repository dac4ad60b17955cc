//! The rooms of the desk in which people have what is theirs: forms, accounts, webhooks, and who
//! belongs to a workspace. Each does what its role allows, and nobody reads there
//! what they hand in.

use letterbox_common::states::MemberRole;
use letterbox_tests::{
    APP, Desk, Form, MailServer, Peer, Reply, Scene, Visitor, Webhook, World, assert_hides,
    assert_holds, assert_tells, definition_with, eventually, one_of, page_of, payload, post, table,
};
use reqwest::Response;
use serde_json::{Value, json};

/// What a page shows once.
pub fn shown(page: &str) -> Vec<String> {
    let shown = page.split("class=\"once\">").skip(1);
    let shown = shown.map(|rest| rest.split('<').next().unwrap());
    shown.map(|text| text.replace("&#x2f;", "/")).collect()
}

/// The page that shows what was made, once: loaded again, in whatever way, it leads elsewhere, and
/// nothing is made again.
async fn shown_once(visitor: &Visitor, made: &Response) -> String {
    let page = visitor.follow(made).await;
    assert_eq!(page.status(), 200);
    let forgets = page.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert_tells(&forgets, &["=; ", "Max-Age=0"]);
    let again = visitor.get(&place(made)).await;
    assert_ne!(place(&again), place(made));
    page.text().await.unwrap()
}

fn place(response: &Response) -> String {
    assert_eq!(response.status(), 303);
    response.headers()["location"].to_str().unwrap().to_owned()
}

/// From a definition with a mistake to a form that people reach, and back.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_publishes_a_form() {
    let (world, _gateway, _worker, first) = World::with_recorded_form().await;
    let desk = Desk::start(&world).await;
    let ada = desk
        .member(&world, first.workspace, "ada", MemberRole::Runner)
        .await;
    let workspace = first.workspace.to_string();

    let example = ada.page(&format!("/forms/new?workspace={workspace}")).await;
    assert!(example.contains("Contact us"), "{example}");
    let wrong = definition_with(json!([{"id": "a", "type": "none"}]));
    let named = [("workspace", workspace.as_str()), ("name", "Ada's")];
    let form = [&named[..], &[("definition", &*wrong)]].concat();
    let refused = page_of(ada.order_with_file("/forms", &form).await, 422).await;
    assert_tells(&refused, &["<code>actions[0].type</code>"]);
    assert_tells(&refused, &["&#34;type&#34;:&#34;none&#34;"]);
    let right = definition_with(json!([]));
    let form = [&named[..], &[("definition", &*right)]].concat();
    let workflow = place(&ada.order_with_file("/forms", &form).await);
    let never = "It has never been deployed";
    ada.assert_shows(&workflow, never).await;

    let unsure = async |verb: &str, form: &[(&str, &str)]| {
        ada.order_with_file(&format!("{workflow}/{verb}"), form)
            .await
    };
    let order = async |verb: &str, form: &[(&str, &str)]| {
        unsure(verb, &[form, &[("sure", "yes")]].concat()).await
    };
    let deploy = order("deploy", &[("definition", &wrong), ("how", "deploy")]).await;
    assert_eq!(deploy.status(), 422);
    let check = order("deploy", &[("definition", &right), ("how", "check")]).await;
    let check = check.text().await.unwrap();
    assert_tells(&check, &["New fields: email, message, name"]);
    assert_tells(&check, &["never been deployed"]);
    let deployed = order("deploy", &[("definition", &right), ("how", "deploy")]).await;
    assert_eq!(place(&deployed), workflow);

    let made = async |form: &[(&str, &str)]| {
        let page = shown_once(&ada, &order("link", form).await).await;
        let link = &shown(&page)[0];
        let token = link.strip_prefix(&format!("{APP}/forms?token=")).unwrap();
        first.with_token(token)
    };
    let link: Form = made(&[]).await;
    world.submit_until(&link, "k", "succeeded", 1).await;
    let bounded = made(&[("max_answers", "1"), ("closes_at", "2126-01-31T08:00")]).await;
    link.assert_dead().await;
    bounded.assert_accepts("l").await;
    assert_eq!(bounded.submit("m", &payload()).await.status, 404);
    let page = ada.page(&workflow).await;
    assert_tells(&page, &["1 of 1 submissions", "2126-01-31 08:00"]);
    for (wrong, words) in [
        (("max_answers", "0"), "at least 1"),
        (("max_answers", "x"), "must be a number"),
        (("closes_at", "soon"), "not a time"),
        (("closes_at", "2020-01-01T00:00"), "in the past"),
    ] {
        let refused = page_of(order("link", &[wrong]).await, 409).await;
        assert_tells(&refused, &[words]);
    }

    let link = made(&[]).await;
    for verb in ["link", "deploy", "end-link", "pause", "activate", "draft"] {
        let refused = unsure(verb, &[("how", "deploy"), ("definition", &right)]).await;
        let refused = refused.text().await.unwrap();
        assert!(refused.contains("tick that you are sure"), "{verb}");
    }
    place(&order("end-link", &[]).await);
    link.assert_dead().await;
    let link = made(&[]).await;
    for (verb, state) in [
        ("pause", "paused"),
        ("activate", "deployed"),
        ("draft", "draft"),
    ] {
        assert_eq!(place(&order(verb, &[]).await), workflow);
        link.assert_dead().await;
        let page = ada.page(&workflow).await;
        assert_tells(&page, &[&format!("class=\"state {state}\"")]);
    }
    let kept = unsure("delete", &[]).await;
    assert_eq!(kept.status(), 409);
    let deleted = order("delete", &[("sure", "yes")]).await;
    assert_eq!(place(&deleted), format!("/forms?workspace={workspace}"));
    // Deleted ones are not listed.
    assert_hides(&ada.page("/forms").await, &["Ada&#39;s"]);
}

/// A person connects a mail server with a name and a password, and sends by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_is_connected() {
    let server = MailServer::start().await;
    let (world, gateway) = World::with_gateway().await;
    let _worker = world.worker().await;
    let plain = world.form(&gateway).await;
    let workspace = plain.workspace.to_string();
    let (_desk, ada) = Desk::with_visitor(&world, plain.owner).await;
    let account = |sender: &'static str| {
        [
            ("workspace", workspace.as_str()),
            ("name", "mail"),
            ("base_url", server.url.as_str()),
            ("sender", sender),
            ("kind", "basic"),
            ("user_name", "ada"),
            ("credential", "a:b"),
        ]
    };
    let refused = page_of(ada.order("/accounts", &account("a bakery")).await, 422).await;
    assert_tells(&refused, &["must be an e-mail address"]);
    assert_tells(&refused, &["value=\"a bakery\""]);
    let shop = account("Shop <shop@example.com>");
    place(&ada.order("/accounts", &shop).await);
    let told = "It sends e-mail from Shop &#60;shop@example.com&#62;.";
    ada.assert_shows("/accounts", told).await;
    let email = json!({"id": "tell", "type": "email.send", "account": "mail",
        "to": ["owner@example.com"], "subject": "News"});
    let form = world.redeployed(&gateway, &plain, json!([email])).await;
    world.submit_until(&form, "k", "succeeded", 1).await;
    assert_eq!(server.logins(), ["AUTH PLAIN AGFkYQBhOmI="]); // \0ada\0a:b
    let run = world.runs_of(&form).await[0].run_id;
    let page = ada.page(&format!("/runs/{run}")).await;
    assert_tells(&page, &["POST smtp://127.0.0.1", "owner@example.com"]);
    assert_tells(&page, &["Your name: Ada"]);
}

/// What is handed in at the desk is used by those who may open it, and by nobody else; a rotation
/// of keys covers it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_in_is_sealed_to_those_who_use_it() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, plain) = World::with_form().await;
    let (workspace, owner) = (plain.workspace.to_string(), plain.owner);
    let (_desk, ada) = Desk::with_visitor(&world, owner).await;
    let account = |credential: &'static str| {
        [
            ("workspace", workspace.as_str()),
            ("name", "crm"),
            ("base_url", peer.url.as_str()),
            ("kind", "bearer"),
            ("credential", credential),
        ]
    };
    let first = account("first-credential-of-ada");
    let nobody = ada.order("/accounts", &first).await;
    assert_tells(&page_of(nobody, 409).await, &["No worker is running"]);
    let _worker = world.worker().await;
    let connected = place(&ada.order("/accounts", &first).await);
    assert_eq!(connected, format!("/accounts?workspace={workspace}"));
    let second = account("second-credential-of-ada");
    let again = page_of(ada.order("/accounts", &second).await, 422).await;
    assert_tells(&again, &["account of this name", "value=\"crm\""]);
    assert_hides(&again, &["second-credential"]);
    let elsewhere = [&account("a-token")[..], &[("header", "X-Api-Key")]].concat();
    let elsewhere = ada.order("/accounts", &elsewhere).await.text().await;
    assert_tells(&elsewhere.unwrap(), &["goes into Authorization"]);

    let actions = json!([post("send")]);
    let form = world.redeployed(&gateway, &plain, actions).await;
    let mut expected = 0;
    let mut assert_sent_with = async |credential: &str| {
        expected += 1;
        form.assert_accepts(&format!("k{expected}")).await;
        let sent = peer.await_received(expected).await;
        let header = sent.last().unwrap().header("authorization");
        assert_eq!(header.unwrap(), format!("Bearer {credential}"));
    };
    assert_sent_with("first-credential-of-ada").await;
    world.await_state("succeeded", 1).await;
    let page = ada.page("/accounts").await;
    assert_tells(&page, &["It last answered 200", "Called by"]);
    let id = "SELECT account_id::text FROM connected_accounts";
    let id: String = world.value(id).await;
    let (kind, third) = (("kind", "bearer"), "third-credential-of-ada");
    let rotate = format!("/accounts/{id}/rotate");
    place(&ada.order(&rotate, &[kind, ("credential", third)]).await);
    assert_sent_with("third-credential-of-ada").await;

    let (hook, secret) = created(&world, &ada, &workspace, &gateway.public_url()).await;
    assert_eq!(hook.send(r#"{"a": 1}"#).await.status, 202);
    world.await_signals(1).await;
    // 2 is what was handed in, 1 what a key of the ring has sealed.
    let handed = "SELECT (SELECT count(*) FROM webhooks WHERE get_byte(secret_sealed, 0) = $1)
        + (SELECT count(*) FROM connected_accounts WHERE get_byte(credential_sealed, 0) = $1)";
    let sealed_as = async |version: &str| world.count(&handed.replace("$1", version)).await;
    assert_eq!((sealed_as("2").await, sealed_as("1").await), (2, 0));
    assert_eq!(world.order("keys rotate")["resealed"], 2);
    assert_eq!((sealed_as("2").await, sealed_as("1").await), (0, 2));
    assert_sent_with("third-credential-of-ada").await;
    let rotation = [("kind", "basic"), ("credential", "ada:a word")];
    place(&ada.order(&rotate, &rotation).await);
    form.assert_accepts("basic").await;
    let sent = peer.await_received(4).await;
    let header = sent[3].header("authorization");
    assert_eq!(header, Some("Basic YWRhOmEgd29yZA=="));
    assert_eq!(hook.send(r#"{"a": 2}"#).await.status, 202);

    let disconnect = format!("/accounts/{id}/disconnect");
    place(&ada.order(&disconnect, &[("sure", "yes")]).await);
    let none = "No account is connected";
    ada.assert_shows("/accounts", none).await;
    let dump = world.order("audit list").to_string();
    assert_hides(&dump, &["first-credential-of-ada", third, &secret]);
}

/// A webhook that was created at the desk, and its secret.
async fn created(
    world: &World,
    visitor: &Visitor,
    workspace: &str,
    gateway: &str,
) -> (Webhook, String) {
    let form = [
        ("workspace", workspace),
        ("name", "Tool"),
        ("tool", "letterbox"),
    ];
    let page = shown_once(visitor, &visitor.order("/webhooks", &form).await).await;
    let [url, secret] = &shown(&page)[..] else {
        panic!("{page}")
    };
    let (_, address) = url.rsplit_once('/').unwrap();
    let webhook = Webhook::new(gateway, address.parse().unwrap(), secret.clone());
    assert!(page.contains("X-Service-Signature"));
    world.assert_rows("webhooks WHERE name = 'Tool'", 1).await;
    (webhook, secret.clone())
}

/// The page of a webhook whose secret its tool makes, before that is set; it is set here.
async fn a_secret_is_set_later(eddy: &Visitor, workspace: &str) -> String {
    let form = [
        ("workspace", workspace),
        ("name", "Stripe"),
        ("tool", "stripe"),
        ("later", "yes"),
    ];
    let made = eddy.order("/webhooks", &form).await;
    let page = shown_once(eddy, &made).await;
    let [url] = &shown(&page)[..] else {
        panic!("only the address is shown: {page}")
    };
    let path = format!("/webhooks/{}", url.rsplit_once('.').unwrap().1);
    let before = eddy.page(&path).await;
    let set = format!("{path}/secret");
    let none = eddy.order(&set, &[("secret", "")]).await;
    assert_eq!(none.status(), 409);
    let done = eddy
        .order(&set, &[("secret", "whsec_of_some_length")])
        .await;
    assert_eq!(done.status(), 303);
    assert_hides(&eddy.page(&path).await, &["Nothing is accepted before"]);
    before
}

/// A webhook's address and secret are shown once; what it refuses and receives is told as long as
/// it lives.
#[tokio::test(flavor = "multi_thread")]
async fn an_editor_has_webhooks() {
    let (world, gateway, _worker, form) = World::with_recorded_form().await;
    let desk = Desk::start(&world).await;
    let eddy = desk
        .member(&world, form.workspace, "eddy", MemberRole::Editor)
        .await;
    let workspace = form.workspace.to_string();
    let (hook, secret) = created(&world, &eddy, &workspace, &gateway.public_url()).await;
    let body = r#"{"hello": "world"}"#;
    assert_eq!(hook.send(body).await.status, 202);
    let forger = Webhook::new(&gateway.public_url(), hook.address, "f".repeat(64));
    assert_eq!(forger.send(body).await.status, 401);
    world.await_signals(1).await;
    let id = "SELECT webhook_id::text FROM webhooks WHERE name = 'Tool'";
    let id: String = world.value(id).await;
    let path = format!("/webhooks/{id}");
    let is_told = async || eddy.page(&path).await.contains("belongs to another secret");
    eventually("the refusal is told", is_told).await;
    let page = eddy.page(&path).await;
    assert_tells(&page, &[&hook.address.to_string(), ">generic</a>"]);
    assert_hides(&page, &[&secret]);
    let (_, signal) = page.split_once("href=\"/signals/").unwrap();
    let signal = eddy.page(&format!("/signals/{}", &signal[..36])).await;
    assert_tells(&signal, &["hello", "world"]);
    let page = a_secret_is_set_later(&eddy, &workspace).await;
    assert_tells(&page, &["Nothing is accepted before", "<b>Workbench</b>"]);

    for (wrong, words) in [
        ([("tool", "custom"), ("rules", "")], "needs rules"),
        (
            [
                ("tool", "custom"),
                (
                    "rules",
                    r#"{"header":"x","encoding":"hex","signed":"{host}{body}"}"#,
                ),
            ],
            "placeholder {host}; known: {body}",
        ),
        ([("tool", "githib"), ("secret", "")], "is known; `letterbox"),
        ([("tool", "github"), ("same_by", "data.id")], "JSON pointer"),
        ([("tool", "discord"), ("secret", "")], "give its public key"),
        ([("tool", "github"), ("secret", "short")], "at least 16"),
        ([("tool", "github"), ("allow_from", "here")], "networks"),
    ] {
        let form = [("workspace", workspace.as_str()), ("name", "Wrong")];
        let refused = eddy.order("/webhooks", &[&form[..], &wrong].concat()).await;
        assert_eq!(refused.status(), 422, "{wrong:?}");
        let told = refused.text().await.unwrap();
        assert!(told.contains(words), "{wrong:?}: {told}");
    }

    let replaced = eddy.order(&format!("{path}/replace"), &[]).await;
    let replaced = shown_once(&eddy, &replaced).await;
    let [url, fresh] = &shown(&replaced)[..] else {
        panic!("{replaced}")
    };
    let (_, address) = url.rsplit_once('/').unwrap();
    let address = address.parse().unwrap();
    let successor = Webhook::new(&gateway.public_url(), address, fresh.clone());
    assert!(successor.send(body).await.is_duplicate(), "both remember");
    let deleted = format!("/webhooks/{}/delete", address.webhook);
    assert_eq!(eddy.order(&deleted, &[]).await.status(), 409);
    place(&eddy.order(&deleted, &[("sure", "yes")]).await);
    assert_eq!(successor.send(body).await.status, 401);
}

/// Owners ask people in, change what they may do and what the policy says, and see before what ends
/// with it.
#[tokio::test(flavor = "multi_thread")]
async fn owners_govern() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    let boss_id = world
        .member(form.workspace, "boss", MemberRole::Owner)
        .await;
    let (desk, boss) = Desk::with_visitor(world, boss_id).await;
    let workspace = form.workspace.to_string();
    let at = ("workspace", workspace.as_str());

    let invited = [
        at,
        ("email", "new@example.com"),
        ("name", "Boss of all"),
        ("role", "viewer"),
    ];
    place(&boss.order("/people", &invited).await);
    let new = "SELECT user_id::text FROM users WHERE email = 'new@example.com'";
    let new: String = world.value(new).await;
    // Who asks somebody in does not say what everybody calls them: they do.
    let called = "SELECT count(*) FROM users WHERE name = 'new@example.com'";
    world.assert_count(called, 1).await;
    let newcomer = desk.visitor(world, &new).await;
    newcomer.assert_shows("/me", "as new@example.com").await;
    let nameless = newcomer.order("/me", &[("name", "\n")]).await;
    assert_eq!(nameless.status(), 400);
    place(&newcomer.order("/me", &[("name", "Newcomer")]).await);
    boss.assert_shows("/people", "Newcomer").await;
    let wrong = [at, ("email", "nobody"), ("role", "viewer")];
    let refused = boss.order("/people", &wrong).await;
    assert_eq!(refused.status(), 422);
    let set = [
        at,
        ("user", new.as_str()),
        ("role", "editor"),
        ("how", "set"),
    ];
    place(&boss.order("/people/change", &set).await);
    world.assert_rows("members WHERE role = 'editor'", 1).await;

    // What ends is said before: the link of a form whose owner has no rights any more.
    let owner = form.owner.to_string();
    let deactivate = [
        at,
        ("user", owner.as_str()),
        ("role", "owner"),
        ("how", "deactivate"),
    ];
    let asked = boss.order("/people/change", &deactivate).await;
    let asked = asked.text().await.unwrap();
    assert_tells(&asked, &["These form links end", "Contact"]);
    form.assert_lives().await;

    let policy = |text: &str, how: &'static str, version: &'static str| {
        let (workspace, text) = (workspace.clone(), text.to_owned());
        let (boss, path) = (&boss, "/policy");
        async move {
            let form = [
                ("workspace", workspace.as_str()),
                ("policy", &text),
                ("version", version),
                ("reason", "careful"),
            ];
            let shown = [&form[..], &[("how", "check")]].concat();
            let shown = boss.order_with_file(path, &shown).await;
            if how == "check" {
                return shown;
            }
            // Only what was shown is set.
            let shown = shown.text().await.unwrap();
            let shown = shown.split_once("name=\"previewed\" value=\"");
            let shown = shown.map_or("", |(_, rest)| &rest[..64]);
            let form = [&form[..], &[("how", how), ("previewed", shown)]].concat();
            boss.order_with_file(path, &form).await
        }
    };
    let asking = json!({"rules": [{"when": {"account": "crm"}, "decision": "approve"}],
        "default": "deny", "approve_by": "person"});
    // As long as no other form's fields may be.
    let asking = format!("{asking}{}", " ".repeat(200_000));
    let preview = policy(&asking, "check", "0").await.text().await.unwrap();
    assert!(preview.contains("becomes approve"), "{preview}");
    world.assert_rows("policies", 0).await; // nothing was set
    let invalid = policy("{}", "set", "0").await;
    assert_eq!(invalid.status(), 422);
    place(&policy(&asking, "set", "0").await);
    let late = policy(&asking, "set", "0").await;
    assert_eq!(late.status(), 422, "another has set one");
    world.assert_rows("policies", 1).await;
    // In rows: each press shows what the policy would be, and sets nothing.
    let rules = r#"{"rules": [{"when": {"host": ["a.example"]}, "decision": "deny"}],
        "default": "deny"}"#;
    let first = "Ask for approval of a request when the account is crm and the method is POST or \
        PUT or PATCH or DELETE and untrusted text has to do with it (data)";
    let host = "Deny a request when the host is a.example";
    for (how, otherwise, told, not_told) in [
        ("add", "deny", [first, host], "Allow everything else"),
        ("rest", "allow", [host, "Allow everything else"], first),
        (
            "remove:0",
            "deny",
            ["Deny everything else", "Nothing is set yet"],
            host,
        ),
        (
            "set",
            "allow",
            ["Allow everything else", "Nothing is set yet"],
            first,
        ),
    ] {
        let filled = [
            at,
            ("policy", rules),
            ("how", how),
            ("account", "crm"),
            ("method", "writes"),
            ("untrusted", "data"),
            ("decision", "approve"),
            ("default", otherwise),
            ("approve_by", "another"),
        ];
        let page = boss.order_with_file("/policy", &filled).await;
        let page = page.text().await.unwrap();
        assert_tells(&page, &told);
        assert_hides(&page, &[not_told]);
    }
    world.assert_rows("policies", 1).await;
    let page = boss.page("/policy").await;
    for told in [
        "Ask for approval of a request when the account is crm",
        "Deny everything else",
        "A person who has proven",
        "boss: careful",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    // Told by e-mail, and through an account of one's own only.
    let foreign = "SELECT account_id::text FROM connected_accounts";
    let foreign: String = world.value(foreign).await;
    let notices = [at, ("by_email", "yes"), ("account", "")];
    place(&boss.order("/people/notices", &notices).await);
    let notices = [at, ("by_email", "yes"), ("account", &foreign)];
    let refused = boss.order("/people/notices", &notices).await;
    assert_eq!(refused.status(), 409);
    let own = world
        .connect(form.workspace, boss_id, "chat", "https://chat.example/hook")
        .await;
    let own = own.account_id.to_string();
    let notices = [at, ("by_email", "yes"), ("account", own.as_str())];
    place(&boss.order("/people/notices", &notices).await);
    let set =
        "SELECT count(*) FROM workspaces WHERE notify_by_email AND notify_account IS NOT NULL";
    world.assert_count(set, 1).await;
    scene.submit_until("k", "waiting_approval", 1).await;

    let sure = [("sure", "yes")];
    let deactivate = [&deactivate[..], &sure].concat();
    place(&boss.order("/people/change", &deactivate).await);
    form.assert_dead().await;
    let removed = [
        at,
        ("user", new.as_str()),
        ("role", "editor"),
        ("how", "remove"),
    ];
    let removed = [&removed[..], &sure].concat();
    place(&boss.order("/people/change", &removed).await);
    assert!(!boss.page("/people").await.contains("Newcomer"));
    let entries = world.order("audit list");
    let entry = one_of(&entries, "subject", "policies");
    assert_holds(entry, json!({"proven_by": "link", "reason": "careful"}));

    // All that is the history of the workspace, for its owners.
    let history = boss.page("/history").await;
    for told in [
        "policy",
        "Why: careful",
        "role: viewer, now editor",
        "boss: member",
    ] {
        assert!(history.contains(told), "{told}: {history}");
    }
    assert_hides(&history, &["(hidden)", "sha256", "inet"]);
    boss.assert_shows("/history?before=1", "Nothing yet").await;
    let elsewhere = world.workspace("Elsewhere").await;
    let editor = MemberRole::Editor;
    for (workspace, role) in [(form.workspace, editor), (elsewhere, MemberRole::Owner)] {
        let other = desk.member(world, workspace, role.as_str(), role).await;
        let path = format!("/history?workspace={}", form.workspace);
        let answer = other.get(&path).await;
        assert!(answer.status().is_client_error(), "{role}: {answer:?}");
    }
}

/// A workspace asks in a thousand people, and an operator those beyond.
#[tokio::test(flavor = "multi_thread")]
async fn owners_ask_in_so_many_and_no_more() {
    let world = World::new().await;
    let operator = world.operator().await;
    let workspace = world.workspace("Test").await;
    let boss = world.member(workspace, "boss", MemberRole::Owner).await;
    let many = format!(
        "INSERT INTO users (user_id, email, name)
            SELECT gen_random_uuid(), n || '@many.example', 'One' FROM generate_series(1, 998) n;
        INSERT INTO members (workspace_id, user_id, role)
            SELECT '{workspace}', user_id, 'viewer' FROM users WHERE email LIKE '%@many.example'"
    );
    world.change(&many).await;
    let (_desk, boss) = Desk::with_visitor(&world, boss).await;
    let at = workspace.to_string();
    let ask = async |email: &str| {
        let form = [
            ("workspace", at.as_str()),
            ("email", email),
            ("role", "viewer"),
        ];
        boss.order("/people", &form).await
    };
    place(&ask("last@example.com").await);
    let users = world.count("SELECT count(*) FROM users").await;
    let refused = page_of(ask("further@example.com").await, 422).await;
    assert_tells(&refused, &["an operator can add them"]);
    world.assert_rows("users", users).await;
    let viewer = MemberRole::Viewer;
    let further = operator.invite(workspace, "further@example.com", "Further", viewer);
    further.await.unwrap();
}

/// Of an account is told what it has answered, or that it has not; not what was never sent to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_answers_only_what_was_sent() {
    let (_peer, scene) = Scene::posting("send").await;
    let question = scene.ask().await.approval_id;
    let (_desk, owner) = Desk::with_visitor(&scene.world, scene.form.owner).await;
    place(&owner.answer(question, "deny").await);
    scene.world.await_state("denied", 1).await;
    let page = owner.page("/accounts").await;
    assert!(page.contains("crm") && !page.contains("It last"), "{page}");
    let again = format!("/runs/{}/retry", scene.the_run().await.row.run_id);
    place(&owner.order(&again, &[]).await);
    scene.world.await_state("waiting_approval", 1).await;
    let question = scene.the_approval().await.approval_id;
    place(&owner.answer(question, "approve").await);
    scene.world.await_state("succeeded", 1).await;
    let answered = "It last answered 200";
    owner.assert_shows("/accounts", answered).await;
}

/// The orders of these rooms, who may give each, and what it carries. They are given by r(unner),
/// e(ditor), o(wner of the workspace), m(aster of the workflow).
const ORDERS: &str = r#"
    /forms                      | reo | workspace=WORKSPACE name=X definition=DEFINITION
    /forms/WORKFLOW/deploy      | m   | definition=DEFINITION how=deploy
    /forms/WORKFLOW/copy        | reo |
    /forms/WORKFLOW/link        | m   |
    /forms/WORKFLOW/activate    | m   |
    /forms/WORKFLOW/link        | m   |
    /forms/WORKFLOW/end-link    | eom |
    /forms/WORKFLOW/pause       | eom |
    /forms/WORKFLOW/draft       | eom |
    /accounts/ACCOUNT/rotate    | m   | kind=bearer credential=a-token-of-mine
    /accounts/ACCOUNT/disconnect | m  | sure=yes
    /accounts                   | reo | workspace=WORKSPACE name=own OWN
    /webhooks                   | eo  | workspace=WORKSPACE name=W tool=letterbox
    /webhooks/HOOK/replace      | eo  |
    /webhooks/HOOK/delete       | eo  | sure=yes
    /people                     | o   | workspace=WORKSPACE email=v@example.com name=V role=owner
    /people/change              | o   | workspace=WORKSPACE user=VICTIM role=runner how=set
    /policy                     | o   | workspace=WORKSPACE version=0 how=set POLICY
    /people/notices             | o   | workspace=WORKSPACE by_email=yes account="#;
/// An account, but for its workspace and name.
const OWN: &str = "base_url=https://x.example/ kind=bearer credential=a-token-of-mine";
/// A policy, and the hash by which it was previewed.
const POLICY: &str = concat!(
    r#"policy={"rules":[],"default":"deny"} "#,
    "previewed=49f0daf00beb87f7fe0e04288e4cec99f3d2c486fab7df85fbeb4bd23f5c6327"
);

/// Somebody of each role, by the letter of it; f(oreign) is an owner of another workspace.
async fn people(world: &World, desk: &Desk, form: &Form) -> Vec<(char, Visitor)> {
    let elsewhere = world.workspace("Elsewhere").await;
    let mut people = Vec::new();
    for (name, workspace, role) in [
        ("viewer", form.workspace, MemberRole::Viewer),
        ("runner", form.workspace, MemberRole::Runner),
        ("editor", form.workspace, MemberRole::Editor),
        ("owner", form.workspace, MemberRole::Owner),
        ("foreign", elsewhere, MemberRole::Owner),
    ] {
        let user = world.member(workspace, name, role).await;
        people.push((
            name.chars().next().unwrap(),
            desk.visitor(world, user).await,
        ));
    }
    people.push(('m', desk.visitor(world, form.owner).await));
    // Who moves a workflow is its master; the owner of the workspace is another one here.
    let runner = MemberRole::Runner;
    world.set_role(form.workspace, form.owner, runner).await;
    people
}

/// Every order of these rooms × every role, also of another workspace: what is not allowed changes
/// nothing, and what is foreign is not there.
#[tokio::test(flavor = "multi_thread")]
async fn every_order_asks_for_its_role() {
    let (world, gateway, _worker, form) = World::with_recorded_form().await;
    let account = world.connect_for(&form, "crm", "http://127.0.0.1:9/").await;
    let hook = world.webhook_in(&gateway, form.workspace).await;
    let victim = world
        .member(form.workspace, "victim", MemberRole::Viewer)
        .await;
    let known = [
        ("WORKFLOW", form.workflow.to_string()),
        ("ACCOUNT", account.account_id.to_string()),
        ("HOOK", hook.address.webhook.to_string()),
        ("WORKSPACE", form.workspace.to_string()),
        ("VICTIM", victim.to_string()),
        ("DEFINITION", definition_with(json!([]))),
    ];
    let fill = |text: &str| {
        let of_text = known.iter();
        of_text.fold(text.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
    };
    let desk = Desk::start(&world).await;
    let people = people(&world, &desk, &form).await;
    let unknown = uuid::Uuid::now_v7().to_string();
    let changes = async || world.count("SELECT count(*) FROM audit_log").await;
    for [order, allowed, carried] in table(ORDERS) {
        let carried = carried.replace("OWN", OWN).replace("POLICY", POLICY);
        let carried = carried.split(' ').filter_map(|one| one.split_once('='));
        let carried: Vec<_> = carried.map(|(name, value)| (name, fill(value))).collect();
        let carried: Vec<_> = carried
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let path = fill(order);
        for (letter, visitor) in &people {
            let is_allowed = allowed.contains(*letter) || (*letter == 'm' && allowed.contains('r'));
            // Each that is allowed is done by the master or the first alone: it can't be repeated.
            let before = changes().await;
            let answer = visitor.order_with_file(&path, &carried).await;
            let (status, after) = (answer.status(), changes().await);
            if is_allowed {
                continue;
            }
            assert_eq!(before, after, "{letter} has changed something: {path}");
            assert!(status.is_client_error(), "{letter} {path}: {status}");
            if *letter == 'f' && path != order {
                let ids = known[..3].iter().map(|(name, _)| name);
                let nowhere = ids.fold(order.to_owned(), |path, id| path.replace(id, &unknown));
                let there = answer.text().await.unwrap();
                let nowhere = visitor.order_with_file(&nowhere, &carried).await;
                assert_eq!(nowhere.status(), status, "{path}");
                assert_eq!(nowhere.text().await.unwrap(), there, "{path}");
            }
        }
    }
    // And what is allowed is done.
    let owner =
        "users JOIN members USING (user_id) WHERE email = 'v@example.com' AND role = 'owner'";
    for (rows, expected) in [
        ("workflows WHERE name = 'X'", 4),
        ("connected_accounts WHERE name = 'own'", 4),
        ("webhooks WHERE name = 'W'", 2),
        ("policies", 1),
        (owner, 1),
    ] {
        world.assert_rows(rows, expected).await;
    }
}

/// What others wrote into a definition, a policy or a name is text in every room.
#[tokio::test(flavor = "multi_thread")]
async fn what_members_wrote_is_text() {
    let (world, _gateway, form) = World::with_form().await;
    let hostile = "</textarea></pre><script>alert(1)</script>{{ 1234567 * 10 }}\u{202e}";
    let mut definition: Value = serde_json::from_str(&definition_with(json!([]))).unwrap();
    definition["form"]["title"] = hostile.into();
    definition["form"]["fields"][0]["label"] = hostile.into();
    let operator = world.operator().await;
    let name = "<script>x</script>";
    let made = operator
        .create_workflow(form.workspace, form.owner, name, &definition.to_string())
        .await
        .unwrap();
    operator.deploy(made.workflow_id, None).await.unwrap();
    let desk = Desk::start(&world).await;
    let reader = world
        .member(form.workspace, "reader", MemberRole::Viewer)
        .await;
    for visitor in [
        desk.visitor(&world, form.owner).await,
        desk.visitor(&world, reader).await,
    ] {
        for path in [
            "/forms",
            "/people",
            "/accounts",
            "/webhooks",
            &format!("/forms/{}", made.workflow_id),
        ] {
            let page = visitor.page(path).await;
            assert!(
                !page.contains("<script") && !page.contains("12345670"),
                "{path}: {page}"
            );
        }
    }
}
