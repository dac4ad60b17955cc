//! Contract, section 4: what a sender of signed events hears, stage by stage.

use letterbox_common::webhook::WebhookAddress;
use letterbox_tests::{Answer, Webhook, World, raw, sign};

async fn post(webhook: &Webhook, signatures: &[&str], body: impl Into<reqwest::Body>) -> Answer {
    let mut request = letterbox_tests::http_client()
        .post(&webhook.url)
        .header("content-type", "application/json");
    for signature in signatures {
        request = request.header("x-service-signature", *signature);
    }
    Answer::to(request.body(body)).await
}

#[tokio::test]
async fn first_then_duplicate_and_other_webhooks_and_spellings_are_distinct() {
    let (world, gateway, _worker) = World::with_both().await;
    let (one, two) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    assert!(one.send(r#"{"a":1}"#).await.is_first());
    assert!(one.send(r#"{"a":1}"#).await.is_duplicate());
    assert!(one.send(r#"{"a": 1}"#).await.is_first());
    assert!(two.send(r#"{"a":1}"#).await.is_first());
    assert!(one.send(r#"{"a":1}"#).await.is_duplicate());
    world.await_signals(3).await;
}

#[tokio::test]
async fn a_malformed_address_is_not_found() {
    let (world, gateway) = World::with_gateway().await;
    let webhook = world.webhook(&gateway).await;
    let WebhookAddress {
        workspace,
        webhook: id,
    } = webhook.address;
    let tokens = [
        String::new(),
        "x".into(),
        ".".into(),
        format!("{workspace}"),
        format!("{workspace}."),
        format!(".{id}"),
        format!("{workspace}.{id}."),
        format!("{workspace}.{id}.{id}"),
        format!("{workspace}_{id}"),
        format!(" {workspace}.{id}"),
        format!("{workspace}.{id}%20"),
        format!("{workspace}%2e{id}"),
        format!("{{{workspace}}}.{id}"),
        workspace.to_string().replace('-', "") + "." + &id.to_string(),
        format!("{workspace}.{}", "9".repeat(10_000)),
        format!("{workspace}.%00"),
        "%ff.%fe".into(),
    ];
    for token in tokens {
        let url = format!("{}/webhooks/incoming/{token}", gateway.public_url());
        let answer = post(
            &Webhook {
                url,
                ..webhook.clone()
            },
            &[&sign(&webhook.secret, b"1")],
            "1",
        )
        .await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "not_found"),
            "{}",
            &token[..token.len().min(90)]
        );
    }
    // Shape before size.
    let url = format!("{}/webhooks/incoming/x", gateway.public_url());
    assert_eq!(
        post(&Webhook { url, ..webhook }, &[], vec![b'1'; 70_000])
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn whatever_is_wrong_with_the_signature_the_answer_is_the_same() {
    let (world, gateway) = World::with_gateway().await;
    let (webhook, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let body = r#"{"a":1}"#;
    let right = sign(&webhook.secret, body.as_bytes());
    let deleted = world.webhook(&gateway).await;
    assert!(
        deleted.send("0").await.is_first(),
        "it lived, and its secret is cached"
    );
    world.delete_webhook(deleted.address.webhook).await;

    let elsewhere = |workspace, id| {
        let address = WebhookAddress {
            workspace,
            webhook: id,
        };
        Webhook::new(&gateway.public_url(), address, webhook.secret.clone())
    };
    let unknown = elsewhere(
        webhook.address.workspace,
        WebhookAddress::generate().webhook,
    );
    let foreign = elsewhere(other.address.workspace, webhook.address.webhook);

    let mut answers = vec![
        ("missing", post(&webhook, &[], body).await),
        ("empty", post(&webhook, &[""], body).await),
        ("twice", post(&webhook, &[&right, &right], body).await),
        (
            "uppercase",
            post(&webhook, &[&right.to_uppercase()], body).await,
        ),
        (
            "prefix",
            post(&webhook, &[&format!("sha256={right}")], body).await,
        ),
        ("short", post(&webhook, &[&right[..63]], body).await),
        ("long", post(&webhook, &[&format!("{right}0")], body).await),
        (
            "joined",
            post(&webhook, &[&format!("{right}, {right}")], body).await,
        ),
        ("zeros", post(&webhook, &[&"0".repeat(64)], body).await),
        ("other body", post(&webhook, &[&right], r#"{"a":2}"#).await),
        (
            "other secret",
            post(&webhook, &[&sign(&other.secret, body.as_bytes())], body).await,
        ),
        ("not JSON, unsigned", post(&webhook, &["x"], "{").await),
        ("unknown webhook", post(&unknown, &[&right], body).await),
        (
            "webhook of another workspace",
            post(&foreign, &[&right], body).await,
        ),
        ("deleted webhook", deleted.send("0").await),
        ("deleted webhook, new body", deleted.send(body).await),
    ];
    // And again, when everything that can be cached is.
    assert!(webhook.send("\"warm\"").await.is_first());
    answers.push(("warm", post(&webhook, &[&"0".repeat(64)], body).await));
    for (case, answer) in &answers {
        assert!(answer.is_refused(401, "invalid_signature"), "{case}");
        assert_eq!(answer, &answers[0].1, "{case}");
    }
    world
        .assert_count("SELECT count(*) FROM webhook_deliveries", 2)
        .await; // refusals claim nothing
}

#[tokio::test]
async fn size_is_exact_with_a_length_and_chunked() {
    let (world, gateway, _worker) = World::with_both().await;
    let webhook = world.webhook(&gateway).await;
    let body = |length: usize, fill: char| {
        format!("\"{}\"", fill.to_string().repeat(length - 2)).into_bytes()
    };
    let chunked = async |body: Vec<u8>, signature: &str| {
        let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
            body.chunks(1000).map(|piece| Ok(piece.to_vec())).collect();
        let stream = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        post(&webhook, &[signature], stream).await
    };
    assert!(webhook.send(body(65_535, 'a')).await.is_first());
    assert!(webhook.send(body(65_536, 'b')).await.is_first());
    let exact = body(65_536, 'c');
    assert!(
        chunked(exact.clone(), &sign(&webhook.secret, &exact))
            .await
            .is_first()
    );

    // Size before signature: known and unknown signers hear the same.
    for signature in [sign(&webhook.secret, &body(65_537, 'd')), "x".into()] {
        for answer in [
            post(&webhook, &[&signature], body(65_537, 'd')).await,
            chunked(body(65_537, 'd'), &signature).await,
        ] {
            assert!(answer.is_refused(413, "payload_too_large"), "{answer:?}");
        }
    }
    let huge = post(&webhook, &[], vec![b' '; 3_000_000]).await;
    assert_eq!(huge.status, 413);
    world.await_signals(3).await;
    let longest = world
        .count("SELECT max(octet_length(body))::bigint FROM signals")
        .await;
    assert_eq!(longest, 65_536);
}

#[tokio::test]
async fn one_byte_chunks_are_a_body_and_a_waiting_sender_is_told_before_it_sends() {
    let (world, gateway) = World::with_gateway().await;
    let webhook = world.webhook(&gateway).await;
    let path = format!("/webhooks/incoming/{}", webhook.address);
    let body = "[1,2,3]";
    let chunks: String = body.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    let signature = sign(&webhook.secret, body.as_bytes());
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n\
         content-type: application/json\r\nx-service-signature: {signature}\r\n"
    );
    let answer = raw(
        &gateway.public_address(),
        format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");

    let answer = raw(
        &gateway.public_address(),
        format!("{head}content-length: 10000000\r\nexpect: 100-continue\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn any_json_is_accepted_as_the_exact_bytes_and_nothing_else() {
    let (world, gateway, _worker) = World::with_both().await;
    let webhook = world.webhook(&gateway).await;
    let good: Vec<Vec<u8>> = vec![
        b"null".to_vec(),
        b" 1 ".to_vec(),
        b"1e400".to_vec(),
        br#""\u0000""#.to_vec(),
        br#"{"\u0000":"\u0000"}"#.to_vec(),
        br#""\ud800""#.to_vec(),
        br#"{"a":1,"a":2}"#.to_vec(),
        "\"ä\u{2028}\u{7f}\"".into(),
        "9".repeat(60_000).into(),
        format!("{}{}", "[".repeat(32_000), "]".repeat(32_000)).into(),
        format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000)).into(),
        br#"{"type":"proposal.won","entity":"\u0000 x","sourceTool":"\ud800",
            "amount":{"value":1e131072,"currency":"EUR"}}"#
            .to_vec(),
    ];
    for body in &good {
        let answer = webhook.send(body.clone()).await;
        assert!(
            answer.is_first(),
            "{answer:?}: {}",
            String::from_utf8_lossy(&body[..body.len().min(60)])
        );
    }
    let bad: [&[u8]; 12] = [
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        b"[1,]",
        b"NaN",
        b"{",
        b"\"\xff\"",
        b"\xff",
        b"[1]x",
        b"\"\x01\"",
        b"\0",
        b"// c\n1",
    ];
    for body in bad {
        let answer = webhook.send(body).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "invalid_input"),
            "{}",
            String::from_utf8_lossy(body)
        );
    }
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
    ] {
        let request = letterbox_tests::http_client()
            .post(&webhook.url)
            .header("content-type", content_type);
        let request = request
            .header("x-service-signature", sign(&webhook.secret, b"7"))
            .body("7");
        let answer = Answer::to(request).await;
        assert!(answer.is_refused(400, "invalid_input"), "{content_type}");
    }
    world.await_signals(good.len() as i64).await;
    for body in &good {
        let stored = world
            .database
            .query_one("SELECT count(*) FROM signals WHERE body = $1", &[body])
            .await
            .unwrap();
        assert_eq!(
            stored.get::<_, i64>(0),
            1,
            "{}",
            String::from_utf8_lossy(&body[..body.len().min(60)])
        );
    }
    assert_eq!(world.messages("letterbox.v1.dead-letters").await, 0);
}

#[tokio::test]
async fn a_secret_that_does_not_open_is_our_fault_and_touches_no_other_webhook() {
    let (world, gateway) = World::with_gateway().await;
    let (broken, whole) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    // The sealed secret of one row, copied into another.
    let swap = "
        UPDATE webhooks
        SET secret_sealed = (SELECT secret_sealed FROM webhooks WHERE webhook_id = $2)
        WHERE webhook_id = $1";
    world
        .database
        .execute(swap, &[&broken.address.webhook, &whole.address.webhook])
        .await
        .unwrap();
    let answer = broken.send("1").await;
    assert!(
        answer.is_refused(503, "temporarily_unavailable"),
        "{answer:?}"
    );
    assert!(whole.send("1").await.is_first());
    assert!(gateway.metric("letterbox_unsealing_failures_total").await >= 1.0);
}
