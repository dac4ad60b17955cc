//! Retention: deletes data older than the configured age, in small pieces. The keys by which
//! repeats are recognized are never deleted.

use std::time::Duration;

use clap::Args;
use letterbox_common::states::Forgotten;
use letterbox_database::{Database, statements};
use tokio_util::sync::CancellationToken;

/// Time between two sweeps.
const EVERY: Duration = Duration::from_secs(3600);
/// Maximum number of signals or runs that one statement examines.
const PIECE: i32 = 500;

statements! {
    /// Deletes one piece of the data older than so many days. Returns how many rows were examined;
    /// 0 when nothing is left.
    fn forget(what: Forgotten, days: i32, most: i32) -> (i32,) = "
SELECT forget($1, $2, $3) AS looked_at";

    /// Destroys the secrets of replaced webhooks whose grace period is over.
    fn end_replaced_webhooks() = "SELECT end_replaced_webhooks() AS ended";

    /// Deletes batches whose gateway died and whose claims others have taken over.
    fn forget_batches() = "SELECT forget_batches() AS forgotten";

    /// Deletes counts of stored bytes older than a week.
    fn sweep_stored_bytes() = "
DELETE FROM stored_bytes WHERE day < (now() AT TIME ZONE 'UTC')::date - 7";
}

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
        let _ = end_replaced_webhooks(database).await;
        let _ = forget_batches(database).await;
        let _ = sweep_stored_bytes(database).await;
        for (what, days) in [
            (Forgotten::Bodies, self.bodies),
            (Forgotten::Inputs, self.inputs),
            (Forgotten::Requests, self.requests),
            (Forgotten::Runs, self.runs),
        ] {
            if let Some(days) = days {
                forget_older(database, what, days.into()).await;
            }
        }
    }
}

/// Deletes what is older, piece by piece.
async fn forget_older(database: &Database, what: Forgotten, days: i32) {
    let mut piece = PIECE;
    loop {
        match forget(database, what, days, piece).await {
            Ok((0,)) => return,
            Ok(_) => {}
            // The piece may have exceeded the time limit: retry with a smaller one.
            Err(_) if piece > 1 => piece /= 2,
            Err(_) => return,
        }
    }
}
