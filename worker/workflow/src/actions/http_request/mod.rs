//! `http.request`: calls a connected account. The account fixes scheme, host, port and the
//! beginning of the path; the definition fixes method, path, names of query parameters and headers,
//! the structure of the body, which statuses are answers, and what of an answer is kept. Values are
//! inserted and change none of these.

mod body;

use std::{collections::HashSet, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use serde_json::Value;
use url::{Url, form_urlencoded};

use self::body::Body;
use super::{
    ActionKind, MAX_ACCOUNT, Reading, Step, delay,
    outgoing::{BodyType, MAX_TIMEOUT, Outgoing, Request, SUCCESS, TIMEOUT, join_path},
};
use crate::{
    diagnostics::{Diagnostics, Fields},
    template::{Escape, References, RenderError, Renderer, Template, Variables},
};

pub(super) const KIND: ActionKind = ActionKind {
    name: "http.request",
    steering: None,
    sends: true,
    parse: |fields| parse(fields).map(Step::Send),
};

/// Maximum number of statuses that are answers.
const MAX_EXPECTED: usize = 20;
/// The methods that a request may have.
pub(crate) const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/// Headers that are set by the connection, the account or the executor, and headers that could turn
/// the request into another one than the policy decided about.
pub const RESERVED_HEADERS: [&str; 26] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

#[derive(Debug)]
struct HttpRequest {
    account: String,
    method: &'static str,
    path: Template,
    query: Vec<(String, Template)>,
    headers: Vec<(String, Template)>,
    body: Option<Content>,
    /// Statuses that are answers beside those of success.
    expect: Vec<u16>,
    timeout: Duration,
    reading: Reading,
}

/// What a request carries.
#[derive(Debug)]
enum Content {
    Json(Body),
    /// Names and values of an HTML form.
    Form(Vec<(String, Template)>),
}

/// Parses the members of a request.
pub(super) fn parse(fields: &mut Fields<'_, '_>) -> Option<Arc<dyn Outgoing>> {
    let account = fields.text("account", MAX_ACCOUNT);
    let method = fields.one_of("method", &METHODS, |method| method);
    let path = Template::parse(fields, "path");
    let query = named_templates(fields, "query");
    let headers = named_templates(fields, "headers");
    let body = content(fields);
    let expect = expected(fields);
    let timeout = fields.get("timeout").and_then(|_| {
        let problem = "must be a duration of 1 second to 2 minutes, such as PT90S";
        delay::duration(fields, "timeout", MAX_TIMEOUT, problem)
    });
    Some(Arc::new(HttpRequest {
        account,
        method: method?,
        path,
        query,
        headers,
        body,
        expect,
        timeout: timeout.unwrap_or(TIMEOUT),
        reading: Reading::parse(fields),
    }))
}

/// Parses what a request carries: `body`, or `form`.
fn content(fields: &mut Fields<'_, '_>) -> Option<Content> {
    let place = fields.place("body");
    let body = fields.get("body");
    let body = body.map(|body| Content::Json(Body::parse(fields.diagnostics, body, &place, 1)));
    if fields.get("form").is_some() {
        let form = named_templates(fields, "form");
        if body.is_some() {
            fields.add("form", "must be absent: there is a body");
        }
        return Some(Content::Form(form));
    }
    body
}

/// Parses the statuses that are answers. Some mean the same of every account, and are acted upon.
fn expected(fields: &mut Fields<'_, '_>) -> Vec<u16> {
    let Some(given) = fields.get("expect") else {
        return Vec::new();
    };
    let status = |value: &Value| {
        let status = u16::try_from(value.as_u64()?).ok()?;
        let may_be = (200..500).contains(&status) && ![401, 429].contains(&status);
        may_be.then_some(status)
    };
    let found = given.as_array().map(|given| given.iter().map(status));
    let found = found.and_then(|found| found.collect::<Option<Vec<_>>>());
    let found = found.filter(|found| (1..=MAX_EXPECTED).contains(&found.len()));
    if found.is_none() {
        let problem = format_args!(
            "must be 1 to {MAX_EXPECTED} statuses from 200 to 499, but not 401 (the account's \
             credential is refused) and not 429 (the request is sent again later)"
        );
        fields.add("expect", problem);
    }
    found.unwrap_or_default()
}

/// Parses an object of strings, each a template.
fn named_templates(fields: &mut Fields<'_, '_>, name: &str) -> Vec<(String, Template)> {
    let Some(value) = fields.get(name) else {
        return Vec::new();
    };
    let Some(given) = value.as_object() else {
        fields.add(name, "must be an object of strings");
        return Vec::new();
    };
    let templates = given.iter().filter_map(|(key, value)| {
        let place = format!("{}.{key}", fields.place(name));
        let source = fields.diagnostics.string(value, &place)?;
        Some((key.clone(), Template::new(source)))
    });
    templates.collect()
}

fn is_header_value(text: &str) -> bool {
    HeaderValue::from_bytes(text.as_bytes()).is_ok()
}

impl HttpRequest {
    fn check_path(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        let place = format!("{path}.path");
        let source = &self.path.source;
        if !source.starts_with('/') || source.contains(['?', '#', '\\']) {
            diagnostics.add(&place, "must begin with / and must not contain ?, # or \\");
        }
        if source.contains("{%") {
            let problem = "must not use tags: a path has the same segments in every run";
            diagnostics.add(&place, problem);
        }
        let path = &self.path;
        let escape = Escape::PathSegment;
        if !path.check(diagnostics, &place, variables, escape) {
            return;
        }
        // The path with sample values must be a valid path.
        let sample = path.render(escape, &variables.sample().renderer());
        if let (Ok(path), Ok(base)) = (sample, Url::parse("https://host"))
            && join_path(&base, &path).is_err()
        {
            diagnostics.add(&place, "must be percent-encoded and without dot segments");
        }
    }

    fn check_headers(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        let place = format!("{path}.headers");
        let mut seen = HashSet::new();
        for (name, template) in &self.headers {
            let its_place = format!("{place}.{name}");
            diagnostics.check_fixed_name(&its_place, name);
            let is_fine = template.check(diagnostics, &its_place, variables, Escape::None);
            let lower = name.to_ascii_lowercase();
            let reserved = RESERVED_HEADERS.contains(&lower.as_str());
            if !seen.insert(lower) {
                diagnostics.add(&place, format_args!("duplicate header {name:?}"));
            }
            let sample = || template.render(Escape::None, &variables.sample().renderer());
            if is_fine && sample().is_ok_and(|value| !is_header_value(&value)) {
                let problem = format_args!("the value of {name:?} contains control characters");
                diagnostics.add(&place, problem);
            }
            if HeaderName::try_from(name).is_err() {
                diagnostics.add(&place, format_args!("{name:?} is not a valid header name"));
            } else if reserved {
                diagnostics.add(&place, format_args!("{name:?} is a reserved header"));
            }
        }
    }
}

impl Outgoing for HttpRequest {
    fn account(&self) -> &str {
        &self.account
    }

    fn method(&self) -> &str {
        self.method
    }

    fn references(&self) -> References {
        let named = self.query.iter().chain(&self.headers);
        let named = named.map(|(_, template)| template.references.clone());
        let carried = self.body.iter().flat_map(Content::references);
        let all = named.chain(carried);
        all.fold(self.path.references.clone(), References::and)
    }

    fn sets_header(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    }

    fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        self.check_path(diagnostics, path, variables);
        for (name, template) in &self.query {
            let place = format!("{path}.query.{name}");
            diagnostics.check_fixed_name(&place, name);
            template.check(diagnostics, &place, variables, Escape::None);
        }
        self.check_headers(diagnostics, path, variables);
        if let Some(body) = &self.body {
            let place = body.check(diagnostics, path, variables);
            if ["GET", "HEAD"].contains(&self.method) {
                let problem = format_args!("must be absent: {} has no body", self.method);
                diagnostics.add(&place, problem);
            }
        }
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn reading(&self) -> Reading {
        self.reading.clone()
    }

    fn is_answer(&self, status: u16) -> bool {
        SUCCESS.contains(&status) || self.expect.contains(&status)
    }

    fn render(&self, base_url: &Url, renderer: &Renderer<'_>) -> Result<Request, RenderError> {
        let path = self.path.render(Escape::PathSegment, renderer)?;
        let mut url = join_path(base_url, &path)?;
        if !self.query.is_empty() {
            let mut pairs = url.query_pairs_mut();
            for (name, template) in &self.query {
                pairs.append_pair(name, &template.render(Escape::None, renderer)?);
            }
        }
        let mut headers = Vec::with_capacity(self.headers.len());
        for (name, template) in &self.headers {
            let value = template.render(Escape::None, renderer)?;
            if !is_header_value(&value) {
                let reason = format!("the value of header {name:?} contains control characters");
                return Err(RenderError::new(reason));
            }
            headers.push((name.clone(), value));
        }
        let body = self.body.as_ref().map(|body| body.render(renderer));
        Ok(Request {
            method: self.method.to_owned(),
            url: url.into(),
            headers,
            body: body.transpose()?,
            body_type: match self.body {
                Some(Content::Form(_)) => BodyType::Form,
                _ => BodyType::Json,
            },
        })
    }
}

impl Content {
    fn references(&self) -> Vec<References> {
        match self {
            Self::Json(body) => vec![body.references()],
            Self::Form(form) => {
                let templates = form.iter();
                templates.map(|(_, one)| one.references.clone()).collect()
            }
        }
    }

    /// Checks its templates; returns its place.
    fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) -> String {
        match self {
            Self::Json(body) => {
                let place = format!("{path}.body");
                body.check(diagnostics, &place, variables);
                place
            }
            Self::Form(form) => {
                let place = format!("{path}.form");
                for (name, template) in form {
                    diagnostics.check_fixed_name(&place, name);
                    let its_place = format!("{place}.{name}");
                    template.check(diagnostics, &its_place, variables, Escape::None);
                }
                place
            }
        }
    }

    fn render(&self, renderer: &Renderer<'_>) -> Result<String, RenderError> {
        let form = match self {
            Self::Json(body) => return body.render(renderer),
            Self::Form(form) => form,
        };
        // The structure is made here, of whatever is inserted.
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        for (name, template) in form {
            pairs.append_pair(name, &template.render(Escape::None, renderer)?);
        }
        Ok(pairs.finish())
    }
}

#[cfg(test)]
mod tests;
