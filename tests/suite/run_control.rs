//! Runs in hand: they are cancelled, retried and held, and whatever was sent is not sent twice.

use letterbox_common::{
    ids::RunId,
    states::{ActionState, ApprovalState, RunState},
};
use letterbox_database::Role;
use letterbox_operator::{CancelOutcome, RunDetail};
use letterbox_tests::{EXPIRE, Peer, Reply, Scene, post};
use serde_json::{Value, json};

fn states(run: &RunDetail) -> Vec<ActionState> {
    run.actions.iter().map(|action| action.state).collect()
}

/// Nobody has the run: it is over at once, and nothing of it is left to be woken.
#[tokio::test]
async fn a_waiting_run_is_cancelled_at_once() {
    let (peer, scene) = Scene::posting("send").await;
    let world = &scene.world;
    let approval = scene.ask().await;
    world.await_idle().await;
    let id = scene.the_run().await.row.run_id;
    let cancelled = world.order(format!("run cancel {id} --reason wrong"));
    assert_eq!(cancelled["outcome"], "cancelled");
    let run = scene.the_run().await;
    assert_eq!(run.row.state, RunState::Cancelled);
    assert_eq!(run.row.failure.as_deref(), Some("cancelled: wrong"));
    assert!(run.row.finished_at.is_some());
    assert_eq!(states(&run), [ActionState::Cancelled]);
    let question = run.actions[0].approval.as_ref().unwrap();
    assert_eq!(question.state, ApprovalState::Expired);
    world.assert_rows("active_runs", 0).await;
    let operator = world.operator().await;
    let late = operator.approve(approval.approval_id, scene.form.owner);
    assert!(late.await.is_err(), "the question is closed");
    let again = world.refusal(format!("run cancel {id}"));
    assert_eq!(again, (1, "letterbox: the run is over already\n".into()));
    assert_eq!(peer.received().len(), 0);
}

/// A worker has the run: what it has begun is recorded, and nothing more is begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_hand_is_cancelled_after_its_action() {
    let (peer, gate) = Peer::gated_at_first(200).await;
    let scene = Scene::new(&peer, json!([post("first"), post("second")])).await;
    scene.form.assert_accepts("k").await;
    peer.await_received(1).await;
    let id = scene.the_run().await.row.run_id;
    let operator = scene.world.operator().await;
    let outcome = operator.cancel_run(id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Requested);
    gate.add_permits(1);
    scene.world.await_state("cancelled", 1).await;
    let run = scene.the_run().await;
    assert_eq!(
        states(&run),
        [ActionState::Succeeded],
        "what was sent is known"
    );
    assert_eq!(peer.received().len(), 1);
    scene.world.assert_rows("active_runs", 0).await;
}

/// The worker that has the run dies: whoever takes it next cancels it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_workers_run_is_cancelled_by_the_next() {
    let (peer, _gate) = Peer::gated_at_first(200).await;
    let mut scene = Scene::new(&peer, json!([post("send")])).await;
    scene.form.assert_accepts("k").await;
    peer.await_received(1).await;
    let id = scene.the_run().await.row.run_id;
    let operator = scene.world.operator().await;
    let outcome = operator.cancel_run(id).await.unwrap();
    assert_eq!(outcome, CancelOutcome::Requested);
    scene.worker.kill().await;
    scene.world.change(EXPIRE).await;
    let _heir = scene.world.worker().await;
    scene.world.await_state("cancelled", 1).await;
    let run = scene.the_run().await;
    assert_eq!(
        states(&run),
        [ActionState::Running],
        "what came of it is not known"
    );
    assert_eq!(peer.received().len(), 1);
}

/// An action waits for its next attempt: there is none. Retried, it is tried again.
#[tokio::test]
async fn a_run_between_attempts_is_cancelled_and_retried() {
    let peer = Peer::start(|_, before| match before {
        0 => Reply::With(503, vec![("retry-after", "600".into())], String::new()),
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let world = &scene.world;
    scene.form.assert_accepts("k").await;
    let retrying = "SELECT count(*) FROM run_actions WHERE state = 'retrying'";
    world.await_count("retrying", retrying, 1).await;
    let id = scene.the_run().await.row.run_id;
    let operator = world.operator().await;
    operator.cancel_run(id).await.unwrap();
    let run = scene.the_run().await;
    assert_eq!(run.row.state, RunState::Cancelled);
    assert_eq!(states(&run), [ActionState::Cancelled]);
    operator.retry_run(id).await.unwrap();
    world.await_state("succeeded", 1).await;
    peer.await_received(2).await;
    let keys = peer.keys();
    assert_eq!(keys[0], keys[1], "a 503 does not say what was done");
    let run = scene.the_run().await;
    assert_eq!((run.row.failure, run.actions[0].attempts), (None, 1));
}

/// What failed with an answer is sent under a new key; what had succeeded before is not sent again.
#[tokio::test]
async fn a_failed_run_goes_on_where_it_failed() {
    let peer = Peer::start(|request, before| match (request.target.as_str(), before) {
        ("/second", 1) => Reply::Status(422),
        _ => Reply::Status(200),
    })
    .await;
    let actions = json!([post("first"), post("second"), post("third")]);
    let scene = Scene::new(&peer, actions).await;
    scene.submit_until("k", "failed", 1).await;
    let id = scene.the_run().await.row.run_id;
    let retried = scene.world.order(format!("run retry {id}"));
    assert_eq!(retried["run_id"], id.to_string());
    scene.world.await_state("succeeded", 1).await;
    let received = peer.await_received(4).await;
    assert_eq!(peer.targets(), ["/first", "/second", "/second", "/third"]);
    assert_eq!(received[1].body, received[2].body);
    assert_ne!(peer.keys()[1], peer.keys()[2]);
    assert_eq!(
        scene.world.refusal(format!("run retry {id}")).1,
        "letterbox: only a run that failed, was denied or was cancelled can be retried\n"
    );
    let operator = scene.world.operator().await;
    assert_eq!(
        operator.cancel_run(id).await.unwrap_err().to_string(),
        "the run is over already"
    );
}

/// What failed without an answer may have been done: it is sent under the same key. An answer that
/// says nothing of earlier attempts does not change that.
#[tokio::test]
async fn what_may_have_been_done_keeps_its_key() {
    let peer = Peer::start(|_, before| match before {
        0 => Reply::HangUp,
        1 => Reply::Status(503),
        2 => Reply::Status(400),
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    let twice = format!("workspace settings {workspace} --retry-attempts 2");
    assert_eq!(world.order(twice)["retry_attempts"], 2);
    scene.submit_until("k", "failed", 1).await;
    let operator = world.operator().await;
    let id = scene.the_run().await.row.run_id;
    let failure = scene.the_run().await.row.failure.unwrap();
    assert!(
        failure.ends_with("status 503; given up after 2 attempts"),
        "{failure}"
    );
    operator.retry_run(id).await.unwrap();
    // Refused under the first key: nothing was done.
    peer.await_received(3).await;
    world.await_state("failed", 1).await;
    operator.retry_run(id).await.unwrap();
    world.await_state("succeeded", 1).await;
    peer.await_received(4).await;
    let keys = peer.keys();
    assert!(
        keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3],
        "{keys:?}"
    );
}

/// A denied run is asked about again; one whose account was replaced is made anew, and asked about
/// too, although it had been approved.
#[tokio::test]
async fn a_retried_action_is_asked_about_again() {
    let peer = Peer::start(|_, before| match before {
        0 => Reply::Status(401),
        _ => Reply::Status(200),
    })
    .await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    form.assert_accepts("k").await;
    let operator = world.operator().await;
    let approval = scene.the_approval().await.approval_id;
    world.deny(approval, form.owner).await;
    world.await_state("denied", 1).await;
    let id = scene.the_run().await.row.run_id;
    operator.retry_run(id).await.unwrap();
    let former = approval;
    let approval = scene.the_approval().await;
    assert_eq!(approval.decided_by, None);
    let refused = operator.approve(former, form.owner).await;
    assert!(refused.is_err(), "by the id of the former question");
    world.approve(approval.approval_id, form.owner).await;
    world.await_state("failed", 1).await;

    let other = Peer::start(|_, _| Reply::Status(200)).await;
    world.replace_account(form, &other.url).await;
    operator.retry_run(id).await.unwrap();
    let approval = scene.the_approval().await;
    let url = approval.request.as_ref().unwrap()["url"].clone();
    assert_eq!(url, format!("{}/send", other.url));
    assert_eq!(other.received().len(), 0);
    world.approve(approval.approval_id, form.owner).await;
    world.await_state("succeeded", 1).await;
    assert_eq!((peer.received().len(), other.received().len()), (1, 1));

    operator.erase_run(id).await.unwrap();
    let erased = operator.retry_run(id).await.unwrap_err();
    assert!(
        erased.to_string().contains("only a run that failed"),
        "{erased}"
    );
}

/// A question was shown, and then the account behind it is replaced: an approval of what was shown
/// does not let another request be sent.
#[tokio::test]
async fn what_is_approved_is_what_was_shown() {
    let (peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    let shown = scene.ask().await;
    let operator = world.operator().await;
    world.await_idle().await;
    operator.cancel_run(shown.run_id).await.unwrap();
    let other = Peer::start(|_, _| Reply::Status(200)).await;
    world.replace_account(form, &other.url).await;
    operator.retry_run(shown.run_id).await.unwrap();
    let asked = scene.the_approval().await;
    assert_ne!(asked.request, shown.request);
    let approving = operator.approve(shown.approval_id, form.owner).await;
    assert!(approving.is_err(), "another request is asked about now");
    world.approve(asked.approval_id, form.owner).await;
    world.await_state("succeeded", 1).await;
    assert_eq!((peer.received().len(), other.received().len()), (0, 1));
}

/// An approval covers what was sent under one key: what an order to retry makes anew is asked about
/// again. What was decided keeps the name of who decided it, whoever changes the table.
#[tokio::test]
async fn an_approval_does_not_cover_what_is_made_anew() {
    let peer = Peer::start(|_, before| Reply::Status(if before == 0 { 400 } else { 200 })).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, form) = (&scene.world, &scene.form);
    scene.decide("approve").await;
    form.assert_accepts("k").await;
    let operator = world.operator().await;
    let first = scene.the_approval().await;
    world.approve(first.approval_id, form.owner).await;
    world.await_state("failed", 1).await;
    let sessions = [
        world.session(Role::Operator).await,
        world.session(Role::Worker).await,
    ];
    for change in ["decided_by = NULL", "state = 'denied'", "state = 'expired'"] {
        let change = format!("UPDATE approvals SET {change}");
        for session in &sessions {
            assert!(session.batch_execute(&change).await.is_err(), "{change}");
        }
        let by_administrator = world.database.batch_execute(&change).await;
        assert!(by_administrator.is_err(), "{change}");
    }
    operator.retry_run(first.run_id).await.unwrap();
    let second = scene.the_approval().await;
    assert_ne!(second.approval_id, first.approval_id);
    assert_eq!((second.request, second.decided_by), (first.request, None));
    assert_eq!(peer.received().len(), 1);
    world.approve(second.approval_id, form.owner).await;
    world.await_state("succeeded", 1).await;
    assert_eq!(peer.received().len(), 2);
}

fn run_id(run: &Value) -> RunId {
    run["run_id"].as_str().unwrap().parse().unwrap()
}

/// Many runs at once: a filter says which, and nothing is done before somebody says yes.
#[tokio::test]
async fn a_filter_says_which_and_yes_does_it() {
    let peer = Peer::start(|_, before| Reply::Status(if before < 3 { 400 } else { 200 })).await;
    let scene = Scene::new(&peer, json!([post("send")])).await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    for key in ["a", "b", "c"] {
        scene.form.assert_accepts(key).await;
    }
    world.await_state("failed", 3).await;
    let operator = world.operator().await;
    let id = scene.the_run().await.row.run_id;
    operator.erase_run(id).await.unwrap();
    let which = format!("--workspace {workspace} --since 2020-01-01T00:00:00Z");
    let shown = world.order(format!("run retry {which}"));
    assert_eq!(shown["would_be"], "retried");
    assert_eq!(shown["runs"].as_array().unwrap().len(), 3);
    world.assert_rows("active_runs", 0).await;
    let none = world.order(format!(
        "run retry --workspace {workspace} --failure nothing --yes"
    ));
    assert_eq!(none, json!([]));
    let done = world.order(format!("run retry {which} --rate 50 --yes"));
    let outcomes = done.as_array().unwrap().iter();
    let outcomes: Vec<_> = outcomes
        .map(|one| one["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        outcomes,
        ["queued", "queued", "forgotten"],
        "the oldest first"
    );
    world.await_state("succeeded", 2).await;

    world.order(format!("workspace hold {workspace}"));
    for key in ["d", "e"] {
        scene.form.assert_accepts(key).await;
    }
    world.await_state("queued", 2).await;
    let since = "--since 2020-01-01T00:00:00Z --until 2020-01-02T00:00:00Z";
    let none = world.order(format!("run cancel --workspace {workspace} {since} --yes"));
    assert_eq!(none, json!([]));
    let done = world.order(format!(
        "run cancel --workspace {workspace} --state queued --yes"
    ));
    assert_eq!(done.as_array().unwrap().len(), 2);
    world.await_state("cancelled", 2).await;
    // Those of a later piece come behind those of the pieces before.
    let cancelled = world.order(format!(
        "run list --workspace {workspace} --state cancelled"
    ));
    let cancelled: Vec<_> = cancelled.as_array().unwrap().iter().map(run_id).collect();
    let pace = Some((10.0, 36_000));
    operator
        .retry_runs(workspace, &cancelled, pace)
        .await
        .unwrap();
    let later = "SELECT count(*) FROM active_runs
        WHERE due_at BETWEEN now() + interval '59 minutes' AND now() + interval '61 minutes'";
    world.assert_count(later, 2).await;
    operator.cancel_runs(workspace, &cancelled).await.unwrap();
    let over = format!("run cancel --workspace {workspace} --state failed --yes");
    assert_eq!(
        world.order(over),
        json!([]),
        "what is over is not cancelled"
    );
    let (code, _) = world.refusal("run cancel --yes");
    assert_eq!(code, 2);
}

/// While a workspace is held its forms accept and its runs begin nothing; nobody's time runs out;
/// others go on. Released, everything goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_waits() {
    let (peer, gate) = Peer::gated_at_first(200).await;
    let scene = Scene::new(&peer, json!([post("first"), post("second")])).await;
    let (world, form) = (&scene.world, &scene.form);
    form.assert_accepts("in hand").await;
    peer.await_received(1).await;
    let operator = world.operator().await;
    assert!(operator.hold(Some(form.workspace)).await.unwrap());
    assert!(
        !operator.hold(Some(form.workspace)).await.unwrap(),
        "held already"
    );
    gate.add_permits(1);
    form.assert_accepts("new").await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    world.await_count("both wait", ready, 2).await;
    assert_eq!(
        peer.received().len(),
        1,
        "the action in hand was finished, no other begun"
    );

    let lively = Peer::start(|_, _| Reply::Status(200)).await;
    let other = world.sending_form(&scene.gateway, &lively).await;
    other.assert_accepts("k").await;
    lively.await_received(1).await;

    assert!(operator.hold(None).await.unwrap());
    other.assert_accepts("held too").await;
    world.await_count("all wait", ready, 3).await;
    assert!(operator.release(Some(form.workspace)).await.unwrap());
    world.assert_count(ready, 3).await; // all are held
    assert!(operator.release(None).await.unwrap());
    assert!(!operator.release(None).await.unwrap());
    world.await_state("succeeded", 4).await;
    assert_eq!((peer.received().len(), lively.received().len()), (4, 2));
}

/// A question expires while its workspace is held: it is open again when that is released.
#[tokio::test]
async fn no_question_expires_while_it_is_held() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, form) = (&scene.world, &scene.form);
    let approval = scene.ask().await.approval_id;
    let operator = world.operator().await;
    operator.hold(Some(form.workspace)).await.unwrap();
    // Held for an hour, in which the question would have expired.
    let an_hour = "
        UPDATE workspaces SET held_at = held_at - interval '1 hour' WHERE held_at IS NOT NULL;
        UPDATE approvals SET created_at = created_at - interval '1 hour',
            expires_at = clock_timestamp() - interval '1 second';
        UPDATE active_runs SET due_at = clock_timestamp()";
    world.change(an_hour).await;
    let ready = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
    world.await_count("it waits", ready, 1).await;
    // It is open: who must answer sees it, and may.
    assert_eq!(world.waiting(form.workspace).await.len(), 1);
    world.approve(approval, form.owner).await;
    operator.release(Some(form.workspace)).await.unwrap();
    world.await_state("succeeded", 1).await;
}

/// Of two holds that overlap, the time that both have taken counts once.
#[tokio::test]
async fn two_holds_take_no_time_twice() {
    let (_peer, scene) = Scene::posting("send").await;
    let (world, workspace) = (&scene.world, scene.form.workspace);
    scene.ask().await;
    let operator = world.operator().await;
    operator.hold(Some(workspace)).await.unwrap();
    operator.hold(None).await.unwrap();
    let left = "SELECT round(extract(epoch FROM expires_at - question_clock(workspace_id)) / 3600)
        ::bigint FROM approvals";
    // The workspace for ten hours, all of them for the last four.
    let hours = "
        UPDATE workspaces SET held_at = held_at - interval '10 hours' WHERE held_at IS NOT NULL;
        UPDATE all_workspaces SET held_at = held_at - interval '4 hours';
        UPDATE approvals SET created_at = created_at - interval '11 hours',
            expires_at = expires_at - interval '10 hours'";
    world.change(hours).await;
    let before = world.count(left).await;
    operator.release(Some(workspace)).await.unwrap();
    world.assert_count(left, before).await; // all are held still
    operator.release(None).await.unwrap();
    world.assert_count(left, before).await;
}
