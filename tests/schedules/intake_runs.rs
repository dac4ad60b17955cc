//! The batcher, the lanes of a gateway and their settlements, while several senders post the same
//! keys, hang up, statements fail, messages are not confirmed, and the gateway stops.

use std::sync::Arc;

use bytes::Bytes;
use common::ids::{ReleaseId, RunId, WorkflowId, WorkspaceId};
use jiff::Timestamp;
use letterbox_broker::{FormSubmission, MAX_LINE, Receipt};
use shuttle::rand::{Rng, thread_rng};
use shuttle_tokio::{select, spawn, task::yield_now};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    batcher::{BatchLimits, Batcher, Unanswered},
    broker::dawdle,
    claims::{ClaimKey, Claims, Outcome},
    database::Database,
    item::IntakeItem,
    lane::{Lane, LaneParts},
    open_batches::{Outlet, Settlements, Spill},
    reach,
    work_queues::WorkQueues,
};

const SENDERS: usize = 4;
const POSTS: usize = 3;
const KEYS: u32 = 3;
const LIMITS: BatchLimits = BatchLimits {
    max_queued: 64,
    max_bytes: 1 << 20,
    max_batch: 3,
    // The third of them is held over for the next.
    max_batch_bytes: 2 * (MAX_LINE + 1),
    max_in_flight: 2,
};

/// A submission under a key that is a number.
struct Posted {
    key: u32,
    workspace: WorkspaceId,
    receipt: Receipt,
}

impl Posted {
    fn new(key: u32) -> Self {
        // Each key in a workspace of its own, so that there are messages for two queues.
        let workspace = format!("00000000-0000-4000-8000-{key:012x}");
        let receipt = Receipt {
            received_at: Timestamp::UNIX_EPOCH,
            traceparent: String::new(),
            request_id: None,
        };
        Self {
            key,
            workspace: workspace.parse().expect("it is an id"),
            receipt,
        }
    }
}

impl ClaimKey for u32 {
    type Id = u32;

    fn number(self) -> u32 {
        self
    }
}

impl IntakeItem for Posted {
    type Key = u32;
    type Entry = FormSubmission;

    const NAME: &'static str = "posted";

    fn key(&self) -> u32 {
        self.key
    }

    fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    fn length(&self) -> usize {
        1
    }

    fn into_entry(self, id: u32) -> (FormSubmission, Bytes) {
        assert_eq!(id, self.key);
        let entry = FormSubmission {
            run: RunId::generate(),
            workspace: self.workspace,
            workflow: WorkflowId::generate(),
            release: ReleaseId::generate(),
            key: None,
            receipt: self.receipt,
        };
        (entry, Bytes::from_static(b"x"))
    }
}

fn parts(database: &Database, settlements: &Arc<Settlements>) -> LaneParts {
    let claims = Claims {
        database: database.clone(),
        settlements: settlements.clone(),
    };
    LaneParts {
        claims,
        outlet: Arc::new(Outlet(database.clone())),
        spill: Arc::new(Spill(database.clone())),
        settlements: settlements.clone(),
        work_queues: Arc::new(WorkQueues),
    }
}

/// Posts keys; what is answered as recorded is, and a repeat after that is told so.
async fn post(lanes: Batcher<Lane<Posted>>, database: Database) {
    for _ in 0..POSTS {
        let key = thread_rng().gen_range(0..KEYS);
        let asking = lanes.ask(Posted::new(key));
        let answer = if thread_rng().gen_ratio(1, 4) {
            select! {
                answer = asking => answer,
                () = dawdle(12) => { reach("hung up"); continue }
            }
        } else {
            asking.await
        };
        assert_ne!(answer, Err(Unanswered::Lost));
        let outcome = answer.unwrap_or(Outcome::Unavailable);
        if matches!(outcome, Outcome::First | Outcome::Duplicate) {
            assert!(
                database.tables().is_safe(key),
                "{outcome:?} and not recorded: {key}"
            );
            // Not always: it would close the batch.
            if thread_rng().gen_bool(0.5) {
                let again = lanes.ask(Posted::new(key)).await;
                let is_told = matches!(
                    again,
                    Ok(Outcome::Duplicate | Outcome::Unavailable) | Err(_)
                );
                assert!(is_told, "{again:?} after {outcome:?}");
            }
        }
        reach(match outcome {
            Outcome::First => "first",
            Outcome::Duplicate => "duplicate",
            Outcome::InProgress => "in progress",
            Outcome::Unavailable => "unavailable",
        });
    }
}

/// Nobody is answered before it is true, nothing is claimed that is not published in its batch, and
/// whoever hangs up, and whatever fails: no batch stays open without anybody working on it.
pub async fn every_sender_is_answered_and_no_batch_stays_open() {
    let (database, settlements) = (Database::default(), Arc::<Settlements>::default());
    database.tables().failing = thread_rng().gen_range(0..4);
    let (lane_tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let lanes = Lane::new(parts(&database, &settlements));
    let limits = BatchLimits {
        max_in_flight: thread_rng().gen_range(1..=2),
        ..LIMITS
    };
    let lanes = Batcher::start("posted", limits, lanes, &lane_tasks);
    let writing = spawn(settlements.clone().run(database.clone(), stop.clone()));
    let post = |_| spawn(post(lanes.clone(), database.clone()));
    let senders: Vec<_> = (0..SENDERS).map(post).collect();
    for sender in senders {
        sender.await.expect("it does not panic");
    }
    // Batches that are not spilled are closed or free without another claim, and before a stop.
    let is_stopped = thread_rng().gen_bool(0.5);
    let is_open = |database: &Database| {
        let tables = database.tables();
        tables
            .open
            .values()
            .any(|row| !row.is_spilled && !row.lease_is_over)
    };
    while !is_stopped && is_open(&database) {
        yield_now().await;
    }
    drop(lanes);
    lane_tasks.close();
    lane_tasks.wait().await;
    // What is known is written once after the stop, by a database that answers.
    database.tables().failing = 0;
    stop.cancel();
    writing.await.expect("it does not panic");
    assert!(!is_open(&database), "a batch stays open");
    let tables = database.tables();
    let is_settled = |batch| tables.open.get(batch).is_none_or(|row| row.is_spilled);
    let known = tables.confirmed.iter().all(is_settled);
    assert!(known, "a confirmed batch stays open");
    assert!(settlements.confirmed().is_empty());
}
