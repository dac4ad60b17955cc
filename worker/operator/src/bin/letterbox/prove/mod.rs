//! `letterbox prove`: sends numbered events to any intake of webhooks while somebody does harm to
//! it, and compares what was acknowledged with what came out.

mod came_out;
mod ledger;
mod sending;

use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use clap::Args;
use tokio::{process::Command, time::sleep};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::{
    came_out::{CameOut, Source},
    ledger::{Ledger, Numbers},
    sending::{Pace, Sent},
};
use crate::{Failure, Output, output, send::Signing};

/// How often it is looked whether everything has come out.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Send numbered, signed events while something breaks, and say what became of them; exit code 3
/// if something was lost or done twice
#[derive(Args)]
pub(crate) struct ProveCommand {
    /// The intake: Letterbox's or anybody's
    url: Url,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    pace: Pace,
    /// A command that does harm, for the shell; it may mend it as well
    #[arg(long, value_name = "CMD")]
    fault: Option<String>,
    /// Time between two calls of it
    #[arg(long, value_name = "S", default_value_t = 5, requires = "fault",
          value_parser = clap::value_parser!(u32).range(1..=3_600))]
    fault_seconds: u32,
    #[command(flatten)]
    came_out: CameOutFrom,
    /// Count messages of the queue that have one id once, as readers do who know them by it
    #[arg(long, requires = "queue")]
    same_by_id: bool,
    /// How long nothing may come out any more before it is counted: longer than what breaks takes
    /// to be tried again
    #[arg(long, value_name = "S", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=3_600))]
    quiet: u32,
    /// How long to wait for what has not come out yet
    #[arg(long, value_name = "S", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=3_600))]
    wait: u32,
}

/// Where it is seen what came out.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct CameOutFrom {
    /// Listen on this address: what the intake posts there has come out
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,
    /// Read this queue of AMQP_URL, and take its messages out
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Read this file, in which each line is an event that has come out
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) async fn run(command: ProveCommand) -> Result<Output, Failure> {
    let signer = command.signing.signer()?;
    let numbers = Numbers::new();
    let came_out = CameOut::of(&numbers, command.same_by_id);
    let from = command.came_out;
    let source = Source::open(from.listen, from.queue, from.file, &came_out).await?;
    let every = Duration::from_secs(command.fault_seconds.into());
    let mut faults = Faults::default();
    let stop = CancellationToken::new();
    let sending = async {
        let sent = sending::send_all(&command.url, &signer, &numbers, command.pace).await;
        stop.cancel();
        sent
    };
    let harming = faults.do_harm(command.fault.as_deref(), every, &stop);
    let (sent, ()) = tokio::join!(sending, harming);
    let sent = sent?;
    let [wait, quiet] =
        [command.wait, command.quiet].map(|seconds| Duration::from_secs(seconds.into()));
    await_all(&sent, &came_out, &source, wait, quiet).await?;
    let ledger = Ledger::of(&sent, &came_out.arrivals(), &faults);
    // A fault that did not happen shows nothing.
    let is_good = ledger.is_good() && (command.fault.is_none() || faults.done > 0);
    Ok(Output::Status {
        text: ledger.text(),
        value: output::value(&ledger),
        code: if is_good { 0 } else { output::LOOK },
    })
}

/// Waits until all that was acknowledged has come out and nothing comes any more.
async fn await_all(
    sent: &Sent,
    came_out: &CameOut,
    source: &Source,
    wait: Duration,
    quiet: Duration,
) -> Result<(), Failure> {
    let (began, mut changed, mut count) = (Instant::now(), Instant::now(), 0);
    while began.elapsed() < wait {
        source.look_again(came_out)?;
        let arrived = came_out.arrivals();
        if arrived.len() != count {
            (changed, count) = (Instant::now(), arrived.len());
        }
        if sent.is_all_in(&arrived) && changed.elapsed() > quiet {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// What the command that does harm has done.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

impl Faults {
    /// Calls the command again and again until `stop`, the last time to its end.
    async fn do_harm(&mut self, command: Option<&str>, every: Duration, stop: &CancellationToken) {
        let Some(command) = command else { return };
        while stop.run_until_cancelled(sleep(every)).await.is_some() {
            let called = Command::new("sh")
                .args(["-c", command])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()
                .await;
            match called {
                Ok(status) if status.success() => self.done += 1,
                _ => self.failed += 1,
            }
        }
    }
}
