//! Questions, asked by who can sign and by who can't.

use serde_json::{Value, json};

use super::*;
use crate::{
    secret::Secret,
    webhook::scheme::{
        Headers,
        tests::{URL, headers, request, rules, signed},
    },
};

#[test]
fn handshakes_are_answered_to_who_can_sign() {
    let zoom = rules("zoom");
    let keys = zoom.keys(&Secret::new("a secret of zoom".into())).unwrap();
    let ask = |body: Value| {
        let body = body.to_string();
        let sent = signed(&zoom, "a secret of zoom", &body, 1_790_000_000, "");
        zoom.answer(&keys, &request(&sent, body.as_bytes()), 1_790_000_000)
    };
    let asked = |token: &str| {
        ask(json!({"event": "endpoint.url_validation", "payload": {"plainToken": token}}))
    };
    let Some(Reply::Json(answer)) = asked("qgg8vlvZRS6UYooatFL8Aw") else {
        panic!("no answer");
    };
    // printf qgg8vlvZRS6UYooatFL8Aw | openssl dgst -sha256 -hmac 'a secret of zoom'
    let known = "a8780fdea3029449feaefd6c68812f9943b9c6809bfec4a36433441b6ffe8c09";
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["plainToken"], "qgg8vlvZRS6UYooatFL8Aw");
    assert_eq!(answer["encryptedToken"], known);
    // Nothing that could be an event is signed.
    assert_eq!(asked(r#"v0:1:{"event":"x"}"#), None);
    assert_eq!(ask(json!({"event": "meeting.started"})), None);

    let meta = rules("meta");
    let keys = meta.keys(&Secret::new("a secret of meta".into())).unwrap();
    let token = meta.verify_token(&keys).unwrap();
    let none = Headers::new();
    let get = |rules: &Rules, headers, query: &str| {
        let target = format!("/in/a.b?{query}");
        let asked = WebhookRequest {
            method: "GET",
            target: &target,
            ..request(headers, b"")
        };
        rules.answer_query(&keys, &asked)
    };
    let asked = |token: &str, challenge: &str| {
        let query = format!("hub.mode=subscribe&hub.verify_token={token}");
        get(&meta, &none, &format!("{query}&hub.challenge={challenge}"))
    };
    let challenge = Some(Reply::Text("1158201444".into()));
    assert_eq!(asked(&token, "1158201444"), challenge);
    assert_eq!(asked(&token[1..], "1158201444"), None);
    assert_eq!(asked("", "1"), None);
    assert_eq!(asked(&token, "%3Cscript%3E"), None);
    assert_eq!(get(&rules("github"), &none, "hub.challenge=1"), None);

    let x = rules("x");
    let query = "crc_token=c2VjcmV0&nonce=1";
    let signed = x.sign(&keys, URL, query.as_bytes(), 0, "").unwrap();
    let given = headers(&[(&signed.headers[0].0, &signed.headers[0].1)]);
    assert!(matches!(get(&x, &given, query), Some(Reply::Json(_))));
    // An unsigned one would sign what anybody wants.
    assert_eq!(get(&x, &none, query), None);
    assert_eq!(get(&x, &given, "crc_token=b3RoZXI&nonce=1"), None);
}
