//! Micro-batching: what many callers want at one moment is done at once.
//!
//! There is no artificial delay. A worker takes whatever waits, works on it, and takes what has
//! gathered meanwhile: a single caller is served at once, and under load batches grow by
//! themselves. What waits is bounded by count and by bytes. Whoever has given up waiting is dropped
//! before it costs anything; from the moment a batch is taken, its work is done whether or not
//! anybody still waits, also when the batcher is closed.

mod look_ups;

use std::{sync::Arc, time::Instant};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

pub(crate) use self::look_ups::{LookUp, LookUps};
use crate::metrics;
use letterbox_common::process::vital::vital;

/// The bounds of a batcher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Callers that may wait. One more is refused.
    pub(crate) max_queued: usize,
    /// Bytes of all items that wait or are worked on. One more item is refused.
    pub(crate) max_bytes: usize,
    /// Items in one batch.
    pub(crate) max_batch: usize,
    /// Bytes in one batch; a single item may have more.
    pub(crate) max_batch_bytes: usize,
    /// Batches in flight at once.
    pub(crate) max_in_flight: usize,
}

/// Nobody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Too much is waiting, or the batcher is closed. Nothing was done.
    Overloaded,
    /// The work panicked. What it has done is unknown.
    Lost,
}

/// One caller's item, and the way back to its caller.
pub(crate) struct Asked<I, A> {
    pub(crate) item: I,
    answer: oneshot::Sender<A>,
    bytes: OwnedSemaphorePermit,
    since: Instant,
}

impl<I, A> Asked<I, A> {
    /// Separates the item from the way back.
    pub(crate) fn split(self) -> (I, Answer<A>) {
        let answer = Answer {
            sender: self.answer,
            _bytes: self.bytes,
        };
        (self.item, answer)
    }
}

/// The way back to a caller. Its item counts as long as this lives.
pub(crate) struct Answer<A> {
    sender: oneshot::Sender<A>,
    _bytes: OwnedSemaphorePermit,
}

impl<A> Answer<A> {
    /// Answers the caller, if it still waits.
    pub(crate) fn give(self, answer: A) {
        // A caller may have gone away.
        drop(self.sender.send(answer));
    }
}

/// What a batcher does with a batch.
pub(crate) trait BatchWork: Send + Sync + 'static {
    type Item: Send + 'static;
    type Answer: Send + 'static;

    /// What an item counts for.
    fn bytes(_: &Self::Item) -> usize {
        size_of::<Self::Item>()
    }

    /// Does the work and answers every caller. Never an empty batch.
    fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) -> impl Future<Output = ()> + Send;

    /// Called when a batch is done and nothing more is waiting.
    fn idle(&self) {}
}

/// What callers hold. Closed when all clones are dropped.
pub(crate) struct Batcher<W: BatchWork> {
    asked: mpsc::Sender<Asked<W::Item, W::Answer>>,
    bytes: Arc<Semaphore>,
}

impl<W: BatchWork> Clone for Batcher<W> {
    fn clone(&self) -> Self {
        Self {
            asked: self.asked.clone(),
            bytes: self.bytes.clone(),
        }
    }
}

impl<W: BatchWork> Batcher<W> {
    /// Starts the workers as tasks of `tasks`. `name` labels the metrics.
    pub(crate) fn start(name: &'static str, limits: Limits, work: W, tasks: &TaskTracker) -> Self {
        let (sender, receiver) = mpsc::channel(limits.max_queued);
        let waiting = Waiting {
            asked: receiver,
            held_over: None,
        };
        let (waiting, work) = (Arc::new(Mutex::new(waiting)), Arc::new(work));
        for _ in 0..limits.max_in_flight {
            let working = work_in_batches(name, limits, waiting.clone(), work.clone());
            tasks.spawn(vital(name, working));
        }
        Self {
            asked: sender,
            bytes: Arc::new(Semaphore::new(limits.max_bytes)),
        }
    }

    /// Adds one item to the next batch and waits for its answer. Dropped before the batch is taken,
    /// it leaves nothing behind.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub(crate) fn ask(
        &self,
        item: W::Item,
    ) -> impl Future<Output = Result<W::Answer, Unanswered>> + use<W> {
        let added = self.add(item);
        // Holds the way back only: futures of requests are as large as what they might hold.
        async { added?.await.map_err(|_| Unanswered::Lost) }
    }

    /// Adds one item to the next batch. Gives the way on which its answer comes.
    fn add(&self, item: W::Item) -> Result<oneshot::Receiver<W::Answer>, Unanswered> {
        let bytes = u32::try_from(W::bytes(&item)).map_err(|_| Unanswered::Overloaded)?;
        let permit = self.bytes.clone().try_acquire_many_owned(bytes);
        let bytes = permit.map_err(|_| Unanswered::Overloaded)?;
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            item,
            answer,
            bytes,
            since: Instant::now(),
        };
        self.asked
            .try_send(asked)
            .map_err(|_| Unanswered::Overloaded)?;
        Ok(answered)
    }
}

/// What waits to be taken.
struct Waiting<W: BatchWork> {
    asked: mpsc::Receiver<Asked<W::Item, W::Answer>>,
    /// Did not fit into the last batch.
    held_over: Option<Asked<W::Item, W::Answer>>,
}

impl<W: BatchWork> Waiting<W> {
    /// The next batch; none when the queue is closed and empty.
    async fn next(&mut self, limits: Limits, work: &W) -> Option<Vec<Asked<W::Item, W::Answer>>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < limits.max_batch {
            let next = match self.held_over.take() {
                Some(asked) => asked,
                None if batch.is_empty() => {
                    if self.asked.is_empty() {
                        work.idle();
                    }
                    self.asked.recv().await?
                }
                None => match self.asked.try_recv() {
                    Ok(asked) => asked,
                    Err(_) => break,
                },
            };
            if next.answer.is_closed() {
                continue;
            }
            bytes += next.bytes.num_permits();
            if bytes > limits.max_batch_bytes && !batch.is_empty() {
                self.held_over = Some(next);
                break;
            }
            batch.push(next);
        }
        Some(batch)
    }
}

/// Takes a batch, lets the next worker take the following one, works; until the queue is closed and
/// empty.
async fn work_in_batches<W: BatchWork>(
    name: &'static str,
    limits: Limits,
    waiting: Arc<Mutex<Waiting<W>>>,
    work: Arc<W>,
) {
    loop {
        let Some(batch) = waiting.lock().await.next(limits, &work).await else {
            return;
        };
        metrics::BATCH_SIZE.record([name], batch.len());
        if let Some(oldest) = batch.first() {
            metrics::BATCH_WAIT.record([name], oldest.since.elapsed());
        }
        work.run(batch).await;
        if is_empty(&waiting) {
            work.idle();
        }
    }
}

/// Whether nothing waits. Where another worker holds the lock, it waits for the next item itself.
fn is_empty<W: BatchWork>(waiting: &Mutex<Waiting<W>>) -> bool {
    match waiting.try_lock() {
        Ok(waiting) => waiting.asked.is_empty() && waiting.held_over.is_none(),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests;
