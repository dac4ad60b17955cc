//! An owner makes a form, changes its questions, shares it and reads its answers in the desk,
//! without a line of JSON.

use letterbox_common::{sealing::Secret, states::MemberRole};
use letterbox_operator::{AccountSecret, AccountSettings};
use letterbox_tests::{
    Desk, Form, MailServer, Peer, Reply, Visitor, World, assert_hides, assert_tells, page_of,
};
use reqwest::StatusCode;
use serde_json::json;

use crate::desk_rooms::shown;

/// What stands between two texts of a page, for the first time.
fn between<'p>(page: &'p str, before: &str, after: &str) -> &'p str {
    let (_, rest) = page.split_once(before).expect(before);
    rest.split_once(after).expect(after).0
}

/// The token of the link that a page shows.
fn token(page: &str) -> String {
    shown(page)[0].rsplit('=').next().unwrap().to_owned()
}

/// The questions of a form, with the version of the draft.
async fn questions(visitor: &Visitor, place: &str) -> (String, String) {
    let page = visitor.page(place).await;
    let version = between(&page, "name=\"of\" value=\"", "\"").to_owned();
    (page, version)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_makes_a_form_and_reads_its_answers() {
    let (world, _gateway, _worker, first) = World::with_recorded_form().await;
    let desk = Desk::start(&world).await;
    let member = async |name, role| desk.member(&world, first.workspace, name, role).await;
    let ada = member("ada", MemberRole::Runner).await;
    let bob = member("bob", MemberRole::Editor).await;
    let workspace = first.workspace.to_string();
    let made = [("workspace", workspace.as_str()), ("name", "Orders")];
    let made = ada.order("/forms", &made).await;
    let place = made.headers()["location"].to_str().unwrap().to_owned();
    let id = between(&place, "/forms/", "/questions").to_owned();

    // Another question, the example's third one gone, the second one first.
    let (page, version) = questions(&ada, &place).await;
    assert_tells(&page, &["Your e-mail address", "several lines"]);
    assert_tells(&page, &["form.message"]);
    let save = async |visitor: &Visitor, of: &str, order: &str| {
        let rows = [
            ("name", "Your name", "text"),
            ("email", "Your e-mail", "email"),
            ("message", "Your message", "textarea"),
            ("", "How many loaves?", "number"),
            ("", "Which bread?", "choice"),
        ];
        let mut form = vec![
            ("of", of),
            ("title", "Orders \"by\" noon"),
            ("thanks", "See you tomorrow"),
            ("color", "#aa5500"),
            ("privacy_url", "https://baker.example/privacy"),
            ("continue_url", "https://baker.example/"),
            ("organization", "Baker"),
            ("button", "Order"),
            ("locale", "de"),
            ("required", "1"),
            ("do", order),
        ];
        for (key, label, kind) in rows {
            let is_choice = kind == "choice";
            let list = if is_choice {
                "Rye\r\n\r\n Sourdough "
            } else {
                ""
            };
            form.extend([("key", key), ("label", label), ("type", kind)]);
            form.extend([("hint", ""), ("choices", list)]);
        }
        visitor.order(&place, &form).await
    };
    assert_eq!(save(&ada, &version, "up:1").await.status(), 303);
    // Of another window: what was filled in is not lost, and overwrites nothing.
    let late = page_of(save(&ada, &version, "remove:2").await, 422).await;
    assert_tells(&late, &["changed meanwhile", "How many loaves?"]);
    let (page, version) = questions(&ada, &place).await;
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(at("Your e-mail") < at("Your name") && at("Your message") < at("How many"));
    let refused = save(&bob, &version, "save").await;
    assert!(refused.status().is_client_error(), "{refused:?}");
    let wrong = [("of", &*version), ("title", ""), ("key", ""), ("label", "")];
    let row = [("type", "text"), ("hint", ""), ("choices", "")];
    let wrong = [&wrong[..], &row].concat();
    let wrong = page_of(ada.order(&place, &wrong).await, 422).await;
    assert_tells(&wrong, &["form.title", "form.fields"]);

    // A list that was typed is not lost, whatever the type; and it may be long.
    let countries: Vec<String> = (0..50).map(|n| format!("Country number {n}")).collect();
    let countries = countries.join("\r\n");
    for (kind, status) in [("text", 422), ("choice", 303)] {
        let typed = [
            ("of", &*version),
            ("title", "T"),
            ("key", ""),
            ("label", "From"),
            ("type", kind),
            ("hint", ""),
            ("choices", &*countries),
            ("frame_ancestors", "https://a.example\r\nhttps://b.example"),
        ];
        let typed = ada.order(&place, &typed).await;
        assert_eq!(typed.status(), status, "{kind}");
        if kind == "text" {
            let told = ["Question 1, choices", "one of a list", "Country number 49"];
            assert_tells(&typed.text().await.unwrap(), &told);
        }
    }
    let (page, version) = questions(&ada, &place).await;
    assert_tells(&page, &["Country number 49", "https://b.example"]);
    save(&ada, &version, "up:1").await;

    // Deployed with a link in one press; again, it asks first.
    let deploy = format!("/forms/{id}/deploy");
    let deployed = ada.order(&deploy, &[("how", "deploy_and_link")]).await;
    assert_eq!(deployed.headers()["location"], format!("/forms/{id}/link"));
    let shown = ada.follow(&deployed).await.text().await.unwrap();
    let token = token(&shown);
    let again = page_of(ada.order(&deploy, &[("how", "deploy")]).await, 422).await;
    assert_tells(&again, &["tick that you are sure"]);

    let mut form = first.clone();
    form.token = token;
    let zoe = json!({"email": "ZOE@example.com", "how_many_loaves": 3, "name": "+49 30 123",
        "which_bread": "Rye"});
    let bobs = json!({"email": "bob@example.com", "message": "=1+1\nline"});
    for (key, answer) in [("k1", &zoe), ("k2", &bobs)] {
        form.submit(key, answer).await.assert_accepted();
    }
    let other = json!({"email": "bob@example.com", "which_bread": "Toast"});
    let other = form.submit("k3", &other).await;
    assert_eq!(other.status, 400);
    assert_tells(&other.body, &["which_bread", "one of the field's choices"]);
    world.await_state("succeeded", 2).await;
    let page = bob.page(&format!("/forms/{id}")).await;
    assert_tells(&page, &["used 2 times in the last 24 hours"]);
    let answers = format!("/forms/{id}/answers");
    ada.page(&format!("{answers}?value=zoe@example.com")).await; // not all of them
    let told = ["2 answers", "Orders: 2 new answers<"];
    assert_tells(&ada.page("/").await, &told);
    assert_hides(&bob.page("/").await, &["new answer"]);
    let page = bob.page(&answers).await;
    let titles = [
        "Received",
        "State",
        "Your e-mail",
        "Your name",
        "Your message",
        "How many loaves?",
        "Which bread?",
    ];
    let heads: Vec<_> = page.split("<th scope=\"col\">").skip(1).collect();
    for (head, title) in heads.iter().zip(titles) {
        assert!(head.starts_with(title), "{head}");
    }
    assert_tells(&page, &["ZOE@example.com", "bob@example.com", "+49 30 123"]);
    ada.page(&answers).await;
    assert_hides(&ada.page("/").await, &["new answer"]);
    let found = bob.page(&format!("{answers}?value=zoe@example.com")).await;
    assert_tells(&found, &["ZOE@example.com"]);
    assert_hides(&found, &["bob@example.com"]);
    let file = async |style: &str| {
        let file = bob.get(&format!("{answers}.csv?for={style}")).await;
        assert_eq!(file.headers()["content-type"], "text/csv; charset=utf-8");
        file.bytes().await.unwrap().to_vec()
    };
    let sheet = String::from_utf8(file("semicolon").await).unwrap();
    assert!(sheet.starts_with('\u{feff}'), "{sheet}");
    assert_tells(&sheet, &["\"Your e-mail\";", "\"=\"\"+49 30 123\"\"\""]);
    assert_tells(&sheet, &["\"'=1+1\nline\"", ";\"3\""]);
    let program = String::from_utf8(file("program").await).unwrap();
    assert_tells(&program, &["\"email\",\"name\"", "\"'+49 30 123\""]);
    let unsaid = bob.get(&format!("{answers}.csv")).await;
    assert_eq!(unsaid.status(), 400);
    person_is_found_and_erased(&world, &desk, &form).await;
    // New ones are told to the owner, and to who follows the form by reading its answers.
    form.submit("k4", &zoe).await.assert_accepted();
    world.await_state("succeeded", 3).await;
    for who in [&ada, &bob] {
        let page = who.page("/").await;
        assert_tells(&page, &["Orders: 1 new answer<"]);
    }
    let viewer = world.member(form.workspace, "vera", MemberRole::Viewer);
    let viewer = desk.visitor(&world, viewer.await).await;
    assert_hides(&viewer.page("/").await, &["new answer"]);
    // Of another workspace.
    let stranger = world.user("stranger").await;
    let stranger = desk.visitor(&world, stranger).await;
    for place in [&answers, &format!("{answers}.csv?for=comma"), &place] {
        assert_eq!(stranger.get(place).await.status(), 404, "{place}");
    }
}

/// What one person has written is found in every form, handed over, and erased by an owner.
async fn person_is_found_and_erased(world: &World, desk: &Desk, form: &Form) {
    let workspace = form.workspace.to_string();
    let place = format!("/person?workspace={workspace}&value=bob@example.com");
    let form = [
        ("workspace", workspace.as_str()),
        ("value", " BOB@example.com "),
        ("sure", "yes"),
        ("reason", "asked to"),
    ];
    for (name, role, status) in [
        ("carl", MemberRole::Editor, StatusCode::CONFLICT),
        ("olga", MemberRole::Owner, StatusCode::SEE_OTHER),
    ] {
        let who = world.member(workspace.parse().unwrap(), name, role).await;
        let who = desk.visitor(world, who).await;
        let page = who.page(&place).await;
        assert_tells(&page, &["Orders</a>: 1", "as a file"]);
        assert_eq!(page.contains("Erase them"), role == MemberRole::Owner);
        let (_, file) = page.split_once("answers.csv").unwrap();
        let (file, _) = file.split_once('"').unwrap();
        let file = file.replace("&amp;", "&");
        let (before, _) = page.split_once("/answers.csv").unwrap();
        let (_, of) = before.rsplit_once("/forms/").unwrap();
        let file = who.get(&format!("/forms/{of}/answers.csv{file}")).await;
        let file = file.text().await.unwrap();
        assert_tells(&file, &["bob@example.com"]);
        assert_hides(&file, &["ZOE@example.com"]);
        let unsure = who.order("/person", &form[..2]).await;
        assert_eq!(unsure.status(), StatusCode::CONFLICT);
        let erased = who.order("/person", &form).await;
        assert_eq!(erased.status(), status, "{name}");
        if status == StatusCode::SEE_OTHER {
            let page = who
                .page(erased.headers()["location"].to_str().unwrap())
                .await;
            assert_tells(
                &page,
                &["1 erased. Not reached", "No answer that can be found"],
            );
            let history = who.page(&format!("/history?workspace={workspace}")).await;
            assert_tells(&history, &["asked to"]);
        }
    }
    // What is another workspace's is not there.
    let foreign = world.user("nobody").await;
    let foreign = desk.visitor(world, foreign).await;
    assert_eq!(foreign.get(&place).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        foreign.order("/person", &form).await.status(),
        StatusCode::NOT_FOUND
    );
    let left = "SELECT count(*) FROM runs WHERE input IS NOT NULL";
    world.assert_count(left, 1).await;
}

/// An owner has each answer mailed and sent to an account, without JSON.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_says_what_happens() {
    let server = MailServer::start().await;
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;
    let sender = Some("Bakery <shop@example.com>".to_owned());
    let mail = AccountSettings {
        sender,
        ..AccountSettings::of("mail", server.url.parse().unwrap())
    };
    let secret = AccountSecret::Basic(Secret::new(b"ada:secret-0123".to_vec()));
    world
        .connect_with(form.workspace, form.owner, &mail, &secret)
        .await;
    world.connect_for(&form, "crm", &peer.url).await;
    let (desk, owner) = Desk::with_visitor(&world, form.owner).await;
    let place = format!("/forms/{}/steps", form.workflow);
    let step = async |fields: &[(&str, &str)]| {
        let (_, version) = questions(&owner, &place).await;
        let fields = [&[("of", version.as_str())], fields].concat();
        owner.order(&place, &fields).await
    };
    let mailed = [
        ("do", "mail"),
        ("account", "mail"),
        ("to", "shop@example.com"),
        ("to_answer", ""),
        ("subject", "Order of {{ form.name }}"),
        ("words", ""),
        ("reply_to", "email"),
    ];
    assert_eq!(step(&mailed).await.status(), 303);
    let sent = [
        ("do", "send"),
        ("account", "crm"),
        ("method", "POST"),
        ("path", "/contacts"),
        ("answer", "email"),
        ("answer", "name"),
        ("asked", "name"),
        ("compare", "is"),
        ("than", "Ada"),
    ];
    let more = [&sent[..], &[("compare", "more")]].concat();
    let more = more.into_iter().filter(|one| *one != ("compare", "is"));
    let more = page_of(step(&more.collect::<Vec<_>>()).await, 422).await;
    assert_tells(&more, &["Only a number is more", "/contacts"]);
    assert_eq!(step(&sent).await.status(), 303);
    let moved = step(&[("do", "up:1")]).await;
    assert_eq!(moved.status(), 303);
    let wrong = [&sent[..3], &[("path", "contacts")]].concat();
    let wrong = page_of(step(&wrong).await, 422).await;
    assert_tells(&wrong, &["send-2, path"]);
    for (long, unit, status) in [("2", "D", 303), ("0", "H", 422), ("x", "M", 422)] {
        let waited = step(&[("do", "wait"), ("long", long), ("unit", unit)]).await;
        assert_eq!(waited.status(), status, "{long} {unit}");
    }
    assert_tells(&owner.page(&place).await, &["Wait 2 days"]);
    // What follows a failure has a list of its own, and a step the name that it is given.
    let other = [
        &sent[..3],
        &[
            ("path", "/failures"),
            ("list", "on_failure"),
            ("called", "Tell the \"shop\""),
        ],
    ];
    assert_eq!(step(&other.concat()).await.status(), StatusCode::SEE_OTHER);
    let page = owner.page(&place).await;
    let (_, later) = page.split_once("If something of that has failed").unwrap();
    assert_tells(later, &["POST /failures of crm", "Tell the &#34;shop&#34;"]);
    let removed = step(&[("do", "remove:0"), ("list", "on_failure")]).await;
    assert_eq!(removed.status(), StatusCode::SEE_OTHER);
    assert_hides(&owner.page(&place).await, &["/failures"]);
    let removed = step(&[("do", "remove:2")]).await;
    assert_eq!(removed.status(), 303);
    let page = owner.page(&place).await;
    assert_tells(&page, &["If form.name == &#34;Ada&#34;: POST"]);
    let (first, second) = ("POST /contacts of crm", "E-mail to shop@example.com");
    assert!(page.find(first).unwrap() < page.find(second).unwrap());

    // Nothing is sent while it is tried.
    let rehearsal = format!("/forms/{}/rehearsal", form.workflow);
    assert_tells(&owner.page(&rehearsal).await, &["ada@example.com"]);
    let (_, version) = questions(&owner, &rehearsal).await;
    let of = ("of", version.as_str());
    for (name, told) in [
        ("Ada", "The condition holds."),
        ("Bob", "The condition does not hold."),
    ] {
        let answers = [
            ("answer-0", name),
            ("answer-1", "bob@example.com"),
            ("answer-3", "2"),
            ("answer-4", "yes"),
            of,
        ];
        let tried = owner.order(&rehearsal, &answers).await;
        assert_eq!(tried.status(), StatusCode::OK);
        let tried = tried.text().await.unwrap();
        assert_tells(&tried, &[told, &format!("Order of {name}")]);
        assert_eq!(tried.contains("/contacts"), name == "Ada");
    }
    let full = [
        ("answer-0", "Ada"),
        ("answer-1", "a@example.com"),
        ("answer-4", "yes"),
        of,
    ];
    for (given, told) in [
        (
            [&full[..], &[("answer-3", "two")]].concat(),
            "write a number",
        ),
        (full[1..].to_vec(), "the form wants an answer"),
        (full[..3].to_vec(), "changed meanwhile"),
    ] {
        let wrong = owner.order(&rehearsal, &given).await;
        assert_eq!(wrong.status(), StatusCode::UNPROCESSABLE_ENTITY, "{told}");
        assert_tells(&wrong.text().await.unwrap(), &[told]);
    }
    assert!(peer.received().is_empty() && server.taken().is_empty());
    // What the policy lets go by itself is sent after another press: once, and as it was shown.
    let answers = [&full[..], &[("answer-3", "2")]].concat();
    let shown = page_of(owner.order(&rehearsal, &answers).await, 200).await;
    assert_tells(
        &shown,
        &["Really send this to crm", "Really send this to mail"],
    );
    let buttons = shown.split("name=\"send\" value=\"").skip(1);
    let actions: Vec<&str> = buttons.filter_map(|rest| rest.split('"').next()).collect();
    for (action, told) in actions.into_iter().zip(["answered 200", "answered 250"]) {
        let sending = [&answers[..], &[("send", action)]].concat();
        let sent = owner.order(&rehearsal, &sending).await;
        assert_eq!(sent.status(), StatusCode::SEE_OTHER, "{action}");
        let place = sent.headers()["location"].to_str().unwrap();
        assert_tells(&owner.page(place).await, &[action, told]);
        let again = page_of(owner.order(&rehearsal, &sending).await, 422).await;
        assert_tells(&again, &["less than five seconds ago"]);
    }
    assert_eq!(peer.received().len(), 1);
    assert_eq!(peer.received()[0].json()["email"], "a@example.com");
    assert_eq!(server.taken().len(), 1);
    let deploy = format!("/forms/{}/deploy", form.workflow);
    let how = [("how", "deploy_and_link"), ("sure", "yes")];
    let shown = owner.follow(&owner.order(&deploy, &how).await).await;
    let shown = shown.text().await.unwrap();
    let mut live = form.clone();
    live.token = token(&shown);
    world.submit_until(&live, "k", "succeeded", 1).await;
    let received = peer.await_received(2).await;
    assert_eq!(received[1].target, "/contacts");
    assert_eq!(received[1].json()["email"], "ada@example.com");
    let taken = server.taken();
    assert_tells(&taken[1].text, &["ada@example.com"]);
    // A link that has closed is not opened again by a deploy.
    let bounded = [("max_answers", "1"), ("sure", "yes")];
    let link = format!("/forms/{}/link", form.workflow);
    let shown = owner.follow(&owner.order(&link, &bounded).await).await;
    let shown = shown.text().await.unwrap();
    live.token = token(&shown);
    live.assert_accepts("l").await;
    let closed = page_of(owner.order(&deploy, &how).await, 422).await;
    assert_tells(&closed, &["its link has closed"]);
    // Only the owner changes that.
    let bob = desk
        .member(&world, form.workspace, "bob", MemberRole::Owner)
        .await;
    for place in [&place, &rehearsal] {
        assert_eq!(bob.get(place).await.status(), StatusCode::CONFLICT);
    }
    // But may have one like it.
    let copy = format!("/forms/{}/copy", form.workflow);
    let copied = bob.order(&copy, &[]).await;
    assert_eq!(copied.status(), StatusCode::SEE_OTHER);
    let copied = copied.headers()["location"].to_str().unwrap().to_owned();
    let steps = bob.page(&format!("{copied}/steps")).await;
    assert_tells(&steps, &["E-mail to shop@example.com"]);
    let eve = desk
        .member(&world, form.workspace, "eve", MemberRole::Viewer)
        .await;
    assert!(eve.order(&copy, &[]).await.status().is_client_error());
}

/// The page of a draft is shown in a frame that has no part in the session.
#[tokio::test]
async fn a_preview_is_a_sandbox() {
    let (world, gateway) = World::with_gateway().await;
    let form = world.form(&gateway).await;
    let desk = Desk::start(&world).await;
    let owner = desk.visitor(&world, form.owner).await;
    let place = format!("/previews/{}", form.workflow);
    let document = owner.get(&place).await;
    assert_eq!(document.status(), StatusCode::OK);
    let headers = document.headers();
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert_tells(
        policy,
        &[
            "sandbox allow-scripts allow-forms;",
            "connect-src 'none'",
            "frame-ancestors 'self'",
        ],
    );
    assert_hides(policy, &["allow-same-origin", "allow-top"]);
    assert_eq!(headers["x-frame-options"], "SAMEORIGIN");
    assert_eq!(headers["cache-control"], "no-store");
    let document = document.text().await.unwrap();
    assert_tells(&document, &["is_preview&quot;:true", "Contact us"]);
    let script = between(&document, "<script src=\"", "\"");
    // Files are everybody's, as at the gateway.
    let stranger = Visitor::new(&desk.url);
    let script = stranger.get(&format!("/previews/{script}")).await;
    assert_eq!(script.status(), StatusCode::OK);
    assert_eq!(script.headers()["access-control-allow-origin"], "*");
    assert_eq!(
        script.headers()["cross-origin-resource-policy"],
        "cross-origin"
    );
    assert_eq!(stranger.get("/previews/forms/other.js").await.status(), 404);
    assert_eq!(stranger.get(&place).await.status(), StatusCode::SEE_OTHER);
    let foreign = world.user("foreign").await;
    let foreign = desk.visitor(&world, foreign).await;
    assert_eq!(foreign.get(&place).await.status(), StatusCode::NOT_FOUND);
    // Everything else may be in no frame.
    let page = owner.get(&format!("/forms/{}", form.workflow)).await;
    assert_eq!(page.headers()["x-frame-options"], "DENY");
}
