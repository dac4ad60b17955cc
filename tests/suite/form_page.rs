//! The page behind a form link, in a browser.

use letterbox_common::form::FieldType;
use letterbox_tests::{Answer, Form, Front, Process, Proxy, World, eventually};
use serde_json::{Value, json};

use crate::browser::Browser;

/// A gateway whose base URL is where browsers reach it, and the way there.
async fn gateway(world: &World, amqp_url: &str) -> (Process, Proxy) {
    let front = Front::bind().await;
    let base = format!("http://{}", front.address());
    let gateway = world
        .gateway_with(&[
            ("LETTERBOX_BASE_URL", &base),
            ("AMQP_URL", amqp_url),
            // An outage of the broker is one of the service.
            ("LETTERBOX_SPILL_MESSAGES", "0"),
        ])
        .await;
    let way = front.lead_to(gateway.public_address());
    (gateway, way)
}

fn page_of(form: &Form, way: &Proxy) -> String {
    format!("{}/forms?token={}", way.url, form.token)
}

#[tokio::test]
async fn a_form_is_filled_in_and_submitted() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let _worker = world.worker().await;
    let form = world.form(&gateway).await;
    let phone = Browser::start(360, 780, false).await;
    phone.open(&page_of(&form, &way)).await;
    phone.await_text("Contact us").await;
    assert_eq!(phone.evaluate("document.title").await, "Contact us");
    phone.picture("phone").await;
    let wide = phone
        .evaluate("document.documentElement.scrollWidth - window.innerWidth")
        .await;
    assert!(
        wide.as_i64().unwrap() <= 0,
        "the page is {wide} pixels too wide"
    );

    // Mistakes are listed, announced, and tied to their fields.
    phone.fill_in("E-mail address", "nobody").await;
    phone.press("Submit").await;
    phone.await_text("Please check your answers").await;
    assert_eq!(phone.evaluate("document.activeElement.id").await, "summary");
    assert_eq!(
        phone
            .evaluate("document.activeElement.getAttribute('role')")
            .await,
        "alert"
    );
    for (label, message) in [
        ("Your name", "Please fill in this field."),
        (
            "E-mail address",
            "Please enter an e-mail address, like name@example.com.",
        ),
        ("I accept the terms", "Please tick this box."),
    ] {
        let field = phone.field(label).await;
        assert_eq!(
            field.attr("aria-invalid").await.unwrap().as_deref(),
            Some("true"),
            "{label}"
        );
        let error = field
            .attr("aria-describedby")
            .await
            .unwrap()
            .expect("tied to its error");
        assert_eq!(
            phone
                .evaluate(&format!("document.getElementById('{error}').innerText"))
                .await,
            message
        );
    }
    for label in ["Message", "Seats"] {
        assert_eq!(
            phone.field(label).await.attr("aria-invalid").await.unwrap(),
            None,
            "{label}"
        );
    }
    phone.picture("phone-errors").await;
    assert_eq!(
        world.count("SELECT count(*) FROM form_submissions").await,
        0
    );

    phone.fill_in("Your name", "Ada \u{e4}").await;
    phone.fill_in("E-mail address", "ada@example.com").await;
    phone.fill_in("Seats", "2.5").await;
    phone
        .field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
    phone.press("Submit").await;
    phone.await_text("Thank you").await;
    phone.await_text("Your answers have been received.").await;
    assert_eq!(phone.evaluate("document.activeElement.tagName").await, "H1");
    phone.picture("phone-done").await;
    world.await_runs(1).await;
    let row = world
        .database
        .query_one("SELECT input FROM runs", &[])
        .await
        .unwrap();
    let expected =
        json!({"name": "Ada \u{e4}", "email": "ada@example.com", "seats": 2.5, "terms": true});
    assert_eq!(
        serde_json::from_slice::<Value>(row.get(0)).unwrap(),
        expected,
        "what is left empty is left out"
    );
    phone.close().await;

    // In the dark, and after the link has died.
    let desktop = Browser::start(1280, 900, true).await;
    desktop.open(&page_of(&form, &way)).await;
    desktop.await_text("Contact us").await;
    assert_eq!(
        desktop
            .evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
            .await,
        true
    );
    desktop.picture("desktop-dark").await;
    world
        .operator()
        .await
        .create_form_link(form.workflow)
        .await
        .unwrap();
    desktop.fill_in("Your name", "Ada").await;
    desktop.fill_in("E-mail address", "ada@example.com").await;
    desktop
        .field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
    desktop.press("Submit").await;
    desktop.await_text("This form is not available").await;
    desktop.open(&page_of(&form, &way)).await;
    desktop.await_text("This form is not available").await;
    desktop.picture("desktop-unavailable").await;
    desktop.close().await;
    assert_eq!(world.runs().await, 1);
}

/// A value of a type with this many characters; for types without a maximum, an extreme one.
fn value_of(kind: FieldType, length: usize) -> Value {
    match kind {
        FieldType::Text | FieldType::Textarea => "\u{e4}".repeat(length).into(),
        FieldType::Email => {
            let domain = "@example.com";
            format!("{}{domain}", "a".repeat(length - domain.len())).into()
        }
        FieldType::Number => f64::MAX.into(),
        FieldType::Checkbox => true.into(),
    }
}

/// Puts a value into the field with this label, as typing would.
async fn enter(page: &Browser, label: &str, value: &Value) {
    let (label, value) = (json!(label), json!(value));
    let script = format!(
        "(() => {{
            const labels = [...document.querySelectorAll('label')];
            const input = labels.find((label) => label.innerText.startsWith({label})).control;
            if (input.type === 'checkbox') input.checked = {value}; else input.value = {value};
            input.dispatchEvent(new Event('input'));
            return true;
        }})()"
    );
    assert_eq!(page.evaluate(&script).await, true);
}

#[tokio::test]
async fn page_and_service_hold_every_type_of_field_to_the_same_bound() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let _worker = world.worker().await;
    let field = |kind: &FieldType| {
        let word = kind.as_str();
        json!({"key": word, "label": format!("A {word}"), "type": word, "required": false})
    };
    let fields: Vec<_> = FieldType::ALL.iter().map(field).collect();
    let definition = json!({"form": {"title": "Bounds", "fields": fields}, "actions": []});
    let plain = world.form(&gateway).await;
    let definition = definition.to_string();
    let form = world
        .form_of(&gateway, plain.workspace, plain.owner, &definition)
        .await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Bounds").await;

    let mut longest = serde_json::Map::new();
    for kind in FieldType::ALL.iter().copied() {
        let word = kind.as_str();
        let max = kind.max_length();
        longest.insert(word.to_owned(), value_of(kind, max.unwrap_or_default()));
        let Some(max) = max else { continue };
        let too_long = value_of(kind, max + 1);
        let refused = form.submit(word, &json!({word: too_long})).await;
        assert_eq!(refused.status, 400, "{word}: {refused:?}");
        enter(&page, &format!("A {word}"), &too_long).await;
        page.press("Submit").await;
        let told = format!(
            "Please use at most {max} characters. You have used {}.",
            max + 1
        );
        page.await_text(&told).await;
        enter(&page, &format!("A {word}"), &"".into()).await;
    }
    assert_eq!(
        world.count("SELECT count(*) FROM form_submissions").await,
        0
    );

    let accepted = form.submit("all", &Value::Object(longest.clone())).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    for (word, value) in &longest {
        enter(&page, &format!("A {word}"), value).await;
    }
    page.press("Submit").await;
    page.await_text("Thank you").await;
    page.close().await;
    world.await_runs(2).await;
    for row in world
        .database
        .query("SELECT input FROM runs", &[])
        .await
        .unwrap()
    {
        let input: Value = serde_json::from_slice(row.get(0)).unwrap();
        assert_eq!(input, Value::Object(longest.clone()));
    }
}

/// While the service is away the page keeps the answers, locked, and sends the same again: one run.
#[tokio::test]
async fn an_outage_is_waited_out_and_counts_once() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let (gateway, way) = gateway(&world, &broker.url).await;
    let _worker = world.worker().await;
    let form = world.form(&gateway).await;
    let desktop = Browser::start(1280, 900, false).await;
    desktop.open(&page_of(&form, &way)).await;
    desktop.await_text("Contact us").await;
    desktop.fill_in("Your name", "Ada").await;
    desktop.fill_in("E-mail address", "ada@example.com").await;
    desktop
        .field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
    desktop.picture("desktop").await;
    broker.cut();
    desktop.press("Submit").await;
    desktop.await_text("The service is not responding.").await;
    assert_eq!(
        desktop
            .evaluate("document.getElementById('fields').disabled")
            .await,
        true
    );
    desktop.picture("desktop-outage").await;
    broker.pass();
    gateway.await_ready().await;
    desktop.await_text("Thank you").await;
    world.await_runs(1).await;
    desktop.close().await;
}

#[tokio::test]
async fn the_page_is_static_and_strict() {
    let world = World::new().await;
    let settings = [("LETTERBOX_BASE_URL", "https://in.example.com/a&b\"c")];
    let gateway = world.gateway_with(&settings).await;
    let get = async |path: &str| {
        Answer::of(
            gateway
                .http
                .get(format!("{}{path}", gateway.public_url()))
                .send()
                .await
                .unwrap(),
        )
        .await
    };
    let page = get("/forms?token=any").await;
    assert_eq!(
        page,
        get("/forms").await,
        "the page says nothing about a token"
    );
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none';")
            && !policy.contains("unsafe")
            && !policy.contains('*'),
        "{policy}"
    );
    assert!(
        policy.contains("connect-src 'self' https://in.example.com;"),
        "{policy}"
    );
    for directive in [
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(directive), "{policy}");
    }
    assert!(
        page.body
            .contains("data-base-url=\"https://in.example.com/a&amp;b%22c\""),
        "{}",
        page.body
    );
    let (style, script) = (get("/forms/form.css").await, get("/forms/form.js").await);
    assert_eq!(
        (style.status, style.header("content-type")),
        (200, Some("text/css; charset=utf-8"))
    );
    assert_eq!(
        (script.status, script.header("content-type")),
        (200, Some("text/javascript; charset=utf-8"))
    );
    for text in [&page.body, &style.body, &script.body] {
        let foreign = text.replace("https://in.example.com", "");
        assert!(
            !foreign.contains("http://")
                && !foreign.contains("https://")
                && !foreign.contains("//cdn")
        );
        assert!(!text.contains(" style=") && !text.contains("onclick"));
    }
    eventually("counted", async || {
        gateway
            .metric("letterbox_request_duration_seconds_count")
            .await
            >= 4.0
    })
    .await;
}

/// What a browser is told of the page and its files, beside the policy of its content.
#[tokio::test]
async fn the_page_keeps_to_itself() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    for (path, headers) in [
        (
            "/forms",
            vec![
                ("cross-origin-opener-policy", "same-origin"),
                ("cross-origin-resource-policy", "same-origin"),
                ("permissions-policy", "camera=()"),
            ],
        ),
        (
            "/forms/form.css",
            vec![("cross-origin-resource-policy", "same-origin")],
        ),
        (
            "/forms/form.js",
            vec![("cross-origin-resource-policy", "same-origin")],
        ),
    ] {
        let url = format!("{}{path}", gateway.public_url());
        let answer = Answer::of(gateway.http.get(url).send().await.unwrap()).await;
        assert_eq!(answer.status, 200);
        for (name, value) in headers {
            let given = answer.header(name).unwrap_or_default();
            assert!(given.contains(value), "{path}: {name}: {given}");
        }
    }
}
