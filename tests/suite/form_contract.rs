//! Contract, section 3: reading and submitting a form.

use letterbox_operator::Move;
use letterbox_tests::{Answer, Form, World, assert_hides, assert_tells, payload};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_form_is_read_submitted_and_runs_once() {
    let (world, _gateway, _worker, form) = World::with_recorded_form().await;

    let read = form.read().await;
    assert_eq!(read.status, 200);
    assert_eq!(read.header("content-type"), Some("application/json"));
    let definition: Value = serde_json::from_str(letterbox_tests::DEFINITION).unwrap();
    let told: Value = serde_json::from_str(&read.body).unwrap();
    assert_eq!(told, definition["form"]); // and nothing else
    assert_hides(&read.body, &["null", "confirmationMessage"]);

    form.submit("one", &payload()).await.assert_accepted();
    world.await_rows("runs WHERE state = 'succeeded'", 1).await;
    let (owner, workflow) = (form.owner, form.workflow);
    let recorded = format!(
        "runs WHERE run_as = '{owner}' AND workflow_id = '{workflow}' AND state = 'succeeded'
            AND input_trust = 'untrusted' AND refused_reason IS NULL"
    );
    world.assert_rows(&recorded, 1).await;
    let input: Vec<u8> = world.value("SELECT input FROM runs").await;
    assert_eq!(serde_json::from_slice::<Value>(&input).unwrap(), payload());
}

/// Whatever is wrong with a token: the same status, headers and bytes.
#[tokio::test]
async fn an_unavailable_form_does_not_say_why() {
    let (world, gateway) = World::with_gateway().await;
    let (rotated, expired) = (world.form(&gateway).await, world.form(&gateway).await);
    world.relink(&rotated).await;
    world.redeploy(expired.workflow).await;
    let (long, too_long) = ("x".repeat(200), "x".repeat(201));
    let mut tokens = vec![rotated.token.clone(), expired.token, long];
    for to in [Move::Pause, Move::Delete, Move::Draft] {
        let moved = world.form(&gateway).await;
        world.move_workflow(moved.workflow, to).await;
        tokens.push(moved.token);
    }
    let mut reads = vec![Answer::to(rotated.request(Method::GET, &rotated.read_url())).await];
    let mut submits = Vec::new();
    for token in tokens {
        let form = rotated.with_token(&token);
        reads.push(form.read().await);
        submits.push(form.submit("k", &payload()).await);
    }
    for token in [
        "",
        "x",
        "0123456789012345678",
        &too_long,
        "\u{0}123456789012345678901234",
        "' OR 1=1 --------------",
    ] {
        reads.push(rotated.with_token(token).read().await);
    }
    let live = world.form(&gateway).await;
    let twice = format!("{0}?token={1}&token={1}", live.read_url(), live.token);
    reads.push(Answer::to(live.request(Method::GET, &twice)).await);
    for answer in reads.iter().chain(&submits) {
        assert_eq!(answer, &reads[0]);
    }
    assert_eq!(reads[0].status, 404);
    assert_eq!(reads[0].code().as_str(), "workflow_public_form_unavailable");
    assert_tells(&reads[0].body, &["This form is not available"]);
    world.assert_rows("form_submissions", 0).await;
}

#[tokio::test]
async fn a_bad_submission_is_told_what_is_wrong() {
    let (world, _gateway, form) = World::with_form().await;
    let good = json!({"token": form.token, "idempotencyKey": "k", "payload": payload()});
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string()
    };
    let without = |name: &str| {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(name);
        body.to_string()
    };
    let in_payload = |name: &str, value: Value| {
        let mut body = good.clone();
        body["payload"][name] = value;
        body.to_string()
    };
    let long = "\u{1f4ee}".repeat(121);
    let huge = good.to_string().replace("\"seats\":3", "\"seats\":1e400");
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "not valid JSON"),
        ("{".into(), "not valid JSON"),
        ("[]".into(), "JSON object"),
        ("null".into(), "JSON object"),
        (without("token"), "token"),
        (with("token", json!(1)), "token"),
        (with("token", json!("x".repeat(19))), "token"),
        (with("token", json!("x".repeat(201))), "token"),
        (without("idempotencyKey"), "idempotencyKey"),
        (with("idempotencyKey", json!("")), "idempotencyKey"),
        (with("idempotencyKey", json!(long)), "idempotencyKey"),
        (with("idempotencyKey", json!(null)), "idempotencyKey"),
        (without("payload"), "payload"),
        (with("payload", json!([])), "payload"),
        (with("payload", json!("{}")), "payload"),
        (in_payload("name", json!("")), "name"),
        (in_payload("name", json!(" \t")), "name"),
        (in_payload("name", json!(1)), "name"),
        (in_payload("name", json!("x".repeat(501))), "name"),
        (in_payload("email", json!("nobody")), "email"),
        (in_payload("message", json!("x".repeat(5001))), "message"),
        (in_payload("message", json!(null)), "message"),
        (in_payload("seats", json!("3")), "seats"),
        (huge, "seats"),
        (in_payload("terms", json!(false)), "terms"),
        (in_payload("extra", json!("x")), "extra"),
    ];
    for (body, named) in cases {
        let shown: String = body.chars().take(100).collect();
        let answer = form.post(body).await;
        answer.assert_refused(400, "invalid_input");
        assert!(answer.body.contains(named), "{shown}: {}", answer.body);
        world.forget_hits().await;
    }
    let latin = form.post(b"{\"token\":\"\xff\"}".to_vec()).await;
    assert_eq!(latin.status, 400);
    assert_tells(&latin.body, &["UTF-8"]);
    let plain = form
        .request(Method::POST, &form.submit_url())
        .header("content-type", "text/plain");
    let plain = Answer::to(plain.body(good.to_string())).await;
    assert_eq!(plain.status, 400);
    assert!(plain.body.contains("Content-Type"));
    world.assert_rows("form_submissions", 0).await; // nothing of this is claimed

    world.forget_hits().await;
    let key = "\u{1f4ee}".repeat(120);
    for (key, payload) in [
        (key.as_str(), payload()),
        (
            "nul \u{0}",
            json!({"name": "a\u{0}b", "email": "a@b", "terms": true}),
        ),
        (
            "long",
            json!({"name": "\u{1f4ee}".repeat(500), "email": "a@b",
                "message": "\u{1f4ee}".repeat(5000), "terms": true}),
        ),
    ] {
        form.submit(key, &payload).await.assert_accepted();
    }
    let more = with("idempotencyKey", json!("more"));
    let more = format!("{{\"more\":{{}},{}", &more[1..]);
    form.post(more).await.assert_accepted();
    let _worker = world.worker().await;
    world.await_runs(4).await;
    let kept =
        r"SELECT count(*) FROM runs WHERE position(convert_to('a\u0000b', 'UTF8') IN input) > 0";
    world.assert_count(kept, 1).await;
}

/// The first check that fails answers.
#[tokio::test]
async fn checks_come_in_their_order() {
    let (_world, _gateway, form) = World::with_form().await;
    let (dead, invalid) = (form.with_token(&"x".repeat(64)), json!({}));

    let big = vec![b'x'; 65_537];
    // Size before the client's limit, which comes before the body's form, which comes before the
    // token.
    let client = form.from("203.0.113.1");
    for _ in 0..60 {
        assert_eq!(client.post("{").await.status, 400);
    }
    assert_eq!(client.post("{").await.status, 429);
    assert_eq!(client.post(big.clone()).await.status, 413);
    assert_eq!(dead.from("203.0.113.1").read().await.status, 429);
    assert_eq!(dead.post("{").await.status, 400);
    // The token before its limit and its payload; a dead token has no limit.
    for _ in 0..21 {
        assert_eq!(dead.submit("k", &invalid).await.status, 404);
    }
    // The token's limit before known keys, known keys before the payload.
    form.submit("k", &payload()).await.assert_accepted();
    form.submit("k", &invalid).await.assert_accepted();
    for _ in 0..18 {
        assert_eq!(form.submit("other", &invalid).await.status, 400);
    }
    assert_eq!(form.submit("k", &invalid).await.status, 429);
    assert_eq!(form.post(big).await.status, 413);
    // Exactly at the limit is not over it.
    let fits = form.with_token(&"x".repeat(64));
    let body =
        json!({"token": fits.token, "idempotencyKey": "k", "payload": {}, "pad": ""}).to_string();
    let padded = |size: usize| {
        let pad = "x".repeat(size - body.len());
        body.replace("\"pad\":\"\"", &format!("\"pad\":\"{pad}\""))
    };
    assert_eq!(fits.post(padded(65_536)).await.status, 404);
    assert_eq!(fits.post(padded(65_537)).await.status, 413);
}

#[tokio::test]
async fn methods_origins_and_common_headers() {
    let world = World::new().await;
    let settings = [
        ("LETTERBOX_APP_URL", "https://app.example.com"),
        ("LETTERBOX_BASE_URL", "https://in.example.com"),
    ];
    let gateway = world.gateway_with(&settings).await;
    let form = world.form(&gateway).await;
    let ask = async |form: &Form, method: Method, url: String, headers: &[(&str, &str)]| {
        let mut request = form.request(method, &url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::to(request).await
    };
    let read = format!("{}?token={}", form.read_url(), form.token);
    for (url, good, allow) in [
        (read.clone(), Method::GET, "GET, HEAD, OPTIONS"),
        (form.submit_url(), Method::POST, "POST, OPTIONS"),
        (form.page_url(), Method::GET, "GET, HEAD, OPTIONS"),
    ] {
        for method in [
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::OPTIONS,
        ] {
            if method == good || (method == Method::HEAD && good == Method::GET) {
                continue;
            }
            let answer = ask(&form, method.clone(), url.clone(), &[]).await;
            let told = (answer.status, answer.header("allow"));
            assert_eq!(told, (405, Some(allow)), "{method} {url}");
        }
        for origin in [
            "https://evil.example.com",
            "null",
            "https://app.example.com.evil.com",
        ] {
            let answer = ask(&form, good.clone(), url.clone(), &[("origin", origin)]).await;
            answer.assert_refused(403, "origin_not_allowed");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        let origin = ("origin", "https://app.example.com");
        let asked = [origin, ("access-control-request-method", good.as_str())];
        let answer = ask(&form, Method::OPTIONS, url.clone(), &asked).await;
        assert_eq!(answer.status, 204);
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin.1));
        let methods = answer.header("access-control-allow-methods").unwrap();
        assert_tells(methods, &[good.as_str()]);
        let answer = ask(&form, good.clone(), url, &[origin]).await;
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin.1));
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("vary", "Origin"),
        ] {
            assert_eq!(answer.header(name), Some(value));
        }
    }
    let head = ask(&form, Method::HEAD, read, &[]).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let evil = form
        .submission("k", &payload())
        .header("origin", "https://evil.example.com");
    assert_eq!(Answer::to(evil).await.status, 403);
    world.assert_rows("form_submissions", 0).await; // a refused origin has no effect
}
