//! What the form page accepts, the service accepts, and what the page refuses, the service refuses:
//! on 2,000 values of each type, many of them just at a bound.

use letterbox_common::form::{Field, FieldType, Form};
use letterbox_gateway::validation::validate;
use proptest::{
    collection::vec,
    prelude::{Strategy, prop_oneof},
    sample::select,
    strategy::ValueTree,
    test_runner::TestRunner,
};
use serde_json::{Value, json, value::RawValue};

use crate::{
    browser::{Browser, Engine, in_every_browser},
    site::Site,
};

in_every_browser! {
    page_and_service_agree_on_every_value,
}

const VALUES: usize = 2_000;

/// Characters that are counted, cut or left out in one place and not in another.
const TRICKY: [&str; 28] = [
    " ",
    "\t",
    "\n",
    "\r",
    "\u{85}",
    "\u{a0}",
    "\u{feff}",
    "\u{200b}",
    "\u{2028}",
    "\u{3000}",
    "\u{180e}",
    "\0",
    "\u{1f600}",
    "e\u{301}",
    "\u{e9}",
    "\u{e000}",
    "\u{10ffff}",
    "\u{fffd}",
    "\"",
    "\\",
    "a",
    "Z",
    "@",
    ".",
    "-",
    "\u{202e}",
    "<",
    "&",
];

fn texts(longest: usize) -> impl Strategy<Value = String> {
    let one = || select(TRICKY.to_vec());
    let near = (longest - 2..=longest + 2).prop_flat_map(move |length| vec(one(), length));
    let short = vec(select(TRICKY.to_vec()), 0..6);
    let blank = vec(select(TRICKY[..11].to_vec()), 0..4);
    prop_oneof![4 => short, 2 => blank, 1 => near].prop_map(|parts| parts.concat())
}

fn emails() -> impl Strategy<Value = String> {
    let local = "[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]{0,6}";
    let label = "[a-zA-Z0-9-]{0,4}";
    let usual = (local, vec(label, 1..4))
        .prop_map(|(local, labels)| format!("{local}@{}", labels.join(".")));
    let long = (60_usize..70).prop_map(|length| format!("a@{}.de", "b".repeat(length)));
    let longest = (180_usize..205).prop_map(|length| format!("{}@b.de", "a".repeat(length)));
    prop_oneof![4 => usual, 1 => long, 1 => longest, 2 => texts(200)]
}

fn numbers() -> impl Strategy<Value = String> {
    let json = "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,12})?([eE][+-]?[0-9]{1,3})?";
    let people = "[+-]?[0-9]{1,4}([ ,.'][0-9]{3}){0,3}([.,][0-9]{1,4})?";
    let nearly = "[-+0-9.,eE ]{0,8}";
    prop_oneof![2 => json, 2 => people, 1 => nearly, 1 => texts(10)]
}

fn some(strategy: impl Strategy<Value = String>) -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let values = (0..VALUES).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    values.collect()
}

fn form(kind: FieldType, required: bool) -> Form {
    let field = Field {
        key: "k".into(),
        label: "L".into(),
        kind,
        required,
        placeholder: None,
        choices: Vec::new(),
    };
    Form {
        title: "T".into(),
        description: None,
        confirmation_message: None,
        fields: vec![field],
    }
}

/// Whether the service accepts a value, as JSON; None is left out.
fn accepts(form: &Form, json: Option<&str>) -> bool {
    let payload = json.map_or("{}".to_owned(), |json| format!("{{\"k\":{json}}}"));
    let Ok(payload) = RawValue::from_string(payload) else {
        return false;
    };
    validate(form, &payload).is_ok()
}

async fn page_and_service_agree_on_every_value(engine: Engine) {
    let site = Site::new().await;
    let page = Browser::start(engine, 800, 600).await;
    page.open(&site.url("/forms/form.css")).await;
    for kind in FieldType::ALL {
        let longest = kind.max_length();
        let values: Vec<Value> = match kind {
            FieldType::Text => some(texts(500)).into_iter().map(Value::from).collect(),
            FieldType::Textarea => some(texts(5_000)).into_iter().map(Value::from).collect(),
            FieldType::Email => some(emails()).into_iter().map(Value::from).collect(),
            FieldType::Number => some(numbers()).into_iter().map(Value::from).collect(),
            FieldType::Checkbox => vec![true.into(), false.into()],
        };
        let (mut passed, mut refused) = (0, 0);
        for required in [true, false] {
            let checking = format!(
                "import('/forms/check.js').then(({{ problemOf, jsonOf }}) => {}.map((value) => {{ \
                 const field = {}; const problem = problemOf(field, value, {}); \
                 const sent = problem ? null : jsonOf(field, value) ?? null; \
                 return [problem?.word ?? null, sent]; }}))",
                json!(values),
                json!({"type": kind, "required": required}),
                longest.map_or("undefined".to_owned(), |longest| longest.to_string()),
            );
            let checked = page.promised(&checking).await;
            let checked = checked.as_array().unwrap();
            assert_eq!(checked.len(), values.len());
            let form = form(*kind, required);
            for (value, judged) in values.iter().zip(checked) {
                let (word, sent) = (&judged[0], judged[1].as_str());
                if word.is_null() {
                    assert!(accepts(&form, sent), "{kind} {value}: sent as {sent:?}");
                    passed += 1;
                    continue;
                }
                refused += 1;
                // A program may send an empty text of several lines; a person left the field out.
                if *kind == FieldType::Textarea && value == "" {
                    continue;
                }
                // Which of two numbers is meant, the service does not ask.
                let raw = match (kind, word.as_str()) {
                    (FieldType::Number, Some("whichNumber")) => continue,
                    // As a program would send what was typed.
                    (FieldType::Number, _) => value.as_str().unwrap().trim().to_owned(),
                    _ => value.to_string(),
                };
                assert!(!accepts(&form, Some(&raw)), "{kind} {value}: {word}");
            }
        }
        println!("{kind}: {passed} accepted, {refused} refused");
        let least = if *kind == FieldType::Checkbox { 1 } else { 300 };
        assert!(
            passed >= least && refused >= least,
            "{kind}: {passed}, {refused}"
        );
    }
    page.close().await;
}
