//! Whether it stays as fast when much is stored: claims that were moved into the memory, a mover
//! that catches up, signals and runs, and a million clients whose hits are known.
//!
//! The memory is filled directly, with as many segments as there are on average when so many claims
//! were moved half a million at a time; claims and signals are filled in as they come, in a random
//! order of keys. What it costs is measured in turns with nothing remembered, because a machine's
//! speed drifts: between two turns the segments are only hidden. Behind a checkpoint every page
//! costs most when it is first written, so this is measured apart, and for longer.

use std::{pin::pin, time::Duration};

use letterbox_common::KeyHash;
use letterbox_tests::{Webhook, eventually};
use letterbox_worker::memory::segment;
use tokio_postgres::{
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};
use uuid::Uuid;

use crate::{
    arguments::{Arguments, Section},
    bench::{Bench, measure},
    drain,
    figures::{P99, PER_SECOND, Round},
    form_requests::{Reads, Submissions, Tokens},
    forms::forget_hits,
    load::Times,
    requests::{Repeated, Requests, Signed, repeated_event},
};

pub const BYTES: &str = "bytes a remembered claim on disk, with indexes";
pub const LOG: &str = "bytes of the log, an event";
pub const MOVER_LOG: &str = "bytes of the log, a moved claim";
pub const NOTHING: &str = "nothing remembered";
pub const MUCH: &str = "much remembered";
/// The median of what was measured with much, divided by what was measured before and after.
pub const OF_NOTHING: &str = "per second, of nothing";
pub const P99_OF_NOTHING: &str = "p99, of nothing";
pub const FEW_STORED: &str = "few stored";
pub const MANY_STORED: &str = "many stored";
/// The machine may have changed meanwhile.
pub const AGAIN: &str = "few stored, once more";
pub const REPEATS: &str = "repeats of what is remembered, 64 connections";
pub const BESIDE_WORKER: &str = "beside a worker, 256 connections";
pub const BESIDE_MOVER: &str = "beside a worker whose mover catches up, 256 connections";
pub const MOVER: &str = "a mover alone: claims that it copies";
pub const MERGER: &str = "a mover alone: keys that it merges";

const SECTION: Section = Section::Growth;
/// Claims that are not moved yet, as many as there are when a move begins.
const CLAIMS: i64 = 500_000;
/// Claims that a mover catches up with.
const MOVED: i64 = 10_000_000;
const CHUNK: i64 = 500_000;
/// How often much is measured, between two times nothing.
const TURNS: usize = 4;
/// Keys of each of two segments that are merged.
const MERGED: u64 = 5_000_000;
/// How often a key is written by merges until there are a hundred million
/// (`memory::segment::keys_are_in_few_segments_and_seldom_written`).
pub const MERGES: f64 = 9.8;
/// Bodies of which all are repeated.
const REPEATED: u64 = 10_000;

const FILL_CLAIMS: &str = "
INSERT INTO webhook_deliveries (batch_id, workspace_id, key_high, key_low, delivery_id, half)
SELECT 0, $1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1
FROM generate_series(1, $2::bigint)";
/// With signals, whose ids sort by time.
const FILL_RECORDED: &str = "
WITH filled AS (
    INSERT INTO webhook_deliveries (batch_id, workspace_id, key_high, key_low, delivery_id, half)
    SELECT 0, $1, gen_random_uuid(), gen_random_uuid(),
        encode(int8send(clock_timestamp_us * 1000000 + number) || int8send(number), 'hex')::uuid, 1
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock_timestamp_us)
         AS clock, generate_series(1, $2::bigint) AS number
    RETURNING workspace_id, delivery_id
)
INSERT INTO signals (workspace_id, signal_id, webhook_id, kind, generic_reason, body, received_at,
    position)
SELECT workspace_id, delivery_id, $3, 'generic', 'not_json', '0', now(),
    (SELECT position FROM signal_position)
FROM filled";
const MEMORY_BYTES: &str = "
SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits
WHERE inhparent = 'memory'::regclass";
const LOGGED: &str = "SELECT (pg_current_wal_lsn() - '0/0')::bigint";
const FORGET: &str = "
TRUNCATE memory;
UPDATE memory_segments SET state = 'empty', source = NULL, merged_into = NULL, keys = 0,
    next_workspace = NULL, next_key = NULL;
UPDATE claim_halves SET filled = 1, filled_since = now()";
/// While no worker runs, what is being merged is what nobody looks into.
const HIDE: &str = "UPDATE memory_segments SET state = 'merging' WHERE state = 'ready'";
const SHOW: &str = "UPDATE memory_segments SET state = 'ready' WHERE state = 'merging'";
/// Claims are made in the other half since yesterday.
const CHANGE_HALVES: &str =
    "UPDATE claim_halves SET filled = 2, filled_since = now() - interval '1 day'";
/// Of the last year, one each millisecond, without the bodies.
const STORE_SIGNALS: &str = "
INSERT INTO signals (workspace_id, signal_id, webhook_id, kind, generic_reason, entity, source_tool,
    amount_value, amount_currency, event_id, received_at, stored_at, position)
SELECT workspace_id, (lpad(to_hex(ms + n), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid,
    webhook_id, kind, generic_reason, entity, source_tool, amount_value, amount_currency, event_id,
    to_timestamp((ms + n) / 1000.0), to_timestamp((ms + n) / 1000.0),
    (SELECT p.position FROM signal_position p)
FROM (SELECT * FROM signals ORDER BY signal_id DESC LIMIT 1) AS like_it,
    generate_series($1::bigint, $2) AS n,
    (SELECT (extract(epoch FROM now() - interval '1 year') * 1000)::bigint AS ms) AS clock";
/// The same, with what was submitted, and one action each.
const STORE_RUNS: &str = "
WITH filled AS (
    INSERT INTO runs (workspace_id, run_id, workflow_id, release_id, run_as, state, input,
        received_at, created_at, finished_at, found_by)
    SELECT workspace_id,
        (lpad(to_hex(ms + n), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid,
        workflow_id, release_id, run_as, 'succeeded', input, to_timestamp((ms + n) / 1000.0),
        to_timestamp((ms + n) / 1000.0), to_timestamp((ms + n) / 1000.0),
        ARRAY(SELECT gen_random_uuid() FROM generate_series(1, cardinality(found_by))
            WHERE n > 0)
    FROM (SELECT * FROM runs WHERE state = 'succeeded' ORDER BY run_id DESC LIMIT 1) AS like_it,
        generate_series($1::bigint, $2) AS n,
        (SELECT (extract(epoch FROM now() - interval '1 year') * 1000)::bigint AS ms) AS clock
    RETURNING workspace_id, run_id
)
INSERT INTO run_actions (workspace_id, run_id, action_id, position, type, state, steered_by,
    idempotency_key, attempts, response_status, begun, answered, finished_at)
SELECT workspace_id, run_id, 'requests', 1, 'http.request', 'succeeded', '{}', gen_random_uuid(), 1,
    200, 1, 1, now()
FROM filled";
/// Hits of this minute and the next, so that no sweep forgets them.
const FILL_HITS: &str = "
INSERT INTO rate_limits (key, hits)
SELECT decode('63' || lpad(to_hex(number), 8, '0'), 'hex'),
       ARRAY[clock_timestamp() + interval '1 hour']
FROM generate_series(1, 1000000) AS number";

/// While a table is filled, checkpoints would only take time.
const FILLING: [&str; 4] = [
    "ALTER SYSTEM SET max_wal_size = '16GB'",
    "ALTER SYSTEM SET checkpoint_timeout = '1h'",
    "SELECT pg_reload_conf()",
    "SET synchronous_commit = off",
];
const FILLED: [&str; 5] = [
    "RESET synchronous_commit",
    "ALTER SYSTEM RESET max_wal_size",
    "ALTER SYSTEM RESET checkpoint_timeout",
    "SELECT pg_reload_conf()",
    "CHECKPOINT",
];

/// Name of a measurement.
pub fn at(connections: usize, remembered: &str) -> String {
    format!("{remembered}, {connections} connections")
}

/// Name of a measurement.
pub fn checkpointed(remembered: &str) -> String {
    format!("{}, behind a checkpoint", at(256, remembered))
}

/// Name of a measurement.
pub fn submissions(remembered: &str) -> String {
    format!("submissions, {remembered}, 64 connections")
}

pub async fn run(bench: &Bench, tokens: &Tokens, arguments: &Arguments, round: &mut Round) {
    let growth = Growth::new(bench, tokens).await;
    among_stored(bench, arguments.stored, round).await;
    growth.remember(arguments.remembered, round).await;
    growth.catch_up(round).await;
    growth.move_alone(round).await;
    known_clients(bench, tokens, round).await;
}

/// What a worker does with signals and runs when many are stored already.
async fn among_stored(bench: &Bench, stored: i64, round: &mut Round) {
    for (name, signals) in [(FEW_STORED, 0), (MANY_STORED, stored), (AGAIN, 0)] {
        bench.start_over().await;
        if signals > 0 {
            // The first runs are the model of those that are filled in.
            drain::run_among(bench, name, SECTION, &mut Round::default()).await;
            for statement in FILLING {
                bench.sql(statement).await;
            }
            bench.sql("SET session_replication_role = replica").await;
            let database = &bench.world.database;
            for (statement, rows) in [(STORE_SIGNALS, signals), (STORE_RUNS, signals / 10)] {
                for begun in (0..rows).step_by(CHUNK as usize) {
                    eprintln!("  {} rows to go", rows - begun);
                    let end = (begun + CHUNK).min(rows);
                    let stored = database.execute(statement, &[&(begun + 1), &end]).await;
                    stored.expect(statement);
                }
            }
            bench.sql("RESET session_replication_role").await;
            bench
                .sql("VACUUM (ANALYZE) signals, runs, run_actions")
                .await;
            for statement in FILLED {
                bench.sql(statement).await;
            }
        }
        drain::run_among(bench, name, SECTION, round).await;
    }
    bench.start_over().await;
}

async fn known_clients(bench: &Bench, tokens: &Tokens, round: &mut Round) {
    for (name, known) in [
        ("reads, 1 known client", false),
        ("reads, 1 million known", true),
    ] {
        forget_hits(bench).await;
        if known {
            bench.sql(FILL_HITS).await;
            bench.sql("VACUUM (ANALYZE) rate_limits").await;
            bench.sql("CHECKPOINT").await;
        }
        let load = bench.load(64, Reads(tokens.clone()));
        let mut into = round.of(SECTION, format!("{name}, 64 connections"));
        measure(&load, bench.times, &bench.intake(), &mut into).await;
    }
    bench.start_over().await;
}

/// A webhook in the workspace of the forms, so that both meet the same memory.
struct Growth<'b> {
    bench: &'b Bench,
    tokens: &'b Tokens,
    webhook: Webhook,
    times: Times,
}

impl<'b> Growth<'b> {
    async fn new(bench: &'b Bench, tokens: &'b Tokens) -> Self {
        let workspace = "SELECT workspace_id FROM form_links LIMIT 1";
        let workspace = bench.world.database.query_one(workspace, &[]).await;
        let workspace = workspace.expect("a form").get(0);
        Self {
            webhook: bench.world.webhook_in(&bench.gateway, workspace).await,
            times: Times {
                warm_up: bench.times.warm_up * 3,
                measure: bench.times.measure * 3,
            },
            bench,
            tokens,
        }
    }

    fn workspace(&self) -> Uuid {
        Uuid::from_bytes(*self.webhook.address.workspace.as_bytes())
    }

    async fn start_over(&self) {
        self.bench.start_over().await;
        self.bench.sql(FORGET).await;
    }

    /// Intake with nothing and with much in the memory, in turns.
    async fn remember(&self, remembered: u64, round: &mut Round) {
        self.start_over().await;
        let known = (0..REPEATED).map(|number| {
            let webhook = self.webhook.address.webhook;
            KeyHash::of_content(webhook.as_bytes(), &repeated_event(number))
                .halves()
                .0
        });
        let mut known = Vec::from_iter(known);
        for (segment, share) in (1..).zip(shares(remembered)) {
            let part = (remembered as f64 * share) as u64;
            self.fill_segment(segment, part, &known).await;
            known.clear();
        }
        let bytes = self.bench.world.count(MEMORY_BYTES).await;
        let bytes = bytes as f64 / remembered as f64;
        round.of(SECTION, at(256, MUCH)).add(BYTES, bytes);

        let (mut nothing, mut much) = (vec![self.turn(NOTHING).await], vec![]);
        for _ in 0..TURNS {
            much.push(self.turn(MUCH).await);
            nothing.push(self.turn(NOTHING).await);
        }
        self.start_over().await;
        add_medians(&nothing, round);
        add_medians(&much, round);
        for named in [
            &checkpointed as &dyn Fn(&str) -> String,
            &|name| at(64, name),
            &|name| at(256, name),
            &submissions,
        ] {
            let mut into = round.of(SECTION, named(MUCH));
            for (figure, ratio) in [(PER_SECOND, OF_NOTHING), (P99, P99_OF_NOTHING)] {
                let value = |round: &Round, name| round.get(SECTION, &named(name), figure);
                let ratios = much
                    .iter()
                    .zip(nothing.windows(2))
                    .filter_map(|(much, around)| {
                        let [before, after] = around else { return None };
                        let nothing = value(before, NOTHING)? + value(after, NOTHING)?;
                        Some(value(much, MUCH)? / (nothing / 2.0))
                    });
                into.add(ratio, median(ratios.collect()));
            }
        }
    }

    /// Intake, and repeats if there is something to repeat.
    async fn turn(&self, name: &str) -> Round {
        let (bench, is_much) = (self.bench, name == MUCH);
        eprintln!("  {name}");
        bench.start_over().await;
        bench.sql(if is_much { SHOW } else { HIDE }).await;
        for statement in FILLING {
            bench.sql(statement).await;
        }
        let claims = if is_much { CLAIMS } else { 10_000 };
        self.fill(FILL_CLAIMS, claims, &[]).await;
        for statement in FILLED {
            bench.sql(statement).await;
        }
        let mut round = Round::default();
        let measured = [
            (checkpointed(name), 256, self.times),
            (at(64, name), 64, bench.times),
            (at(256, name), 256, bench.times),
        ];
        for (name, connections, times) in measured {
            let signed = Signed::new(&self.webhook, 0);
            self.measure(&name, connections, times, signed, &mut round)
                .await;
        }
        if is_much {
            let repeats = Repeated::again(&self.webhook, REPEATED);
            self.measure(REPEATS, 64, bench.times, repeats, &mut round)
                .await;
        }
        forget_hits(bench).await;
        let submitted = Submissions::new(self.tokens.clone());
        let name = submissions(name);
        self.measure(&name, 64, bench.times, submitted, &mut round)
            .await;
        round
    }

    /// Intake while a mover has nothing to do and while it has much to do, and what that costs.
    async fn catch_up(&self, round: &mut Round) {
        let bench = self.bench;
        for (name, claims) in [(BESIDE_WORKER, 10_000), (BESIDE_MOVER, MOVED)] {
            self.start_over().await;
            for statement in FILLING {
                bench.sql(statement).await;
            }
            let webhook = self.webhook.address.webhook;
            self.fill(FILL_RECORDED, claims, &[&webhook]).await;
            for statement in FILLED {
                bench.sql(statement).await;
            }
            bench.sql(CHANGE_HALVES).await;
            let worker = bench.worker().await;
            let moved = "SELECT count(*) FROM memory_segments WHERE state = 'copying'";
            if claims == MOVED {
                eventually("the mover moves", async || {
                    bench.world.count(moved).await > 0
                })
                .await;
            }
            let load = bench.load(256, Signed::new(&self.webhook, 0));
            let mut into = round.of(SECTION, name);
            measure(&load, self.times, &bench.intake_and(&worker), &mut into).await;
        }
        self.start_over().await;
    }

    /// What a claim costs that is copied, and a key that is merged, without other load.
    async fn move_alone(&self, round: &mut Round) {
        let webhook = self.webhook.address.webhook;
        self.fill(FILL_RECORDED, CLAIMS, &[&webhook]).await;
        self.bench.sql(CHANGE_HALVES).await;
        self.watch_mover(MOVER, "copied", CLAIMS as f64, round)
            .await;
        self.start_over().await;
        for segment in 1..=2 {
            self.fill_segment(segment, MERGED, &[]).await;
        }
        let retired = "retired";
        self.watch_mover(MERGER, retired, 2.0 * MERGED as f64, round)
            .await;
        self.start_over().await;
    }

    /// What a mover uses for each of so many keys until there is a segment with that state.
    async fn watch_mover(&self, name: &str, state: &str, keys: f64, round: &mut Round) {
        let (bench, world) = (self.bench, &self.bench.world);
        bench.sql("CHECKPOINT").await;
        let worker = bench.worker().await;
        let watched = bench.intake_and(&worker);
        let (used, logged) = (watched.sample(), world.count(LOGGED).await);
        let reached = format!("SELECT count(*) FROM memory_segments WHERE state = '{state}'");
        while world.count(&reached).await == 0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let mut into = round.of(SECTION, name);
        watched.sample().since(&used).add_to(&mut into, keys);
        let logged = world.count(LOGGED).await - logged;
        into.add(MOVER_LOG, logged as f64 / keys);
    }

    async fn measure(
        &self,
        name: &str,
        connections: usize,
        times: Times,
        requests: impl Requests + 'static,
        round: &mut Round,
    ) {
        let load = self.bench.load(connections, requests);
        let logged = self.bench.world.count(LOGGED).await;
        let mut into = round.of(SECTION, name);
        let measured = measure(&load, times, &self.bench.intake(), &mut into).await;
        let logged = self.bench.world.count(LOGGED).await - logged;
        into.add(LOG, logged as f64 / measured.answered.max(1) as f64);
        self.bench.empty_queues().await;
    }

    /// Adds so many rows by a statement that takes the workspace and their number.
    async fn fill(&self, statement: &str, rows: i64, more: &[&(dyn ToSql + Sync)]) {
        let workspace = self.workspace();
        let mut left = rows;
        while left > 0 {
            eprintln!("  {left} claims to go");
            let chunk = left.min(CHUNK);
            let values: [&(dyn ToSql + Sync); 2] = [&workspace, &chunk];
            let values = [&values, more].concat();
            let filled = self.bench.world.database.execute(statement, &values).await;
            filled.expect(statement);
            left -= chunk;
        }
        let analyzed = "VACUUM (ANALYZE) webhook_deliveries, signals";
        self.bench.sql(analyzed).await;
    }

    /// Fills a segment with random keys, and with some that are known.
    async fn fill_segment(&self, number: i16, keys: u64, known: &[Uuid]) {
        const PART: u64 = 1_000_000;
        eprintln!("  segment {number} with {keys} keys");
        let workspace = self.workspace();
        let database = &self.bench.world.database;
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
        let keys = keys as i64;
        let done = database.execute(ready, &[&number, &keys]).await;
        done.expect(ready);
        // What is read for the first time is marked as committed.
        self.bench
            .sql("SELECT count(length(filter)) FROM memory")
            .await;
    }
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
        let value = |round: &Round| round.get(SECTION, &place.measurement, &place.figure);
        let values = rounds.iter().filter_map(value).collect();
        into.of(SECTION, &place.measurement)
            .add(&place.figure, median(values));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
