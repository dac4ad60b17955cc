//! From a signed body to a stored signal: native where the contract holds, generic with the broken
//! rule where not.

use letterbox_operator::SignalFilter;
use letterbox_tests::World;

#[tokio::test]
async fn native_signals_keep_every_member_exactly() {
    let (world, gateway, _worker) = World::with_both().await;
    let webhook = world.webhook(&gateway).await;
    let bodies = [
        r#"{"type":"proposal.won","entity":"Acme","sourceTool":"crm",
            "amount":{"value":999999999999.9999,"currency":"EUR"},"eventId":"e-1"}"#,
        r#"{"type":"proposal.created","entity":"Ä\u0000B","sourceTool":"crm",
            "amount":{"value":0.1,"currency":"USD"}}"#,
        r#"{"type":"client.created","entity":"Client","sourceTool":"crm"}"#,
        r#"{"type":"client.created","entity":" ","sourceTool":"crm"}"#,
        r#"[1]"#,
    ];
    for body in bodies {
        assert!(webhook.send(body).await.is_first());
    }
    world.await_signals(5).await;
    let mut signals = world
        .operator()
        .await
        .signals(&SignalFilter::of(webhook.address.workspace), None, 100)
        .await
        .unwrap();
    signals.reverse();
    let shown: Vec<_> = signals
        .iter()
        .map(|s| {
            (
                s.kind.as_str(),
                s.entity.as_deref(),
                s.amount_value.as_deref(),
                s.event_id.as_deref(),
                s.generic_reason.as_deref(),
            )
        })
        .collect();
    let expected = [
        (
            "proposal.won",
            Some("Acme"),
            Some("999999999999.9999"),
            Some("e-1"),
            None,
        ),
        (
            "proposal.created",
            Some("Ä\u{fffd}B"),
            Some("0.1"),
            None,
            None,
        ),
        ("client.created", Some("Client"), None, None, None),
        ("generic", None, None, None, Some("entity is blank")),
        (
            "generic",
            None,
            None,
            None,
            Some("the body is not an object"),
        ),
    ];
    assert_eq!(shown, expected);
    let detail = world
        .operator()
        .await
        .signal(signals[1].signal_id)
        .await
        .unwrap();
    assert_eq!(
        detail.body.as_deref(),
        Some(bodies[1]),
        "the body keeps what the column can't"
    );
    assert_eq!(detail.row.webhook_id, webhook.address.webhook);
}

/// What a body says of workspaces is only text.
#[tokio::test]
async fn nothing_in_a_body_leads_to_another_workspace() {
    let (world, gateway, _worker) = World::with_both().await;
    let (webhook, other) = (world.webhook(&gateway).await, world.webhook(&gateway).await);
    let body = format!(
        r#"{{"orgId":"{0}","workspace_id":"{0}","webhookId":"{1}"}}"#,
        other.address.workspace, other.address.webhook
    );
    assert!(webhook.send(body).await.is_first());
    world.await_signals(1).await;
    assert_eq!(
        world
            .operator()
            .await
            .signals(&SignalFilter::of(other.address.workspace), None, 10)
            .await
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        world
            .operator()
            .await
            .signals(&SignalFilter::of(webhook.address.workspace), None, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}
