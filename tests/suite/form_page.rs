//! The page behind a form link, in a browser.

use letterbox_common::form::FieldType;
use letterbox_tests::{Form, Front, Process, Proxy, World, eventually};
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

/// Whether what was written can be read, and not changed.
const LOCKED: &str = "[...document.querySelectorAll('#fields input:not([type=checkbox]), \
    #fields textarea')].every((one) => one.readOnly)";

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
    assert_eq!(phone.evaluate("document.title").await, "Error: Contact us");
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
        // And to its hint, where it has one.
        let error = error.split(' ').next().unwrap();
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
    assert_eq!(
        phone.evaluate("document.title").await,
        "Thank you \u{2013} Contact us"
    );
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

/// What became of the submissions, oldest first.
async fn inputs(world: &World) -> Vec<String> {
    let rows = world
        .database
        .query("SELECT input FROM runs ORDER BY run_id", &[])
        .await;
    let rows = rows.unwrap();
    let inputs = rows
        .iter()
        .map(|row| String::from_utf8(row.get(0)).unwrap());
    inputs.collect()
}

/// A form with one optional number, in a browser.
async fn number_form(world: &World, gateway: &Process) -> Form {
    let field = json!({"key": "n", "label": "How many", "type": "number", "required": false});
    let definition = json!({"form": {"title": "Numbers", "fields": [field]}, "actions": []});
    let plain = world.form(gateway).await;
    let definition = definition.to_string();
    world
        .form_of(gateway, plain.workspace, plain.owner, &definition)
        .await
}

/// What a person has typed is what is sent, digit for digit; what could be two numbers is asked
/// back.
#[tokio::test]
async fn numbers_are_sent_as_they_were_meant() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let _worker = world.worker().await;
    let form = number_form(&world, &gateway).await;
    let page = Browser::start(1280, 900, false).await;
    let sent = [
        ("1,5", "1.5"),
        ("0012.50", "12.50"),
        ("1.234,56", "1234.56"),
        ("1 234 567", "1234567"),
        ("\u{663}\u{66b}\u{665}", "3.5"),
        ("99999999999999999999", "99999999999999999999"),
    ];
    for (number, (typed, json)) in sent.iter().enumerate() {
        page.open(&page_of(&form, &way)).await;
        page.await_text("Numbers").await;
        page.fill_in("How many", typed).await;
        page.press("Submit").await;
        page.await_text("Thank you").await;
        world.await_runs(number as i64 + 1).await;
        assert_eq!(
            inputs(&world).await[number],
            format!("{{\"n\":{json}}}"),
            "{typed}"
        );
    }

    for (choice, json) in [("1234", "1234"), ("1.234 (between 1 and 2)", "1.234")] {
        page.open(&page_of(&form, &way)).await;
        page.await_text("Numbers").await;
        for wrong in ["seven", "1,2,3", "-"] {
            page.fill_in("How many", wrong).await;
            page.press("Submit").await;
            page.await_text("Please enter a number.").await;
        }
        page.fill_in("How many", "1.234").await;
        page.press("Submit").await;
        page.await_text("Which number do you mean?").await;
        let text = page
            .evaluate("document.querySelector('main').innerText")
            .await;
        assert!(
            !text.as_str().unwrap().contains("characters left"),
            "{text}"
        );
        page.picture("desktop-which-number").await;
        page.press(choice).await;
        page.await_text(&format!("= {choice}")).await;
        page.press("Submit").await;
        page.await_text("Thank you").await;
        let runs = inputs(&world).await.len() as i64;
        world.await_runs(runs.max(7)).await;
        eventually("sent", async || {
            inputs(&world).await.last() == Some(&format!("{{\"n\":{json}}}"))
        })
        .await;
    }
    page.close().await;
}

/// The notations of numbers that are read, those that could be two numbers, and those that are
/// none.
#[tokio::test]
async fn numbers_are_read_in_every_notation() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let form = number_form(&world, &gateway).await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Numbers").await;
    let read = async |texts: &[&str]| {
        let script = "const [texts, done] = arguments; import('/forms/number.js')
            .then((module) => done(texts.map(module.readNumber)))";
        let results = page
            .page
            .execute_async(script, vec![json!(texts)])
            .await
            .unwrap();
        results.as_array().unwrap().clone()
    };
    let numbers = [
        ("5", "5"),
        (" 7 ", "7"),
        ("+3", "3"),
        ("-3", "-3"),
        ("\u{2212}4", "-4"),
        ("-,5", "-0.5"),
        (".5", "0.5"),
        ("00", "0"),
        ("0,125", "0.125"),
        ("0.125", "0.125"),
        ("1234.567", "1234.567"),
        ("1,234.56", "1234.56"),
        ("1.234.567", "1234567"),
        ("1.234.567,8", "1234567.8"),
        ("1'234.5", "1234.5"),
        ("1\u{2019}234\u{2019}567", "1234567"),
        ("1\u{202f}234\u{202f}567", "1234567"),
        ("1 234.567", "1234.567"),
        ("12,34,567.8", "1234567.8"),
        (
            "\u{661}\u{66c}\u{662}\u{663}\u{664}\u{66b}\u{665}",
            "1234.5",
        ),
        ("1\u{66b}234", "1.234"),
        ("\u{6f1}\u{6f2}", "12"),
        ("\u{967}\u{968}", "12"),
        ("\u{ff11}\u{ff12}", "12"),
        ("01e5", "1e5"),
        ("1.50e-7", "1.50e-7"),
    ];
    let results = read(&numbers.map(|(text, _)| text)).await;
    for ((text, json), result) in numbers.iter().zip(results) {
        assert_eq!(result, json!({ "json": json }), "{text}");
    }
    let nothing = [
        "",
        "-",
        "--1",
        "seven",
        "0x10",
        "Infinity",
        "1e",
        "5.",
        "1..2",
        "1,,2",
        "1,2,3",
        "1.2.3",
        "12.34.56",
        "1,23,4",
        "5 10 000",
        "1.23.456",
        "1.234.56",
        "1.234,567,8",
        "1,234.567.8",
        "1 23",
        "1 2",
        "1.234 567",
    ];
    for (text, result) in nothing.iter().zip(read(&nothing).await) {
        assert_eq!(result, json!({}), "{text}");
    }
    let either = [("1.234", "1234", "1.234"), ("-12,345", "-12345", "-12.345")];
    let results = read(&either.map(|(text, ..)| text)).await;
    for ((text, whole, decimal), result) in either.iter().zip(results) {
        assert_eq!(result, json!({ "choices": [whole, decimal] }), "{text}");
    }
    let large = read(&["1e999", &"9".repeat(400)]).await;
    assert_eq!(
        large,
        [json!({"tooLarge": true}), json!({"tooLarge": true})]
    );
    page.close().await;
}

/// A page that is left while nobody knows whether its answer has arrived goes on with it, under the
/// same key: one run.
#[tokio::test]
async fn a_reload_counts_once_and_loses_nothing() {
    let world = World::new().await;
    let broker = Proxy::before(&world.amqp_url).await;
    let (gateway, way) = gateway(&world, &broker.url).await;
    let _worker = world.worker().await;
    let form = world.form(&gateway).await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    page.fill_in("Your name", "Ada").await;
    page.fill_in("Message", "Not to be lost").await;
    page.page.refresh().await.unwrap();
    page.await_text("Contact us").await;
    let message = page.field("Message").await;
    assert_eq!(
        message.prop("value").await.unwrap().as_deref(),
        Some("Not to be lost")
    );
    page.fill_in("E-mail address", "ada@example.com").await;
    page.field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
    broker.cut();
    page.press("Submit").await;
    page.await_text("The service is not responding.").await;
    page.page.refresh().await.unwrap();
    page.await_text("The service is not responding.").await;
    let locked = page.evaluate(LOCKED).await;
    assert_eq!(locked, true);
    broker.pass();
    gateway.await_ready().await;
    page.await_text("Thank you").await;
    world.await_runs(1).await;
    assert!(inputs(&world).await[0].contains("Not to be lost"));
    let kept = page.evaluate("JSON.stringify(sessionStorage)").await;
    assert_eq!(kept, "{}", "nothing is kept that has arrived");

    // The next one is another one.
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    assert_eq!(
        page.field("Message")
            .await
            .prop("value")
            .await
            .unwrap()
            .as_deref(),
        Some("")
    );
    page.close().await;
}

/// The link dies while somebody writes: it can be copied, and a new link fills it in again.
#[tokio::test]
async fn what_was_written_to_a_dead_link_is_not_lost() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let form = world.form(&gateway).await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    page.fill_in("Your name", "Ada").await;
    page.fill_in("E-mail address", "ada@example.com").await;
    page.fill_in("Message", "Not to be lost").await;
    page.field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
    let operator = world.operator().await;
    let link = operator.create_form_link(form.workflow).await.unwrap();
    page.press("Submit").await;
    page.await_text("This form is not available").await;
    page.await_text("What you have written").await;
    page.await_text("Not to be lost").await;
    page.picture("desktop-dead-link").await;

    // Also where the page was loaded again meanwhile.
    let second = form.with_token(link.token.expose());
    page.open(&page_of(&second, &way)).await;
    page.await_text("is filled in again").await;
    page.fill_in("Message", "Still not to be lost").await;
    let link = operator.create_form_link(form.workflow).await.unwrap();
    page.page.refresh().await.unwrap();
    page.await_text("This form is not available").await;
    page.await_text("Still not to be lost").await;

    let renewed = form.with_token(link.token.expose());
    page.open(&page_of(&renewed, &way)).await;
    page.await_text("is filled in again").await;
    for (label, value) in [("Your name", "Ada"), ("Message", "Still not to be lost")] {
        let field = page.field(label).await;
        assert_eq!(
            field.prop("value").await.unwrap().as_deref(),
            Some(value),
            "{label}"
        );
    }
    page.close().await;
}

/// A tab that was duplicated is another answer, however alike it begins.
#[tokio::test]
async fn a_duplicated_tab_counts_by_itself() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let _worker = world.worker().await;
    let form = world.form(&gateway).await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    page.fill_in("Your name", "Ada").await;
    page.fill_in("E-mail address", "ada@example.com").await;
    page.field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
    let first = page.page.window().await.unwrap();
    // A window that a page opens gets a copy of what its tab has stored.
    let opening = format!("window.open({})", json!(page_of(&form, &way)));
    page.page.execute(&opening, Vec::new()).await.unwrap();
    let windows = page.page.windows().await.unwrap();
    let second = windows.into_iter().find(|window| *window != first).unwrap();
    page.page.switch_to_window(second).await.unwrap();
    page.await_text("Contact us").await;
    let name = page.field("Your name").await;
    assert_eq!(
        name.prop("value").await.unwrap().as_deref(),
        Some("Ada"),
        "a copy"
    );
    page.fill_in("Your name", "Bob").await;
    page.press("Submit").await;
    page.await_text("Thank you").await;
    page.page.switch_to_window(first).await.unwrap();
    page.press("Submit").await;
    page.await_text("Thank you").await;
    world.await_runs(2).await;
    let mut names: Vec<_> = inputs(&world)
        .await
        .iter()
        .map(|input| input.contains("Bob"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, [false, true]);
    page.close().await;
}

/// What the service refuses though the page did not is said by the label of its field, and linked
/// to it.
#[tokio::test]
async fn a_refusal_of_the_service_names_the_label() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let form = world.form(&gateway).await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    page.fill_in("Your name", "Ada").await;
    page.fill_in("E-mail address", "ada@example.com").await;
    page.field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
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

/// Loses the answer to the next submission, which the service has.
async fn lose_an_answer(page: &Browser) {
    let losing = "const real = window.fetch; window.fetch = async (url, options) => {
        const answer = await real(url, options);
        if (!options.body) return answer;
        window.fetch = real;
        throw new Error('lost');
    }";
    page.page.execute(losing, Vec::new()).await.unwrap();
}

async fn fill_in(page: &Browser) {
    page.fill_in("Your name", "Ada").await;
    page.fill_in("E-mail address", "ada@example.com").await;
    page.field("I accept the terms")
        .await
        .click()
        .await
        .unwrap();
}

/// The service has recorded it, and the page does not know: whoever loads it again, in a copy of
/// the tab or behind a new link, sends the same under the same key.
#[tokio::test]
async fn what_was_recorded_unseen_counts_once() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let _worker = world.worker().await;
    let form = world.form(&gateway).await;
    let operator = world.operator().await;
    let claims = "SELECT count(*) FROM form_submissions";
    let page = Browser::start(1280, 900, false).await;
    let first = page.page.window().await.unwrap();

    // Loaded again; and a copy of the tab, which goes on as well.
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    fill_in(&page).await;
    lose_an_answer(&page).await;
    page.press("Submit").await;
    page.await_text("The service is not responding.").await;
    let opening = format!("window.open({})", json!(page_of(&form, &way)));
    page.page.execute(&opening, Vec::new()).await.unwrap();
    page.page.refresh().await.unwrap();
    page.await_text("Thank you").await;
    let windows = page.page.windows().await.unwrap();
    let copy = windows.into_iter().find(|window| *window != first).unwrap();
    page.page.switch_to_window(copy).await.unwrap();
    page.await_text("Thank you").await;
    assert_eq!(world.count(claims).await, 1);
    page.page.switch_to_window(first).await.unwrap();

    // The link dies before the page knows.
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
    fill_in(&page).await;
    lose_an_answer(&page).await;
    page.press("Submit").await;
    page.await_text("The service is not responding.").await;
    assert_eq!(world.count(claims).await, 2);
    let link = operator.create_form_link(form.workflow).await.unwrap();
    page.await_text("This form is not available").await;
    page.page.refresh().await.unwrap();
    page.await_text("What you have written").await;
    let renewed = form.with_token(link.token.expose());
    page.open(&page_of(&renewed, &way)).await;
    page.await_text("If you send it unchanged, it counts once.")
        .await;
    page.press("Submit").await;
    page.await_text("Thank you").await;
    assert_eq!(world.count(claims).await, 2);
    world.await_runs(2).await;
    page.close().await;
}

/// Near the limit the page says how much is left, counted as the service counts.
#[tokio::test]
async fn near_the_limit_the_page_counts() {
    let world = World::new().await;
    let (gateway, way) = gateway(&world, &world.amqp_url).await;
    let form = world.form(&gateway).await;
    let page = Browser::start(1280, 900, false).await;
    page.open(&page_of(&form, &way)).await;
    page.await_text("Contact us").await;
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
    assert_eq!(desktop.evaluate(LOCKED).await, true);
    // The button that had the focus is gone.
    let focused = desktop.evaluate("document.activeElement.id").await;
    assert_eq!(focused, "progress");
    desktop.picture("desktop-outage").await;
    broker.pass();
    gateway.await_ready().await;
    desktop.await_text("Thank you").await;
    world.await_runs(1).await;
    desktop.close().await;
}
