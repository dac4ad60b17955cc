//! What programs of the former version have left behind is understood: their messages and their
//! claims.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use letterbox_broker::{Message, topology::EXCHANGE};
use letterbox_common::ids::{DeliveryId, RunId};
use letterbox_tests::{World, payload};
use sha2::{Digest, Sha256};

use crate::source_tree::read;

fn message(kind: &str, id: String, ids: &[(&str, String)], key: &str, body: &str) -> Message {
    let mut headers = FieldTable::default();
    let receipt = [
        ("received_at", "2026-01-02T03:04:05.678Z".to_owned()),
        (
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        ),
    ];
    for (name, value) in ids.iter().chain(&receipt) {
        headers.insert((*name).into(), AMQPValue::LongString(value.clone().into()));
    }
    Message {
        exchange: EXCHANGE,
        routing_key: key.into(),
        properties: BasicProperties::default()
            .with_type(kind.into())
            .with_message_id(id.into())
            .with_headers(headers),
        body: body.to_owned().into(),
    }
}

#[tokio::test]
async fn messages_of_one_entry_without_a_line_are_understood() {
    let world = World::new().await;
    let (gateway, _worker) = (world.gateway().await, world.worker().await);
    let (webhook, form) = (world.webhook(&gateway).await, world.form(&gateway).await);
    let delivery = DeliveryId::generate().to_string();
    let ids = [
        ("workspace_id", webhook.address.workspace.to_string()),
        ("webhook_id", webhook.address.webhook.to_string()),
    ];
    for _ in 0..2 {
        let kind = "webhook.delivery";
        world
            .publish(message(kind, delivery.clone(), &ids, "webhooks", "[1]"))
            .await;
    }
    let release = format!(
        "SELECT live_release_id::text FROM workflows WHERE workflow_id = '{}'",
        form.workflow
    );
    let row = world.database.query_one(&release, &[]).await.unwrap();
    let ids = [
        ("workspace_id", form.workspace.to_string()),
        ("workflow_id", form.workflow.to_string()),
        ("release_id", row.get(0)),
    ];
    let (id, body) = (RunId::generate().to_string(), payload().to_string());
    world
        .publish(message("form.submission", id, &ids, "forms", &body))
        .await;
    world.await_signals(1).await;
    world.await_runs(1).await;
    let stored = "SELECT signal_id::text, body FROM signals";
    let row = world.database.query_one(stored, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), delivery);
    assert_eq!(row.get::<_, Vec<u8>>(1), b"[1]");
}

/// Settled claims stay duplicates; what was never settled may be taken over, under its id.
#[tokio::test]
async fn claims_of_the_former_schema_keep_their_meaning() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let webhook = world.webhook(&gateway).await;
    let workspace = webhook.address.workspace.to_string();
    let id = webhook.address.webhook.to_string();
    // The tables as they were, with one claim of each kind, and the migration's own statements.
    let migration = read("migrations/V7__batches.sql");
    let begin = migration.find("CREATE FUNCTION claim_key").unwrap();
    let end = migration.find("DROP FUNCTION claim_key;").unwrap();
    let [settled, open] = ["\"settled\"", "\"open\""].map(|body| hex(&Sha256::digest(body)));
    let former = format!(
        "DROP TABLE webhook_deliveries, form_submissions;
        CREATE TABLE webhook_deliveries (workspace_id uuid, webhook_id uuid, body_sha256 bytea,
            delivery_id uuid, settled_at timestamptz);
        CREATE TABLE form_submissions (workspace_id uuid, workflow_id uuid, key_sha256 bytea,
            submission_id uuid, settled_at timestamptz);
        INSERT INTO webhook_deliveries VALUES
            ('{workspace}', '{id}', '\\x{settled}', gen_random_uuid(), now()),
            ('{workspace}', '{id}', '\\x{open}', gen_random_uuid(), NULL);
        {}
        GRANT SELECT ON webhook_deliveries TO letterbox_gateway, letterbox_worker",
        &migration[begin..end]
    );
    world.database.batch_execute(&former).await.unwrap();
    let before = "SELECT delivery_id::text FROM webhook_deliveries WHERE batch_id = 1";
    let kept: String = world.database.query_one(before, &[]).await.unwrap().get(0);
    // One whose statements know the new tables.
    let gateway = world.gateway().await;
    let webhook = webhook.at(&gateway);
    assert!(webhook.send("\"settled\"").await.is_duplicate());
    assert!(webhook.send("\"open\"").await.is_first());
    let _worker = world.worker().await;
    world.await_signals(1).await;
    let signal = "SELECT signal_id::text FROM signals";
    let row = world.database.query_one(signal, &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), kept);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
