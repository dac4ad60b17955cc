//! One look at everything: what is ready, what waits and for how long, and whether something is
//! late.

use std::collections::BTreeMap;

use jiff::Timestamp;
use letterbox_broker::{BrokerTarget, QueueLength, queue_lengths, topology::DEAD_LETTERS_QUEUE};
use letterbox_common::ids::WorkspaceId;
use serde::Serialize;

use crate::{Operator, OperatorError, PROGRAM, dead_letters, store};

/// What has waited for longer than this is late.
const LATE_SECONDS: f64 = 60.0;

/// Why something is late.
const UNPUBLISHED: &str = "for over a minute nobody has published it";
const UNTAKEN: &str = "for over a minute no worker has taken it";
const UNCONSUMED: &str = "no worker consumes this queue";
const DEAD: &str = "could not be processed: see dead-letters list";

/// A part that everything else needs.
#[derive(Debug, Clone, Serialize)]
pub struct Part {
    /// What it is.
    pub part: &'static str,
    /// Whether it does its work.
    pub is_ready: bool,
    /// How it is.
    pub detail: String,
}

/// What waits, of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct BacklogKind {
    /// What it is.
    pub kind: String,
    /// How much of it there is.
    pub count: i64,
    /// How long the oldest of it has been waiting, in seconds; None where that is not known.
    pub oldest_seconds: Option<f64>,
    /// Why somebody should look; None where it is not late.
    pub late_because: Option<&'static str>,
}

/// A workspace whose runs begin nothing.
#[derive(Debug, Clone, Serialize)]
pub struct Held {
    /// None for all workspaces.
    pub workspace_id: Option<WorkspaceId>,
    /// For people.
    pub name: String,
    /// Since when, by the database's clock.
    pub held_at: Timestamp,
}

/// Everything at one look.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Whether a part is not ready, or something waits for too long.
    pub is_late: bool,
    /// The parts that everything else needs.
    pub parts: Vec<Part>,
    /// What waits.
    pub backlog: Vec<BacklogKind>,
    /// Runs that are not over, by state.
    pub runs: BTreeMap<String, i64>,
    /// Runs that ended in the last hour, by state.
    pub ended_last_hour: BTreeMap<String, i64>,
    /// What is held.
    pub held: Vec<Held>,
}

impl Operator {
    /// One look at everything; of the queues where a broker is given.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn status(&self, broker: Option<&BrokerTarget>) -> Result<Status, OperatorError> {
        let known = store::backlog(&self.database).await?;
        let mut parts = vec![
            Part {
                part: "database",
                is_ready: true,
                detail: "answers".to_owned(),
            },
            Part {
                part: "workers",
                is_ready: known.workers > 0 && known.has_relay,
                detail: match (known.workers, known.has_relay) {
                    (0, _) => "none is alive: runs wait".to_owned(),
                    (_, false) => "none hands over runs".to_owned(),
                    (workers, true) => format!("{workers} alive, {} places", known.places),
                },
            },
        ];
        let mut backlog = Vec::new();
        if let Some(broker) = broker {
            let lengths = queue_lengths(broker, PROGRAM, known.queues).await;
            parts.push(Part {
                part: "broker",
                is_ready: lengths.is_ok(),
                detail: match &lengths {
                    Ok(_) => "answers".to_owned(),
                    Err(error) => error.to_string(),
                },
            });
            for length in lengths.iter().flatten() {
                backlog.push(queue(broker, length).await);
            }
        }
        let late = |seconds: Option<f64>, because: &'static str| {
            seconds.and_then(|seconds| (seconds > LATE_SECONDS).then_some(because))
        };
        let kind = |kind: &str, waiting: store::Waiting, late_because: Option<_>| BacklogKind {
            kind: kind.to_owned(),
            count: waiting.count,
            oldest_seconds: waiting.oldest_seconds,
            late_because,
        };
        let (open, spilled) = (known.open_batches, known.spilled);
        backlog.extend([
            kind(
                "spilled batches",
                spilled,
                late(spilled.oldest_seconds, UNPUBLISHED),
            ),
            kind("interrupted batches", open, None),
            kind(
                "due runs",
                known.due_runs,
                late(known.due_late_seconds, UNTAKEN),
            ),
            // A person takes the time that a person takes.
            kind("approvals", known.approvals, None),
        ]);
        let held = known.held.into_iter();
        let held = held.map(|(workspace_id, name, held_at)| Held {
            workspace_id,
            name,
            held_at,
        });
        Ok(Status {
            is_late: parts.iter().any(|part| !part.is_ready)
                || backlog.iter().any(|kind| kind.late_because.is_some()),
            parts,
            backlog,
            runs: known.under_way,
            ended_last_hour: known.ended,
            held: held.collect(),
        })
    }
}

/// A queue that nobody takes from is late as soon as something is in it; so is a dead letter.
async fn queue(broker: &BrokerTarget, length: &QueueLength) -> BacklogKind {
    let is_dead = length.queue == DEAD_LETTERS_QUEUE;
    let dead_since = match is_dead && length.ready > 0 {
        true => dead_letters::oldest(broker).await.ok().flatten(),
        false => None,
    };
    let age = dead_since.map(|since| Timestamp::now().duration_since(since).as_secs_f64());
    let late_because = match (length.ready, length.consumers) {
        (0, _) => None,
        _ if is_dead => Some(DEAD),
        (_, 0) => Some(UNCONSUMED),
        _ => None,
    };
    BacklogKind {
        kind: length.queue.clone(),
        count: i64::from(length.ready),
        oldest_seconds: age,
        late_because,
    }
}
