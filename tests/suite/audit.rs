//! The audit log: whoever orders something is written down, with what it changed, and nobody can
//! change that.

use letterbox_common::states::MemberRole;
use letterbox_database::Role;
use letterbox_operator::{AuditFilter, Orderer};
use letterbox_tests::{Peer, Reply, Scene, World, assert_holds, eventually, post};
use serde_json::{Value, json};

use crate::closed_sets::statements;

/// The entries about a workspace, the oldest first.
fn entries(world: &World, workspace: impl std::fmt::Display) -> Vec<Value> {
    let listed = world.order(format!("audit list --workspace {workspace}"));
    let mut entries = listed.as_array().unwrap().clone();
    entries.reverse();
    entries
}

#[tokio::test]
async fn orders_are_written_down_with_who_and_why() {
    let peer = Peer::start(|_, _| Reply::Status(400)).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.submit_until("k", "failed", 1).await;
    let run = world.run_of(form).await.row.run_id;
    let before = entries(world, form.workspace).len();
    let by = form.owner;
    world.order(format!("run retry {run} --by {by} --reason paid"));
    world.order(format!(
        "workspace settings {} --run-allowance 7",
        form.workspace
    ));
    world.order(format!("workflow pause --yes {} --by {by}", form.workflow));
    let all = entries(world, form.workspace);
    let new = &all[before..];

    let retried = &new[0];
    assert_holds(
        retried,
        json!({"command": "run retry", "subject": "runs", "reason": "paid"}),
    );
    assert_eq!(retried["subject_id"], run.to_string());
    assert_eq!(retried["ordered_by"], by.to_string());
    assert_eq!(retried["before"]["state"], "failed");
    assert_eq!(retried["after"]["state"], "queued");
    assert!(
        retried["before"].get("input").is_none(),
        "it did not change"
    );

    let allowed = &new[1];
    assert_eq!(allowed["ordered_by"], Value::Null);
    assert_eq!(allowed["before"], json!({"run_allowance": null}));
    assert_eq!(allowed["after"], json!({"run_allowance": 7}));

    let paused: Vec<_> = new[2..].iter().collect();
    assert!(
        paused
            .iter()
            .all(|entry| entry["command"] == "workflow pause")
    );
    let subjects: Vec<_> = paused.iter().map(|entry| &entry["subject"]).collect();
    assert!(subjects.contains(&&json!("workflows")) && subjects.contains(&&json!("form_links")));

    let found = world.order(format!("audit list --subject {run}"));
    assert_eq!(found.as_array().unwrap().len(), 1);
}

/// What workers and gateways do by themselves is no order.
#[tokio::test]
async fn what_services_do_is_not_written_down() {
    let (_peer, scene) = Scene::posting("send").await;
    let world = &scene.world;
    let before = world.count("SELECT count(*) FROM audit_log").await;
    scene.submit_until("k", "succeeded", 1).await;
    world.assert_rows("audit_log", before).await;
}

/// Everything that an operator's statement can write is audited: each statement that changes a
/// table names one that has the trigger, or that is written by nobody else's order.
#[tokio::test]
async fn every_table_that_operators_change_is_audited() {
    let world = World::new().await;
    let audited = "SELECT array_agg(tgrelid::regclass::text) FROM pg_trigger
        WHERE tgname = 'audit'";
    let audited: Vec<String> = world.database.query_one(audited, &[]).await.unwrap().get(0);
    // Wakes follow from orders; releases, claims and sealed values say themselves when they change.
    let exempt = [
        "active_runs",
        "run_actions",
        "releases",
        "webhook_deliveries",
        "form_submissions",
    ];
    let operators = statements()
        .into_iter()
        .filter(|(role, _)| *role == Role::Operator);
    let mut seen = 0;
    for (_, statement) in operators {
        let words: Vec<_> = statement.sql.split_whitespace().collect();
        for pair in words.windows(3) {
            let table = match pair {
                ["INSERT", "INTO", table] | ["DELETE", "FROM", table] => *table,
                ["UPDATE", table, _] if *table != "SET" && pair[1] != "OF" => *table,
                _ => continue,
            };
            if exempt.contains(&table) {
                continue;
            }
            seen += 1;
            assert!(
                audited.iter().any(|one| one == table),
                "{}: {table}",
                statement.name
            );
        }
    }
    assert!(seen > 15, "{seen}");
}

/// No process's role can write to the log itself, or change or remove what it says; neither can the
/// owner of the table.
#[tokio::test]
async fn nobody_changes_what_was_written() {
    let world = World::new().await;
    let operator = world.operator().await;
    let workspace = operator.create_workspace("w", None).await.unwrap();
    let changes = [
        "UPDATE audit_log SET login = 'other'",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
    ];
    let forged = "INSERT INTO audit_log (workspace_id, login, command, subject, before, after)
        VALUES (gen_random_uuid(), 'l', 'c', 's', '{}', '{}')";
    for role in [Role::Gateway, Role::Worker, Role::Operator, Role::Login] {
        let session = world.session(role).await;
        for change in changes {
            assert!(
                session.batch_execute(change).await.is_err(),
                "{role:?}: {change}"
            );
        }
        if role != Role::Login {
            assert!(session.batch_execute(forged).await.is_err(), "{role:?}");
        }
    }
    // It outlives what it is about.
    let name = &workspace.name;
    let deleted = operator
        .delete_workspace(workspace.workspace_id, name)
        .await;
    deleted.unwrap();
    let filter = AuditFilter {
        workspace: Some(workspace.workspace_id),
        ..AuditFilter::default()
    };
    let left = operator.audit(&filter, 10).await.unwrap();
    assert_eq!(left.len(), 2, "{left:#?}");
    assert_eq!(left[0].entry.command, "delete workspaces");
}

/// Secrets are not in the log, and neither is what a person may ask to have erased.
#[tokio::test]
async fn the_log_keeps_no_secrets_and_no_persons() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    let webhook = world.webhook_in(&scene.gateway, form.workspace).await;
    scene.submit_until("k", "succeeded", 1).await;
    let reason = "a reason with \\ and  two spaces,\nand a line";
    let operator = world
        .operator_as(Orderer {
            by: Some(form.owner),
            command: None,
            reason: Some(reason.into()),
        })
        .await;
    let run = world.run_of(form).await.row.run_id;
    operator.erase_run(run).await.unwrap();
    let user = operator
        .create_user("ada@example.com", "Ada")
        .await
        .unwrap();
    let role = MemberRole::Viewer;
    let setting = operator.set_member(form.workspace, user.user_id, role, false);
    setting.await.unwrap();
    eventually("a webhook can be deleted", async || {
        let deleting = operator.delete_webhook(webhook.address.webhook);
        deleting.await.is_ok()
    })
    .await;
    let log = operator
        .audit(&AuditFilter::default(), 1_000)
        .await
        .unwrap();
    let mut entries = log.iter().map(|one| &one.entry);
    let erased = entries.find(|entry| entry.subject == "runs").unwrap();
    assert_eq!(erased.before, json!({"input": "(hidden)"}));
    assert_eq!(erased.reason.as_deref(), Some(reason));
    assert_eq!(erased.ordered_by, Some(form.owner));
    let text = serde_json::to_string(&log).unwrap();
    for secret in ["ada@example.com", "\"Ada\"", "\\\\x", "sealed\":\"\\"] {
        assert!(!text.contains(secret), "{secret}");
    }
    for kept in [
        "credential_sealed\":\"(hidden)",
        "secret_sealed\":\"(hidden)",
    ] {
        assert!(text.contains(kept), "{kept}");
    }
}
