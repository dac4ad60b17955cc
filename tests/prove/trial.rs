//! A trial: one fault under load, and what became of everything that was sent meanwhile.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{
    doors::{self, Found, Line},
    faults::Fault,
    ledger::Entry,
    load::{Load, Outcome},
    stack::Stack,
};

/// How long things may be under way after everything is well again.
const PATIENCE: Duration = Duration::from_secs(90);
/// After how long nobody waits for a lease to end by itself.
const LEASES_END: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many things are accepted before and after the fault.
const AROUND: usize = 60;
/// How often a fault is done where there is time.
const TIMES: u32 = 3;

/// What comes of a fault under load.
pub async fn of_fault(stack: &Stack, fault: &Fault, is_short: bool) -> Entry {
    let times = if is_short { 1 } else { TIMES };
    let (outcome, prefix, fired) = under_load(stack, async || {
        let (mut fired, mut missed) = (0, 0);
        for _ in 0..times {
            let seen = (fault.run)(stack).await;
            fired += seen;
            missed += u32::from(seen == 0);
            stack.heal().await;
        }
        (fired, missed)
    })
    .await;
    let (fired, missed) = fired;
    let mut entry = settle(stack, fault.name, &prefix, &outcome).await;
    entry.fired = fired;
    if missed > 0 {
        let complaint = format!("{missed} of {times} times the fault did not fire");
        entry.complaints.push(complaint);
    }
    let unaccepted = entry.sum().attempts - entry.sum().acknowledged;
    if fault.is_unnoticed() && unaccepted > 0 {
        let complaint = format!("{unaccepted} were not accepted");
        entry.complaints.push(complaint);
    }
    if fault.is_unnoticed() {
        let refused = outcome.refused.iter();
        entry
            .complaints
            .extend(refused.map(|how| format!("a request was not accepted: {how}")));
    }
    entry
}

/// Sends at every door before, during and after `harm`.
pub async fn under_load<T>(stack: &Stack, harm: impl AsyncFnOnce() -> T) -> (Outcome, String, T) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let prefix = format!("item-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    // What the rate limits are for is not what is shown here.
    stack.sql("UPDATE rate_limits SET hits = '{}'").await;
    let load = Load::start(&stack.doors, &prefix);
    await_accepted(&load, AROUND).await;
    let harmed = harm().await;
    let accepted = load.accepted();
    await_accepted(&load, accepted + AROUND).await;
    (load.stop().await, prefix, harmed)
}

/// # Panics
/// When nobody is let in any more.
async fn await_accepted(load: &Load, wanted: usize) {
    let deadline = Instant::now() + PATIENCE;
    while load.accepted() < wanted {
        assert!(Instant::now() < deadline, "nothing is accepted any more");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until everything that was sent has come to its end, and counts.
pub async fn settle(stack: &Stack, fault: &str, prefix: &str, outcome: &Outcome) -> Entry {
    stack.heal().await;
    let healed = Instant::now();
    let mut expired = healed;
    let mut counted: Vec<Line> = Vec::new();
    let mut is_again = false;
    while healed.elapsed() < PATIENCE {
        if let Some(found) = Found::of(stack, prefix).await {
            let now = doors::count(&found, &outcome.sent);
            let is_done = now.iter().all(|line| line.counts.lost == 0);
            // Twice the same, at rest: nothing comes any more.
            let is_same = now == counted;
            counted = now;
            if is_done && is_same && is_again && stack.is_at_rest().await {
                break;
            }
            is_again = is_done && is_same;
        }
        if expired.elapsed() > LEASES_END {
            stack.expire().await;
            expired = Instant::now();
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let mut complaints = Vec::new();
    if counted.is_empty() {
        complaints.push("nothing could be counted".to_owned());
    }
    if !stack.is_at_rest().await {
        complaints.push("something is still under way".to_owned());
    }
    if counted.iter().any(|line| line.counts.lost > 0) {
        complaints.extend(stack.failures(prefix).await);
    }
    let panics = stack.new_panics().await;
    if panics > 0 {
        complaints.push(format!("{panics} panics"));
    }
    Entry {
        fault: fault.to_owned(),
        prefix: prefix.to_owned(),
        sent: outcome.sent.clone(),
        lines: counted,
        fired: 0,
        silence_ms: outcome.silence.as_millis(),
        complaints,
    }
}
