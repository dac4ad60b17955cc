//! One workspace's or account's trouble does not hold up another's runs; what waits is in nobody's
//! way.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use letterbox_common::states::RunState;
use letterbox_tests::{
    Form, Peer, Process, Received, Reply, World, definition_with, eventually, post,
};
use serde_json::json;
use tokio::sync::Semaphore;

/// Adds runs like the newest one of a form, due one after the other.
async fn add_runs(world: &World, form: &Form, runs: u32) {
    let sql = format!(
        "WITH like_it AS (
                SELECT * FROM runs WHERE workflow_id = '{}' ORDER BY run_id DESC LIMIT 1
            ), added AS (
                INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state,
                    input, received_at)
                SELECT workspace_id, gen_random_uuid(), workflow_id, release_id, run_as, 'queued',
                    input, received_at
                FROM like_it, generate_series(1, {runs})
                RETURNING workspace_id, run_id
            )
            INSERT INTO active_runs (workspace_id, run_id, due_at, account_id, state)
            SELECT a.workspace_id, a.run_id,
                   now() + row_number() OVER () * interval '1 microsecond', c.account_id,
                   'scheduled'
            FROM added a JOIN connected_accounts c USING (workspace_id)",
        form.workflow
    );
    world.change(&sql).await;
}

/// A form of a workspace of its own, with one run that is over.
async fn tried(world: &World, form: Form) -> Form {
    form.assert_accepts("first").await;
    let workflow = form.workflow;
    let over = format!("runs WHERE workflow_id = '{workflow}' AND finished_at IS NOT NULL");
    world.await_rows(&over, 1).await;
    form
}

/// Thousands of runs of one workspace wait for an account that does not answer. A run of another
/// one has its turn, few are taken, and the account is not asked more than it may be.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_account_holds_up_its_own_runs_only() {
    let silent = Peer::start(|_, before| match before {
        0 => Reply::Status(200),
        _ => Reply::Silence,
    })
    .await;
    let lively = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, _worker) = World::with_both().await;
    let theirs = world.sending_form(&gateway, &silent).await;
    let theirs = tried(&world, theirs).await;
    let ours = world.sending_form(&gateway, &lively).await;
    add_runs(&world, &theirs, 2_000).await;
    // The first one, and eight that hang.
    silent.await_received(9).await;
    ours.assert_accepts("k").await;
    lively.await_received(1).await;
    eventually("our run is over", async || {
        world.run_of(&ours).await.row.state == RunState::Succeeded
    })
    .await;
    assert_eq!(silent.received().len(), 9);
    // No more than may call the account, and one that was taken in advance.
    assert!(world.rows("active_runs WHERE state = 'taken'").await <= 9);
    assert!(world.rows("active_runs WHERE state = 'ready'").await > 1_900);
}

/// An action that calls an account finds it busy: its run waits for its turn, in nobody's place,
/// and nothing is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn requests_to_an_account_are_bounded_exactly() {
    let world = World::new().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let gates: Vec<_> = (0..4).map(|_| Arc::new(Semaphore::new(0))).collect();
    let (held, counted) = (gates.clone(), asked.clone());
    let script = move |request: &Received, _: usize| match request.target.as_str() {
        "/second" => {
            let before = counted.fetch_add(1, Ordering::SeqCst);
            Reply::When(held[before / 3].clone(), 200)
        }
        _ => Reply::Status(200),
    };
    let peer = Peer::start(script).await;
    let settings = [
        ("LETTERBOX_REQUESTS_PER_ACCOUNT", "3"),
        ("LETTERBOX_RUNS_PER_WORKSPACE", "20"),
    ];
    let gateway = world.gateway().await;
    let worker = async || world.worker_with(&settings).await;
    let _workers = [worker().await, worker().await];
    let form = world.form(&gateway).await;
    let (workspace, owner) = (form.workspace, form.owner);
    world.connect(workspace, owner, "crm", &peer.url).await;
    world.connect(workspace, owner, "other", &peer.url).await;
    let mut second = post("second");
    second["account"] = "other".into();
    let definition = definition_with(json!([post("first"), second]));
    let form = world.form_of(&gateway, workspace, owner, &definition).await;
    for n in 0..12 {
        form.assert_accepts(&n.to_string()).await;
    }
    let waiting = "SELECT count(*) FROM active_runs w JOIN connected_accounts USING (account_id)
        WHERE w.state = 'ready' AND name = 'other'";
    for (round, gate) in (0_i64..).zip(&gates) {
        eventually("three are asked, the others wait for it", async || {
            let asked = asked.load(Ordering::SeqCst) as i64;
            assert!(asked <= 3 * (round + 1), "{asked} in round {round}");
            asked == 3 * (round + 1) && world.count(waiting).await == 9 - 3 * round
        })
        .await;
        gate.add_permits(1);
        world.await_state("succeeded", 3 * (round + 1)).await;
    }
    assert_eq!(peer.received().len(), 24);
}

/// Runs are taken ahead of their requests while an account answers. When it stops, it has no more
/// requests than it may have, the others go back to their lane, and each is sent once in the end.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_were_taken_ahead_wait_for_their_account() {
    const ANSWERED: usize = 300;
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let peer = Peer::start(move |_, before| match before {
        0..ANSWERED => Reply::Status(200),
        _ => Reply::When(held.clone(), 200),
    })
    .await;
    let world = World::new().await;
    let gateway = world.gateway().await;
    let settings = [("LETTERBOX_REQUESTS_PER_ACCOUNT", "3")];
    let worker = async || world.worker_with(&settings).await;
    let _workers = [worker().await, worker().await];
    let form = world.sending_form(&gateway, &peer).await;
    let form = tried(&world, form).await;
    add_runs(&world, &form, 400).await;

    peer.await_received(ANSWERED + 3).await;
    eventually(
        "three runs have the account, and no other a place",
        async || world.rows("active_runs WHERE state = 'taken'").await == 3,
    )
    .await;
    assert_eq!(peer.received().len(), ANSWERED + 3);
    gate.add_permits(1_000);
    world.await_state("succeeded", 401).await;
    assert_eq!(peer.received().len(), 401);
    let tried_once = "run_actions WHERE attempts = 1 AND unanswered = 0";
    assert_eq!(
        world.rows(tried_once).await,
        401,
        "what was not sent does not count"
    );
}

/// Two workspaces with more runs than there are places take turns, whoever came first.
#[tokio::test(flavor = "multi_thread")]
async fn workspaces_take_turns() {
    let peer = Peer::start(|_, _| Reply::Status(200)).await;
    let (world, gateway, mut worker) = World::with_both().await;
    let mut forms = Vec::new();
    for _ in 0..2 {
        let form = world.sending_form(&gateway, &peer);
        forms.push(tried(&world, form.await).await);
    }
    worker.terminate();
    assert!(worker.ended().await.success());
    for form in &forms {
        add_runs(&world, form, 40).await;
    }
    let one = [("LETTERBOX_RUN_CONCURRENCY", "1")];
    let _one = world.worker_with(&one).await;
    world.await_state("succeeded", 82).await;
    let began = "SELECT workflow_id::text FROM runs ORDER BY started_at";
    let order: Vec<String> = world.column(began).await;
    let workflow = forms[0].workflow.to_string();
    for pair in order[2..].chunks(10) {
        let first = pair.iter().filter(|one| **one == workflow);
        assert!((3..=7).contains(&first.count()), "{order:#?}");
    }
}

/// How many lanes have runs that wait: more than two looks consider.
const LANES: i64 = 600;
/// How many runs may be executed.
const PLACES: i64 = 8;

/// Very many lanes have three runs each, of a form's workflow, and few places are free at a time:
/// this many turns come before the last first one. `workspace` and `account` are those of lane n.
async fn turns_before_the_last(world: &World, form: &Form, workspace: &str, account: &str) -> i64 {
    let copies = format!(
        "SET session_replication_role = replica;
        WITH added AS (
            INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, input,
                received_at, request_id)
            SELECT {workspace}, gen_random_uuid(), workflow_id, release_id, run_as, 'queued', input,
                now() + number * interval '1 second', n::text
            FROM runs, generate_series(1, 3) number, generate_series(1, {LANES}) n
            WHERE workflow_id = '{}'
            RETURNING *)
        INSERT INTO active_runs (workspace_id, run_id, state, due_at, account_id)
        SELECT {workspace}, run_id, 'ready', received_at - interval '1 hour', {account}
        FROM added, LATERAL (SELECT request_id::int AS n) AS lane;
        RESET ALL",
        form.workflow
    );
    world.change(&copies).await;
    let few = [("LETTERBOX_RUN_CONCURRENCY", &*PLACES.to_string())];
    let _few = world.worker_with(&few).await;
    world.await_state("failed", 3 * LANES + 1).await;
    let before_the_last = "
        SELECT count(*) FROM runs WHERE started_at < (
            SELECT max(first) FROM (
                SELECT min(started_at) AS first FROM runs GROUP BY request_id) AS of_each)";
    world.count(before_the_last).await
}

/// A form whose run has failed, and no worker.
async fn failed(world: &World, gateway: &Process, mut worker: Process) -> Form {
    let fails = json!([{"id": "no", "type": "fail", "reason": "no"}]);
    let form = world.acting_form(gateway, "http://localhost", fails).await;
    form.assert_accepts("k").await;
    world.await_state("failed", 1).await;
    worker.terminate();
    assert!(worker.ended().await.success());
    form
}

/// Each workspace has its first turn before any has its second.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_workspaces_take_turns() {
    let (world, gateway, worker) = World::with_both().await;
    let form = failed(&world, &gateway, worker).await;
    let mut copies = "SET session_replication_role = replica;
        ALTER TABLE members ALTER may_run DROP EXPRESSION;"
        .to_owned();
    for table in ["workspaces", "members", "workflows", "releases"] {
        copies += &format!(
            "INSERT INTO {table} SELECT copy.* FROM {table} t, generate_series(1, {LANES}) n,
                jsonb_populate_record(t, jsonb_build_object('workspace_id', md5(n::text))) AS copy
            WHERE t.workspace_id = '{}';",
            form.workspace
        );
    }
    world.change(&(copies + "RESET ALL")).await;
    let nobody = "'00000000-0000-0000-0000-000000000000'::uuid";
    let before = turns_before_the_last(&world, &form, "md5(n::text)::uuid", nobody).await;
    assert!(before <= LANES + 2 * PLACES, "{before} turns");
}

/// Of one workspace too, no account is forgotten for others.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_accounts_take_turns() {
    let (world, gateway, worker) = World::with_both().await;
    let form = failed(&world, &gateway, worker).await;
    let workspace = format!("'{}'::uuid", form.workspace);
    let before = turns_before_the_last(&world, &form, &workspace, "md5(n::text)::uuid").await;
    // A look takes the longest due of those that it considers.
    assert!(before <= LANES * 3 / 2, "{before} turns");
}
