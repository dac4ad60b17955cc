//! One workspace's run beside another's trouble: how long it takes alone, and beside thousands of
//! runs that wait for an account that does not answer; how fast runs go that are all due at one
//! moment; and what waiting runs cost.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use letterbox_tests::{Form, Peer, Process, Reply, post};
use serde_json::json;

use crate::{
    arguments::Section,
    bare::Bare,
    bench::Bench,
    drain::{forms, reach},
    figures::{P50, P99, PER_SECOND, Round},
};

pub const REQUESTED: &str = "from accepted to the request received, alone";
pub const AT_ONE_MOMENT: &str = "100,000 runs due at one moment, to eight accounts";
pub const ALONE: &str = "a run, alone";
pub const BESIDE: &str = "a run, beside 2,000 for a silent account";
pub const NOTHING_WAITS: &str = "a second in which nothing waits";
pub const INTO_LANES: &str = "half a million runs due at one moment, into their lanes";
pub const A_MILLION_WAITS: &str = "a second in which a million runs wait";

const SECTION: Section = Section::Fairness;
/// Within a token's limit of a minute.
const RUNS: usize = 15;
const CROWD: u32 = 2_000;
/// Submissions whose requests are awaited, one after the other.
const REQUESTS: usize = 300;
const AT_ONCE: u32 = 100_000;
const ACCOUNTS: u32 = 8;
const MANY: u32 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// How long half a million runs may need.
const MORE_PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(5);
/// Pause where each look counts hundreds of thousands of rows, which costs what is measured.
const LONG_PAUSE: Duration = Duration::from_millis(500);
/// How long the server has after a million rows were written.
const SETTLED: Duration = Duration::from_secs(20);
const READY: &str = "SELECT count(*) FROM active_runs WHERE state = 'ready'";
/// How long the cost of waiting is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// Something has not come about: what, and for how long it was waited for.
struct InVain(String);

/// What waits in vain is said, and the others are measured all the same.
pub async fn run(bench: &Bench, round: &mut Round) {
    let measured = requested(bench, round).await;
    note(REQUESTED, measured, bench, round).await;
    let measured = at_one_moment(bench, round).await;
    note(AT_ONE_MOMENT, measured, bench, round).await;
    let measured = beside(bench, round).await;
    note(BESIDE, measured, bench, round).await;
    let measured = a_million_waits(bench, round).await;
    note(A_MILLION_WAITS, measured, bench, round).await;
    bench.sql("UPDATE workspaces SET held_at = NULL").await;
}

async fn note(name: &str, measured: Result<(), InVain>, bench: &Bench, round: &mut Round) {
    if let Err(InVain(what)) = measured {
        eprintln!("fairness: {name}: waited in vain for {what}");
        round.of(SECTION, name).failed(&what, 1);
        bench.start_without_runs().await;
    }
}

/// How long it takes from the answer to a submission to the request of its run.
async fn requested(bench: &Bench, round: &mut Round) -> Result<(), InVain> {
    let arrived = Arc::new(Mutex::new(Instant::now()));
    let arriving = arrived.clone();
    let peer = Peer::start(move |_, _| {
        *arriving.lock().expect("a time") = Instant::now();
        Reply::Status(200)
    });
    let peer = peer.await;
    let form = acting(bench, &peer).await;
    let worker = bench.worker().await;
    let mut took = Vec::new();
    let watched = bench.intake_and(&worker);
    let before = watched.sample();
    let over = over(&form);
    for number in 0..REQUESTS {
        if number % RUNS == 0 {
            bench.world.forget_hits().await;
        }
        form.assert_accepts(&format!("requested {number}")).await;
        let accepted = Instant::now();
        let expected = number as i64 + 1;
        until("a run", async || bench.world.count(&over).await == expected).await?;
        let arrived = *arrived.lock().expect("a time");
        took.push(arrived.saturating_duration_since(accepted).as_secs_f64() * 1e3);
    }
    took.sort_unstable_by(f64::total_cmp);
    let mut into = round.of(SECTION, REQUESTED);
    let used = watched.sample().since(&before);
    used.add_to(&mut into, REQUESTS as f64);
    into.add(P50, took[took.len() / 2]);
    into.add(P99, took[took.len() * 99 / 100]);
    drop(worker);
    bench.start_without_runs().await;
    Ok(())
}

/// How many runs a second come to their end that are all due at one moment.
async fn at_one_moment(bench: &Bench, round: &mut Round) -> Result<(), InVain> {
    let peer = Bare::start(200).await;
    let forms = forms(bench, &peer, &json!([post("send")]), ACCOUNTS as usize).await;
    let worker = bench.worker().await;
    for form in &forms {
        form.assert_accepts("first").await;
    }
    let over = "SELECT count(*) FROM runs WHERE state = 'succeeded'";
    let first = async || bench.world.count(over).await == i64::from(ACCOUNTS);
    until("the first run of each form", first).await?;
    drop(worker);
    for form in &forms {
        crowd(bench, form, AT_ONCE / ACCOUNTS, "now()").await;
    }
    bench.sql("VACUUM ANALYZE active_runs, runs").await;
    let worker = bench.worker().await;
    let done = async || worker.metric("letterbox_runs_finished_total").await;
    let (watched, deadline) = (bench.intake_and(&worker), Instant::now() + 5 * PATIENCE);
    let begun = reach(&done, 1.0, deadline, &watched).await;
    let ended = reach(&done, f64::from(AT_ONCE), deadline, &watched).await;
    let rate = (ended.done - begun.done) / (ended.at - begun.at).as_secs_f64();
    round.of(SECTION, AT_ONE_MOMENT).add(PER_SECOND, rate);
    drop(worker);
    peer.end().await;
    bench.start_without_runs().await;
    Ok(())
}

async fn beside(bench: &Bench, round: &mut Round) -> Result<(), InVain> {
    let lively = Peer::start(|_, _| Reply::Status(200)).await;
    let silent = Peer::start(|_, _| Reply::Silence).await;
    let ours = acting(bench, &lively).await;
    let theirs = acting(bench, &silent).await;
    let worker = bench.worker().await;
    let alone = typical_run(bench, &ours, "alone").await?;
    round.of(SECTION, ALONE).add(P50, alone);

    theirs.assert_accepts("first").await;
    silent.await_received(1).await;
    crowd(bench, &theirs, CROWD, "now()").await;
    // All have been looked at, and wait for the account.
    let are_ready = async || bench.world.count(READY).await >= i64::from(CROWD) - 20;
    until("2,000 ready runs", are_ready).await?;
    let beside = typical_run(bench, &ours, "beside").await?;
    round.of(SECTION, BESIDE).add(P50, beside);
    drop(worker);
    bench.start_without_runs().await;
    Ok(())
}

async fn a_million_waits(bench: &Bench, round: &mut Round) -> Result<(), InVain> {
    let silent = Peer::start(|_, _| Reply::Silence).await;
    let theirs = acting(bench, &silent).await;
    let worker = bench.worker().await;
    watch(bench, &worker, round, NOTHING_WAITS).await;
    theirs.assert_accepts("first").await;
    let is_asked = async || !silent.received().is_empty();
    until("the request of the first run", is_asked).await?;
    // Half of them for the account, which is busy, and half of them for tomorrow.
    bench.sql("UPDATE workspaces SET held_at = now()").await;
    crowd(bench, &theirs, MANY / 2, "now() + interval '1 day'").await;
    crowd(bench, &theirs, MANY / 2, "now()").await;
    let (began, before) = (Instant::now(), bench.world.count(READY).await);
    let are_ready = async || bench.world.count(READY).await >= i64::from(MANY / 2);
    let lanes = until_within(MORE_PATIENCE, LONG_PAUSE, "500,000 ready runs", are_ready);
    lanes.await?;
    let moved = f64::from(MANY / 2) - before as f64;
    let mut into = round.of(SECTION, INTO_LANES);
    into.add(PER_SECOND, moved / began.elapsed().as_secs_f64());
    // As autovacuum would have done within a minute.
    bench.sql("VACUUM ANALYZE active_runs, runs").await;
    bench.sql("CHECKPOINT").await;
    // What filling has left to the server's own processes is not what waiting costs.
    tokio::time::sleep(SETTLED).await;
    watch(bench, &worker, round, A_MILLION_WAITS).await;
    drop(worker);
    bench.start_without_runs().await;
    Ok(())
}

/// A form whose runs send one request to a peer.
async fn acting(bench: &Bench, peer: &Peer) -> Form {
    let actions = json!([post("send")]);
    let forms = bench.world.acting_form(&bench.gateway, &peer.url, actions);
    forms.await
}

/// Counts the runs of a form that are over: not all there are, which costs what is measured.
fn over(form: &Form) -> String {
    format!(
        "SELECT count(*) FROM runs WHERE workflow_id = '{}' AND state = 'succeeded'",
        form.workflow
    )
}

/// The median time from the receipt of a submission to the end of its run, in milliseconds.
async fn typical_run(bench: &Bench, form: &Form, key: &str) -> Result<f64, InVain> {
    bench.world.forget_hits().await;
    let over = over(form);
    let before = bench.world.count(&over).await;
    for (number, expected) in (0..RUNS).zip(before + 1..) {
        form.assert_accepts(&format!("{key} {number}")).await;
        until("a run", async || bench.world.count(&over).await == expected).await?;
    }
    let median = format!(
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took) FROM (
            SELECT extract(epoch FROM finished_at - received_at)::float8 * 1000 AS took
            FROM runs WHERE workflow_id = '{}' ORDER BY run_id DESC LIMIT {RUNS}) AS last",
        form.workflow
    );
    let row = bench.world.database.query_one(&median, &[]).await;
    Ok(row.expect("a median").get(0))
}

/// Adds runs like the newest one of a form, due at a time. Their ids sort by time, as those of
/// submissions do.
pub async fn crowd(bench: &Bench, form: &Form, runs: u32, due_at: &str) {
    let added = format!(
        "WITH like_it AS (
            SELECT * FROM runs WHERE workflow_id = '{}' ORDER BY run_id DESC LIMIT 1
        ), ids AS (
            SELECT (substr(ms, 1, 8) || '-' || substr(ms, 9) || '-7' || substr(random, 1, 3)
                || '-8' || substr(random, 4, 3) || '-' || substr(random, 7, 12))::uuid AS id
            FROM (SELECT lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12,
                         '0') AS ms, md5(random()::text) AS random
                  FROM generate_series(1, {runs})) AS made
        ), added AS (
            INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, input,
                received_at)
            SELECT workspace_id, id, workflow_id, release_id, run_as, 'queued', input, received_at
            FROM like_it, ids
            RETURNING workspace_id, run_id
        )
        INSERT INTO active_runs (workspace_id, run_id, due_at, account_id, state)
        SELECT a.workspace_id, a.run_id,
               {due_at} + row_number() OVER () * interval '1 microsecond', c.account_id,
               'scheduled'
        FROM added a JOIN connected_accounts c USING (workspace_id)",
        form.workflow
    );
    bench.sql(&added).await;
}

/// Processor time of the worker and the servers in a second.
async fn watch(bench: &Bench, worker: &Process, round: &mut Round, name: &'static str) {
    let watched = bench.intake_and(worker);
    let before = watched.sample();
    tokio::time::sleep(WATCHED).await;
    let used = watched.sample().since(&before);
    used.add_to(&mut round.of(SECTION, name), WATCHED.as_secs_f64());
}

async fn until(what: &str, holds: impl AsyncFnMut() -> bool) -> Result<(), InVain> {
    until_within(PATIENCE, PAUSE, what, holds).await
}

async fn until_within(
    patience: Duration,
    pause: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) -> Result<(), InVain> {
    let began = Instant::now();
    while !holds().await {
        if began.elapsed() > patience {
            return Err(InVain(format!("{what}, for {patience:?}")));
        }
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
