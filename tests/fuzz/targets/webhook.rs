//! Targets of webhooks: the signatures of every tool, and the headers that are kept. Their inputs
//! look like requests: a line that says how the webhook is set up, headers, an empty line, a body.

use hyper::header::{HeaderName, HeaderValue};
use letterbox_common::webhook::{
    Headers, KeptHeaders, KeptNames, Rules, TimeFormat, Tool, WebhookRequest, secret_for,
};

use super::text;

/// Seconds since 1970.
const NOW: u64 = 1_790_000_000;
/// Names under which credentials and addresses travel.
const NEVER_KEPT: [&str; 16] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "api-key",
    "x-api-key",
    "x-auth-token",
    "x-access-token",
    "x-csrf-token",
    "x-gitlab-token",
    "x-hub-signature",
    "forwarded",
    "x-forwarded-for",
    "x-real-ip",
    "true-client-ip",
    "cf-connecting-ip",
];

/// The first line of an input, the headers after it, and the body.
fn request(input: &[u8]) -> Option<(&str, Headers, &[u8])> {
    let end = input.windows(2).position(|two| two == b"\n\n")?;
    let mut lines = text(&input[..end])?.lines();
    let first = lines.next()?;
    let headers = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = HeaderValue::from_bytes(value.trim().as_bytes());
        Some((name.parse::<HeaderName>().ok()?, value.ok()?))
    });
    let mut map = Headers::new();
    for (name, value) in headers {
        map.append(name, value);
    }
    Some((first, map, &input[end + 2..]))
}

/// The rules that a line says: the name of a tool, or JSON.
fn rules(line: &str) -> Option<Rules> {
    if !line.starts_with('{') {
        return line.parse::<Tool>().ok()?.rules();
    }
    let rules = Rules::parse(line).ok()?;
    let written = serde_json::to_string(&rules).unwrap();
    assert_eq!(Rules::parse(&written).as_ref(), Ok(&rules));
    Some(rules)
}

/// Whether senders can sign by these rules. Custom ones may contradict themselves.
fn can_be_met(rules: &Rules) -> bool {
    let more = [&rules.timestamp_header, &rules.id_header];
    let more = more.into_iter().flatten();
    let mut names = Vec::from_iter(more.chain(rules.header.names()));
    names.sort_unstable_by_key(|name| name.to_ascii_lowercase());
    let is_apart = names
        .windows(2)
        .all(|two| !two[0].eq_ignore_ascii_case(two[1]));
    let key = rules.timestamp_key.as_deref().unwrap_or_default();
    let separator = rules.separator.as_deref().unwrap_or_default();
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    is_apart
        && [&rules.prefix, key].into_iter().all(is_plain)
        && (key.is_empty() || !rules.prefix.starts_with(&format!("{key}=")))
        && rules.prefix.len() + key.len() < 500
        && rules.timestamp_place.is_none_or(|place| place == 0)
        // A signature ends with the sign that separates, or the time has it.
        && !separator.contains(['.', '&'])
}

/// A request with these headers and this body.
fn posted<'a>(headers: &'a Headers, body: &'a [u8]) -> WebhookRequest<'a> {
    WebhookRequest {
        method: "POST",
        base: "https://example.com",
        target: "/in",
        headers,
        body,
    }
}

/// Nobody signs without the key, whatever the headers hold. What is signed with it verifies: until
/// it is too old, for this body, and for no other key.
pub(super) fn signature(input: &[u8]) {
    let Some((line, headers, body)) = request(input) else {
        return;
    };
    let Some(rules) = rules(line) else { return };
    let new = || secret_for(&rules).unwrap();
    let (Some(secret), Some(other)) = (new(), new()) else {
        return;
    };
    let [keys, other] = [secret, other].map(|secret| rules.keys(&secret).unwrap());
    let verifies = |request: WebhookRequest<'_>, now| rules.verifies(&keys, &request, now);
    assert!(!verifies(posted(&headers, body), NOW));
    let _ = rules.complaint(&headers, NOW);
    let _ = rules.answer(&keys, &posted(&headers, body), NOW);
    if !can_be_met(&rules) {
        return;
    }
    let id = rules.id(&headers).unwrap_or("msg_1");
    let signed = rules
        .sign(&keys, "https://example.com/in", body, NOW, id)
        .unwrap();
    let mut own = Headers::new();
    for (name, value) in &signed.headers {
        own.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    // Where parts touch, only an object or a list says where it ends.
    if !verifies(posted(&own, body), NOW) {
        let is_enclosed = matches!(body.first(), Some(b'{' | b'[')) && id.is_ascii();
        assert!(!is_enclosed || rules.signed.has_close_parts());
        return;
    }
    let last = NOW + u64::from(rules.tolerance_seconds);
    let is_timed = rules.timestamp_format != TimeFormat::Unchecked
        && (rules.timestamp_header.is_some()
            || rules.timestamp_key.is_some()
            || rules.timestamp_place.is_some());
    assert!(verifies(posted(&own, body), last));
    assert_eq!(verifies(posted(&own, body), last + 1), !is_timed);
    assert!(!rules.verifies(&other, &posted(&own, body), NOW));
    assert!(!verifies(posted(&own, &[body, b" "].concat()), NOW));
    // One signature more, as while a secret changes, must not make two requests of one.
    let name = rules.header.names()[0].parse::<HeaderName>().unwrap();
    own.append(name, "x".parse().unwrap());
    assert!(!verifies(posted(&own, body), NOW));
}

/// What is kept was sent, once, under a name that lets nobody in; it is short, and it is read as it
/// was stored.
pub(super) fn kept_headers(input: &[u8]) {
    let Some((line, headers, body)) = request(input) else {
        return;
    };
    let mut words = line.split(' ');
    let tool: Option<Tool> = words.next().and_then(|word| word.parse().ok());
    let Some((tool, rules)) = tool.and_then(|tool| Some((tool, tool.rules()?))) else {
        return;
    };
    let names: Vec<_> = words.map(str::to_owned).collect();
    let kept = KeptNames::of_stored(tool, &rules, &names).keep(&headers);
    assert!(kept.length() <= 1_024);
    for (name, value) in kept.signed.iter().chain(&kept.unsigned) {
        let sent: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(sent, [value.as_str()]);
        assert!(!NEVER_KEPT.contains(&name.as_str()) && !rules.header.names().contains(name));
    }
    assert_eq!(KeptHeaders::parse(kept.to_json().as_deref()), kept);
    // What a webhook may name is what is kept of it later.
    if let Ok(named) = KeptNames::new(tool, &rules, &names) {
        assert_eq!(named.keep(&headers), kept);
    }
    // Whatever is stored is read.
    let read = KeptHeaders::parse(text(body));
    assert_eq!(KeptHeaders::parse(read.to_json().as_deref()), read);
}
