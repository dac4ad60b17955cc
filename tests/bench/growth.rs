//! Whether intake stays as fast when much is remembered.
//!
//! The memory is filled directly, with as many segments as there are on average when so many claims
//! were moved half a million at a time, in a random order of keys. What it costs is measured in
//! turns with nothing remembered, because a machine's speed drifts: between two turns the segments
//! are only hidden.

use std::pin::pin;

use letterbox_common::KeyHash;
use letterbox_worker::memory::segment;
use tokio_postgres::{
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};
use uuid::Uuid;

use crate::{
    arguments::Section,
    bench::{Bench, measure},
    figures::{P99, PER_SECOND, Round},
    requests::{Repeated, Signed, repeated_event},
    summary::Values,
};

pub const BYTES: &str = "bytes a remembered claim on disk, with indexes";
/// The median of what was measured with much, divided by what was measured before and after.
pub const OF_NOTHING: &str = "per second, of nothing";
pub const P99_OF_NOTHING: &str = "p99, of nothing";
pub const REPEATS: &str = "repeats of what is remembered, 64 connections";

const NOTHING: &str = "nothing remembered";
const MUCH: &str = "much remembered";
const SECTION: Section = Section::Growth;
/// How often much is measured, between two times nothing.
const TURNS: usize = 4;
/// Bodies of which all are repeated.
const REPEATED: u64 = 10_000;
/// While no worker runs, what is being merged is what nobody looks into.
const HIDE: &str = "UPDATE memory_segments SET state = 'merging' WHERE state = 'ready'";
const SHOW: &str = "UPDATE memory_segments SET state = 'ready' WHERE state = 'merging'";
const FORGET: &str = "
TRUNCATE memory;
UPDATE memory_segments SET state = 'empty', source = NULL, merged_into = NULL, keys = 0,
    next_workspace = NULL, next_key = NULL";
const MEMORY_BYTES: &str = "
SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits
WHERE inhparent = 'memory'::regclass";

/// Name of a measurement with much remembered.
pub fn much(connections: usize) -> String {
    at(connections, MUCH)
}

fn at(connections: usize, remembered: &str) -> String {
    format!("{remembered}, {connections} connections")
}

/// Intake with nothing and with much in the memory, in turns.
pub async fn run(bench: &Bench, remembered: u64, round: &mut Round) {
    bench.sql(FORGET).await;
    let webhook = bench.webhook.address.webhook;
    let known = (0..REPEATED).map(|number| {
        let hash = KeyHash::of_content(webhook.as_bytes(), &repeated_event(number));
        hash.halves().0
    });
    let mut known = Vec::from_iter(known);
    for (segment, share) in (1..).zip(shares(remembered)) {
        fill_segment(bench, segment, (remembered as f64 * share) as u64, &known).await;
        known.clear();
    }
    let bytes = bench.world.count(MEMORY_BYTES).await as f64 / remembered as f64;
    round.of(SECTION, much(256)).add(BYTES, bytes);

    let (mut nothing, mut much) = (vec![turn(bench, NOTHING).await], vec![]);
    for _ in 0..TURNS {
        much.push(turn(bench, MUCH).await);
        nothing.push(turn(bench, NOTHING).await);
    }
    bench.start_over().await;
    bench.sql(FORGET).await;
    add_medians(&nothing, round);
    add_medians(&much, round);
    for connections in [64, 256] {
        let mut into = round.of(SECTION, at(connections, MUCH));
        for (figure, ratio) in [(PER_SECOND, OF_NOTHING), (P99, P99_OF_NOTHING)] {
            let value = |round: &Round, name| round.get(SECTION, &at(connections, name), figure);
            let around = much.iter().zip(nothing.windows(2));
            let ratios = around.filter_map(|(much, around)| {
                let nothing = value(&around[0], NOTHING)? + value(&around[1], NOTHING)?;
                Some(value(much, MUCH)? / (nothing / 2.0))
            });
            if let Some(ratios) = Values::of(ratios) {
                into.add(ratio, ratios.median());
            }
        }
    }
}

/// Intake, and repeats if there is something to repeat.
async fn turn(bench: &Bench, name: &str) -> Round {
    eprintln!("  {name}");
    bench.start_over().await;
    bench.sql(if name == MUCH { SHOW } else { HIDE }).await;
    let mut round = Round::default();
    for connections in [64, 256] {
        let load = bench.load(connections, Signed::new(&bench.webhook, 0));
        let mut into = round.of(SECTION, at(connections, name));
        measure(&load, bench.times, &bench.intake(), &mut into).await;
        bench.empty_queues().await;
    }
    if name == MUCH {
        let load = bench.load(64, Repeated::again(&bench.webhook, REPEATED));
        let mut into = round.of(SECTION, REPEATS);
        measure(&load, bench.times, &bench.intake(), &mut into).await;
    }
    round
}

/// Fills a segment with random keys, and with some that are known.
async fn fill_segment(bench: &Bench, number: i16, keys: u64, known: &[Uuid]) {
    const PART: u64 = 1_000_000;
    eprintln!("  segment {number} with {keys} keys");
    let workspace = Uuid::from_bytes(*bench.webhook.address.workspace.as_bytes());
    let database = &bench.world.database;
    let copy = "COPY memory (segment, workspace_id, first_key, filter, keys)
        FROM STDIN WITH (FORMAT binary)";
    let sink = database.copy_in(copy).await.expect(copy);
    let types = [Type::INT2, Type::UUID, Type::UUID, Type::BYTEA, Type::BYTEA];
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    let parts = u128::from(keys.div_ceil(PART));
    let width = u128::MAX / parts;
    for part in 0..parts {
        let range = part * width..=(part * width + (width - 1));
        let places = (0..PART).map(|_| fastrand::u128(range.clone()));
        let known = known.iter().map(Uuid::as_u128);
        let places = places.chain(known.filter(|key| range.contains(key)));
        let mut places: Vec<_> = places
            .map(|key| (workspace, Uuid::from_u128(key)))
            .collect();
        places.sort_unstable();
        for row in segment::rows(&places) {
            let values: [&(dyn ToSql + Sync); 5] = [
                &number,
                &row.workspace,
                &row.first_key,
                &row.filter,
                &row.keys,
            ];
            writer.as_mut().write(&values).await.expect("copied");
        }
    }
    writer.finish().await.expect("copied");
    let ready = "UPDATE memory_segments SET state = 'ready', keys = $2 WHERE segment = $1";
    let done = database.execute(ready, &[&number, &(keys as i64)]).await;
    done.expect(ready);
    // What is read for the first time is marked as committed.
    let read = "SELECT count(length(filter)) FROM memory";
    bench.sql(read).await;
}

/// How so many keys are distributed over segments.
fn shares(keys: u64) -> &'static [f64] {
    if keys < 500_000_000 {
        &[0.9, 0.1]
    } else {
        &[0.89, 0.1, 0.01]
    }
}

/// The median of each figure.
fn add_medians(rounds: &[Round], into: &mut Round) {
    for (place, _) in rounds[0].figures() {
        let values = rounds.iter().filter_map(|round| round.at(place));
        if let Some(values) = Values::of(values) {
            into.of(SECTION, &place.measurement)
                .add(&place.figure, values.median());
        }
    }
}
