//! Webhooks that are replaced: which of the two takes deliveries when, and what both remember.

use std::{sync::Arc, time::Duration};

use letterbox_database::{Database, DatabaseSettings, Role};
use letterbox_gateway::{
    claims::{Claims, DeliveryKey},
    open_batches::BatchId,
};
use letterbox_tests::{Process, Webhook, World};

use crate::schemes::webhook_of;

fn replaced(world: &World, gateway: &Process, former: &Webhook, overlap: &str) -> Webhook {
    let id = former.address.webhook;
    let order = format!("webhook replace {id} --overlap {overlap}");
    webhook_of(gateway, &world.order(order))
}

/// Both take deliveries until the successor is used; whatever was received by one of them is a
/// duplicate to all that come after it.
#[tokio::test]
async fn a_successor_remembers_what_was_received() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let _worker = world.worker().await;
    let first = world.webhook(&gateways[0]).await;
    let workspace = first.address.workspace;
    assert!(first.send("[1]").await.is_first());
    let second = replaced(&world, &gateways[0], &first, "24h");
    assert_ne!((&first.url, &first.secret), (&second.url, &second.secret));
    assert!(first.send("[2]").await.is_first(), "the former one goes on");
    // A signature of the former secret says nothing at the successor's address.
    let crossed = Webhook {
        secret: first.secret.clone(),
        ..second.clone()
    };
    assert_eq!(crossed.send("[2]").await.status, 401);
    assert!(first.send("[2]").await.is_duplicate());

    assert!(second.send("[1]").await.is_duplicate(), "it remembers");
    let elsewhere = first.at(&gateways[1]);
    for former in [&first, &elsewhere] {
        assert_eq!(former.send("[3]").await.status, 401); // the successor is used
    }
    assert!(second.send("[3]").await.is_first());
    let third = replaced(&world, &gateways[0], &second, "1h");
    for body in ["[1]", "[2]", "[3]"] {
        assert!(third.send(body).await.is_duplicate(), "{body}");
    }
    assert!(third.send("[4]").await.is_first());
    world.await_signals(4).await;
    let of_third = format!(
        "signal list --workspace {workspace} --webhook {}",
        third.address.webhook
    );
    assert_eq!(world.order(of_third).as_array().unwrap().len(), 1);
    let destroyed = "SELECT count(*) FROM webhooks WHERE secret_sealed IS NULL";
    world.assert_count(destroyed, 2).await; // the secrets of the former ones
}

#[tokio::test]
async fn a_replaced_webhook_ends_at_its_time() {
    let (world, gateway, former) = World::with_webhook().await;
    assert!(former.send("[1]").await.is_first());
    let successor = replaced(&world, &gateway, &former, "1h");
    let again = format!("webhook replace {}", former.address.webhook);
    world.assert_refused(&again, "being replaced");
    assert_eq!(world.refusal(format!("{again} --overlap 1y")).0, 2);
    // An hour passes, as far as the database knows; nothing was sent to the successor.
    let past = "UPDATE webhooks SET ends_at = clock_timestamp() WHERE ends_at IS NOT NULL";
    assert_eq!(world.database.execute(past, &[]).await.unwrap(), 1);
    assert_eq!(former.send("[2]").await.status, 401, "whatever is cached");
    assert_eq!(former.send("[1]").await.status, 401);
    assert!(successor.send("[1]").await.is_duplicate());
    // A worker destroys the secret of what nobody has used since.
    let other = replaced(&world, &gateway, &successor, "0s");
    let _worker = world.worker().await;
    let living = "webhooks WHERE deleted_at IS NULL AND replaces IS NOT NULL";
    world.await_rows(living, 1).await;
    assert!(other.send("[3]").await.is_first());
}

/// Both addresses live for a moment longer than one of them should, and bring one body whose claim
/// is to be taken over, for two messages: the claim goes into the batch of the message that has it.
#[tokio::test]
async fn a_claim_goes_into_the_batch_of_whoever_holds_it() {
    let (world, gateway) = World::with_gateway().await;
    let former = world.webhook(&gateway).await.address;
    let order = format!("webhook replace {} --overlap 24h", former.webhook);
    let successor = webhook_of(&gateway, &world.order(order)).address;

    let settings = DatabaseSettings {
        database_pool_size: 1,
    };
    let target = world.database_url.parse().unwrap();
    let database = Database::new(&target, &settings, Role::Gateway, "test").unwrap();
    let claims = Claims::new(database, Duration::ZERO, Arc::default());
    let keys = [former, successor].map(|door| DeliveryKey::new(door, former.webhook, None, b"[1]"));
    let first = claims.claim(&[(keys[0], BatchId::generate())]).await;
    assert!(first.unwrap()[&keys[0]].is_ok());

    // Whoever holds its row keeps the former one alive.
    let other = world.session(Role::Login).await;
    let row = format!("webhooks WHERE webhook_id = '{}'", former.webhook);
    let holding = format!("BEGIN; SELECT FROM {row} FOR UPDATE");
    other.batch_execute(&holding).await.unwrap();
    let batches = [BatchId::generate(), BatchId::generate()];
    let wanted = [(keys[0], batches[0]), (keys[1], batches[1])];
    let answers = claims.claim(&wanted).await.unwrap();
    let held = wanted.iter().filter(|(key, _)| answers[key].is_ok());
    let held: Vec<_> = held.map(|(_, batch)| batch.to_string()).collect();
    let batch = "SELECT batch_id::text FROM webhook_deliveries";
    let batch: String = world.value(batch).await;
    assert_eq!(held, [batch]);
}
