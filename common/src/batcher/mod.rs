//! Micro-batching: the items that many callers want handled at one moment are handled together.
//!
//! A task takes all items that wait, handles them, and takes those that have gathered meanwhile: a
//! single caller is served at once, and under load batches grow by themselves; if that is wanted,
//! they also gather for a moment behind a batch of several. Where there are several tasks, the
//! others help when a batch is full, or when the one at work is held up for more than some
//! milliseconds. The queue is bounded by count and by bytes, over all and for each party. The item
//! of a caller that has given up is dropped before it costs anything; once a batch is taken, it is
//! completed whether or not its callers still wait, even if the batcher is closed.

mod look_ups;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{timeout, timeout_at},
};
use tokio_util::task::TaskTracker;

pub use self::look_ups::{LookUp, LookUps};
use crate::{
    metrics,
    process::{
        shares::{Share, Shares},
        vital::vital,
    },
};

/// One party has one part in this many of what may wait: others are not refused for its flood.
const SHARE: usize = 4;

/// How long what waits is left to the next batch of a task that is at work.
const LEFT_FOR: Duration = Duration::from_millis(5);

/// The bounds of a batcher.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Maximum items that wait. More are refused.
    pub max_queued: usize,
    /// Maximum bytes of all unanswered items. More are refused.
    pub max_bytes: usize,
    /// Maximum items in one batch.
    pub max_batch: usize,
    /// Maximum bytes in one batch; a single item may have more.
    pub max_batch_bytes: usize,
    /// The number of tasks, and so the maximum batches in flight.
    pub max_in_flight: usize,
    /// How long to wait at most, behind a batch of several, until as many have come again.
    pub gather: Duration,
}

impl BatchLimits {
    /// Small items, one batch at a time, of a size that a statement handles quickly.
    pub const SMALL_ITEMS: Self = Self {
        max_queued: 4_096,
        max_bytes: 1 << 20,
        max_batch: 256,
        max_batch_bytes: 1 << 20,
        max_in_flight: 1,
        gather: Duration::ZERO,
    };

    /// What each party may have of it.
    fn shares(self) -> Shares<u128> {
        let bytes = self.max_bytes.div_ceil(SHARE);
        Shares::of_sized(self.max_queued.div_ceil(SHARE), bytes)
    }
}

/// The item of one caller, and the channel for its answer.
pub struct Asked<I, A> {
    /// What is to be handled.
    pub item: I,
    answer: oneshot::Sender<A>,
    room: BatchRoom,
    since: Instant,
}

/// What an item takes of a batcher until its caller is answered.
struct BatchRoom {
    bytes: OwnedSemaphorePermit,
    _share: Option<Share<u128>>,
}

impl<I, A> Asked<I, A> {
    /// Separates the item from the channel for its answer.
    pub fn split(self) -> (I, Answer<A>) {
        let answer = Answer {
            sender: self.answer,
            _room: self.room,
        };
        (self.item, answer)
    }
}

/// The channel for the answer to one caller. Its item counts until this is dropped.
pub struct Answer<A> {
    sender: oneshot::Sender<A>,
    _room: BatchRoom,
}

impl<A> Answer<A> {
    /// Answers the caller, if it still waits.
    pub fn give(self, answer: A) {
        // The caller may be gone.
        drop(self.sender.send(answer));
    }
}

/// The work of a batcher.
pub trait BatchWork: Send + Sync + 'static {
    /// What a caller wants handled.
    type Item: Send + 'static;
    /// What the caller is told.
    type Answer: Send + 'static;

    /// The number of bytes that an item counts for.
    fn bytes(_: &Self::Item) -> usize {
        size_of::<Self::Item>()
    }

    /// The party that an item belongs to, of those that must not crowd each other out.
    fn party(_: &Self::Item) -> Option<u128> {
        None
    }

    /// Handles a batch, which is never empty, and answers every caller.
    fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) -> impl Future<Output = ()> + Send;

    /// Called when a batch is done and no item waits.
    fn idle(&self) {}
}

/// The callers' handle of a batcher, which is closed when it is dropped.
pub struct Batcher<W: BatchWork> {
    asked: mpsc::Sender<Asked<W::Item, W::Answer>>,
    bytes: Arc<Semaphore>,
    shares: Shares<u128>,
}

impl<W: BatchWork> Batcher<W> {
    /// Starts a batcher as tasks of `tasks`. `name` labels the metrics.
    pub fn start(name: &'static str, limits: BatchLimits, work: W, tasks: &TaskTracker) -> Self {
        let (sender, receiver) = mpsc::channel(limits.max_queued);
        let waiting = Arc::new(Waiting {
            queued: Mutex::new(Queued {
                asked: receiver,
                first: None,
            }),
            turn: Mutex::new(()),
            is_held_up: AtomicBool::new(false),
            is_gathering: AtomicBool::new(false),
        });
        let work = Arc::new(work);
        for _ in 0..limits.max_in_flight {
            let working = work_in_batches(name, limits, waiting.clone(), work.clone());
            tasks.spawn(vital(name, working));
        }
        Self {
            asked: sender,
            bytes: Arc::new(Semaphore::new(limits.max_bytes)),
            shares: limits.shares(),
        }
    }

    /// Adds one item to the next batch and waits for its answer. Dropping the future before the
    /// batch is taken withdraws the item. `None` if nothing was done, because too much waits, over
    /// all or of this party; or if the work gave no answer.
    pub fn ask(&self, item: W::Item) -> impl Future<Output = Option<W::Answer>> + use<W> {
        let added = self.add(item);
        // Captures the receiver only, because the future of a request has room for all it may hold.
        async { added?.await.ok() }
    }

    /// Adds one item to the next batch and returns the receiver of its answer.
    fn add(&self, item: W::Item) -> Option<oneshot::Receiver<W::Answer>> {
        let length = W::bytes(&item);
        let bytes = u32::try_from(length).ok()?;
        let permit = self.bytes.clone().try_acquire_many_owned(bytes);
        let share = W::party(&item).map(|party| self.shares.take_sized(party, length));
        let room = BatchRoom {
            bytes: permit.ok()?,
            _share: match share {
                Some(None) => return None,
                share => share.flatten(),
            },
        };
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            item,
            answer,
            room,
            since: Instant::now(),
        };
        self.asked.try_send(asked).ok()?;
        Some(answered)
    }
}

/// What the tasks of a batcher share.
struct Waiting<W: BatchWork> {
    queued: Mutex<Queued<W>>,
    /// Held by the task whose batch others wait for: the first one that handles any.
    turn: Mutex<()>,
    /// That task takes long: nobody waits for it any more.
    is_held_up: AtomicBool,
    /// The task that has the queue has an item, too: it waits for the turn, or gathers.
    is_gathering: AtomicBool,
}

/// The items that wait to be taken.
struct Queued<W: BatchWork> {
    asked: mpsc::Receiver<Asked<W::Item, W::Answer>>,
    /// The first item of the next batch.
    first: Option<Asked<W::Item, W::Answer>>,
}

impl<W: BatchWork> Queued<W> {
    fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.first.is_none()
    }

    /// Waits until there is an item; false when the queue is closed and empty.
    async fn has_next(&mut self, work: &W) -> bool {
        // The last callers may have given up: then no batch follows that reports it.
        if self.is_empty() {
            work.idle();
        }
        if self.first.is_none() {
            self.first = self.asked.recv().await;
        }
        self.first.is_some()
    }

    /// Takes the next batch; while it has fewer than `wanted`, also what comes before `until`. It
    /// is empty if the callers of all items have given up.
    async fn take(
        &mut self,
        limits: BatchLimits,
        (wanted, until): (usize, Instant),
    ) -> Vec<Asked<W::Item, W::Answer>> {
        let mut batch = Vec::new();
        self.fill(&mut batch, limits);
        while batch.len() < wanted
            && self.first.is_none()
            && Instant::now() < until
            && let Ok(Some(next)) = timeout_at(until.into(), self.asked.recv()).await
        {
            self.first = Some(next);
            self.fill(&mut batch, limits);
        }
        batch
    }

    /// Adds what waits to a batch.
    fn fill(&mut self, batch: &mut Vec<Asked<W::Item, W::Answer>>, limits: BatchLimits) {
        let of = |one: &Asked<_, _>| one.room.bytes.num_permits();
        let mut bytes: usize = batch.iter().map(of).sum();
        while batch.len() < limits.max_batch
            && let Some(next) = self.first.take().or_else(|| self.asked.try_recv().ok())
        {
            if next.answer.is_closed() {
                continue;
            }
            bytes += of(&next);
            if bytes > limits.max_batch_bytes && !batch.is_empty() {
                self.first = Some(next);
                break;
            }
            batch.push(next);
        }
    }
}

/// Takes batches and handles them until the queue is closed and empty. What does not fill a batch
/// waits until another task is done with its own, if that is soon: two small batches cost more than
/// one.
async fn work_in_batches<W: BatchWork>(
    name: &'static str,
    limits: BatchLimits,
    waiting: Arc<Waiting<W>>,
    work: Arc<W>,
) {
    // How many are gathered behind the last batch, and until when.
    let mut gathered = (0, Instant::now());
    loop {
        let mut queued = waiting.queued.lock().await;
        // Did not fit into the last batch.
        let is_left = queued.first.is_some();
        if !queued.has_next(&work).await {
            return;
        }
        waiting.is_gathering.store(true, Ordering::Relaxed);
        let is_full = is_left || queued.asked.len() + 1 >= limits.max_batch;
        let turn = match is_full || waiting.is_held_up.load(Ordering::Relaxed) {
            true => waiting.turn.try_lock().ok(),
            false => {
                let turn = timeout(LEFT_FOR, waiting.turn.lock()).await.ok();
                waiting.is_held_up.store(turn.is_none(), Ordering::Relaxed);
                turn
            }
        };
        let batch = queued.take(limits, gathered).await;
        waiting.is_gathering.store(false, Ordering::Relaxed);
        drop(queued);
        let Some(oldest) = batch.first() else {
            continue;
        };
        metrics::BATCH_SIZE.record([name], batch.len() as f64);
        metrics::BATCH_WAIT.record([name], oldest.since.elapsed());
        let number = batch.len();
        work.run(batch).await;
        gathered = (number, Instant::now() + limits.gather);
        if turn.is_some() {
            waiting.is_held_up.store(false, Ordering::Relaxed);
        }
        drop(turn);
        if waiting.is_empty() {
            work.idle();
        }
    }
}

impl<W: BatchWork> Waiting<W> {
    /// Whether no item waits.
    fn is_empty(&self) -> bool {
        match self.queued.try_lock() {
            Ok(queued) => queued.is_empty(),
            Err(_) => !self.is_gathering.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
