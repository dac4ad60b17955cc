//! Whether it stays as fast when much is stored: claims by the million, and a million clients whose
//! hits are known.
//!
//! Claims are filled in as they come, in a random order of their keys, and measured behind a vacuum
//! and a checkpoint. After a checkpoint every page costs most when it is first written, so this is
//! measured for longer than the rest.

use crate::{
    arguments::Section,
    bench::{Bench, measure},
    figures::Round,
    form_requests::{Reads, Tokens},
    forms::forget_hits,
    load::Times,
    requests::Signed,
};

pub const BYTES: &str = "bytes a claim on disk, with indexes";
pub const FEW_CLAIMS: &str = "10 thousand claims, 64 connections";
pub const MANY_CLAIMS: &str = "10 million claims, 64 connections";
/// The machine may have changed meanwhile.
pub const FEW_AGAIN: &str = "10 thousand claims, once more";

const SECTION: Section = Section::Growth;
const CLAIMS: [(&str, i64); 4] = [
    (FEW_CLAIMS, 10_000),
    ("1 million claims, 64 connections", 1_000_000),
    (MANY_CLAIMS, 10_000_000),
    (FEW_AGAIN, 10_000),
];
const CHUNK: i64 = 500_000;
const CONNECTIONS: usize = 64;

const FILL_CLAIMS: &str = "
INSERT INTO webhook_deliveries (batch_id, workspace_id, key_high, key_low, delivery_id)
SELECT 0, $1, gen_random_uuid(), gen_random_uuid(), gen_random_uuid()
FROM generate_series(1, $2::bigint)";
/// Of the table, and of its parts if it has any.
const CLAIM_BYTES: &str = "
SELECT sum(pg_total_relation_size(part))::bigint FROM (
    SELECT 'webhook_deliveries'::regclass AS part
    UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = 'webhook_deliveries'::regclass
) AS parts";
/// Hits of this minute and the next, so that no sweep forgets them.
const FILL_HITS: &str = "
INSERT INTO rate_limits (key, hits)
SELECT decode('63' || lpad(to_hex(number), 8, '0'), 'hex'),
       ARRAY[clock_timestamp() + interval '1 hour']
FROM generate_series(1, 1000000) AS number";

/// While a table is filled, checkpoints would only take time.
const FILLING: [&str; 3] = [
    "ALTER SYSTEM SET max_wal_size = '16GB'",
    "ALTER SYSTEM SET checkpoint_timeout = '1h'",
    "SELECT pg_reload_conf()",
];
const FILLED: [&str; 4] = [
    "ALTER SYSTEM RESET max_wal_size",
    "ALTER SYSTEM RESET checkpoint_timeout",
    "SELECT pg_reload_conf()",
    "CHECKPOINT",
];

pub async fn run(bench: &Bench, tokens: &Tokens, round: &mut Round) {
    claims(bench, round).await;
    bench.start_over().await;
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
        let load = bench.load(CONNECTIONS, Reads(tokens.clone()));
        let mut into = round.of(SECTION, format!("{name}, {CONNECTIONS} connections"));
        measure(&load, bench.times, &bench.intake(), &mut into).await;
    }
    bench.start_over().await;
}

async fn claims(bench: &Bench, round: &mut Round) {
    bench.start_over().await;
    let times = Times {
        warm_up: bench.times.warm_up,
        measure: bench.times.measure * 3,
    };
    for (name, number) in CLAIMS {
        if name == FEW_AGAIN {
            bench.start_over().await;
        }
        fill(bench, number).await;
        let mut into = round.of(SECTION, name);
        let rows = bench
            .world
            .count("SELECT count(*) FROM webhook_deliveries")
            .await;
        let bytes = bench.world.count(CLAIM_BYTES).await;
        into.add(BYTES, bytes as f64 / rows as f64);
        let load = bench.load(CONNECTIONS, Signed::new(&bench.webhook, 0));
        measure(&load, times, &bench.intake(), &mut into).await;
        bench.empty_queues().await;
    }
}

/// Adds claims of the webhook that is measured, until there are so many.
async fn fill(bench: &Bench, wanted: i64) {
    for statement in FILLING {
        bench.sql(statement).await;
    }
    bench.sql("SET synchronous_commit = off").await;
    let workspace = bench.webhook.address.workspace;
    let mut left = wanted
        - bench
            .world
            .count("SELECT count(*) FROM webhook_deliveries")
            .await;
    while left > 0 {
        eprintln!("  {left} claims to go");
        let chunk = left.min(CHUNK);
        let filled = bench
            .world
            .database
            .execute(FILL_CLAIMS, &[&workspace, &chunk])
            .await;
        filled.expect(FILL_CLAIMS);
        left -= chunk;
    }
    bench.sql("RESET synchronous_commit").await;
    bench.sql("VACUUM (ANALYZE) webhook_deliveries").await;
    for statement in FILLED {
        bench.sql(statement).await;
    }
}
