//! Numbers of forms: inserted digit for digit as they were typed, compared as the nearest double.

use letterbox_tests::{Peer, Reply, Scene, payload};
use serde_json::json;

/// As people, programs and browsers write them; the last ones are the largest double in four
/// spellings, and its neighbour.
const NUMBERS: [&str; 24] = [
    "0",
    "-0",
    "3",
    "3.0",
    "1.10",
    "1e2",
    "1E+2",
    "-1.5e-7",
    "9.109e-31",
    "0.1",
    "0.30000000000000004",
    "1.4000000000000001",
    "0.9999999999999999",
    "11.457486364219061",
    "9007199254740993",
    "18446744073709551616",
    "170141183460469231731687303715884105728",
    "3.14159265358979323846264338327950288419716939937510",
    "1e-400",
    "1.7976931348623157e308",
    "1.7976931348623158e308",
    "-1.7976931348623158e308",
    "1.797693134862315807e308",
    "1.79769313486231570000000000e308",
];

/// Submits a number of seats, digit for digit, and waits for its run: the number of them all.
async fn submit(scene: &Scene, typed: &str, runs: i64) {
    let mut values = payload();
    values["seats"] = json!("TYPED");
    let (token, key) = (&scene.form.token, runs.to_string());
    let body = json!({"token": token, "idempotencyKey": key, "payload": values});
    let body = body.to_string().replace("\"TYPED\"", typed);
    scene.form.post(body).await.assert_accepted();
    scene.world.await_state("succeeded", runs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_arrive_as_they_were_typed() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let seats = "{{ form.seats }}";
    let actions = json!([{"id": "send", "type": "http.request", "account": "crm", "method": "POST",
        "path": format!("/{seats}"), "headers": {"X-Seats": format!("<{seats}>")},
        "query": {"q": seats},
        "body": {"number": seats, "text": format!("all {seats}"), "list": [seats],
            "default": "{{ form['seats'] | default(0) }}"}}]);
    let scene = Scene::new(&peer, actions).await;
    for (number, typed) in (1..).zip(NUMBERS) {
        submit(&scene, typed, number).await;
        scene.world.forget_hits().await;
        let received = peer.received().pop().unwrap();
        let expected = format!(
            r#"{{"default":{typed},"list":[{typed}],"number":{typed},"text":"all {typed}"}}"#
        );
        assert_eq!(received.body, expected);
        assert_eq!(received.header("x-seats"), Some(&*format!("<{typed}>")));
        let encoded = typed.replace('+', "%2B");
        assert_eq!(received.target, format!("/{encoded}?q={encoded}"));
    }
    let failed = "runs WHERE state = 'failed'";
    scene.world.assert_rows(failed, 0).await;
}

/// Conditions see the nearest double, and integers of 128 bits exactly.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_compared_exactly() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let cases = [
        ("0.1", "form.seats == 0.1"),
        ("11.457486364219061", "form.seats == 11.457486364219061"),
        ("9007199254740993", "form.seats > 9007199254740992"),
        ("9007199254740993", "form.seats == 9007199254740993"),
        ("3.0", "form.seats == 3"),
        (
            "1.7976931348623158e308",
            "form.seats > 1.7976931348623155e308",
        ),
        ("-0.0000001", "form.seats < 0"),
    ];
    let actions = cases.iter().enumerate().map(|(index, (_, condition))| {
        let send = json!({"id": format!("s{index}"), "type": "http.request", "account": "crm",
            "method": "GET", "path": format!("/{index}")});
        json!({"id": format!("c{index}"), "type": "condition", "if": condition, "then": [send]})
    });
    let scene = Scene::new(&peer, actions.collect()).await;
    for (index, (typed, condition)) in cases.iter().enumerate() {
        submit(&scene, typed, index as i64 + 1).await;
        let reached = peer.targets().contains(&format!("/{index}"));
        assert!(reached, "{typed}: {condition}");
    }
}
