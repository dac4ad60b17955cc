//! Form links and transactions that don't see each other's work: no link lives that should not.

use letterbox_database::Role;
use letterbox_tests::World;

/// A transaction that does not see a link that was made meanwhile can't leave it alive.
#[tokio::test]
async fn a_transaction_with_an_old_view_fails_rather_than_miss_a_link() {
    let (world, gateway) = World::with_gateway().await;
    for (change, isolation) in [
        ("UPDATE members SET role = 'viewer'", "REPEATABLE READ"),
        ("UPDATE workflows SET state = 'deployed'", "REPEATABLE READ"),
        ("UPDATE workflows SET state = 'paused'", "SERIALIZABLE"),
        ("DELETE FROM members", "SERIALIZABLE"),
    ] {
        let form = world.form(&gateway).await;
        let old = world.session(Role::Login).await;
        old.batch_execute(&format!(
            "BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM form_links"
        ))
        .await
        .unwrap();
        let fresh = world.relink(&form).await;
        let error = old.batch_execute(change).await.expect_err(change);
        assert_eq!(error.code().unwrap().code(), "40001", "{change}");
        old.batch_execute("ROLLBACK").await.unwrap();
        fresh.assert_lives().await;
        old.batch_execute(change).await.unwrap();
        form.assert_dead().await;
    }
}

/// A transaction takes the owner's right away and sees neither a workflow nor its link, which were
/// made meanwhile: the link is dead, and stays dead when the owner gets the right back.
#[tokio::test]
async fn a_link_that_nobody_saw_never_lives_again() {
    let (world, gateway) = World::with_gateway().await;
    for (taken, given) in [
        (
            "UPDATE members SET role = 'viewer'",
            "UPDATE members SET role = 'editor'",
        ),
        (
            "UPDATE members SET deactivated_at = now()",
            "UPDATE members SET deactivated_at = NULL",
        ),
        (
            "CREATE TEMP TABLE kept AS SELECT workspace_id, user_id, role FROM members;
             DELETE FROM members",
            "INSERT INTO members (workspace_id, user_id, role) SELECT * FROM kept",
        ),
    ] {
        for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let plain = world.form(&gateway).await;
            let old = world.session(Role::Login).await;
            let of_owner = format!(" WHERE user_id = '{}'", plain.owner);
            old.batch_execute(&format!(
                "BEGIN ISOLATION LEVEL {isolation}; SELECT count(*) FROM form_links"
            ))
            .await
            .unwrap();
            let form = world.form_in(&gateway, plain.workspace, plain.owner).await;
            form.assert_lives().await;
            let taken = taken.replace("FROM members", &format!("FROM members{of_owner}"));
            let taken = match taken.starts_with("UPDATE") {
                true => format!("{taken}{of_owner}"),
                false => taken,
            };
            // Whoever sees that something has changed may fail, and then nothing has happened.
            if old.batch_execute(&taken).await.is_err() {
                old.batch_execute("ROLLBACK").await.unwrap();
                old.batch_execute(&taken).await.unwrap();
            } else {
                old.batch_execute("COMMIT").await.unwrap();
            }
            form.assert_dead().await;
            let given = match given.starts_with("UPDATE") {
                true => format!("{given}{of_owner}"),
                false => given.to_owned(),
            };
            old.batch_execute(&format!("{given}; DROP TABLE IF EXISTS kept"))
                .await
                .unwrap();
            form.assert_dead().await;
        }
    }
}
