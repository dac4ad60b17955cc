//! The models are held to the code by names: every transition says which steps it stands for, as
//! the registries of statements and of fail points call them. A step that a model invents fails
//! here, and so does one of the protocols that no model has.

use std::collections::BTreeSet;

use letterbox_models::{intake, runs};

use crate::{
    closed_sets::{declared_in, statements},
    source_tree::read,
};

/// The files whose statements are the protocols.
const PROTOCOLS: [&str; 11] = [
    "gateway/src/claims/store.rs",
    "gateway/src/open_batches/store.rs",
    "worker/src/spill/store.rs",
    "worker/src/claims/store.rs",
    "worker/src/signals/store.rs",
    "worker/src/runs/store.rs",
    "worker/src/memory/store.rs",
    "worker/src/executor/turns/store.rs",
    "worker/src/executor/store/mod.rs",
    "worker/src/executor/store/begin.rs",
    "worker/src/executor/store/write.rs",
];

/// Steps in no model, after what they do instead.
const BESIDE: &str = "
look, and change nothing:
    statement.find_claims statement.measure_spill statement.measure_spill_shares
    statement.what_is_held statement.taken_by_others statement.runs_by_time
    statement.ready_lanes statement.ready_runs statement.recorded_runs statement.memory_segments
    statement.memory_size statement.claim_halves statement.read_following statement.read_memory
lock what the step after them writes:
    statement.lock_usage statement.lock_turns statement.try_lock_turns statement.lock_asked
count and note, which decides nothing:
    statement.count_changed statement.report_worker statement.forget_worker statement.note_failing
merge what is remembered:
    statement.empty_segment
renew access tokens:
    statement.take_grants exchange statement.keep_token
bury what can't be read, and serve subscriptions:
    publish.letterbox.v1.webhooks publish.letterbox.v1.forms statement.take_subscriptions
    publish.signals statement.move_cursor
hand over what the next step changes, and undo a statement before it is committed:
    receive commit.store_signals commit.record_runs commit.take_runs commit.begin_attempts
    commit.write_steps
";

/// The fail points that are proven, `tests/prove/steps.rs`.
fn proven() -> BTreeSet<String> {
    let text = read("tests/prove/steps.rs");
    let list = text.split("static STEPS").nth(1).unwrap();
    let parts = list.split("\n};").next().unwrap().split(';');
    let names = parts.filter_map(|part| Some(part.split_once("\": ")?.1));
    let names = names.flat_map(|names| names.split('"').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

fn modelled() -> BTreeSet<String> {
    let steps = intake::STEPS.iter().chain(runs::STEPS);
    steps.map(|step| (*step).to_owned()).collect()
}

fn beside() -> BTreeSet<String> {
    let steps = BESIDE.lines().filter(|line| line.starts_with(' '));
    let steps = steps.flat_map(str::split_whitespace);
    steps.map(str::to_owned).collect()
}

#[test]
fn every_step_of_a_model_is_one_of_the_code() {
    let mut real = proven();
    assert!(real.len() > 15, "{real:?}");
    let registered = statements().into_iter();
    real.extend(registered.map(|(_, one)| format!("statement.{}", one.name)));
    let named = &modelled() | &beside();
    let invented: Vec<_> = named.difference(&real).collect();
    assert!(invented.is_empty(), "no such steps: {invented:?}");
}

#[test]
fn every_step_of_the_protocols_is_in_a_model() {
    let mut steps = proven();
    for file in PROTOCOLS {
        let names = declared_in(&read(file)).expect(file);
        steps.extend(names.iter().map(|name| format!("statement.{name}")));
    }
    let (modelled, beside) = (modelled(), beside());
    let both: Vec<_> = modelled.intersection(&beside).collect();
    assert!(both.is_empty(), "in a model, and beside them: {both:?}");
    let known = &modelled | &beside;
    let missing: Vec<_> = steps.difference(&known).collect();
    assert!(missing.is_empty(), "in no model: {missing:?}");
}

/// What the steps of the models are in the code: of intake those that a lock concerns, and all of
/// runs. Whoever renames or drops one of these looks whether the model still says what the code
/// does.
const HELD_TO: &str = r"
migrations/V6__claims.sql
    Gather: FOR NO KEY UPDATE SKIP LOCKED
    Spill: DELETE FROM open_batches o WHERE o.batch_id = ANY (batches) RETURNING
gateway/src/acceptance/lane.rs
    Gather: match divide(Group::items(groups), &error
worker/src/apply.rs
    Apply: match divide(part, &error
worker/src/spill/store.rs
    Drain: deleted == messages.len()
worker/src/consumer/storing.rs
    SetAside: spill::put(database, queue, part)
worker/src/executor/turns/store.rs
    Take: fn take_runs
    Take: idle_turns = idle_turns + 1,\n    turn = (random()
    Take: FOR NO KEY UPDATE OF a SKIP LOCKED
    Forget: set_config('synchronous_commit', 'off', true)
worker/src/executor/store/load.rs
    Load: fn load_runs
    Load: fn action_records
worker/src/executor/approvals.rs
    Load: fn permission
worker/src/executor/batches.rs
    Begin: match divide(part, &error
worker/src/executor/store/begin.rs
    Begin: fn begin_attempts
    Begin: a.turn = i.turn AND NOT a.is_cancelled
    Begin: held_workspaces
    Begin: i.policy_version = coalesce(
    Begin: a.answered = EXCLUDED.answered
    Begin: fn withdraw_questions
worker/src/executor/send.rs
    Send: async fn exchange
    Send: since.elapsed() < MARGIN
worker/src/executor/verdict.rs
    Send: fn judge
worker/src/executor/store/mod.rs
    Write: fn hold_runs
worker/src/executor/store/write.rs
    Write: fn record_answers
    Write: a.begun = i.attempt AND a.answered < i.attempt
    Write: NOT i.is_unseen OR EXISTS
    Write: fn record_changes
    Write: WHERE a.begun = EXCLUDED.begun AND a.answered = EXCLUDED.answered
    Write: fn close_questions
    Write: fn ask_approvals
    Write: fn keep_turns
    Write: fn release_runs
    Write: fn wake_answered
    Write: fn end_runs
migrations/V8__runs.sql
    Take: LOCK TABLE turn_lock IN EXCLUSIVE MODE NOWAIT
    Write: FUNCTION end_runs
    Answer: FUNCTION answer_approval
    Answer: FOR NO KEY UPDATE OF a
    Answer: NEW.approval_id := gen_random_uuid()
migrations/V10__operation.sql
    Cancel: FUNCTION cancel_run
    Release: FUNCTION release_hold
    Retry: FUNCTION retry_run
    Retry: a.state IN ('failed', 'denied', 'cancelled', 'retrying')
    Retry: a.request IS NULL OR a.unanswered = 0 AND a.begun > 0 AS is_new
";

#[test]
fn the_code_has_what_the_model_names() {
    let (mut file, mut text) = ("", String::new());
    for line in HELD_TO.trim().lines() {
        let Some(step) = line.strip_prefix("    ") else {
            (file, text) = (line, read(line));
            continue;
        };
        let (action, name) = step.split_once(": ").unwrap();
        let is_there = text.contains(&name.replace("\\n", "\n"));
        assert!(is_there, "{action}: {file} has no {name:?}");
    }
}
