//! Orders whose process dies on the way: done again, they come to the same end.

use std::time::Duration;

use letterbox_tests::{Process, World, binary, one_of};

/// Two keys, the second of which sealed everything so far.
fn rotated(keys: &str) -> String {
    let key = [(); 2].map(|()| uuid::Uuid::new_v4().simple().to_string());
    format!("fresh:{},{keys}", key.concat())
}

/// Whether every sealed value opens with these keys.
fn all_open(world: &World, keys: &[(&str, &str)]) -> bool {
    let (_, found) = world.judge(keys, "check");
    one_of(&found, "about", "secrets")["verdict"] == "fine"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_dies_is_repeated() {
    for side in ["before", "after"] {
        for way in ["crash", "error", "slow"] {
            let (world, gateway, webhook) = World::with_webhook().await;
            for _ in 0..3 {
                world.webhook_in(&gateway, webhook.address.workspace).await;
            }
            let (webhooks, accounts) = (rotated(&world.webhook_keys), rotated(&world.account_keys));
            let point = format!("statement.replace_webhook_secret.{side}=2*off->1*return({way})");
            let keys = [
                ("LETTERBOX_WEBHOOK_KEYS", webhooks.as_str()),
                ("LETTERBOX_ACCOUNT_KEYS", accounts.as_str()),
            ];
            let dying = [&keys[..], &[("FAILPOINTS", point.as_str())]].concat();
            let died = world.letterbox_with(&dying, "keys rotate");
            assert_eq!(died.status.success(), way == "slow", "{point}");
            assert!(all_open(&world, &keys), "{point}: with both keys");
            let again = world.order_with(&keys, "keys rotate");
            let resealed = again["resealed"].as_u64().unwrap();
            let left = if way == "slow" { 0..=0 } else { 1..=2 };
            assert!(left.contains(&resealed), "{point}: {again}");
            let fresh = webhooks.split(',').next().unwrap();
            let alone = [("LETTERBOX_WEBHOOK_KEYS", fresh), keys[1]];
            assert!(all_open(&world, &alone), "{point}: with the fresh one");
            let successor = world.gateway_with(&alone).await;
            assert!(webhook.at(&successor).send("[1]").await.is_first());
        }
    }
}

/// Each file is one transaction: a migration that was killed anywhere goes on where it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_dies_goes_on() {
    let world = World::without_schema().await;
    let letterbox = binary("letterbox");
    let mut killed = 0;
    for milliseconds in (5..).step_by(15) {
        let mut migrating = tokio::process::Command::new(&letterbox)
            .arg("migrate")
            .env_clear()
            .env("DATABASE_URL", &world.database_url)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let time = Duration::from_millis(milliseconds);
        match tokio::time::timeout(time, migrating.wait()).await {
            Ok(ended) => {
                assert!(ended.unwrap().success());
                break;
            }
            Err(_) => {
                migrating.kill().await.unwrap();
                killed += 1;
            }
        }
    }
    assert!(killed > 1, "none was killed");
    let gateway: Process = world.gateway().await;
    assert!(world.webhook(&gateway).await.send("[1]").await.is_first());
}
