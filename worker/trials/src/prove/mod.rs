//! `letterbox prove`: sends numbered events to any intake of webhooks while somebody does harm to
//! it, and compares what was acknowledged with what came out.

mod came_out;
mod harm;
mod ledger;
mod numbers;
mod sending;

use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::{
    came_out::{CameOut, CameOutFrom, Source},
    harm::do_harm,
    numbers::Numbers,
    sending::{Pace, Sent},
};
use crate::{Signer, Signing, TrialError};

pub use self::ledger::Ledger;

/// How often it is looked whether everything has come out.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Send numbered, signed events while something breaks, and say what became of them; exit code 3
/// if something was lost or done twice
#[derive(Debug, Args)]
pub struct ProveCommand {
    /// The intake: Letterbox's or anybody's
    url: Url,
    /// How events are signed.
    #[command(flatten)]
    pub signing: Signing,
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

/// Sends, does harm, and counts.
pub async fn prove(command: ProveCommand, signer: &Signer) -> Result<Ledger, TrialError> {
    let numbers = Numbers::new();
    let came_out = CameOut::of(&numbers, command.same_by_id);
    let source = Source::open(command.came_out, &came_out).await?;
    let every = Duration::from_secs(command.fault_seconds.into());
    let stop = CancellationToken::new();
    let sending = async {
        let sent = sending::send_all(&command.url, signer, &numbers, command.pace).await;
        stop.cancel();
        sent
    };
    let harming = do_harm(command.fault.as_deref(), every, &stop);
    let (sent, faults) = tokio::join!(sending, harming);
    let sent = sent?;
    let [wait, quiet] =
        [command.wait, command.quiet].map(|seconds| Duration::from_secs(seconds.into()));
    await_all(&sent, &came_out, &source, wait, quiet).await?;
    Ok(Ledger::of(&sent, &came_out.arrivals(), &faults))
}

/// Waits until all that was acknowledged has come out and nothing comes any more.
async fn await_all(
    sent: &Sent,
    came_out: &CameOut,
    source: &Source,
    wait: Duration,
    quiet: Duration,
) -> Result<(), TrialError> {
    let began = Instant::now();
    let mut changed = Instant::now();
    let mut count = 0;
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
