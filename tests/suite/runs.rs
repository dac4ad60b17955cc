//! What becomes of accepted submissions: each one run, started or refused, and nobody outside can
//! tell.

use futures_util::future::join_all;
use letterbox_common::states::{MemberRole, RefusedReason, RunState};
use letterbox_database::Role;
use letterbox_operator::Move;
use letterbox_tests::{DEFINITION, World, eventually, payload};

const STARTED: &str = "SELECT count(*) FROM runs WHERE state <> 'refused'";
const EXHAUSTED: &str =
    "SELECT count(*) FROM runs WHERE state = 'refused' AND refused_reason = 'allowance_exhausted'";

#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_is_exact_under_concurrency() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let first = world.form(&gateways[0]).await;
    let another = async || {
        let form = world.form_in(&gateways[0], first.workspace, first.owner);
        form.await
    };
    let forms = [first.clone(), another().await, another().await];
    let operator = world.operator().await;
    world.set_allowance(first.workspace, Some(10)).await;
    // What another month has used is nobody's business in this one.
    let earlier = format!(
        "INSERT INTO run_usage VALUES ('{}', '2020-01-01', 1000)",
        first.workspace
    );
    world.change(&earlier).await;

    let small = [("LETTERBOX_BATCH_SIZE", "3"), ("LETTERBOX_PREFETCH", "5")];
    let _workers = [
        world.worker_with(&small).await,
        world.worker_with(&small).await,
    ];
    let submitting = (0..50).map(|n| {
        let form = forms[n % 3].at(&gateways[n % 2]);
        async move { form.submit(&n.to_string(), &payload()).await }
    });
    let answers = join_all(submitting).await;
    for answer in &answers {
        answer.assert_accepted();
        assert_eq!(answer, &answers[0]); // one can't tell the refused
    }
    world.await_runs(50).await;
    world.assert_count(STARTED, 10).await;
    world.assert_count(EXHAUSTED, 40).await;
    let usage = operator.usage(first.workspace).await.unwrap();
    assert_eq!((usage.run_allowance, usage.runs_started), (Some(10), 10));

    world.set_allowance(first.workspace, Some(11)).await;
    world.forget_hits().await;
    for n in 50..52 {
        forms[2].assert_accepts(&n.to_string()).await;
    }
    world.await_runs(52).await;
    world.assert_count(STARTED, 11).await;
    world.set_allowance(first.workspace, None).await;
    forms[2].assert_accepts("free").await;
    world.await_runs(53).await;
    world.assert_count(STARTED, 12).await;
}

/// Between the acceptance and the worker the world may change.
#[tokio::test]
async fn a_run_is_refused_by_the_state_when_it_would_start() {
    let (world, gateway) = World::with_gateway().await;
    let operator = world.operator().await;
    let cases = [
        ("removed", Some("owner_cannot_run")),
        ("viewer", Some("owner_cannot_run")),
        ("deactivated", Some("owner_cannot_run")),
        ("deleted", Some("workflow_unavailable")),
        ("deleted and removed", Some("workflow_unavailable")),
        ("paused", None),
        ("none left", Some("allowance_exhausted")),
        ("redeployed", None),
    ];
    let mut forms = Vec::new();
    for (case, _) in cases {
        let form = world.form(&gateway).await;
        form.assert_accepts(case).await;
        let (workspace, workflow, owner) = (form.workspace, form.workflow, form.owner);
        match case {
            "removed" => world.remove_member(workspace, owner).await,
            "viewer" => world.set_owner_role(&form, MemberRole::Viewer).await,
            "deactivated" => {
                let setting = operator.set_member(workspace, owner, MemberRole::Owner, true);
                setting.await.unwrap();
            }
            "deleted" => world.move_workflow(workflow, Move::Delete).await,
            "deleted and removed" => {
                world.move_workflow(workflow, Move::Delete).await;
                world.remove_member(workspace, owner).await;
            }
            "paused" => world.move_workflow(workflow, Move::Pause).await,
            "redeployed" => {
                let deploying = operator.deploy(workflow, Some(DEFINITION));
                deploying.await.unwrap();
            }
            _ => world.set_allowance(workspace, Some(0)).await,
        }
        forms.push(form);
    }
    let _worker = world.worker().await;
    world.await_runs(cases.len() as i64).await;
    let mut runs = Vec::new();
    for (form, (case, reason)) in forms.iter().zip(cases) {
        let mut found = world.runs_of(form).await;
        assert_eq!(found.len(), 1, "{case}");
        let run = found.remove(0);
        let told = run.refused_reason.map(RefusedReason::as_str);
        assert_eq!(told, reason, "{case}");
        assert_eq!(run.state == RunState::Refused, reason.is_some(), "{case}");
        assert_eq!(run.run_as, form.owner);
        // A refused run uses nothing up.
        let started = operator.usage(form.workspace).await.unwrap().runs_started;
        assert_eq!(started, i32::from(reason.is_none()), "{case}");
        runs.push(run);
    }
    // Pinned to the release that the payload was checked against.
    let release = runs.pop().unwrap().release_id;
    let number = format!("SELECT number::bigint FROM releases WHERE release_id = '{release}'");
    world.assert_count(&number, 1).await;
}

/// A worker dies with what it has fetched: another one records it, once.
#[tokio::test]
async fn a_killed_workers_submissions_are_recorded_once() {
    let (world, _gateway, form) = World::with_form().await;
    for n in 0..20 {
        form.assert_accepts(&n.to_string()).await;
    }
    // Holds up the first transaction until the worker is gone.
    let lock = "BEGIN; LOCK TABLE runs IN ACCESS EXCLUSIVE MODE";
    let holder = world.session(Role::Login).await;
    holder.batch_execute(lock).await.unwrap();
    let mut doomed = world.worker().await;
    let waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'runs'::regclass AND NOT granted";
    eventually("the worker waits", async || world.count(waiting).await > 0).await;
    doomed.kill().await;
    holder.batch_execute("COMMIT").await.unwrap();
    let _worker = world.worker().await;
    world.await_runs(20).await;
    let started = "SELECT started::bigint FROM run_usage";
    world.assert_count(started, 20).await;
}
