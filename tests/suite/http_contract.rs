//! Contract, section 2: what all endpoints have in common.

use letterbox_tests::{Answer, World, raw};
use reqwest::Method;
use tokio::io::AsyncWriteExt;

const COMMON: [(&str, &str); 3] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
];

fn assert_common(answer: &Answer) {
    for (name, value) in COMMON {
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_get_envelopes() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let base = gateway.public_url();
    let ask = async |method: Method, url: String| {
        Answer::of(gateway.http.request(method, url).send().await.unwrap()).await
    };

    for path in [
        "/",
        "/livez",
        "/readyz",
        "/metrics",
        "/webhooks",
        "/webhooks/incoming",
        "/Webhooks/incoming/x",
        "/%77ebhooks/incoming/x",
        "//webhooks/incoming/x",
        "/webhooks/incoming/x/y",
    ] {
        let answer = ask(Method::POST, format!("{base}{path}")).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "not_found"),
            "{path}"
        );
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_common(&answer);
    }
    for method in [
        Method::GET,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
    ] {
        let answer = ask(method.clone(), webhook.url.clone()).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (405, "method_not_allowed"),
            "{method}"
        );
        assert_eq!(answer.header("allow"), Some("POST, OPTIONS"));
        assert_common(&answer);
    }
    assert_common(&webhook.send("1").await);
}

#[tokio::test]
async fn requests_that_are_not_http_get_an_envelope_too() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let address = gateway.public_address();
    let long = "x".repeat(20_000);
    let many: String = (0..101).map(|n| format!("h{n}: x\r\n")).collect();
    let cases = [
        ("nonsense\r\n\r\n".to_owned(), 400, "invalid_input"),
        (
            "GET / HTTP/1.1\r\nhost : x\r\n\r\n".into(),
            400,
            "invalid_input",
        ),
        (
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: +5\r\n\r\n12345".into(),
            400,
            "invalid_input",
        ),
        (
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n12345"
                .into(),
            400,
            "invalid_input",
        ),
        (
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n".into(),
            400,
            "invalid_input",
        ),
        (
            format!("GET / HTTP/1.1\r\nhost: x\r\nlong: {long}\r\n\r\n"),
            431,
            "headers_too_large",
        ),
        (
            format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
            431,
            "headers_too_large",
        ),
        (
            format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(70_000)),
            431,
            "headers_too_large",
        ),
    ];
    for (request, status, code) in cases {
        let answer = raw(&address, request.as_bytes()).await;
        let shown = &request[..request.len().min(80)];
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{shown}: no answer: {answer:?}"));
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{shown}: {answer}"
        );
        let envelope: serde_json::Value =
            serde_json::from_str(body).unwrap_or_else(|_| panic!("{shown}: {answer}"));
        assert_eq!(envelope["error"]["code"], code, "{shown}");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
        for (name, value) in COMMON {
            assert!(head.contains(&format!("{name}: {value}")), "{head}");
        }
    }
}

#[tokio::test]
async fn browsers_may_call_only_from_our_origins() {
    let world = World::new().await;
    let settings = [
        ("LETTERBOX_APP_URL", "https://app.example.com"),
        ("LETTERBOX_BASE_URL", "https://in.example.com"),
    ];
    let gateway = world.gateway_with(&settings).await;
    let webhook = world.webhook(&gateway).await;

    for origin in ["https://app.example.com", "https://in.example.com"] {
        let answer = Answer::of(
            webhook
                .request(origin)
                .header("origin", origin)
                .send()
                .await
                .unwrap(),
        )
        .await;
        // The body is a bare word: not JSON, so the door was passed.
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "invalid_input")
        );
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.header("vary"), Some("Origin"));

        let asked = gateway
            .http
            .request(Method::OPTIONS, &webhook.url)
            .header("origin", origin);
        let answer = Answer::of(
            asked
                .header("access-control-request-method", "POST")
                .send()
                .await
                .unwrap(),
        )
        .await;
        assert_eq!((answer.status, answer.body.as_str()), (204, ""));
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    }
    for origin in [
        "https://evil.example.com",
        "null",
        "http://app.example.com",
        "https://app.example.com.evil.com",
    ] {
        let answer = Answer::of(
            webhook
                .request("{}")
                .header("origin", origin)
                .send()
                .await
                .unwrap(),
        )
        .await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "origin_not_allowed"),
            "{origin}"
        );
        assert!(
            answer
                .headers
                .iter()
                .all(|(name, _)| !name.starts_with("access-control")),
            "{answer:?}"
        );

        let asked = gateway
            .http
            .request(Method::OPTIONS, &webhook.url)
            .header("origin", origin);
        let answer = Answer::of(
            asked
                .header("access-control-request-method", "POST")
                .send()
                .await
                .unwrap(),
        )
        .await;
        assert_eq!(answer.status, 403);
    }
    assert_eq!(
        world.count("SELECT count(*) FROM webhook_deliveries").await,
        0,
        "a refused origin has no effect"
    );
    assert!(
        webhook.send("{}").await.is_first(),
        "a server sends no origin"
    );
}

/// What two servers could read in two ways is refused.
#[tokio::test]
async fn heads_are_read_strictly() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let address = gateway.public_address();
    for (head, status) in [
        ("GET /forms/form.js HTTP/1.1\r\nhost: x\r\n", 200),
        ("GET http://x/forms/form.js HTTP/1.1\r\nhost: X\r\n", 200),
        ("GET /forms/form.js HTTP/1.0\r\n", 200),
        ("GET /forms/form.js HTTP/1.1\r\n", 400),
        ("GET /forms/form.js HTTP/1.1\r\nhost: x\r\nhost: x\r\n", 400),
        ("GET http://y/forms/form.js HTTP/1.1\r\nhost: x\r\n", 400),
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n",
            400,
        ),
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\
             transfer-encoding: chunked\r\n",
            400,
        ),
        (
            "POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: Chunked\r\n",
            404,
        ),
    ] {
        let answer = raw(&address, format!("{head}\r\n0\r\n\r\n").as_bytes()).await;
        let (protocol, rest) = answer.split_once(' ').unwrap_or_default();
        assert!(protocol.starts_with("HTTP/1."), "{head}: {answer}");
        assert!(rest.starts_with(&status.to_string()), "{head}: {answer}");
    }
}

/// Refused before its body is read: the sender gets to read why, whatever it is still sending.
#[tokio::test]
async fn early_refusals_reach_senders_of_large_bodies() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let base = gateway.public_url();
    let large = vec![b'x'; 900_000];
    for (path, origin, status) in [
        ("/nothing", None, 404),
        ("/webhooks/incoming/x", None, 404),
        ("/forms", None, 405),
        (
            "/public/workflow-forms/forms/submit",
            Some("https://evil.example.com"),
            403,
        ),
        ("/public/workflow-forms/forms/submit", None, 413),
    ] {
        for _ in 0..5 {
            let mut request = gateway
                .http
                .post(format!("{base}{path}"))
                .body(large.clone());
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let answer = Answer::of(
                request
                    .send()
                    .await
                    .unwrap_or_else(|error| panic!("{path}: {error:?}")),
            )
            .await;
            assert_eq!(answer.status, status, "{path}");
            answer.code();
        }
    }
}

/// A peer that asks and never reads does not keep its connection.
#[tokio::test]
async fn a_peer_that_reads_nothing_is_disconnected() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket
        .connect(gateway.public_address().parse().unwrap())
        .await
        .unwrap();
    let asked = "GET /forms/form.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let asking = async { while stream.write_all(asked.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), asking)
        .await
        .expect("the gateway closes the connection");
}
