//! The desk: people sign in, see what waits for them and what became of submissions, and answer.
//! Nothing is done that they did not send from a page of their own session.

use letterbox_common::states::MemberRole;
use letterbox_tests::{
    Desk, Peer, Reply, Scene, Visitor, World, assert_hides, assert_tells, one_of, page_of, post,
};
use serde_json::json;

use crate::browser::{Browser, Engine, Reader, in_every_browser};

/// A link shows a page and a button, which works once; signing out ends the session everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_and_out() {
    let world = World::new().await;
    let desk = Desk::start(&world).await;
    world.order("user create --email ada@example.com --name Ada");
    let outside = Visitor::new(&desk.url);
    // The last two take only what is posted, which is told to nobody.
    for path in [
        "/",
        "/runs",
        "/questions/1",
        "/nothing",
        "/accounts/oauth",
        "/forms/x/delete",
    ] {
        let sent = outside.get(path).await;
        assert_eq!(sent.status(), 303, "{path}");
        assert_eq!(sent.headers()["location"], "/sign-in");
        assert!(!sent.headers().contains_key("allow"), "{path}");
    }
    let link = desk.link(&world, "ada@example.com").await;
    let path = link.strip_prefix(&desk.url).unwrap();
    // Programs that look at mail open links, too.
    for _ in 0..3 {
        outside
            .assert_shows(path, "<button>Sign in as ada@example.com</button>")
            .await;
    }
    let (_, token) = path.split_once("token=").unwrap();
    let signed_in = outside.send("/sign-in", &[("token", token)]).await;
    let cookie = signed_in.headers()["set-cookie"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(!cookie.contains(token), "the session is no link");
    let again = outside.send("/sign-in", &[("token", token)]).await;
    assert!(!again.headers().contains_key("set-cookie"), "once");
    assert!(again.text().await.unwrap().contains("This link is over"));

    let mut ada = Visitor::new(&desk.url);
    ada.cookie = cookie.split(';').next().unwrap().to_owned();
    let page = ada.get("/").await;
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(page.headers()[name], value);
    }
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert_tells(policy, &["default-src 'none'"]);
    assert_hides(policy, &["script-src"]);
    let page = page.text().await.unwrap();
    assert_tells(&page, &["Ada", "Nothing waits for you"]);
    assert!(!page.contains("<script"));

    // A link of somebody else begins a session of its own: nobody's is fixed beforehand.
    let form_token = ada.form_token().await;
    let out = ada.send("/sign-out", &[("form_token", &form_token)]).await;
    assert_eq!(out.status(), 303);
    assert_eq!(ada.get("/").await.status(), 303, "ended at the server");
}

/// What is posted from elsewhere, without the page's token, or by reading, does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_that_was_not_sent_from_a_page() {
    let (peer, scene) = Scene::posting("send").await;
    let world = &scene.world;
    scene
        .set_policy(json!({"rules": [], "default": "approve", "approve_by": "person"}))
        .await;
    let question = scene.submit_asked("k").await;
    let (desk, mut owner) = Desk::with_visitor(world, scene.form.owner).await;
    let (id, run) = (question.approval_id.to_string(), question.run_id);
    let token = owner.form_token().await;
    let other = desk
        .visitor(world, scene.form.owner)
        .await
        .form_token()
        .await;
    let cancel = format!("/runs/{run}/cancel");
    for given in ["", "0", &other] {
        let form = [
            ("form_token", given),
            ("question", &id),
            ("answer", "approve"),
        ];
        for path in ["/questions", &cancel, "/sign-out"] {
            let refused = owner.send(path, &form).await;
            assert_eq!(refused.status(), 403, "{path} {given}");
        }
    }
    let form = [
        ("form_token", token.as_str()),
        ("question", &id),
        ("answer", "approve"),
    ];
    for origin in [
        None,
        Some("null"),
        Some("https://evil.example"),
        Some("http://127.0.0.1:1"),
    ] {
        owner.origin = origin.map(str::to_owned);
        let refused = owner.send("/questions", &form).await;
        assert_eq!(refused.status(), 403, "{origin:?}");
    }
    owner.origin = Some(desk.url.clone());
    for path in ["/questions", &cancel, "/sign-out"] {
        let query = format!("{path}?form_token={token}&question={id}&answer=approve");
        assert_eq!(owner.get(&query).await.status(), 404, "{path}");
    }
    // Every link of every page, opened.
    for path in [
        "/",
        "/runs",
        &format!("/questions/{id}"),
        &format!("/runs/{run}"),
    ] {
        let page = owner.page(path).await;
        for link in page.split("href=\"").skip(1) {
            owner.get(link.split('"').next().unwrap()).await;
        }
    }
    let pending = "SELECT count(*) FROM approvals WHERE state = 'pending'";
    world.assert_count(pending, 1).await;
    assert_eq!(peer.received(), []);
    let answered = owner.answer(question.approval_id, "approve").await;
    assert_eq!(answered.status(), 303);
    peer.await_received(1).await;
    world.await_state("succeeded", 1).await;
    let entries = world.order("audit list");
    let entry = one_of(&entries, "command", "desk questions");
    assert_eq!(entry["proven_by"], "link");
    assert_eq!(entry["reason"], "looked at it");
    assert_eq!(entry["address"], Visitor::ADDRESS);
    let late = page_of(owner.answer(question.approval_id, "deny").await, 409).await;
    assert_tells(&late, &["approved already"]);
}

/// What a stranger wrote is shown as it is, and is nothing but text.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stranger_wrote_is_text() {
    let peer = Peer::start(|_, _| Reply::Status(400)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    let hostile =
        "</dd></dl><script>alert(1)</script><a href=//x>x</a>\u{202e}\u{200b}{{ 1234567 * 10 }}";
    let mut payload = letterbox_tests::payload();
    payload["message"] = hostile.into();
    assert_eq!(form.submit("k", &payload).await.status, 200);
    let question = scene.the_approval().await;
    let (_desk, owner) = Desk::with_visitor(world, form.owner).await;
    let pages = [
        "/".to_owned(),
        format!("/questions/{}", question.approval_id),
        format!("/runs/{}", question.run_id),
    ];
    for path in &pages {
        let page = owner.page(path).await;
        assert_hides(&page, &["<script", "<a href=//x"]);
        assert!(
            !page.contains(['\u{202e}', '\u{200b}']) && !page.contains("12345670"),
            "{page}"
        );
    }
    let shown = owner.page(&pages[1]).await;
    assert_tells(&shown, &["&#60;script&#62;", "\\u{202e}"]);

    // The story goes on: denied, then retried and cancelled, each said with its reason.
    let denied = owner.answer(question.approval_id, "deny").await;
    assert_eq!(denied.status(), 303);
    world.await_state("denied", 1).await;
    let run = format!("/runs/{}", question.run_id);
    owner.assert_shows(&run, "Retry this run").await;
    let token = owner.form_token().await;
    let form_token = [("form_token", token.as_str())];
    owner.send(&format!("{run}/retry"), &form_token).await;
    world.await_state("waiting_approval", 1).await;
    owner.assert_shows(&run, "Cancel this run").await;
    owner.send(&format!("{run}/cancel"), &form_token).await;
    world.await_state("cancelled", 1).await;
    for (query, shown) in [
        ("state=cancelled", true),
        ("state=failed", false),
        ("", true),
    ] {
        let page = owner.page(&format!("/runs?{query}")).await;
        assert_eq!(page.contains(&run), shown, "{query}");
    }
    let field = "/runs?field=name&value=";
    let name = payload["name"].as_str().unwrap();
    owner.assert_shows(&format!("{field}{name}"), &run).await;
    assert!(!owner.page(&format!("{field}nobody")).await.contains(&run));
}

/// What belongs to others answers like what does not exist.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_foreign_is_not_there() {
    let (_peer, scene) = Scene::posting("send").await;
    let world = &scene.world;
    let question = scene.ask().await;
    let operator = world.operator().await;
    let elsewhere = operator.create_workspace("Elsewhere", None).await.unwrap();
    let eve = world.user("eve").await;
    world
        .set_role(elsewhere.workspace_id, eve, MemberRole::Owner)
        .await;
    let (_desk, eve) = Desk::with_visitor(world, eve).await;
    eve.assert_shows("/", "Nothing waits for you").await;
    let unknown = page_of(
        eve.get(&format!("/runs/{}", uuid::Uuid::now_v7())).await,
        404,
    )
    .await;
    let (approval, run) = (question.approval_id, question.run_id);
    for path in [
        format!("/runs/{run}"),
        format!("/questions/{approval}"),
        format!("/runs?workspace={}", scene.form.workspace),
        "/runs/x".to_owned(),
        "/questions/'".to_owned(),
    ] {
        let answer = eve.get(&path).await;
        assert_eq!(answer.status(), 404, "{path}");
        assert_eq!(answer.text().await.unwrap(), unknown, "{path}");
    }
    let token = eve.form_token().await;
    for verb in ["cancel", "retry"] {
        let path = format!("/runs/{run}/{verb}");
        let answer = eve.send(&path, &[("form_token", &token)]).await;
        assert_eq!(answer.text().await.unwrap(), unknown, "{path}");
    }
    assert_eq!(eve.answer(approval, "approve").await.status(), 409);
    let pending = "approvals WHERE state = 'pending'";
    world.assert_rows(pending, 1).await;
}

in_every_browser!(the_desk_fits_a_phone);
in_every_browser!(at length: the_desk_is_for_everybody);

async fn the_desk_fits_a_phone(engine: Engine) {
    use_every_room(engine, &[(Reader::default(), 390, "phone")]).await;
}

async fn the_desk_is_for_everybody(engine: Engine) {
    let light = Reader::default();
    let dark = Reader::in_the_dark();
    use_every_room(engine, &[(light, 1280, "light"), (dark, 1280, "dark")]).await;
}

/// Everything that axe-core finds, in every room, for each of these readers and widths; and from a
/// question to its answer it takes one press.
async fn use_every_room(engine: Engine, readers: &[(Reader, u32, &str)]) {
    let (peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    for (_, _, name) in readers {
        form.assert_accepts(name).await;
    }
    let all = i64::try_from(readers.len()).unwrap();
    world.await_state("waiting_approval", all).await;
    let hook = world.webhook_in(&scene.gateway, form.workspace).await;
    hook.send("{}").await;
    let hook = hook.address.webhook;
    let account = world
        .connect_by_grant(form.workspace, form.owner, "calendar", &peer.url)
        .await
        .account_id;
    let desk = Desk::start(world).await;
    let owner = world.operator().await.user(form.owner).await.unwrap().email;
    for (reader, width, name) in readers {
        let waiting = world.waiting(form.workspace).await;
        let (question, run) = (waiting[0].approval_id, waiting[0].run_id);
        let browser = Browser::start_for(engine, *width, 900, *reader).await;
        browser.open(&desk.link(world, form.owner).await).await;
        browser.assert_usable(&format!("desk-sign-in-{name}")).await;
        browser.press(&format!("Sign in as {owner}")).await;
        browser.await_text("waiting, the oldest first").await;
        browser.assert_usable(&format!("desk-waiting-{name}")).await;
        for (path, room) in [
            ("/runs".to_owned(), "runs"),
            (format!("/runs/{run}"), "run"),
            ("/nothing".to_owned(), "not-found"),
            ("/forms".to_owned(), "forms"),
            (
                format!("/forms/new?workspace={}", form.workspace),
                "form-new",
            ),
            (format!("/forms/{}", form.workflow), "form"),
            (
                format!("/forms/{}/questions", form.workflow),
                "form-questions",
            ),
            (format!("/forms/{}/steps", form.workflow), "form-steps"),
            (format!("/forms/{}/answers", form.workflow), "form-answers"),
            (format!("/forms/{}/rehearsal", form.workflow), "rehearsal"),
            ("/person?value=ada@example.com".to_owned(), "person"),
            ("/policy".to_owned(), "policy"),
            ("/history".to_owned(), "history"),
            ("/accounts".to_owned(), "accounts"),
            (
                format!("/accounts/{account}/authorize"),
                "account-authorize",
            ),
            ("/webhooks".to_owned(), "webhooks"),
            (format!("/webhooks/{hook}"), "webhook"),
            ("/people".to_owned(), "people"),
            ("/me".to_owned(), "me"),
            (format!("/questions/{question}"), "question"),
        ] {
            browser.open(&format!("{}{path}", desk.url)).await;
            browser.assert_usable(&format!("desk-{room}-{name}")).await;
            let wide = "document.documentElement.scrollWidth > window.innerWidth";
            assert_eq!(
                browser.evaluate(wide).await,
                false,
                "{room} {name} scrolls sideways"
            );
        }
        browser.press_for("Approve", "Waiting").await;
        browser.close().await;
    }
    world.await_state("succeeded", all).await;
}
