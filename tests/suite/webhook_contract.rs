//! Contract, section 4: what a sender of signed events hears, stage by stage.

use letterbox_common::webhook::WebhookAddress;
use letterbox_tests::{Answer, Webhook, World, post_with, raw, sign};
use tokio_postgres::types::ToSql;

async fn post(webhook: &Webhook, signatures: &[&str], body: impl Into<reqwest::Body>) -> Answer {
    let signatures = signatures.iter();
    let headers = signatures.map(|signature| ("x-service-signature", *signature));
    post_with(&webhook.url, &headers.collect::<Vec<_>>(), body).await
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
    let (_world, gateway, webhook) = World::with_webhook().await;
    let (workspace, id) = (webhook.address.workspace, webhook.address.webhook);
    let at = |token: &str| Webhook {
        url: format!("{}/webhooks/incoming/{token}", gateway.public_url()),
        ..webhook.clone()
    };
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
        let answer = at(&token).send("1").await;
        let shown = &token[..token.len().min(90)];
        assert!(answer.is_refused(404, "not_found"), "{shown}: {answer:?}");
    }
    // Shape before size.
    let large = post(&at("x"), &[], vec![b'1'; 70_000]).await;
    assert_eq!(large.status, 404);
}

#[tokio::test]
async fn whatever_is_wrong_with_the_signature_the_answer_is_the_same() {
    let (world, gateway) = World::with_gateway().await;
    let (webhook, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let body = r#"{"a":1}"#;
    let right = sign(&webhook.secret, body.as_bytes());
    let deleted = world.webhook(&gateway).await;
    assert!(deleted.send("0").await.is_first()); // it lived, and its secret is cached
    world.delete_webhook(deleted.address.webhook).await;

    let elsewhere = |workspace, id| {
        let address = WebhookAddress {
            workspace,
            webhook: id,
        };
        Webhook::new(&gateway.public_url(), address, webhook.secret.clone())
    };
    let nobody = WebhookAddress::generate().webhook;
    let unknown = elsewhere(webhook.address.workspace, nobody);
    let foreign = elsewhere(other.address.workspace, webhook.address.webhook);

    let by = async |signature: &str| post(&webhook, &[signature], body).await;
    let by_other = sign(&other.secret, body.as_bytes());
    let mut answers = vec![
        // Missing, repeated, in another form: `schemes.rs` has these, with what the owner is told.
        ("missing", post(&webhook, &[], body).await),
        ("empty", by("").await),
        ("long", by(&format!("{right}0")).await),
        ("joined", by(&format!("{right}, {right}")).await),
        ("zeros", by(&"0".repeat(64)).await),
        ("other body", post(&webhook, &[&right], r#"{"a":2}"#).await),
        ("other secret", by(&by_other).await),
        ("not JSON, unsigned", post(&webhook, &["x"], "{").await),
        ("unknown webhook", post(&unknown, &[&right], body).await),
        ("foreign webhook", post(&foreign, &[&right], body).await),
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
    world.assert_rows("webhook_deliveries", 2).await; // refusals claim nothing
}

#[tokio::test]
async fn size_is_exact_with_a_length_and_chunked() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
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
    let signature = sign(&webhook.secret, &exact);
    assert!(chunked(exact, &signature).await.is_first());

    // Size before signature: known and unknown signers hear the same.
    for signature in [sign(&webhook.secret, &body(65_537, 'd')), "x".into()] {
        for answer in [
            post(&webhook, &[&signature], body(65_537, 'd')).await,
            chunked(body(65_537, 'd'), &signature).await,
        ] {
            answer.assert_refused(413, "payload_too_large");
        }
    }
    let huge = post(&webhook, &[], vec![b' '; 3_000_000]).await;
    assert_eq!(huge.status, 413);
    world.await_signals(3).await;
    let longest = "SELECT max(octet_length(body))::bigint FROM signals";
    world.assert_count(longest, 65_536).await;
}

#[tokio::test]
async fn one_byte_chunks_are_a_body_and_a_waiting_sender_is_told_before_it_sends() {
    let (_world, gateway, webhook) = World::with_webhook().await;
    let path = format!("/webhooks/incoming/{}", webhook.address);
    let body = "[1,2,3]";
    let chunks: String = body.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    let signature = sign(&webhook.secret, body.as_bytes());
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n\
         content-type: application/json\r\nx-service-signature: {signature}\r\n"
    );
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let waiting = "content-length: 10000000\r\nexpect: 100-continue\r\n\r\n";
    for (rest, status) in [(&*chunked, "HTTP/1.1 202"), (waiting, "HTTP/1.1 413")] {
        let request = format!("{head}{rest}");
        let answer = raw(&gateway.public_address(), request.as_bytes()).await;
        assert!(answer.starts_with(status), "{answer}");
    }
}

#[tokio::test]
async fn any_json_is_accepted_as_the_exact_bytes_and_nothing_else() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
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
    let shown = |body: &[u8]| String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
    for body in &good {
        let answer = webhook.send(body.clone()).await;
        assert!(answer.is_first(), "{answer:?}: {}", shown(body));
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
        assert!(answer.is_refused(400, "invalid_input"), "{}", shown(body));
    }
    let others = "text/plain application/x-www-form-urlencoded application/jsonx";
    for content_type in others.split(' ') {
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
        let same = "SELECT FROM signals WHERE body = $1";
        let stored = world.database.query(same, &[body]).await.unwrap();
        assert_eq!(stored.len(), 1, "{}", shown(body));
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
    let ids = [
        &broken.address.webhook as &(dyn ToSql + Sync),
        &whole.address.webhook,
    ];
    world.database.execute(swap, &ids).await.unwrap();
    let answer = broken.send("1").await;
    answer.assert_refused(503, "temporarily_unavailable");
    assert!(whole.send("1").await.is_first());
    assert!(gateway.metric("letterbox_unsealing_failures_total").await >= 1.0);
}
