//! Retention: what is older than its owner wants to keep it is forgotten, in small pieces. What
//! makes a repeat a repeat is never forgotten.

mod store;

use std::time::Duration;

use letterbox_common::states::Forgotten;
use letterbox_database::Database;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;

/// How often everything is gone through.
const EVERY: Duration = Duration::from_secs(3600);
/// Signals or runs that one statement looks at.
const PIECE: i32 = 500;

/// For how many days things are kept; `None` is for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Bodies of signals.
    pub(crate) bodies: Option<u16>,
    /// Inputs of runs that are over.
    pub(crate) inputs: Option<u16>,
    /// Requests that such runs have sent.
    pub(crate) requests: Option<u16>,
    /// Such runs as a whole.
    pub(crate) runs: Option<u16>,
}

impl Retention {
    /// What is not kept for ever, with its days.
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

    /// Forgets what is due, every hour, until told to stop. Several workers may do it at once.
    pub(crate) async fn keep(self, database: Database, stop: CancellationToken) {
        let sweeping = async {
            loop {
                self.sweep(&database).await;
                tokio::time::sleep(EVERY).await;
            }
        };
        stop.run_until_cancelled(sweeping).await;
    }

    /// Goes through everything once. What fails is due the next time, and holds up nothing else.
    async fn sweep(self, database: &Database) {
        // A failure is logged where it happens; the next hour comes.
        let _ = store::end_replaced_webhooks(database).await;
        for (what, days) in self.limits() {
            let mut piece = PIECE;
            loop {
                match store::forget(database, what, days, piece).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    // Perhaps it was too much at once. A failure is logged where it happens.
                    Err(_) if piece > 1 => piece /= 2,
                    Err(_) => break,
                }
            }
        }
    }
}
