//! Whose session a link begins, and what becomes of the session that the browser had.

use letterbox_operator::{Browser, Operator, Orderer, Vouched};
use letterbox_tests::{Desk, Visitor, World, assert_hides, assert_tells, page_of};

/// The page behind a link says as whom it signs in, and who is signed in there already; who goes on
/// ends that session, for everybody who has it. Only looking ends nothing, and uses nothing up.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_says_whose_it_is_and_takes_the_place_of_a_session() {
    let world = World::new().await;
    let desk = Desk::start(&world).await;
    for name in ["ada", "bob"] {
        world.order(format!(
            "user create --email {name}@example.com --name {name}"
        ));
    }
    let mut browser = desk.visitor(&world, "bob@example.com").await;
    let before = browser.cookie.clone();
    let link = desk.link(&world, "ada@example.com").await;
    let path = link.strip_prefix(&desk.url).unwrap();
    let http = reqwest::Client::new();
    assert_eq!(http.head(&link).send().await.unwrap().status(), 200);
    let page = browser.page(path).await;
    assert_tells(&page, &["Sign in as ada@example.com"]);
    assert_tells(&page, &["You are signed in here as bob@example.com"]);
    assert_eq!(browser.get("/").await.status(), 200, "looking ends nothing");

    let (_, token) = path.split_once("token=").unwrap();
    browser.keep(&browser.send("/sign-in", &[("token", token)]).await);
    browser.assert_shows("/", "href=\"/me\">ada</a>").await;
    world.assert_rows("sessions", 1).await;
    browser.cookie = before;
    assert_eq!(browser.get("/").await.status(), 303, "ended at the server");
    let over = browser.page(path).await;
    assert_tells(&over, &["This link is over"]);
    assert_hides(&over, &["ada@"]);
}

/// Whoever was going somewhere arrives there, but nowhere else; and times are told as they chose.
#[tokio::test(flavor = "multi_thread")]
async fn people_arrive_where_they_were_going() {
    let (world, gateway) = World::with_gateway().await;
    let form = world.form(&gateway).await;
    let desk = Desk::start(&world).await;
    let place = format!("/forms/{}?x=1", form.workflow);
    for (cookie, expected) in [
        (None, place.as_str()),
        (Some("letterbox-to=//evil.example/"), "/"),
        (Some("letterbox-to=/%5Cevil.example/"), "/"),
        (Some("letterbox-to=https://evil.example/"), "/"),
        (Some("letterbox-to=/%09/evil.example/"), "/"),
        (Some("letterbox-to=/x%0Ay: z"), "/"),
    ] {
        let mut browser = Visitor::new(&desk.url);
        let sent = browser.get(&place).await;
        assert_eq!(sent.headers()["location"], "/sign-in");
        browser.keep(&sent);
        if let Some(cookie) = cookie {
            browser.cookie = cookie.to_owned();
        }
        let link = desk.link(&world, form.owner).await;
        let (_, token) = link.split_once("token=").unwrap();
        let arrived = browser.send("/sign-in", &[("token", token)]).await;
        assert_eq!(arrived.headers()["location"], expected, "{cookie:?}");
    }
    let mut owner = desk.visitor(&world, form.owner).await;
    owner.assert_shows(&place, " UTC").await;
    let chosen = owner
        .order("/me", &[("name", "Ada"), ("zone", "Asia/Tokyo")])
        .await;
    let zone = chosen.headers()["set-cookie"].to_str().unwrap();
    let zone = zone.split(';').next().unwrap();
    owner.cookie = format!("{}; {zone}", owner.cookie);
    owner.assert_shows(&place, " JST").await;
    owner
        .assert_shows(&place, "Closes at, if ever (Asia/Tokyo)")
        .await;
    owner
        .assert_shows("/me", "<option selected>Asia/Tokyo")
        .await;
    let closes = [
        ("closes_at", "2040-01-31T08:00"),
        ("zone", "Asia/Tokyo"),
        ("sure", "yes"),
    ];
    let link = format!("/forms/{}/link", form.workflow);
    owner.order(&link, &closes).await;
    let closes = "SELECT count(*) FROM form_links WHERE closes_at = '2040-01-30T23:00Z'";
    world.assert_count(closes, 1).await;
}

/// So does a sign-in by an issuer; a link that is nobody's ends no session.
#[tokio::test]
async fn only_a_session_that_begins_ends_another() {
    let world = World::new().await;
    let (operator, desk) = (world.operator().await, world.desk());
    let ada = world.user("ada").await;
    let link = operator.make_sign_in_link(ada).await.unwrap().token;
    let former = Operator::begin_session(&desk, &link, "192.0.2.7".into()).await;
    let former = former.unwrap().unwrap();
    let lives = async || {
        let nothing = Orderer::default();
        let person = Operator::in_session(&desk, &former, "192.0.2.7".into(), nothing).await;
        person.unwrap().is_some()
    };
    let browser = || Browser {
        session: Some(former.clone()),
        ..Browser::from("192.0.2.7")
    };
    let used = Operator::begin_session(&desk, &link, browser()).await;
    assert!(used.unwrap().is_none() && lives().await);
    let vouched = Vouched {
        issuer: "https://issuer.example".to_owned(),
        subject: "ada".to_owned(),
        email: Some("ada@example.com".to_owned()),
    };
    let untrusted = Operator::begin_session_by(&desk, &vouched, browser()).await;
    assert!(untrusted.unwrap().is_none() && lives().await);
    operator.trust_issuer(&vouched.issuer).await.unwrap();
    let begun = Operator::begin_session_by(&desk, &vouched, browser()).await;
    assert!(begun.unwrap().is_some() && !lives().await);
}

/// What was typed when a session was over is sent in the next one, after a press.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_typed_is_lost_by_signing_in() {
    let world = World::new().await;
    let desk = Desk::start(&world).await;
    let ada = world.user("ada").await;
    let mut ada = desk.visitor(&world, ada).await;
    let token = ada.form_token().await;
    ada.send("/sign-out", &[("form_token", &token)]).await;
    let name = "Ada \"<b>\" L.";
    let typed = [("form_token", token.as_str()), ("name", name), ("zone", "")];
    let held = page_of(ada.send("/me", &typed).await, 403).await;
    let told = [
        "You are signed out",
        "action=\"/me\"",
        "Ada &#34;&#60;b&#62;&#34; L.",
    ];
    assert_tells(&held, &told);
    assert_hides(&held, &["form_token"]);
    // In another session it takes one more press.
    let again = desk.link(&world, "ada@example.com").await;
    let (_, link) = again.split_once("token=").unwrap();
    ada.keep(&ada.send("/sign-in", &[("token", link)]).await);
    let held = page_of(ada.send("/me", &typed[1..]).await, 403).await;
    assert_tells(&held, &["another session"]);
    let (_, token) = held.split_once("name=\"form_token\" value=\"").unwrap();
    let (token, _) = token.split_once('"').unwrap();
    let sent = [("form_token", token), typed[1], typed[2]];
    assert_eq!(ada.send("/me", &sent).await.status(), 303);
    ada.assert_shows("/me", "value=\"Ada &#34;").await;
    // Who decides about something sees it first.
    let decided = [("question", "1"), ("answer", "approve")];
    let decided = page_of(ada.send("/questions", &decided).await, 403).await;
    assert_tells(&decided, &["did not come from a page"]);
    // A secret is in no page, and neither is what another site sends.
    ada.cookie.clear();
    let secret = ada.send("/accounts", &[("credential", "hidden")]).await;
    assert_eq!(secret.headers()["location"], "/sign-in");
    ada.origin = Some("https://evil.example".to_owned());
    let forged = page_of(ada.send("/me", &typed).await, 403).await;
    assert_hides(&forged, &["Ada"]);
}
