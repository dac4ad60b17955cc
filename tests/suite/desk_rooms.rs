//! The rooms of the desk in which people have what is theirs: forms, accounts, webhooks, and who
//! belongs to a workspace. Each does what its role allows, and nobody reads there
//! what they hand in.

use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::MemberRole,
};
use letterbox_tests::{
    APP, Desk, Form, Peer, Reply, Scene, Visitor, Webhook, World, definition_with, eventually,
    payload, post,
};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

/// What a page shows once.
fn shown(page: &str) -> Vec<String> {
    let shown = page.split("class=\"once\">").skip(1);
    let shown = shown.map(|rest| rest.split('<').next().unwrap());
    shown.map(|text| text.replace("&#x2f;", "/")).collect()
}

/// The page that shows what was made, once: loaded again, in whatever way, it leads elsewhere, and
/// nothing is made again.
async fn shown_once(visitor: &Visitor, made: &Response) -> String {
    let page = visitor.follow(made).await;
    assert_eq!(page.status(), StatusCode::OK);
    let forgets = page.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        forgets.contains("=; ") && forgets.contains("Max-Age=0"),
        "{forgets}"
    );
    let again = visitor.get(&place(made)).await;
    assert_ne!(place(&again), place(made));
    page.text().await.unwrap()
}

fn place(response: &Response) -> String {
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    response.headers()["location"].to_str().unwrap().to_owned()
}

async fn member(world: &World, workspace: WorkspaceId, name: &str, role: MemberRole) -> UserId {
    let operator = world.operator().await;
    let email = format!("{name}@example.com");
    let invited = operator.invite(workspace, &email, name, role);
    invited.await.unwrap().user_id
}

/// From a definition with a mistake to a form that people reach, and back.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_publishes_a_form() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let first = world.form(&gateway).await;
    let ada = member(&world, first.workspace, "ada", MemberRole::Runner).await;
    let desk = Desk::start(&world).await;
    let ada = desk.visitor(&world, ada).await;
    let workspace = first.workspace.to_string();

    let example = ada.page(&format!("/forms/new?workspace={workspace}")).await;
    assert!(example.contains("Contact us"), "{example}");
    let wrong = definition_with(json!([{"id": "a", "type": "none"}]));
    let form = [
        ("workspace", workspace.as_str()),
        ("name", "Ada's"),
        ("definition", &wrong),
    ];
    let refused = ada.order_with_file("/forms", &form).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let refused = refused.text().await.unwrap();
    assert!(
        refused.contains("<code>actions[0].type</code>"),
        "{refused}"
    );
    assert!(
        refused.contains("&quot;type&quot;:&quot;none&quot;"),
        "{refused}"
    );
    let right = definition_with(json!([]));
    let form = [
        ("workspace", workspace.as_str()),
        ("name", "Ada's"),
        ("definition", &right),
    ];
    let workflow = place(&ada.order_with_file("/forms", &form).await);
    assert!(
        ada.page(&workflow)
            .await
            .contains("it has never been deployed")
    );

    let order = async |verb: &str, form: &[(&str, &str)]| {
        ada.order_with_file(&format!("{workflow}/{verb}"), form)
            .await
    };
    let deploy = order("deploy", &[("definition", &wrong), ("how", "deploy")]).await;
    assert_eq!(deploy.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let check = order("deploy", &[("definition", &right), ("how", "check")]).await;
    let check = check.text().await.unwrap();
    assert!(
        check.contains("New fields: email, message, name"),
        "{check}"
    );
    assert!(check.contains("never been deployed"), "{check}");
    let deployed = order("deploy", &[("definition", &right), ("how", "deploy")]).await;
    assert_eq!(place(&deployed), workflow);

    let made = async |form: &[(&str, &str)]| {
        let page = shown_once(&ada, &order("link", form).await).await;
        let link = &shown(&page)[0];
        let token = link.strip_prefix(&format!("{APP}/forms?token=")).unwrap();
        first.with_token(token)
    };
    let link: Form = made(&[]).await;
    link.assert_accepts("k").await;
    world.await_state("succeeded", 1).await;
    let bounded = made(&[("max_answers", "1"), ("closes_at", "2126-01-31T08:00")]).await;
    link.assert_dead().await;
    bounded.assert_accepts("l").await;
    assert_eq!(bounded.submit("m", &payload()).await.status, 404);
    let page = ada.page(&workflow).await;
    assert!(
        page.contains("1 of 1 submissions") && page.contains("2126-01-31 08:00"),
        "{page}"
    );
    for (wrong, words) in [
        (("max_answers", "0"), "at least 1"),
        (("max_answers", "x"), "must be a number"),
        (("closes_at", "soon"), "not a time"),
        (("closes_at", "2020-01-01T00:00"), "in the past"),
    ] {
        let refused = order("link", &[wrong]).await;
        assert_eq!(refused.status(), StatusCode::CONFLICT, "{wrong:?}");
        assert!(refused.text().await.unwrap().contains(words), "{wrong:?}");
    }

    let link = made(&[]).await;
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
        assert!(
            page.contains(&format!("class=\"state {state}\"")),
            "{verb}: {page}"
        );
    }
    let unsure = order("delete", &[]).await;
    assert_eq!(unsure.status(), StatusCode::CONFLICT);
    let deleted = order("delete", &[("sure", "yes")]).await;
    assert_eq!(place(&deleted), format!("/forms?workspace={workspace}"));
    assert!(
        !ada.page("/forms").await.contains("Ada&#x27;s"),
        "deleted ones are not listed"
    );
}

/// What is handed in at the desk is used by those who may open it, and by nobody else; a rotation
/// of keys covers it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_in_is_sealed_to_those_who_use_it() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let world = World::new().await;
    let gateway = world.gateway().await;
    let plain = world.form(&gateway).await;
    let (workspace, owner) = (plain.workspace.to_string(), plain.owner);
    let desk = Desk::start(&world).await;
    let ada = desk.visitor(&world, owner).await;
    let account = |credential: &'static str| {
        [
            ("workspace", workspace.as_str()),
            ("name", "crm"),
            ("base_url", peer.url.as_str()),
            ("kind", "bearer"),
            ("credential", credential),
        ]
    };
    let nobody = ada
        .order("/accounts", &account("first-credential-of-ada"))
        .await;
    assert_eq!(nobody.status(), StatusCode::CONFLICT);
    assert!(
        nobody
            .text()
            .await
            .unwrap()
            .contains("No worker is running")
    );
    let _worker = world.worker().await;
    let connected = ada
        .order("/accounts", &account("first-credential-of-ada"))
        .await;
    assert_eq!(
        place(&connected),
        format!("/accounts?workspace={workspace}")
    );
    let again = ada
        .order("/accounts", &account("second-credential-of-ada"))
        .await;
    assert_eq!(again.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let again = again.text().await.unwrap();
    assert!(
        again.contains("account of this name") && again.contains("value=\"crm\""),
        "{again}"
    );
    assert!(!again.contains("second-credential"), "{again}");

    let definition = definition_with(json!([post("send")]));
    let form = world
        .form_of(&gateway, plain.workspace, owner, &definition)
        .await;
    let mut expected = 0;
    let mut assert_sent_with = async |credential: &str| {
        expected += 1;
        form.assert_accepts(&format!("k{expected}")).await;
        let sent = peer.await_received(expected).await;
        let header = format!("Bearer {credential}");
        assert_eq!(
            sent.last().unwrap().header("authorization"),
            Some(header.as_str())
        );
    };
    assert_sent_with("first-credential-of-ada").await;
    world.await_state("succeeded", 1).await;
    let page = ada.page("/accounts").await;
    assert!(
        page.contains("It last answered 200") && page.contains("Called by"),
        "{page}"
    );
    let id = "SELECT account_id::text FROM connected_accounts";
    let id: String = world.database.query_one(id, &[]).await.unwrap().get(0);
    let rotation = [
        ("kind", "bearer"),
        ("credential", "third-credential-of-ada"),
    ];
    place(
        &ada.order(&format!("/accounts/{id}/rotate"), &rotation)
            .await,
    );
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
    assert_eq!(hook.send(r#"{"a": 2}"#).await.status, 202);

    let gone = [("sure", "yes")];
    place(
        &ada.order(&format!("/accounts/{id}/disconnect"), &gone)
            .await,
    );
    assert!(
        ada.page("/accounts")
            .await
            .contains("No account is connected")
    );
    let dump = world.order("audit list").to_string();
    for secret in [
        "first-credential-of-ada",
        "third-credential-of-ada",
        &secret,
    ] {
        assert!(!dump.contains(secret), "{secret} is in the audit log");
    }
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
        ("scheme", "letterbox"),
    ];
    let page = shown_once(visitor, &visitor.order("/webhooks", &form).await).await;
    let [url, secret] = &shown(&page)[..] else {
        panic!("{page}")
    };
    let (_, address) = url.rsplit_once('/').unwrap();
    let webhook = Webhook::new(gateway, address.parse().unwrap(), secret.clone());
    assert!(page.contains("X-Service-Signature"));
    assert_eq!(
        world
            .count("SELECT count(*) FROM webhooks WHERE name = 'Tool'")
            .await,
        1
    );
    (webhook, secret.clone())
}

/// A webhook's address and secret are shown once; what it refuses and receives is told as long as
/// it lives.
#[tokio::test(flavor = "multi_thread")]
async fn an_editor_has_webhooks() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let form = world.form(&gateway).await;
    let eddy = member(&world, form.workspace, "eddy", MemberRole::Editor).await;
    let desk = Desk::start(&world).await;
    let eddy = desk.visitor(&world, eddy).await;
    let workspace = form.workspace.to_string();
    let (hook, secret) = created(&world, &eddy, &workspace, &gateway.public_url()).await;
    let body = r#"{"hello": "world"}"#;
    assert_eq!(hook.send(body).await.status, 202);
    let forger = Webhook::new(&gateway.public_url(), hook.address, "f".repeat(64));
    assert_eq!(forger.send(body).await.status, 401);
    world.await_signals(1).await;
    let id = "SELECT webhook_id::text FROM webhooks WHERE name = 'Tool'";
    let id: String = world.database.query_one(id, &[]).await.unwrap().get(0);
    let path = format!("/webhooks/{id}");
    eventually("the refusal is told", async || {
        eddy.page(&path).await.contains("<td>digest</td>")
    })
    .await;
    let page = eddy.page(&path).await;
    assert!(
        page.contains("<td>generic</td>") && !page.contains(&secret),
        "{page}"
    );

    for (wrong, words) in [
        ([("scheme", "custom"), ("rules", "")], "needs rules"),
        (
            [
                ("scheme", "custom"),
                (
                    "rules",
                    r#"{"header":"x","encoding":"hex","signed":"{url}{body}"}"#,
                ),
            ],
            "placeholder {url}; known: {body}",
        ),
        ([("scheme", "github"), ("secret", "short")], "at least 16"),
        ([("scheme", "github"), ("allow_from", "here")], "networks"),
    ] {
        let form = [("workspace", workspace.as_str()), ("name", "Wrong")];
        let refused = eddy.order("/webhooks", &[&form[..], &wrong].concat()).await;
        assert_eq!(
            refused.status(),
            StatusCode::UNPROCESSABLE_ENTITY,
            "{wrong:?}"
        );
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
    assert_eq!(
        eddy.order(&deleted, &[]).await.status(),
        StatusCode::CONFLICT
    );
    place(&eddy.order(&deleted, &[("sure", "yes")]).await);
    assert_eq!(successor.send(body).await.status, 401);
}

/// Owners ask people in, change what they may do and what the policy says, and see before what ends
/// with it.
#[tokio::test(flavor = "multi_thread")]
async fn owners_govern() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    let boss_id = member(world, form.workspace, "boss", MemberRole::Owner).await;
    let desk = Desk::start(world).await;
    let boss = desk.visitor(world, boss_id).await;
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
    let new: String = world.database.query_one(new, &[]).await.unwrap().get(0);
    // Who asks somebody in does not say what everybody calls them: they do.
    let called = "SELECT count(*) FROM users WHERE name = 'new@example.com'";
    assert_eq!(world.count(called).await, 1);
    let newcomer = desk.visitor(world, &new).await;
    assert!(newcomer.page("/me").await.contains("as new@example.com"));
    let nameless = newcomer.order("/me", &[("name", "\n")]).await;
    assert_eq!(nameless.status(), StatusCode::BAD_REQUEST);
    place(&newcomer.order("/me", &[("name", "Newcomer")]).await);
    assert!(boss.page("/people").await.contains("Newcomer"));
    let wrong = [at, ("email", "nobody"), ("role", "viewer")];
    let refused = boss.order("/people", &wrong).await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let set = [
        at,
        ("user", new.as_str()),
        ("role", "editor"),
        ("how", "set"),
    ];
    place(&boss.order("/people/change", &set).await);
    let roles = "SELECT count(*) FROM members WHERE role = 'editor'";
    assert_eq!(world.count(roles).await, 1);

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
    assert!(
        asked.contains("These form links end") && asked.contains("Contact"),
        "{asked}"
    );
    form.assert_lives().await;

    let policy = |text: &str, how: &'static str, version: &'static str| {
        let (workspace, text) = (workspace.clone(), text.to_owned());
        let (boss, path) = (&boss, "/people/policy");
        async move {
            let form = [
                ("workspace", workspace.as_str()),
                ("policy", &text),
                ("how", how),
                ("version", version),
            ];
            let form = [&form[..], &[("reason", "careful")]].concat();
            boss.order_with_file(path, &form).await
        }
    };
    let asking = json!({"rules": [{"when": {"account": "crm"}, "decision": "approve"}],
        "default": "deny", "approve_by": "person"});
    // As long as no other form's fields may be.
    let asking = format!("{asking}{}", " ".repeat(200_000));
    let preview = policy(&asking, "check", "0").await.text().await.unwrap();
    assert!(preview.contains("becomes approve"), "{preview}");
    let versions = "SELECT count(*) FROM policies";
    assert_eq!(world.count(versions).await, 0, "nothing was set");
    let invalid = policy("{}", "set", "0").await;
    assert_eq!(invalid.status(), StatusCode::UNPROCESSABLE_ENTITY);
    place(&policy(&asking, "set", "0").await);
    let late = policy(&asking, "set", "0").await;
    assert_eq!(
        late.status(),
        StatusCode::UNPROCESSABLE_ENTITY,
        "another has set one"
    );
    assert_eq!(world.count(versions).await, 1);
    let page = boss.page("/people").await;
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
    let foreign: String = world.database.query_one(foreign, &[]).await.unwrap().get(0);
    let notices = [at, ("by_email", "yes"), ("account", "")];
    place(&boss.order("/people/notices", &notices).await);
    let notices = [at, ("by_email", "yes"), ("account", &foreign)];
    let refused = boss.order("/people/notices", &notices).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    let own = world
        .connect(form.workspace, boss_id, "chat", "https://chat.example/hook")
        .await;
    let own = own.account_id.to_string();
    let notices = [at, ("by_email", "yes"), ("account", own.as_str())];
    place(&boss.order("/people/notices", &notices).await);
    let set =
        "SELECT count(*) FROM workspaces WHERE notify_by_email AND notify_account IS NOT NULL";
    assert_eq!(world.count(set).await, 1);
    form.assert_accepts("k").await;
    world.await_state("waiting_approval", 1).await;

    place(
        &boss
            .order(
                "/people/change",
                &[&deactivate[..], &[("sure", "yes")]].concat(),
            )
            .await,
    );
    form.assert_dead().await;
    let removed = [
        at,
        ("user", new.as_str()),
        ("role", "editor"),
        ("how", "remove"),
    ];
    place(
        &boss
            .order(
                "/people/change",
                &[&removed[..], &[("sure", "yes")]].concat(),
            )
            .await,
    );
    assert!(!boss.page("/people").await.contains("Newcomer"));
    let entries = world.order("audit list");
    let mut entries = entries.as_array().unwrap().iter();
    let entry = entries
        .find(|entry| entry["subject"] == "policies")
        .unwrap();
    assert_eq!(
        (&entry["proven_by"], &entry["reason"]),
        (&json!("link"), &json!("careful"))
    );
}

/// A workspace asks in a thousand people, and an operator those beyond.
#[tokio::test(flavor = "multi_thread")]
async fn owners_ask_in_so_many_and_no_more() {
    let world = World::new().await;
    let operator = world.operator().await;
    let workspace = operator
        .create_workspace("Test", None)
        .await
        .unwrap()
        .workspace_id;
    let boss = member(&world, workspace, "boss", MemberRole::Owner).await;
    let many = format!(
        "INSERT INTO users (user_id, email, name)
            SELECT gen_random_uuid(), n || '@many.example', 'One' FROM generate_series(1, 998) n;
        INSERT INTO members (workspace_id, user_id, role)
            SELECT '{workspace}', user_id, 'viewer' FROM users WHERE email LIKE '%@many.example'"
    );
    world.database.batch_execute(&many).await.unwrap();
    let desk = Desk::start(&world).await;
    let boss = desk.visitor(&world, boss).await;
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
    let refused = ask("further@example.com").await;
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused
            .text()
            .await
            .unwrap()
            .contains("an operator adds further ones")
    );
    assert_eq!(world.count("SELECT count(*) FROM users").await, users);
    member(&world, workspace, "further", MemberRole::Viewer).await;
}

/// Of an account is told what it has answered, or that it has not; not what was never sent to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_answers_only_what_was_sent() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let question = scene.ask().await.approval_id;
    let desk = Desk::start(&scene.world).await;
    let owner = desk.visitor(&scene.world, scene.form.owner).await;
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
    assert!(
        owner
            .page("/accounts")
            .await
            .contains("It last answered 200")
    );
}

/// Every order of these rooms × every role, also of another workspace: what is not allowed changes
/// nothing, and what is foreign is not there.
#[tokio::test(flavor = "multi_thread")]
async fn every_order_asks_for_its_role() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let form = world.form(&gateway).await;
    let workspace = form.workspace.to_string();
    let account = world
        .connect(form.workspace, form.owner, "crm", "http://127.0.0.1:9/")
        .await;
    let hook = world
        .webhook_in(&gateway, form.workspace)
        .await
        .address
        .webhook;
    let (workflow, account) = (form.workflow, account.account_id);
    let desk = Desk::start(&world).await;
    let operator = world.operator().await;
    let elsewhere = operator
        .create_workspace("Elsewhere", None)
        .await
        .unwrap()
        .workspace_id;
    let definition = definition_with(json!([]));
    let victim = member(&world, form.workspace, "victim", MemberRole::Viewer)
        .await
        .to_string();
    let at = ("workspace", workspace.as_str());
    let bearer = [("kind", "bearer"), ("credential", "a-token-of-mine")];
    // The order, what it carries, and who may give it: r(unner), e(ditor), o(wner of the
    // workspace), m(aster of the workflow).
    type Carried<'a> = Vec<(&'a str, &'a str)>;
    let orders: Vec<(String, Carried<'_>, &str)> = vec![
        (
            "/forms".into(),
            vec![at, ("name", "X"), ("definition", &definition)],
            "reo",
        ),
        (
            format!("/forms/{workflow}/deploy"),
            vec![("definition", &definition), ("how", "deploy")],
            "m",
        ),
        (format!("/forms/{workflow}/link"), vec![], "m"),
        (format!("/forms/{workflow}/activate"), vec![], "m"),
        (format!("/forms/{workflow}/link"), vec![], "m"),
        (format!("/forms/{workflow}/end-link"), vec![], "eom"),
        (format!("/forms/{workflow}/pause"), vec![], "eom"),
        (format!("/forms/{workflow}/draft"), vec![], "eom"),
        (format!("/accounts/{account}/rotate"), bearer.to_vec(), "m"),
        (
            format!("/accounts/{account}/disconnect"),
            vec![("sure", "yes")],
            "m",
        ),
        (
            "/accounts".into(),
            [
                &[at, ("name", "own"), ("base_url", "https://x.example/")][..],
                &bearer,
            ]
            .concat(),
            "reo",
        ),
        (
            "/webhooks".into(),
            vec![at, ("name", "W"), ("scheme", "letterbox")],
            "eo",
        ),
        (format!("/webhooks/{hook}/replace"), vec![], "eo"),
        (
            format!("/webhooks/{hook}/delete"),
            vec![("sure", "yes")],
            "eo",
        ),
        (
            "/people".into(),
            vec![
                at,
                ("email", "v@example.com"),
                ("name", "V"),
                ("role", "owner"),
            ],
            "o",
        ),
        (
            "/people/change".into(),
            vec![at, ("user", &victim), ("role", "runner"), ("how", "set")],
            "o",
        ),
        (
            "/people/policy".into(),
            vec![
                at,
                ("policy", r#"{"rules":[],"default":"deny"}"#),
                ("version", "0"),
                ("how", "set"),
            ],
            "o",
        ),
        (
            "/people/notices".into(),
            vec![at, ("by_email", "yes"), ("account", "")],
            "o",
        ),
    ];
    let mut people = Vec::new();
    for (name, role, letter) in [
        ("viewer", MemberRole::Viewer, 'v'),
        ("runner", MemberRole::Runner, 'r'),
        ("editor", MemberRole::Editor, 'e'),
        ("owner", MemberRole::Owner, 'o'),
    ] {
        let user = member(&world, form.workspace, name, role).await;
        people.push((letter, desk.visitor(&world, user).await));
    }
    let foreign = member(&world, elsewhere, "foreign", MemberRole::Owner).await;
    people.push(('f', desk.visitor(&world, foreign).await));
    people.push(('m', desk.visitor(&world, form.owner).await));
    // Who moves a workflow is its master; the owner of the workspace is another one here.
    operator
        .set_member(form.workspace, form.owner, MemberRole::Runner, false)
        .await
        .unwrap();
    let unknown = uuid::Uuid::now_v7().to_string();
    let changes = async || world.count("SELECT count(*) FROM audit_log").await;
    for (path, carried, allowed) in &orders {
        for (letter, visitor) in &people {
            let is_allowed = allowed.contains(*letter) || (*letter == 'm' && allowed.contains('r'));
            // Each that is allowed is done by the master or the first alone: it can't be repeated.
            let before = changes().await;
            let answer = visitor.order_with_file(path, carried).await;
            let (status, after) = (answer.status(), changes().await);
            if is_allowed {
                continue;
            }
            assert_eq!(before, after, "{letter} has changed something: {path}");
            assert!(status.is_client_error(), "{letter} {path}: {status}");
            if *letter == 'f' && path.contains('-') {
                let ids = [workflow.to_string(), account.to_string(), hook.to_string()];
                let nowhere = ids
                    .iter()
                    .fold(path.clone(), |path, id| path.replace(id, &unknown));
                let there = answer.text().await.unwrap();
                let nowhere = visitor.order_with_file(&nowhere, carried).await;
                assert_eq!(nowhere.status(), status, "{path}");
                assert_eq!(nowhere.text().await.unwrap(), there, "{path}");
            }
        }
    }
    // And what is allowed is done.
    let done = [
        ("SELECT count(*) FROM workflows WHERE name = 'X'", 4),
        (
            "SELECT count(*) FROM connected_accounts WHERE name = 'own'",
            4,
        ),
        ("SELECT count(*) FROM webhooks WHERE name = 'W'", 2),
        ("SELECT count(*) FROM policies", 1),
        (
            "SELECT count(*) FROM members JOIN users USING (user_id)
            WHERE email = 'v@example.com' AND role = 'owner'",
            1,
        ),
    ];
    for (count, expected) in done {
        assert_eq!(world.count(count).await, expected, "{count}");
    }
}

/// What others wrote into a definition, a policy or a name is text in every room.
#[tokio::test(flavor = "multi_thread")]
async fn what_members_wrote_is_text() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let form = world.form(&gateway).await;
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
    let reader = member(&world, form.workspace, "reader", MemberRole::Viewer).await;
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
