//! Retention: deletes data older than the configured age, in small pieces. The keys by which
//! repeats are recognized are never deleted.

mod store;

use std::time::Duration;

use clap::Args;
use letterbox_common::states::Forgotten;
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;

/// Time between two sweeps.
const EVERY: Duration = Duration::from_secs(3600);
/// Maximum number of signals or runs that one statement examines.
const PIECE: i32 = 500;

/// How many days each kind of data is kept; `None` means forever.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Retention {
    /// Days for which the bodies of signals are kept [default: forever]
    #[arg(long = "keep-bodies", env = "LETTERBOX_KEEP_BODIES_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub(crate) bodies: Option<u16>,

    /// Days for which the inputs of finished runs are kept [default: forever]
    #[arg(long = "keep-inputs", env = "LETTERBOX_KEEP_INPUTS_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub(crate) inputs: Option<u16>,

    /// Days for which the requests sent by finished runs are kept [default: forever]
    #[arg(long = "keep-requests", env = "LETTERBOX_KEEP_REQUESTS_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub(crate) requests: Option<u16>,

    /// Days for which finished runs are kept [default: forever]
    #[arg(long = "keep-runs", env = "LETTERBOX_KEEP_RUNS_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub(crate) runs: Option<u16>,
}

impl Retention {
    /// The kinds of data with an age limit, each with its days.
    fn limits(self) -> impl Iterator<Item = (Forgotten, i32)> {
        let limits = [
            (Forgotten::Bodies, self.bodies),
            (Forgotten::Inputs, self.inputs),
            (Forgotten::Requests, self.requests),
            (Forgotten::Runs, self.runs),
        ];
        limits
            .into_iter()
            .filter_map(|(what, days)| Some((what, i32::from(days?))))
    }

    /// Sweeps every hour until `stop`. Several workers may do so at once.
    pub(crate) async fn keep(self, database: Database, stop: CancellationToken) {
        let sweeping = async {
            loop {
                self.sweep(&database).await;
                tokio::time::sleep(EVERY).await;
            }
        };
        stop.run_until_cancelled(sweeping).await;
    }

    /// Runs one sweep. A kind that fails is left to the next sweep and doesn't stop the others.
    async fn sweep(self, database: &Database) {
        // The database crate logs the failure; the next sweep tries again.
        let _ = store::end_replaced_webhooks(database).await;
        let _ = store::forget_batches(database).await;
        for (what, days) in self.limits() {
            let mut piece = PIECE;
            loop {
                match store::forget(database, what.as_str(), days, piece).await {
                    Ok((0,)) => break,
                    Ok(_) => {}
                    // The piece may have exceeded the time limit: retry with a smaller one.
                    Err(_) if piece > 1 => piece /= 2,
                    Err(_) => break,
                }
            }
        }
    }
}
