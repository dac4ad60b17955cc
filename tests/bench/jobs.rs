//! The same work done by job runners of others, on a database of their own on the same server.

use std::{path::Path, process::Stdio, time::Instant};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::{
    arguments::Section,
    bare::Bare,
    bench::Bench,
    figures::{CPU_PEER, CPU_WORKER, PER_SECOND, Round},
};

pub const GRAPHILE_WORKER: &str = "jobs with one request each, by graphile_worker";
const IN_BATCHES: &str = "the same, completed in batches";
const AWA: &str = "jobs with one request each, by awa";

const DATABASE: &str = "letterbox_jobs";

/// Measures each from its first request, with so many jobs that are there before.
pub async fn run(bench: &Bench, program: &Path, number: usize, round: &mut Round) {
    let runners = [
        ("graphile_worker", GRAPHILE_WORKER),
        ("graphile_worker_in_batches", IN_BATCHES),
        ("awa", AWA),
    ];
    for (runner, name) in runners {
        let peer = Bare::start(200).await;
        let drop = format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)");
        bench.sql(&drop).await;
        bench.sql(&format!("CREATE DATABASE {DATABASE}")).await;
        let (server, _) = bench.world.database_url.rsplit_once('/').expect("a URL");
        let mut child = Command::new(program)
            .args([runner, &number.to_string()])
            .arg(format!("http://{}/", peer.address))
            .env("DATABASE_URL", format!("{server}/{DATABASE}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut says = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut says = async || says.next_line().await.expect("readable").expect(runner);
        let servers = bench.servers().with_process(CPU_PEER, peer.pid());
        let watched = servers.with_process(CPU_WORKER, child.id().expect("it runs"));

        says().await;
        let mut told = child.stdin.take().expect("it is piped");
        told.write_all(b"\n").await.expect("it reads");
        says().await;
        let begun = (Instant::now(), watched.sample());
        says().await;
        let ended = (Instant::now(), watched.sample());

        let mut into = round.of(Section::Drain, name);
        let seconds = (ended.0 - begun.0).as_secs_f64();
        into.add(PER_SECOND, number as f64 / seconds);
        ended.1.since(&begun.1).add_to(&mut into, number as f64);
        let _ = child.kill().await;
        peer.end().await;
        bench.sql(&drop).await;
    }
}
