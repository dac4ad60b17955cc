//! What becomes of accepted submissions: each one run, started or refused, and nobody outside can
//! tell.

use futures_util::future::join_all;
use letterbox_common::states::{MemberRole, RefusedReason, RunState};
use letterbox_database::Role;
use letterbox_operator::Move;
use letterbox_operator::RunFilter;
use letterbox_tests::{DEFINITION, World, eventually, payload};

const STARTED: &str = "SELECT count(*) FROM runs WHERE state <> 'refused'";
const EXHAUSTED: &str =
    "SELECT count(*) FROM runs WHERE state = 'refused' AND refused_reason = 'allowance_exhausted'";

#[tokio::test(flavor = "multi_thread")]
async fn an_allowance_is_exact_under_concurrency() {
    let world = World::new().await;
    let gateways = [world.gateway().await, world.gateway().await];
    let first = world.form(&gateways[0]).await;
    let (second, third) = (
        world
            .form_in(&gateways[0], first.workspace, first.owner)
            .await,
        world
            .form_in(&gateways[0], first.workspace, first.owner)
            .await,
    );
    let forms = [first.clone(), second, third];
    let operator = world.operator().await;
    operator
        .set_allowance(first.workspace, Some(10))
        .await
        .unwrap();
    // What another month has used is nobody's business in this one.
    let earlier = format!(
        "INSERT INTO run_usage VALUES ('{}', '2020-01-01', 1000)",
        first.workspace
    );
    world.database.execute(&earlier, &[]).await.unwrap();

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
    assert!(
        answers
            .iter()
            .all(|answer| answer == &answers[0] && answer.status == 200),
        "one can't tell the refused"
    );
    world.await_runs(50).await;
    world.assert_count(STARTED, 10).await;
    world.assert_count(EXHAUSTED, 40).await;
    let allowance = operator.allowance(first.workspace).await.unwrap();
    assert_eq!((allowance.run_allowance, allowance.started), (Some(10), 10));

    operator
        .set_allowance(first.workspace, Some(11))
        .await
        .unwrap();
    world.forget_hits().await;
    for n in 50..52 {
        forms[2].assert_accepts(&n.to_string()).await;
    }
    world.await_runs(52).await;
    world.assert_count(STARTED, 11).await;
    operator.set_allowance(first.workspace, None).await.unwrap();
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
        "removed",
        "viewer",
        "deactivated",
        "deleted",
        "deleted and removed",
        "paused",
        "redeployed",
        "none left",
    ];
    let mut forms = Vec::new();
    for case in cases {
        let form = world.form(&gateway).await;
        form.assert_accepts(case).await;
        match case {
            "removed" => world.remove_member(form.workspace, form.owner).await,
            "viewer" => {
                world
                    .set_role(form.workspace, form.owner, MemberRole::Viewer)
                    .await
            }
            "deactivated" => drop(
                operator
                    .set_member(form.workspace, form.owner, MemberRole::Owner, true)
                    .await
                    .unwrap(),
            ),
            "deleted" => world.move_workflow(form.workflow, Move::Delete).await,
            "deleted and removed" => {
                world.move_workflow(form.workflow, Move::Delete).await;
                world.remove_member(form.workspace, form.owner).await;
            }
            "paused" => world.move_workflow(form.workflow, Move::Pause).await,
            "redeployed" => drop(
                operator
                    .deploy(form.workflow, Some(DEFINITION))
                    .await
                    .unwrap(),
            ),
            _ => drop(
                operator
                    .set_allowance(form.workspace, Some(0))
                    .await
                    .unwrap(),
            ),
        }
        forms.push(form);
    }
    let _worker = world.worker().await;
    world.await_runs(cases.len() as i64).await;
    let expected = [
        Some("owner_cannot_run"),
        Some("owner_cannot_run"),
        Some("owner_cannot_run"),
        Some("workflow_unavailable"),
        Some("workflow_unavailable"),
        None,
        None,
        Some("allowance_exhausted"),
    ];
    for ((form, reason), case) in forms.iter().zip(expected).zip(cases) {
        let runs = operator
            .runs(
                &RunFilter::of(form.workspace).with_workflow(Some(form.workflow)),
                None,
                10,
            )
            .await
            .unwrap();
        assert_eq!(runs.len(), 1, "{case}");
        assert_eq!(
            runs[0].refused_reason.map(RefusedReason::as_str),
            reason,
            "{case}"
        );
        assert_eq!(
            runs[0].state == RunState::Refused,
            reason.is_some(),
            "{case}"
        );
        assert_eq!(runs[0].run_as, form.owner);
        let started = operator.allowance(form.workspace).await.unwrap().started;
        assert_eq!(
            started,
            i32::from(reason.is_none()),
            "{case}: a refused run uses nothing up"
        );
    }
    // Pinned to the release that the payload was checked against.
    let run = &operator
        .runs(&RunFilter::of(forms[6].workspace), None, 10)
        .await
        .unwrap()[0];
    let number = "SELECT number::bigint FROM releases WHERE release_id = ";
    world
        .assert_count(&format!("{number}'{}'", run.release_id), 1)
        .await;
}

/// A worker dies with what it has fetched: another one records it, once.
#[tokio::test]
async fn a_killed_workers_submissions_are_recorded_once() {
    let (world, gateway) = World::with_gateway().await;
    let form = world.form(&gateway).await;
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
    world
        .assert_count("SELECT started::bigint FROM run_usage", 20)
        .await;
}
