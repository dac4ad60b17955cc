//! The page behind a form link, in a browser: filled in, checked, submitted.

use letterbox_common::form::FieldType;
use letterbox_tests::DEFINITION;
use serde_json::{Value, json};

use crate::{
    browser::{Browser, Engine, Reader, in_every_browser},
    site::Site,
};

in_every_browser! {
    a_form_is_filled_in_and_submitted,
    one_of_a_list_is_chosen,
    near_the_limit_the_page_counts,
    a_refusal_of_the_service_names_the_label,
    page_and_service_hold_every_type_of_field_to_the_same_bound,
}

async fn a_form_is_filled_in_and_submitted(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let form = site.form().await;
    let phone = Browser::start(engine, 360, 780).await;
    phone.visit(&site, &form).await;
    assert_eq!(phone.evaluate("document.title").await, "Contact us");
    phone.picture("phone").await;
    let wide = "document.documentElement.scrollWidth - window.innerWidth";
    let wide = phone.evaluate(wide).await;
    assert!(wide.as_i64().unwrap() <= 0, "{wide} pixels too wide");

    // Mistakes are listed, announced, and tied to their fields.
    phone.fill_in("E-mail address", "nobody").await;
    phone.press_for("Submit", "Please check your answers").await;
    assert_eq!(phone.evaluate("document.activeElement.id").await, "summary");
    assert_eq!(phone.evaluate("document.title").await, "Error: Contact us");
    let role = "document.activeElement.getAttribute('role')";
    assert_eq!(phone.evaluate(role).await, "alert");
    let email = "Please enter an e-mail address, like name@example.com.";
    for (label, message) in [
        ("Your name", "Please fill in this field."),
        ("E-mail address", email),
        ("I accept the terms", "Please tick this box."),
    ] {
        let field = phone.field(label).await;
        let invalid = field.attr("aria-invalid").await.unwrap();
        assert_eq!(invalid.as_deref(), Some("true"), "{label}");
        let tied = field.attr("aria-describedby").await.unwrap();
        // And to its hint, where it has one.
        let error = tied.as_deref().and_then(|tied| tied.split(' ').next());
        let error = error.expect("tied to its error");
        let told = format!("document.getElementById('{error}').innerText");
        assert_eq!(phone.evaluate(&told).await, message);
    }
    for label in ["Message", "Seats"] {
        let invalid = phone.field(label).await.attr("aria-invalid").await;
        assert_eq!(invalid.unwrap(), None, "{label}");
    }
    phone.picture("phone-errors").await;
    site.world.assert_rows("form_submissions", 0).await;

    phone.fill_in("Your name", "Ada \u{e4}").await;
    phone.fill_in("E-mail address", "ada@example.com").await;
    phone.fill_in("Seats", "2.5").await;
    phone.tick("I accept the terms").await;
    phone.press_for("Submit", "Thank you").await;
    phone.await_text("Your answers have been received.").await;
    assert_eq!(
        phone.evaluate("document.title").await,
        "Thank you \u{2013} Contact us"
    );
    assert_eq!(phone.evaluate("document.activeElement.tagName").await, "H1");
    phone.picture("phone-done").await;
    site.world.await_runs(1).await;
    let input: Vec<u8> = site.world.value("SELECT input FROM runs").await;
    let input: Value = serde_json::from_slice(&input).unwrap();
    let (name, email) = ("Ada \u{e4}", "ada@example.com");
    // What is left empty is left out.
    let expected = json!({"name": name, "email": email, "seats": 2.5, "terms": true});
    assert_eq!(input, expected);
    phone.close().await;

    // In the dark, and after the link has died.
    let dark = Reader::in_the_dark();
    let desktop = Browser::start_for(engine, 1280, 900, dark).await;
    desktop.visit(&site, &form).await;
    let is_dark = "matchMedia('(prefers-color-scheme: dark)').matches";
    assert_eq!(desktop.evaluate(is_dark).await, true);
    desktop.picture("desktop-dark").await;
    site.world.relink(&form).await;
    desktop.answer("Ada").await;
    desktop.press("Submit").await;
    desktop.await_text("This form is not available").await;
    desktop.open(&site.link(&form)).await;
    desktop.await_text("This form is not available").await;
    desktop.picture("desktop-unavailable").await;
    desktop.close().await;
    assert_eq!(site.world.runs().await, 1);
}

/// A text with choices is a list: a link fills in what is in it, and nothing else.
async fn one_of_a_list_is_chosen(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let mut definition: Value = serde_json::from_str(DEFINITION).unwrap();
    definition["form"]["fields"][0]["choices"] = json!(["Rye", "Sourdough", "\"Best\""]);
    let form = site.form_of(&definition).await;
    let page = Browser::start(engine, 390, 844).await;
    for (brought, value) in [("Toast", ""), ("Sourdough", "Sourdough")] {
        page.open("about:blank").await;
        page.open(&format!("{}#name={brought}", site.link(&form)))
            .await;
        page.await_text("Contact us").await;
        assert_eq!(page.value("Your name").await, value);
    }
    page.assert_usable("choices").await;
    page.open("about:blank").await;
    page.visit(&site, &form).await;
    page.fill_in("E-mail address", "ada@example.com").await;
    page.tick("I accept the terms").await;
    // What was filled in before is kept.
    let list = page.field("Your name").await;
    list.select_by_value("").await.unwrap();
    page.press_for("Submit", "Please fill in this field.").await;
    list.select_by_value("\"Best\"").await.unwrap();
    page.press_for("Submit", "Thank you").await;
    site.world.await_runs(1).await;
    let expected = json!({"name": "\"Best\"", "email": "ada@example.com", "terms": true});
    let input: Value = serde_json::from_str(&site.inputs().await[0]).unwrap();
    assert_eq!(input, expected);
    page.close().await;
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

/// What the service refuses though the page did not is said by the label of its field, and linked
/// to it.
async fn a_refusal_of_the_service_names_the_label(engine: Engine) {
    let site = Site::new().await;
    let form = site.form().await;
    let page = Browser::visiting(engine, &site, &form).await;
    page.answer("Ada").await;
    // Something stands between the two.
    let other = "const real = window.fetch; window.fetch = (url, options) => real(url, options.body
        ? {...options, body: options.body.replace('ada@example.com', 'nobody')} : options)";
    page.page.execute(other, Vec::new()).await.unwrap();
    page.press("Submit").await;
    page.await_text("E-mail address: the value must be a valid e-mail address")
        .await;
    let field = page.field("E-mail address").await;
    let invalid = field.attr("aria-invalid").await.unwrap();
    assert_eq!(invalid.as_deref(), Some("true"));
    page.close().await;
}

/// Near the limit the page says how much is left, counted as the service counts.
async fn near_the_limit_the_page_counts(engine: Engine) {
    let site = Site::new().await;
    let form = site.form().await;
    let page = Browser::visiting(engine, &site, &form).await;
    let max = FieldType::Text.max_length().unwrap();
    enter(&page, "Your name", &"\u{1f600}".repeat(max - 3).into()).await;
    page.await_text("Characters left: 3").await;
    page.close().await;
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

async fn page_and_service_hold_every_type_of_field_to_the_same_bound(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let field = |kind: &FieldType| {
        let word = kind.as_str();
        json!({"key": word, "label": format!("A {word}"), "type": word, "required": false})
    };
    let fields: Vec<_> = FieldType::ALL.iter().map(field).collect();
    let definition = json!({"form": {"title": "Bounds", "fields": fields}, "actions": []});
    let form = site.form_of(&definition).await;
    let page = Browser::start(engine, 1280, 900).await;
    page.open(&site.link(&form)).await;
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
        let used = max + 1;
        let told = format!("Please use at most {max} characters. You have used {used}.");
        page.await_text(&told).await;
        enter(&page, &format!("A {word}"), &"".into()).await;
    }
    site.world.assert_rows("form_submissions", 0).await;

    let accepted = form.submit("all", &Value::Object(longest.clone())).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    for (word, value) in &longest {
        enter(&page, &format!("A {word}"), value).await;
    }
    page.press_for("Submit", "Thank you").await;
    page.close().await;
    site.world.await_runs(2).await;
    for input in site.world.column::<Vec<u8>>("SELECT input FROM runs").await {
        let input: Value = serde_json::from_slice(&input).unwrap();
        assert_eq!(input, Value::Object(longest.clone()));
    }
}
