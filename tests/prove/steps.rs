//! Every step of the protocols, and a crash, an error and a long wait before and after it: a table
//! of what was lost and what was done twice.

use std::time::{Duration, Instant};

use letterbox_tests::Proxy;

use crate::{
    arguments::Arguments,
    ledger::{Entry, Ledger},
    member::Member,
    stack::Stack,
    trial::{settle, under_load},
};

/// How a step fails.
const WAYS: [&str; 3] = ["crash", "error", "slow"];
/// How many times a step is passed before it fails, at most, and how often it fails then.
const FIRST: u32 = 12;
const OFTEN: u32 = 3;
/// Messages that nobody can read, where they are dead-lettered.
const UNREADABLE: usize = 20;
/// How long a step may take to be passed: more than the minute for which a worker that has crashed
/// before keeps others from renewing a token.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long gateways do not reach the broker, so that something is spilled.
const OUTAGE: Duration = Duration::from_millis(1_500);

/// A part of a protocol, and who takes it.
struct Step {
    part: &'static str,
    name: &'static str,
    who: fn(&Stack) -> &[Member],
}

impl Step {
    /// Where it can fail: nothing comes before what arrives, or between an answer and its end, and
    /// what comes after a commit comes after the whole statement.
    fn sides(&self) -> &'static [&'static str] {
        match self.part {
            "receive" => &["after"],
            "answer" | "commit" => &["before"],
            _ => &["before", "after"],
        }
    }
}

macro_rules! steps {
    ($($part:literal: $($name:literal)+ of $who:ident;)+) => {
        &[$($(Step {
            part: $part,
            name: $name,
            who: |stack| &stack.$who,
        }),+),+]
    };
}

/// The parts that are taken only while gateways do not reach the broker.
const SPILLS: &[&str] = &["spill", "drain"];

static STEPS: &[Step] = steps! {
    "claim": "statement.claim_new" of gateways;
    "publish": "publish.webhooks" "publish.forms" of gateways;
    "settle": "statement.close_batches" of gateways;
    "answer": "answer" of gateways;
    "spill": "statement.spill_batches" of gateways;
    "drain": "statement.take_spilled" "statement.store_signals" "statement.record_runs" of workers;
    "receive": "receive" of workers;
    "apply": "statement.store_signals" "statement.record_runs" of workers;
    "commit": "commit.store_signals" "commit.record_runs" "commit.take_runs"
        "commit.begin_attempts" "commit.write_steps" of workers;
    "acknowledge": "acknowledge" of workers;
    "dead-letter": "publish.letterbox.v1.webhooks" "publish.letterbox.v1.forms" of workers;
    "take": "statement.take_runs" of workers;
    "begin": "statement.begin_attempts" of workers;
    "send": "request" of workers;
    "record": "statement.write_steps" of workers;
    "refresh": "statement.take_grants" "exchange" "statement.keep_token" of workers;
    "subscribe": "statement.take_subscriptions" "publish.signals" "statement.move_cursor"
        of workers;
};

/// What steps are called.
pub fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().flat_map(|step| [step.part, step.name])
}

/// Tries those that are wanted, and prints the table.
pub async fn print(stack: &Stack, ledger: &mut Ledger, arguments: &Arguments) {
    let wants = |step: &&Step| arguments.wants(step.name) || arguments.wants(step.part);
    let mut wanted = STEPS.iter().filter(wants).peekable();
    if wanted.peek().is_some() {
        println!(
            "\n  {:<12}{:<44}{:<26}{:<26}{}",
            "part", "step", WAYS[0], WAYS[1], WAYS[2]
        );
    }
    for step in wanted {
        for side in step.sides() {
            let point = format!("{}.{side}", step.name);
            let mut cells = Vec::new();
            let mut complaints = Vec::new();
            for way in WAYS {
                let entry = try_step(stack, step, &point, way).await;
                cells.push(cell(&entry));
                let of_way = entry.complaints.iter();
                complaints.extend(of_way.map(|why| format!("{way}: {why}")));
                ledger.keep(entry);
            }
            let [crash, error, slow] = &cells[..] else {
                unreachable!("three ways")
            };
            println!("  {:<12}{point:<44}{crash:<26}{error:<26}{slow}", step.part);
            complaints.iter().for_each(|why| println!("! {why}"));
        }
    }
}

fn cell(entry: &Entry) -> String {
    let sum = entry.sum();
    let mark = if entry.is_good() { "" } else { "! " };
    let (lost, doubled) = (sum.lost, sum.doubled + sum.unexpected);
    format!("{mark}{lost} lost {doubled} doubled ({})", entry.fired)
}

async fn try_step(stack: &Stack, step: &Step, point: &str, way: &str) -> Entry {
    let members = (step.who)(stack);
    let most = match step.part {
        // Each of two workers gets about half of the few that can't be read; what a subscriber gets
        // is published a few times a second at most.
        "dead-letter" | "subscribe" => 4,
        // One of two workers renews, every six seconds.
        "refresh" => 1,
        _ => FIRST,
    };
    let first = fastrand::u32(1..=most);
    let fails = match way {
        // One crash of each process: its successor is started unarmed.
        "crash" => format!("{point}={first}*off->1*return(crash)"),
        way => format!("{point}={first}*off->{OFTEN}*return({way})->off"),
    };
    let failed = async || {
        let mut all = 0;
        for member in members {
            all += member.failed(point, way).await;
        }
        all
    };
    // Others that are armed still, and fail, are no news of this step.
    let before: u64 = failed().await;
    let (outcome, prefix, ()) = under_load(stack, async || {
        // Armed while there is work: what passes a step without any shows nothing.
        for member in members {
            member.arm(&fails).await;
            member.replace(&stack.world).await;
        }
        if SPILLS.contains(&step.part) {
            let gateways = stack.gateways.iter().map(|gateway| &gateway.to_broker);
            gateways.for_each(|way| way.each(Proxy::cut));
            tokio::time::sleep(OUTAGE).await;
        }
        if step.part == "dead-letter" {
            stack.publish_unreadable(UNREADABLE).await;
        }
        let deadline = Instant::now() + PATIENCE;
        while failed().await == before && Instant::now() < deadline {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        for member in members {
            member.arm("").await;
        }
        stack.heal().await;
    })
    .await;
    let mut entry = settle(stack, point, &prefix, &outcome).await;
    entry.fired = failed().await - before;
    if step.part == "dead-letter" {
        let dead = stack.take_dead_letters(UNREADABLE).await;
        if dead != UNREADABLE {
            let lost = UNREADABLE - dead;
            entry
                .complaints
                .push(format!("{lost} dead letters are lost"));
        }
    }
    if entry.fired == 0 {
        entry.complaints.push("the step was not passed".to_owned());
    }
    entry
}
