//! What programs of a former schema have left behind is understood: their claims.

use letterbox_tests::World;
use sha2::{Digest, Sha256};

use crate::source_tree::read;

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
