//! Webhooks that are replaced: which of the two takes deliveries when, and what both remember.

use letterbox_tests::{Process, Webhook, World, eventually};

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
        let refused = former.send("[3]").await;
        assert_eq!(
            refused.status, 401,
            "used, so the former one is over: {refused:?}"
        );
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
    assert_eq!(
        world.count(destroyed).await,
        2,
        "the secrets of the former ones"
    );
}

#[tokio::test]
async fn a_replaced_webhook_ends_at_its_time() {
    let world = World::new().await;
    let gateway = world.gateway().await;
    let former = world.webhook(&gateway).await;
    assert!(former.send("[1]").await.is_first());
    let successor = replaced(&world, &gateway, &former, "1h");
    let again = world.refusal(format!("webhook replace {}", former.address.webhook));
    assert!(
        again.0 == 1 && again.1.contains("being replaced"),
        "{again:?}"
    );
    assert_eq!(
        world
            .refusal(format!(
                "webhook replace {} --overlap 1d",
                former.address.webhook
            ))
            .0,
        2
    );
    // An hour passes, as far as the database knows; nothing was sent to the successor.
    let past = "UPDATE webhooks SET ends_at = clock_timestamp() WHERE ends_at IS NOT NULL";
    assert_eq!(world.database.execute(past, &[]).await.unwrap(), 1);
    assert_eq!(former.send("[2]").await.status, 401, "whatever is cached");
    assert_eq!(former.send("[1]").await.status, 401);
    assert!(successor.send("[1]").await.is_duplicate());
    // A worker destroys the secret of what nobody has used since.
    let other = replaced(&world, &gateway, &successor, "0s");
    let _worker = world.worker().await;
    let living = "SELECT count(*) FROM webhooks WHERE deleted_at IS NULL AND replaces IS NOT NULL";
    eventually("its secret is destroyed", async || {
        world.count(living).await == 1
    })
    .await;
    assert!(other.send("[3]").await.is_first());
}
