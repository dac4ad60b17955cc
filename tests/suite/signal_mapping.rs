//! From a signed body to a stored signal: native where the contract holds, generic with the broken
//! rule where not.

use letterbox_operator::SignalFilter;
use letterbox_tests::World;
use serde_json::{Value, json};

#[tokio::test]
async fn native_signals_keep_every_member_exactly() {
    let (world, _gateway, _worker, webhook) = World::with_recorded_webhook().await;
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
    let operator = world.operator().await;
    let workspace = webhook.address.workspace;
    let all = SignalFilter::default();
    let signals = operator.signals(workspace, &all, None, 100).await.unwrap();
    let shown = signals.iter().rev().map(|one| {
        let (entity, amount, event) = (&one.entity, &one.amount_value, &one.event_id);
        json!([one.kind.as_str(), entity, amount, event, one.generic_reason])
    });
    let expected = json!([
        ["proposal.won", "Acme", "999999999999.9999", "e-1", null],
        ["proposal.created", "Ä\u{fffd}B", "0.1", null, null],
        ["client.created", "Client", null, null, null],
        ["generic", null, null, null, "entity is blank"],
        ["generic", null, null, null, "the body is not an object"],
    ]);
    assert_eq!(shown.collect::<Value>(), expected);
    let detail = operator.signal(signals[3].signal_id).await.unwrap();
    assert_eq!(detail.body.as_deref(), Some(bodies[1])); // the body keeps what the column can't
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
    let operator = world.operator().await;
    for (address, expected) in [(other.address, 0), (webhook.address, 1)] {
        let all = SignalFilter::default();
        let signals = operator.signals(address.workspace, &all, None, 10).await;
        let signals = signals.unwrap();
        assert_eq!(signals.len(), expected);
    }
}
