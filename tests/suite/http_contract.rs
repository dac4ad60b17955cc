//! Contract, section 2: what all endpoints have in common.

use letterbox_tests::{Answer, World, assert_tells, raw};
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
    let (_world, gateway, webhook) = World::with_webhook().await;
    let base = gateway.public_url();
    let ask =
        async |method: Method, url: String| Answer::to(gateway.http.request(method, url)).await;

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
        assert!(answer.is_refused(404, "not_found"), "{path}");
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
        assert!(answer.is_refused(405, "method_not_allowed"), "{method}");
        assert_eq!(answer.header("allow"), Some("POST, OPTIONS"));
        assert_common(&answer);
    }
    assert_common(&webhook.send("1").await);
}

#[tokio::test]
async fn requests_that_are_not_http_get_an_envelope_too() {
    let (_world, gateway) = World::with_gateway().await;
    let address = gateway.public_address();
    let long = "x".repeat(20_000);
    let many: String = (0..101).map(|n| format!("h{n}: x\r\n")).collect();
    let post = |head: &str| format!("POST / HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n12345");
    let get = |path: &str, head: &str| format!("GET {path} HTTP/1.1\r\nhost{head}\r\n\r\n");
    let cases = [
        ("nonsense\r\n\r\n".to_owned(), 400),
        (get("/", " : x"), 400),
        (post("content-length: +5"), 400),
        (post("content-length: 5\r\ncontent-length: 6"), 400),
        (post("transfer-encoding: xchunked"), 400),
        (get("/", &format!(": x\r\nlong: {long}")), 431),
        (get("/", &format!(": x\r\n{}", many.trim_end())), 431),
        (get(&format!("/{}", "y".repeat(70_000)), ": x"), 431),
    ];
    for (request, status) in cases {
        let code = match status {
            400 => "invalid_input",
            _ => "headers_too_large",
        };
        let answer = raw(&address, request.as_bytes()).await;
        let shown = &request[..request.len().min(80)];
        let begins = answer.starts_with(&format!("HTTP/1.1 {status}"));
        assert!(begins, "{shown}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let envelope: serde_json::Value = serde_json::from_str(body).expect(shown);
        assert_eq!(envelope["error"]["code"], code, "{shown}");
        assert_tells(head, &[&format!("content-length: {}", body.len())]);
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

    let send = async |body: &'static str, origin: &str| {
        Answer::to(webhook.request(body).header("origin", origin)).await
    };
    let ask = async |origin: &str| {
        let asking = gateway.http.request(Method::OPTIONS, &webhook.url);
        let asking = asking.header("access-control-request-method", "POST");
        Answer::to(asking.header("origin", origin)).await
    };
    for origin in ["https://app.example.com", "https://in.example.com"] {
        // The body is no JSON, so the door was passed.
        let answer = send("x", origin).await;
        answer.assert_refused(400, "invalid_input");
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.header("vary"), Some("Origin"));
        let answer = ask(origin).await;
        assert_eq!((answer.status, answer.body.as_str()), (204, ""));
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    }
    for origin in [
        "https://evil.example.com",
        "null",
        "http://app.example.com",
        "https://app.example.com.evil.com",
    ] {
        let answer = send("{}", origin).await;
        assert!(answer.is_refused(403, "origin_not_allowed"), "{origin}");
        let mut names = answer.headers.iter().map(|(name, _)| name);
        assert!(names.all(|name| !name.starts_with("access-control")));
        assert_eq!(ask(origin).await.status, 403);
    }
    world.assert_rows("webhook_deliveries", 0).await; // a refused origin has no effect
    assert!(webhook.send("{}").await.is_first()); // a server sends no origin
}

/// What two servers could read in two ways is refused.
#[tokio::test]
async fn heads_are_read_strictly() {
    let (_world, gateway) = World::with_gateway().await;
    let address = gateway.public_address();
    let sent = |encoding: &str| {
        format!("POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: {encoding}\r\n")
    };
    for (head, status) in [
        ("GET /forms/form.js HTTP/1.1\r\nhost: x\r\n", 200),
        ("GET http://x/forms/form.js HTTP/1.1\r\nhost: X\r\n", 200),
        ("GET /forms/form.js HTTP/1.0\r\n", 200),
        ("GET /forms/form.js HTTP/1.1\r\n", 400),
        ("GET /forms/form.js HTTP/1.1\r\nhost: x\r\nhost: x\r\n", 400),
        ("GET http://y/forms/form.js HTTP/1.1\r\nhost: x\r\n", 400),
        (&sent("gzip, chunked"), 400),
        (&sent("gzip\r\ntransfer-encoding: chunked"), 400),
        (&sent("Chunked"), 404),
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
    let (_world, gateway) = World::with_gateway().await;
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
            let mut request = gateway.http.post(format!("{base}{path}"));
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let answer = Answer::to(request.body(large.clone())).await;
            assert_eq!(answer.status, status, "{path}");
            answer.code();
        }
    }
}

/// A peer that asks and never reads does not keep its connection.
#[tokio::test]
async fn a_peer_that_reads_nothing_is_disconnected() {
    let (_world, gateway) = World::with_gateway().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = gateway.public_address().parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let asked = "GET /forms/form.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let asking = async { while stream.write_all(asked.as_bytes()).await.is_ok() {} };
    let closing = tokio::time::timeout(std::time::Duration::from_secs(60), asking);
    closing.await.expect("the gateway closes the connection");
}
