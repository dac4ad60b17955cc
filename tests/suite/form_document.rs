//! The document behind a form link, as it is served: what it carries, what it allows, what it tells
//! nobody.

use letterbox_tests::{
    Answer, DEFINITION, Form, Process, World, assert_hides, assert_tells, eventually,
};
use serde_json::{Value, json};

async fn get(gateway: &Process, path: &str) -> Answer {
    let url = format!("{}{path}", gateway.public_url());
    Answer::to(gateway.http.get(url)).await
}

/// As a visitor from an address of their own gets it.
async fn visit(form: &Form) -> Answer {
    let request = form.request(reqwest::Method::GET, &form.page_url());
    Answer::to(request).await
}

/// What the page is told, taken out of its attribute.
fn told(document: &Answer) -> Value {
    let (_, rest) = document.body.split_once("data-told=\"").unwrap();
    let (told, _) = rest.split_once('"').unwrap();
    let told = told.replace("&quot;", "\"").replace("&lt;", "<");
    let told = told.replace("&amp;", "&");
    match told.as_str() {
        "" => Value::Null,
        told => serde_json::from_str(told).unwrap(),
    }
}

/// A deployed form with these members of its definition changed.
async fn form_with(world: &World, gateway: &Process, form: Value, page: Value) -> Form {
    let plain = world.form(gateway).await;
    let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
    for (name, value) in form.as_object().unwrap() {
        definition["form"][name] = value.clone();
    }
    definition["page"] = page;
    let (workspace, owner, text) = (plain.workspace, plain.owner, definition.to_string());
    world.form_of(gateway, workspace, owner, &text).await
}

#[tokio::test]
async fn a_document_is_strict_and_carries_its_form() {
    let world = World::new().await;
    let settings = [("LETTERBOX_BASE_URL", "https://in.example.com/a&b\"c")];
    let gateway = world.gateway_with(&settings).await;
    let form = world.form(&gateway).await;
    let document = visit(&form).await;
    assert_eq!(document.status, 200);
    let kind = document.header("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"));
    let policy = document.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert_hides(policy, &["unsafe", "*"]);
    for directive in [
        "connect-src 'self' https://in.example.com;",
        "script-src 'self';",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ] {
        assert_tells(policy, &[directive]);
    }
    let address = "data-base-url=\"https://in.example.com/a&amp;b%22c\"";
    assert_tells(&document.body, &[address]);
    let read: Value = serde_json::from_str(&form.read().await.body).unwrap();
    assert_eq!(told(&document)["form"], read); // the form, as anybody reads it
    assert_eq!(told(&document)["challenge"], Value::Null);
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=()"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert!(document.header(name).unwrap().contains(value), "{name}");
    }
}

/// The page keeps drafts by a key of the workflow, which is the same for all of its links.
#[tokio::test]
async fn a_workflow_has_one_key_for_drafts() {
    let (world, gateway) = World::with_gateway().await;
    let (form, other) = (world.form(&gateway).await, world.form(&gateway).await);
    let key = async |form: &Form| told(&visit(form).await)["draft_key"].clone();
    let first = key(&form).await;
    assert_eq!(first.as_str().map(str::len), Some(64), "{first}");
    assert_eq!(key(&world.relink(&form).await).await, first);
    assert_ne!(key(&other).await, first);
}

/// Everything that an owner says arrives as it was said, and breaks out of nothing.
#[tokio::test]
async fn what_the_owner_says_stays_in_its_place() {
    let (world, gateway) = World::with_gateway().await;
    let title = "</title><script>alert(1)</script> {told} {title} & \"quotes\" {state}";
    let description = "\"><img src=x onerror=alert(1)> {told}";
    let page = json!({
        "organization": "A&B <b>\"Co\"</b>", "color": "#ffd400", "button": "Go <b>",
        "privacy_url": "https://example.com/privacy?a=b&c=d", "locale": "ar",
        "continue_url": "https://example.com/thanks", "autocomplete": {"name": "name"},
        "frame_ancestors": ["https://www.example.com", "https://example.org:8443"],
    });
    let said = json!({"title": title, "description": description});
    let form = form_with(&world, &gateway, said, page.clone()).await;
    let document = visit(&form).await;
    assert_eq!(document.status, 200, "{document:?}");
    let told = told(&document);
    assert_eq!(told["form"]["title"], title);
    for (name, value) in page.as_object().unwrap() {
        assert_eq!(&told[name], value, "{name}");
    }
    assert_eq!(told["colors"]["accent"], "#ffd400");
    assert_eq!(told["colors"]["ink"], "#000000"); // yellow is written on in black
    assert_ne!(told["colors"]["light_ring"], "#ffd400"); // yellow on white is not seen
    assert!(!document.body.contains("<script>") && !document.body.contains("<img src=x"));
    assert_eq!(document.body.matches("<script").count(), 1);
    assert!(document.body.contains("<html lang=\"ar\">"));
    for meta in ["og:title", "og:description", "og:site_name"] {
        assert_tells(&document.body, &[&format!("property=\"{meta}\"")]);
    }
    let policy = document.header("content-security-policy").unwrap();
    let ancestors = "frame-ancestors https://www.example.com https://example.org:8443";
    assert!(policy.ends_with(ancestors), "{policy}");
    // Those who read the form itself are told nothing of it.
    let read = form.read().await.body;
    assert_hides(&read, &["example.com", "#ffd400"]);
}

#[tokio::test]
async fn a_document_without_a_form_says_nothing_of_its_token() {
    let (world, gateway) = World::with_gateway().await;
    let (paused, replaced) = (world.form(&gateway).await, world.form(&gateway).await);
    let pause = letterbox_operator::Move::Pause;
    world.move_workflow(paused.workflow, pause).await;
    world.relink(&replaced).await;
    let unknown = visit(&paused.with_token(&"0".repeat(64))).await;
    assert_eq!(unknown.status, 404);
    assert_eq!(told(&unknown), Value::Null);
    let policy = unknown.header("content-security-policy").unwrap();
    assert!(policy.ends_with("frame-ancestors *"), "{policy}");
    for dead in [&paused, &replaced, &paused.with_token("short")] {
        assert_eq!(visit(dead).await, unknown);
    }
    assert_eq!(get(&gateway, "/forms?token=a&token=b").await, unknown);
    assert_eq!(get(&gateway, "/forms?token=").await, unknown);

    // A page that knows its token asks for the form by itself.
    let empty = get(&gateway, "/forms").await;
    assert_eq!((empty.status, told(&empty)), (200, Value::Null));
    assert!(!empty.body.contains("data-status"));
}

/// A document counts as one reading of the form, no more and no less.
#[tokio::test]
async fn a_document_is_under_the_limits_of_its_form() {
    let (_world, _gateway, form) = World::with_form().await;
    for _ in 0..20 {
        assert_eq!(visit(&form).await.status, 200);
    }
    let limited = visit(&form).await;
    assert_eq!(limited.status, 429);
    let seconds: u64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert!(limited.body.contains(&format!("data-retry=\"{seconds}\"")));
    let kind = limited.header("content-type").unwrap();
    assert_eq!(kind, "text/html; charset=utf-8");
    // It asks again, in whatever frame it is, and shows no form until then.
    let policy = limited.header("content-security-policy").unwrap();
    assert!(policy.ends_with("frame-ancestors *"), "{policy}");
    assert_eq!(told(&limited), Value::Null);
    assert_eq!(form.read().await.status, 429);
}

#[tokio::test]
async fn files_of_the_page_are_its_own() {
    let (_world, gateway) = World::with_gateway().await;
    let scripts = "form fields check number draft words proof proof-worker";
    let scripts = scripts.split(' ').map(|name| format!("{name}.js"));
    let words = letterbox_common::form::Locale::WORDS.iter();
    let words = words.map(|locale| format!("words/{locale}.js"));
    let texts = scripts.chain(words);
    let texts = texts.map(|name| (name, "text/javascript"));
    let others = [("form.css", "text/css"), ("icon.svg", "image/svg+xml")];
    let others = others.map(|(name, media_type)| (name.to_owned(), media_type));
    let mut files = 0.0;
    for (name, media_type) in texts.chain(others) {
        let file = get(&gateway, &format!("/forms/{name}")).await;
        assert_eq!(file.status, 200, "{name}");
        let kind = file.header("content-type").unwrap();
        assert!(kind.starts_with(media_type), "{name}");
        let policy = file.header("cross-origin-resource-policy");
        assert_eq!(policy, Some("same-origin"));
        let own = file.body.replace("http://www.w3.org/2000/svg", "");
        assert_hides(&own, &["://", "//cdn", " style=", "onclick"]);
        files += 1.0;
    }
    assert_eq!(get(&gateway, "/forms/words/xx.js").await.status, 404);

    // By the name that the document gives them they are kept, and compressed for who says so.
    let page = get(&gateway, "/forms").await.body;
    let (_, style) = page.split_once("rel=\"stylesheet\" href=\"").unwrap();
    let (named, _) = style.split_once('"').unwrap();
    let name = named.split('/').nth(1).unwrap();
    let other = format!("/forms/{}/form.css", "0".repeat(name.len()));
    for (path, cached) in [
        (format!("/{named}"), "public, max-age=31536000, immutable"),
        (other, "no-store"),
        ("/forms/form.css".to_owned(), "no-store"),
    ] {
        let plain = get(&gateway, &path).await;
        assert_eq!(plain.header("cache-control"), Some(cached), "{path}");
        assert_eq!(plain.header("vary"), Some("Accept-Encoding, Origin"));
        let url = format!("{}{path}", gateway.public_url());
        let zipped = gateway.http.get(url).header("accept-encoding", "br, gzip");
        let zipped = zipped.send().await.unwrap();
        assert_eq!(zipped.headers()["content-encoding"], "gzip");
        let content = zipped.bytes().await.unwrap();
        assert!(content.len() * 2 < plain.body.len(), "{path}");
        let mut text = String::new();
        let mut unzipped = flate2::read::GzDecoder::new(&*content);
        std::io::Read::read_to_string(&mut unzipped, &mut text).unwrap();
        assert_eq!(text, plain.body);
    }
    for other in [
        "/forms/00/form.css",
        "/forms//form.css",
        "/forms/0123456789abcdeg/form.css",
    ] {
        assert_eq!(get(&gateway, other).await.status, 404, "{other}");
    }
    let counted = "letterbox_request_duration_seconds_count";
    eventually(counted, async || gateway.metric(counted).await >= files).await;
}
