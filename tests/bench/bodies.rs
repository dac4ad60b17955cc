//! Intake of bodies of three sizes.

use crate::{
    arguments::Section,
    bench::{Bench, measure},
    figures::Round,
    requests::Signed,
};

const SIZES: [(&str, usize); 3] = [("400 bytes", 400), ("8 KiB", 8 << 10), ("64 KiB", 64 << 10)];
const CONNECTIONS: usize = 64;

pub async fn run(bench: &Bench, round: &mut Round) {
    for (name, size) in SIZES {
        let load = bench.load(CONNECTIONS, Signed::new(&bench.webhook, size));
        let mut into = round.of(
            Section::Bodies,
            format!("{name}, {CONNECTIONS} connections"),
        );
        let measured = measure(&load, bench.times, &bench.intake(), &mut into).await;
        let bytes = (measured.latencies.len() * size) as f64;
        into.add(
            "MB per second",
            bytes / 1e6 / bench.times.measure.as_secs_f64(),
        );
        bench.empty_queues().await;
    }
}
