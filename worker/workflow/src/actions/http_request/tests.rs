//! Rendering of `http.request` with arbitrary submitted values.

use letterbox_common::form::FieldType;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{TemplateContext, diagnostics::texts};

fn variables() -> Variables {
    let text = FieldType::Text;
    Variables::of_fields(&[("a", text), ("b", text), ("n", FieldType::Number)])
}

/// Parses and checks one action, as a deploy does.
fn check(action: &Value) -> Result<Arc<dyn Outgoing>, Vec<String>> {
    let mut diagnostics = Diagnostics::default();
    let request = parse(&mut diagnostics.fields(action, "it").unwrap());
    if let Some(request) = &request {
        request.check(&mut diagnostics, "it", &variables());
    }
    request
        .filter(|_| diagnostics.is_empty())
        .ok_or_else(|| texts(diagnostics.into_list()))
}

fn action() -> Value {
    json!({
        "id": "x", "type": "http.request", "account": "c", "method": "POST",
        "path": "/x/{{ form.a }}/y-{{ form.b }}.json",
        "query": {"q": "{{ form.a }}", "r": "is {{ form.b | upper }}"},
        "headers": {"X-One": "{{ form.a }}", "X-Two": "2"},
        "body": {
            "a": "{{ form.a }}",
            "deep": [{"b": "{{ form.b }}!", "n": "{{ form.n }}", "fixed": [1, true, null]}],
        },
    })
}

fn context(a: &str, b: &str) -> TemplateContext {
    TemplateContext::of_run(&json!({"a": a, "b": b, "n": 1.5}).to_string(), "run", "now").unwrap()
}

fn render(action: &Value, context: &TemplateContext) -> Request {
    let base = "https://h".parse().unwrap();
    let request = check(action).unwrap_or_else(|problems| panic!("{action}: {problems:?}"));
    request.render(&base, &context.renderer()).unwrap()
}

/// The shape of a JSON value: everything but its strings.
fn shape(value: &Value) -> Value {
    match value {
        Value::String(_) => "".into(),
        Value::Array(values) => values.iter().map(shape).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        other => other.clone(),
    }
}

proptest! {
    /// No submitted value changes the method, the host, the structure of the path, or the names
    /// and structure of the body.
    #[test]
    fn values_never_leave_their_places(
        a in r#"(\PC|[/\\.%?#@:&=+ {}"'<>\r\n\t\x00]|\{\{|\.\.|%2e){0,40}"#,
        b in r#"(\PC|[/\\.%?#@:&=+ {}"'<>\r\n\t\x00]|\{%|-%\}|//){0,40}"#,
    ) {
        let base: Url = "https://user.example:8443/base/v1/".parse().unwrap();
        let request = check(&action()).unwrap();
        let Ok(rendered) = request.render(&base, &context(&a, &b).renderer()) else {
            // A refusal is safe, but must have a reason.
            let control = a.chars().any(|c| c.is_ascii_control() && c != '\t');
            let dots = a == "." || a == "..";
            prop_assert!(a.is_empty() || b.is_empty() || dots || control, "{a:?} {b:?}");
            return Ok(());
        };
        let url: Url = rendered.url.parse().unwrap();
        prop_assert_eq!(&rendered.method, "POST");
        prop_assert_eq!(url.origin(), base.origin());
        prop_assert_eq!((url.username(), url.password(), url.fragment()), ("", None, None));
        let segments: Vec<_> = url.path_segments().unwrap().collect();
        prop_assert_eq!(segments.len(), 5);
        prop_assert_eq!((segments[0], segments[1], segments[2]), ("base", "v1", "x"));
        let decode = |text: &str| {
            percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned()
        };
        prop_assert_eq!(&decode(segments[3]), &a);
        prop_assert_eq!(decode(segments[4]), format!("y-{b}.json"));
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let second = format!("is {}", b.to_uppercase());
        prop_assert_eq!(pairs, vec![("q".to_owned(), a.clone()), ("r".into(), second)]);
        let names: Vec<_> = rendered.headers.iter().map(|(name, _)| name.as_str()).collect();
        prop_assert_eq!(names, vec!["X-One", "X-Two"]);
        prop_assert_eq!(&rendered.headers[0].1, &a);
        let body: Value = serde_json::from_str(rendered.body.as_ref().unwrap()).unwrap();
        let expected = json!({"a": "", "deep": [{"b": "", "n": 1.5, "fixed": [1, true, null]}]});
        prop_assert_eq!(shape(&body), shape(&expected));
        prop_assert_eq!(&body["a"], &Value::from(a));
        prop_assert_eq!(&body["deep"][0]["b"], &Value::from(format!("{b}!")));
    }

    /// Nor the names of a form, or their number.
    #[test]
    fn values_never_leave_their_places_in_a_form(
        a in r#"(\PC|[&=+%; \r\n\t\x00]|%26|\{\{){0,40}"#,
        b in r#"(\PC|[&=+%; \r\n\t\x00]|%3d){0,40}"#,
    ) {
        let request = check(&form_action()).unwrap();
        let base = "https://user.example".parse().unwrap();
        let rendered = request.render(&base, &context(&a, &b).renderer()).unwrap();
        prop_assert_eq!(rendered.body_type, BodyType::Form);
        let body = rendered.body.unwrap();
        let pairs: Vec<_> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let expected = [("A b", format!("x{b}")), ("To", a), ("n", "1.5".to_owned())];
        prop_assert_eq!(pairs, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}

fn form_action() -> Value {
    json!({
        "id": "x", "type": "http.request", "account": "c", "method": "POST", "path": "/x",
        "form": {"To": "{{ form.a }}", "A b": "x{{ form.b }}", "n": "{{ form.n }}"},
        "expect": [200, 404],
    })
}

#[test]
fn forms_and_expected_statuses_are_checked() {
    let whole = "whole number of 1 to 1048576";
    for (name, value, named) in [
        ("form", json!("a=b"), "must be an object of strings"),
        ("form", json!({"a": 1}), "must be a string"),
        ("form", json!({"a": "{{ form.c }}"}), "form.c"),
        ("form", json!({"{{ form.a }}": "x"}), "form"),
        ("body", json!({}), "must be absent: there is a body"),
        ("method", json!("GET"), "GET has no body"),
        ("timeout", json!("PT3M"), "1 second to 2 minutes"),
        ("timeout", json!(30), "1 second to 2 minutes"),
        ("max_answer", json!(0), whole),
        ("max_answer", json!("{{ form.n }}"), whole),
        ("keep", json!("results"), "must be a JSON pointer"),
        ("keep", json!("/{{ form.a }}"), "must be fixed text"),
        ("expect", json!([]), "must be 1 to 20 statuses"),
        ("expect", json!([401]), "not 401"),
        ("expect", json!([500]), "200 to 499"),
        ("expect", json!("{{ form.n }}"), "must be 1 to 20 statuses"),
    ] {
        let mut action = form_action();
        action[name] = value;
        let problems = check(&action).unwrap_err().join("; ");
        assert!(problems.contains(named), "{name}: {problems}");
    }
}

#[test]
fn nothing_turns_escaping_off() {
    let mut action = action();
    for path in [
        "/{{ form.a | trim }}",
        "/{{ 'x' ~ form.a }}",
        "/{{ form['a'] }}",
    ] {
        action["path"] = path.into();
        let url = render(&action, &context("a/../b", "b")).url;
        assert!(url.contains("a%2F..%2Fb"), "{path}: {url}");
        assert!(check(&action).unwrap().references().form, "{path}");
    }
}

#[test]
fn problems_are_found_when_a_definition_is_deployed() {
    for (pointer, value, named) in [
        ("/path", "/{{ form.c }}".into(), "form.c"),
        ("/path", "/{{ other }}".into(), "other"),
        ("/path", "/{{ form.a".into(), "path"),
        ("/path", "/{{ form.a | nothing }}".into(), "nothing"),
        ("/path", "/{{ form }}".into(), "single value"),
        ("/path", "x".into(), "begin with /"),
        ("/path", "//evil.example/?x".into(), "begin with /"),
        ("/method", "TRACE".into(), "one of"),
        ("/account", "".into(), "account"),
        ("/headers", json!({"Host": "x"}), "reserved header"),
        ("/headers", json!({"Authorization": "x"}), "reserved header"),
        ("/headers", json!({"a b": "x"}), "not a valid header name"),
        ("/query", json!({"q": 1}), "must be a string"),
        ("/body", json!({"a": "{{ run.secret }}"}), "run.secret"),
    ] {
        let mut action = action();
        *action.pointer_mut(pointer).unwrap() = value;
        let problems = check(&action).unwrap_err().join("; ");
        assert!(problems.contains(named), "{pointer}: {problems}");
    }
}

#[test]
fn one_expression_keeps_its_type() {
    let mut action = action();
    action["body"] = json!({"n": "{{ form.n }}", "text": "{{ form.n }}!", "none": "{{ none }}"});
    let rendered = render(&action, &context("a", "b"));
    assert_eq!(
        rendered.body.unwrap(),
        r#"{"n":1.5,"none":null,"text":"1.5!"}"#
    );
    let left_out = TemplateContext::of_run(r#"{"a":"a","b":"b"}"#, "run", "now").unwrap();
    action["body"] = "{{ form.n }}".into();
    let rendered = render(&action, &left_out);
    assert_eq!(rendered.body.unwrap(), "null", "a field that was left out");
}
