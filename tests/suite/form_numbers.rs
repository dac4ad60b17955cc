//! Numbers on the form page: read as people write them, sent as they were meant.

use letterbox_common::form::Locale;
use letterbox_tests::Form;
use serde_json::{Value, json};

use crate::{
    browser::{Browser, Engine, in_every_browser},
    site::Site,
};

in_every_browser! {
    numbers_are_read_in_every_notation,
    numbers_are_sent_as_they_were_meant,
}
in_every_browser! {
    at length:
    numbers_are_said_as_the_language_writes_them,
}

/// A form with one optional number, whose page looks like this.
async fn number_form(site: &Site, page: Value) -> Form {
    let field = json!({"key": "n", "label": "How many", "type": "number", "required": false});
    let form = json!({"title": "Numbers", "fields": [field]});
    let definition = json!({"form": form, "actions": [], "page": page});
    site.form_of(&definition).await
}

/// What a person has typed is what is sent, digit for digit; what could be two numbers is asked
/// back.
async fn numbers_are_sent_as_they_were_meant(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let form = number_form(&site, json!({})).await;
    let page = Browser::start(engine, 1280, 900).await;
    let sent = [
        ("1,5", "1.5"),
        ("0012.50", "12.50"),
        ("1.234,56", "1234.56"),
        ("1 234 567", "1234567"),
        ("\u{663}\u{66b}\u{665}", "3.5"),
        ("99999999999999999999", "99999999999999999999"),
    ];
    for (number, (typed, json)) in sent.iter().enumerate() {
        page.open(&site.link(&form)).await;
        page.await_text("Numbers").await;
        page.fill_in("How many", typed).await;
        page.press_for("Submit", "Thank you").await;
        site.world.await_runs(number as i64 + 1).await;
        assert_eq!(
            site.inputs().await[number],
            format!("{{\"n\":{json}}}"),
            "{typed}"
        );
    }

    for (choice, json) in [("1234", "1234"), ("1.234 (between 1 and 2)", "1.234")] {
        let sent = site.inputs().await.len() as i64;
        page.open(&site.link(&form)).await;
        page.await_text("Numbers").await;
        for wrong in ["seven", "1,2,3", "-"] {
            page.fill_in("How many", wrong).await;
            page.press_for("Submit", "Please enter a number.").await;
        }
        page.fill_in("How many", "1.234").await;
        page.press_for("Submit", "Which number do you mean?").await;
        let text = page
            .evaluate("document.querySelector('main').innerText")
            .await;
        assert!(
            !text.as_str().unwrap().contains("Characters left"),
            "{text}"
        );
        page.picture("desktop-which-number").await;
        page.press_for(choice, &format!("= {choice}")).await;
        page.press_for("Submit", "Thank you").await;
        site.world.await_runs(sent + 1).await;
        let inputs = site.inputs().await;
        assert_eq!(inputs.last(), Some(&format!("{{\"n\":{json}}}")));
    }
    page.close().await;
}

/// In a language with other marks the page says a number in them, every digit, and sends JSON's.
async fn numbers_are_said_as_the_language_writes_them(engine: Engine) {
    let (site, _worker) = Site::with_worker().await;
    let form = number_form(&site, json!({"locale": "de"})).await;
    let page = Browser::start(engine, 1280, 900).await;
    let said = [
        ("12345.50", "12345,50", "12345.50"),
        ("1.234.567,890", "1234567,890", "1234567.890"),
        (
            "0.12345678901234567890123",
            "0,12345678901234567890123",
            "0.12345678901234567890123",
        ),
    ];
    for (number, (typed, said, json)) in said.iter().enumerate() {
        page.open(&site.link(&form)).await;
        page.await_text("Numbers").await;
        page.fill_in("How many", typed).await;
        page.await_text(&format!("= {said}")).await;
        page.press_for("Absenden", "Vielen Dank").await;
        site.world.await_runs(number as i64 + 1).await;
        assert_eq!(site.inputs().await[number], format!("{{\"n\":{json}}}"));
    }

    page.open(&site.link(&form)).await;
    page.await_text("Numbers").await;
    page.fill_in("How many", "1.234").await;
    page.press_for("Absenden", "Welche Zahl meinen Sie?").await;
    let choices = "[...document.querySelectorAll('.choices .choice')].map((one) => one.innerText)";
    let expected = json!(["1234", "1,234 (zwischen 1 und 2)"]);
    assert_eq!(page.evaluate(choices).await, expected);
    page.press("1,234 (zwischen 1 und 2)").await;
    page.await_text("= 1,234 (zwischen 1 und 2)").await;
    page.press_for("Absenden", "Vielen Dank").await;
    site.world.await_runs(said.len() as i64 + 1).await;
    assert_eq!(site.inputs().await.last().unwrap(), "{\"n\":1.234}");

    // What is written in any language is read as the same number.
    let numbers = json!(["5", "-3", "-12345.50", "-0.1234567890123456789"]);
    for locale in Locale::WORDS {
        let back = format!(
            "import('/forms/number.js').then(({{ readNumber, writeNumber }}) => \
             {numbers}.map((json) => readNumber(writeNumber(json, '{locale}')).json))"
        );
        assert_eq!(page.promised(&back).await, numbers, "{locale}");
    }
    page.close().await;
}

/// The notations of numbers that are read, those that could be two numbers, and those that are
/// none.
async fn numbers_are_read_in_every_notation(engine: Engine) {
    let site = Site::new().await;
    let form = number_form(&site, json!({})).await;
    let page = Browser::start(engine, 1280, 900).await;
    page.open(&site.link(&form)).await;
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
