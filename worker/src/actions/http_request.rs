//! `http.request`: calls a connected account. The account fixes scheme, host, port and the
//! beginning of the path; the definition fixes method, path, names of query parameters and headers,
//! and the structure of the body. Values only fill in.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::{
    ACCOUNT,
    template::{Input, Insert, LENGTH, Names, Template, TemplateError},
};
use crate::definition::Mistakes;

pub const METHODS: [(&str, &str); 6] = [
    ("GET", "GET"),
    ("HEAD", "HEAD"),
    ("POST", "POST"),
    ("PUT", "PUT"),
    ("PATCH", "PATCH"),
    ("DELETE", "DELETE"),
];
/// What the connection, the account and the executor set, and nobody else.
pub const OWN_HEADERS: [&str; 12] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];
const BODY_DEPTH: usize = 20;

/// An `http.request` of a definition.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    pub account: String,
    pub method: &'static str,
    path: Template,
    query: Vec<(String, Template)>,
    headers: Vec<(String, Template)>,
    body: Option<Body>,
}

/// A JSON body whose strings are templates.
#[derive(Debug, Clone)]
enum Body {
    Template(Template),
    Fixed(Value),
    List(Vec<Body>),
    Object(Vec<(String, Body)>),
}

/// A request as it is sent, but for the credential: what is recorded, shown to who approves it, and
/// sent by every attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// JSON text.
    pub body: Option<String>,
}

impl HttpRequest {
    /// Checks the members of an action.
    pub fn check(
        mistakes: &mut Mistakes,
        value: &Value,
        path: &str,
        names: &Names,
    ) -> Option<Self> {
        let known = [
            "id", "type", "account", "method", "path", "query", "headers", "body",
        ];
        let members = mistakes.object(value, path, &known)?;
        let account = mistakes.text(members, path, "account", ACCOUNT);
        let method = mistakes.one_of(members.get("method"), &format!("{path}.method"), &METHODS)?;
        let source = mistakes.text(members, path, "path", LENGTH);
        let place = format!("{path}.path");
        if !source.starts_with('/') || source.contains(['?', '#', '\\']) {
            mistakes.add(&place, "has to begin with / and to hold no ?, # or \\");
        }
        if source.contains("{%") {
            mistakes.add(
                &place,
                "takes no tags: whatever is submitted, a path has the same segments",
            );
        }
        let request = Self {
            account,
            method,
            path: Template::check(mistakes, &place, &source, names, Insert::Segment),
            query: named(mistakes, members, path, "query", names),
            headers: named(mistakes, members, path, "headers", names),
            body: members
                .get("body")
                .map(|body| Body::check(mistakes, body, &format!("{path}.body"), names, 1)),
        };
        let mut seen = HashSet::new();
        for (name, template) in &request.headers {
            let place = format!("{path}.headers");
            if !seen.insert(name.to_ascii_lowercase()) {
                mistakes.add(&place, format_args!("{name:?} stands there twice"));
            }
            let sample = if names.try_them() {
                template.render(Insert::AsIs, &names.sample()).ok()
            } else {
                None
            };
            if sample.is_some_and(|value| {
                reqwest::header::HeaderValue::from_bytes(value.as_bytes()).is_err()
            }) {
                mistakes.add(
                    &place,
                    format_args!("the value of {name:?} holds control characters"),
                );
            }
            if reqwest::header::HeaderName::try_from(name).is_err() {
                mistakes.add(&place, format_args!("{name:?} is no name of a header"));
            } else if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                mistakes.add(&place, format_args!("{name:?} is not yours to set"));
            }
        }
        // With every field filled in, the path has to be one.
        if names.try_them()
            && let (Ok(path), Ok(base)) = (
                request.path.render(Insert::Segment, &names.sample()),
                Url::parse("https://host"),
            )
            && let Err(error) = below(&base, &path)
        {
            mistakes.add(
                &place,
                format_args!(
                    "{error}: it has to be as it is sent, percent-encoded and without dot segments"
                ),
            );
        }
        if request.body.is_some() && ["GET", "HEAD"].contains(&method) {
            mistakes.add(
                &format!("{path}.body"),
                format_args!("{method} has no body"),
            );
        }
        Some(request)
    }

    /// Whether something that a submitter wrote gets into the request.
    #[must_use]
    pub fn reads_form(&self) -> bool {
        let named = self
            .query
            .iter()
            .chain(&self.headers)
            .any(|(_, template)| template.reads_form());
        self.path.reads_form() || named || self.body.as_ref().is_some_and(Body::reads_form)
    }

    /// Whether a header of the definition has this name.
    #[must_use]
    pub fn has_header(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    }

    /// The request for the values of a run, to an account at `base_url`.
    ///
    /// # Errors
    /// When a value can't stand where it would: an empty segment of a path, a line break in a
    /// header.
    pub fn render(&self, base_url: &Url, input: &Input) -> Result<Request, TemplateError> {
        let path = self.path.render(Insert::Segment, input)?;
        let mut url = below(base_url, &path)?;
        if !self.query.is_empty() {
            let mut pairs = url.query_pairs_mut();
            for (name, template) in &self.query {
                pairs.append_pair(name, &template.render(Insert::AsIs, input)?);
            }
        }
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, template) in &self.headers {
            let value = template.render(Insert::AsIs, input)?;
            if reqwest::header::HeaderValue::from_bytes(value.as_bytes()).is_err() {
                return Err(TemplateError::new(format!(
                    "the value of header {name:?} holds control characters"
                )));
            }
            headers.push((name.clone(), value));
        }
        let body = self
            .body
            .as_ref()
            .map(|body| body.render(input))
            .transpose()?
            .map(|body| body.to_string());
        Ok(Request {
            method: self.method.to_owned(),
            url: url.into(),
            headers,
            body,
        })
    }
}

/// The address of `path` below an account's base URL.
///
/// # Errors
/// When a URL with this path would not have this path: with `.` and `..` for segments.
pub fn below(base_url: &Url, path: &str) -> Result<Url, TemplateError> {
    let whole = format!("{}{path}", base_url.path().trim_end_matches('/'));
    let mut url = base_url.clone();
    url.set_path(&whole);
    if url.path() != whole || url.origin() != base_url.origin() {
        return Err(TemplateError::new(
            "a value would change the structure of the path",
        ));
    }
    Ok(url)
}

fn named(
    mistakes: &mut Mistakes,
    members: &Map<String, Value>,
    path: &str,
    name: &str,
    names: &Names,
) -> Vec<(String, Template)> {
    let Some(value) = members.get(name) else {
        return Vec::new();
    };
    let path = format!("{path}.{name}");
    let Some(given) = value.as_object() else {
        mistakes.add(&path, "has to be an object of strings");
        return Vec::new();
    };
    let mut templates = Vec::new();
    for (name, value) in given {
        let place = format!("{path}.{name}");
        fixed(mistakes, &place, name);
        match value.as_str() {
            Some(source) => {
                templates.push((
                    name.clone(),
                    Template::check(mistakes, &place, source, names, Insert::AsIs),
                ));
            }
            None => mistakes.add(&place, "has to be a string"),
        }
    }
    templates
}

/// Names are as they stand there: a template in one would be sent as it is.
fn fixed(mistakes: &mut Mistakes, path: &str, name: &str) {
    if name.contains("{{") || name.contains("{%") {
        mistakes.add(path, "takes no values in its name");
    }
}

impl Body {
    fn check(
        mistakes: &mut Mistakes,
        value: &Value,
        path: &str,
        names: &Names,
        depth: usize,
    ) -> Self {
        if depth > BODY_DEPTH {
            mistakes.add(
                path,
                format_args!("is nested more than {BODY_DEPTH} levels deep"),
            );
            return Self::Fixed(Value::Null);
        }
        match value {
            Value::String(source) => {
                Self::Template(Template::check(mistakes, path, source, names, Insert::AsIs))
            }
            Value::Array(values) => {
                let checked = values.iter().enumerate();
                let checked = checked.map(|(n, value)| {
                    Self::check(mistakes, value, &format!("{path}[{n}]"), names, depth + 1)
                });
                Self::List(checked.collect())
            }
            Value::Object(members) => {
                let checked = members.iter().map(|(name, value)| {
                    fixed(mistakes, path, name);
                    (
                        name.clone(),
                        Self::check(mistakes, value, &format!("{path}.{name}"), names, depth + 1),
                    )
                });
                Self::Object(checked.collect())
            }
            other => Self::Fixed(other.clone()),
        }
    }

    fn reads_form(&self) -> bool {
        match self {
            Self::Template(template) => template.reads_form(),
            Self::Fixed(_) => false,
            Self::List(values) => values.iter().any(Self::reads_form),
            Self::Object(members) => members.iter().any(|(_, value)| value.reads_form()),
        }
    }

    fn render(&self, input: &Input) -> Result<Value, TemplateError> {
        Ok(match self {
            Self::Template(template) => template.value(input)?,
            Self::Fixed(value) => value.clone(),
            Self::List(values) => Value::Array(
                values
                    .iter()
                    .map(|value| value.render(input))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Object(members) => {
                let rendered = members
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), value.render(input)?)));
                Value::Object(rendered.collect::<Result<_, TemplateError>>()?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use letterbox_common::form::{Field, FieldType, Form};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn names() -> Names {
        let field = |key: &str, kind| Field {
            key: key.into(),
            label: "L".into(),
            kind,
            required: false,
            placeholder: None,
        };
        let fields = vec![
            field("a", FieldType::Text),
            field("b", FieldType::Text),
            field("n", FieldType::Number),
        ];
        Names::of(&Form {
            title: "T".into(),
            description: None,
            confirmation_message: None,
            fields,
        })
    }

    fn check(action: &Value) -> Result<HttpRequest, Vec<String>> {
        let mut mistakes = Mistakes::default();
        let request = HttpRequest::check(&mut mistakes, action, "it", &names());
        request
            .filter(|_| mistakes.is_empty())
            .ok_or_else(|| mistakes.into_list())
    }

    fn action() -> Value {
        json!({
            "id": "x", "type": "http.request", "account": "c", "method": "POST",
            "path": "/x/{{ form.a }}/y-{{ form.b }}.json", "query": {"q": "{{ form.a }}", "r": "is {{ form.b | upper }}"},
            "headers": {"X-One": "{{ form.a }}", "X-Two": "2"},
            "body": {"a": "{{ form.a }}", "deep": [{"b": "{{ form.b }}!", "n": "{{ form.n }}", "fixed": [1, true, null]}]},
        })
    }

    fn input(a: &str, b: &str) -> Input {
        Input::of_run(&json!({"a": a, "b": b, "n": 1.5}).to_string(), "run", "now").unwrap()
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
        /// Whatever a submitter writes: method, host, structure of the path, names and structure of
        /// the body stay.
        #[test]
        fn values_never_leave_their_places(
            a in r#"(\PC|[/\\.%?#@:&=+ {}"'<>\r\n\t\x00]|\{\{|\.\.|%2e){0,40}"#,
            b in r#"(\PC|[/\\.%?#@:&=+ {}"'<>\r\n\t\x00]|\{%|-%\}|//){0,40}"#,
        ) {
            let base: Url = "https://user.example:8443/base/v1/".parse().unwrap();
            let request = check(&action()).unwrap();
            let Ok(rendered) = request.render(&base, &input(&a, &b)) else {
                // Refused is safe, and only for a reason.
                let control = a.chars().any(|c| c.is_ascii_control() && c != '\t');
                prop_assert!(a.is_empty() || b.is_empty() || a == "." || a == ".." || control, "{a:?} {b:?}");
                return Ok(());
            };
            let url: Url = rendered.url.parse().unwrap();
            prop_assert_eq!(&rendered.method, "POST");
            prop_assert_eq!(url.origin(), base.origin());
            prop_assert_eq!((url.username(), url.password(), url.fragment()), ("", None, None));
            let segments: Vec<_> = url.path_segments().unwrap().collect();
            prop_assert_eq!(segments.len(), 5);
            prop_assert_eq!((segments[0], segments[1], segments[2]), ("base", "v1", "x"));
            let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
            prop_assert_eq!(&decode(segments[3]), &a);
            prop_assert_eq!(decode(segments[4]), format!("y-{b}.json"));
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(pairs, vec![("q".to_owned(), a.clone()), ("r".into(), format!("is {}", b.to_uppercase()))]);
            let names: Vec<_> = rendered.headers.iter().map(|(name, _)| name.as_str()).collect();
            prop_assert_eq!(names, vec!["X-One", "X-Two"]);
            prop_assert_eq!(&rendered.headers[0].1, &a);
            let body: Value = serde_json::from_str(rendered.body.as_ref().unwrap()).unwrap();
            prop_assert_eq!(shape(&body), shape(&json!({"a": "", "deep": [{"b": "", "n": 1.5, "fixed": [1, true, null]}]})));
            prop_assert_eq!(&body["a"], &Value::from(a));
            prop_assert_eq!(&body["deep"][0]["b"], &Value::from(format!("{b}!")));
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
            let request = check(&action).unwrap_or_else(|mistakes| panic!("{path}: {mistakes:?}"));
            assert!(request.reads_form(), "{path}");
            let rendered = request
                .render(&"https://h".parse().unwrap(), &input("a/../b", "b"))
                .unwrap();
            assert!(
                rendered.url.contains("a%2F..%2Fb"),
                "{path}: {}",
                rendered.url
            );
        }
    }

    #[test]
    fn mistakes_are_found_at_deploy() {
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
            ("/headers", json!({"Host": "x"}), "not yours"),
            ("/headers", json!({"Authorization": "x"}), "not yours"),
            ("/headers", json!({"a b": "x"}), "no name of a header"),
            ("/query", json!({"q": 1}), "has to be a string"),
            ("/body", json!({"a": "{{ run.secret }}"}), "run.secret"),
        ] {
            let mut action = action();
            *action.pointer_mut(pointer).unwrap() = value;
            let mistakes = check(&action).unwrap_err().join("; ");
            assert!(mistakes.contains(named), "{pointer}: {mistakes}");
        }
    }

    #[test]
    fn one_expression_keeps_its_type() {
        let mut action = action();
        action["body"] =
            json!({"n": "{{ form.n }}", "text": "{{ form.n }}!", "none": "{{ none }}"});
        let rendered = check(&action)
            .unwrap()
            .render(&"https://h".parse().unwrap(), &input("a", "b"))
            .unwrap();
        assert_eq!(
            rendered.body.unwrap(),
            r#"{"n":1.5,"none":null,"text":"1.5!"}"#
        );
        let left_out = Input::of_run(r#"{"a":"a","b":"b"}"#, "run", "now").unwrap();
        action["body"] = "{{ form.n }}".into();
        let rendered = check(&action)
            .unwrap()
            .render(&"https://h".parse().unwrap(), &left_out)
            .unwrap();
        assert_eq!(rendered.body.unwrap(), "null", "a field that was left out");
    }
}
