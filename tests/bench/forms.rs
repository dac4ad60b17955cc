//! Forms, read and submitted through many links by many clients.

use crate::{
    arguments::Section,
    bench::{Bench, measure},
    figures::Round,
    form_requests::{Reads, Submissions, Tokens},
};

const SECTION: Section = Section::Forms;

/// Name of a measurement.
pub fn submissions(connections: usize) -> String {
    format!("submissions, {connections} connections")
}

pub async fn run(bench: &Bench, tokens: &Tokens, round: &mut Round) {
    for connections in [64, 256] {
        forget_hits(bench).await;
        let load = bench.load(connections, Reads(tokens.clone()));
        let mut into = round.of(SECTION, format!("reads, {connections} connections"));
        measure(&load, bench.times, &bench.intake(), &mut into).await;
    }
    for connections in [64, 256] {
        forget_hits(bench).await;
        let load = bench.load(connections, Submissions::new(tokens.clone()));
        let mut into = round.of(SECTION, submissions(connections));
        measure(&load, bench.times, &bench.intake(), &mut into).await;
        bench.empty_queues().await;
    }
}

/// Every link may be used as often as at the beginning.
pub async fn forget_hits(bench: &Bench) {
    bench.sql("TRUNCATE rate_limits").await;
}
