//! Micro-batching: what many callers want at one moment goes to the database as one statement.
//!
//! There is no artificial delay. A worker takes whatever waits, works on it, and takes what has
//! gathered meanwhile: a single caller is served at once, and under load batches grow by
//! themselves. The queue is bounded, each caller gets its own answer, a failed batch answers every
//! caller in it, and when the batcher is closed what was taken is still done.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::metrics;

/// The bounds of a batcher.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Callers that may wait. One more is refused.
    pub(crate) max_queued: usize,
    /// Items in one batch.
    pub(crate) max_batch: usize,
    /// Batches in flight at once.
    pub(crate) max_in_flight: usize,
}

/// What a batcher does with a batch: one output for each item, in the items' order.
pub(crate) trait BatchWork: Send + Sync + 'static {
    type Item: Send + 'static;
    type Output: Send + 'static;
    type Error: Clone + Send + 'static;

    fn run(
        &self,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Result<Vec<Self::Output>, Self::Error>> + Send;
}

/// Why a caller has no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError<E> {
    /// Too many callers are waiting, or the batcher is closed.
    Overloaded,
    /// The batch failed. Whether its work took effect is unknown.
    Failed(E),
    /// The batch ended without an answer: its work panicked.
    Lost,
}

type Entry<W> = (<W as BatchWork>::Item, AnswerSender<W>);
type AnswerSender<W> = oneshot::Sender<Result<<W as BatchWork>::Output, <W as BatchWork>::Error>>;

/// What callers hold. Closed when all clones are dropped.
pub(crate) struct Batcher<W: BatchWork> {
    entries: mpsc::Sender<Entry<W>>,
}

impl<W: BatchWork> Clone for Batcher<W> {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
        }
    }
}

impl<W: BatchWork> Batcher<W> {
    /// Starts the workers as tasks of `tasks`. `name` labels the metrics.
    pub(crate) fn start(name: &'static str, limits: Limits, work: W, tasks: &TaskTracker) -> Self {
        let (sender, receiver) = mpsc::channel(limits.max_queued);
        let (receiver, work) = (Arc::new(Mutex::new(receiver)), Arc::new(work));
        for _ in 0..limits.max_in_flight {
            let working = work_in_batches(name, limits.max_batch, receiver.clone(), work.clone());
            tasks.spawn(working);
        }
        Self { entries: sender }
    }

    /// Adds one item to the next batch and waits for its output.
    ///
    /// # Errors
    /// See [`BatchError`].
    pub(crate) async fn submit(&self, item: W::Item) -> Result<W::Output, BatchError<W::Error>> {
        let (answer, answered) = oneshot::channel();
        self.entries
            .try_send((item, answer))
            .map_err(|_| BatchError::Overloaded)?;
        answered
            .await
            .map_err(|_| BatchError::Lost)?
            .map_err(BatchError::Failed)
    }
}

/// Takes a batch, lets the next worker take the following one, works, answers; until the queue is
/// closed and empty.
async fn work_in_batches<W: BatchWork>(
    name: &'static str,
    max_batch: usize,
    entries: Arc<Mutex<mpsc::Receiver<Entry<W>>>>,
    work: Arc<W>,
) {
    loop {
        let mut batch = Vec::new();
        if entries.lock().await.recv_many(&mut batch, max_batch).await == 0 {
            return;
        }
        metrics::BATCH_SIZE.record([name], batch.len());
        let (items, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        match work.run(items).await {
            Ok(outputs) => {
                debug_assert_eq!(outputs.len(), answers.len(), "one output for each item");
                // A caller may have gone away.
                answers
                    .into_iter()
                    .zip(outputs)
                    .for_each(|(answer, output)| drop(answer.send(Ok(output))));
            }
            Err(error) => answers
                .into_iter()
                .for_each(|answer| drop(answer.send(Err(error.clone())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, sync::atomic::Ordering::SeqCst, time::Duration};

    use super::*;

    /// Doubles numbers; fails a batch with an odd one; holds each batch until the gate has a
    /// permit.
    struct Doubling {
        gate: Arc<tokio::sync::Semaphore>,
        batches: Arc<AtomicUsize>,
    }

    impl BatchWork for Doubling {
        type Item = u32;
        type Output = u32;
        type Error = &'static str;

        async fn run(&self, items: Vec<u32>) -> Result<Vec<u32>, &'static str> {
            self.gate.acquire().await.unwrap().forget();
            self.batches.fetch_add(1, SeqCst);
            if items.iter().any(|n| n % 2 == 1) {
                Err("odd")
            } else {
                Ok(items.into_iter().map(|n| n * 2).collect())
            }
        }
    }

    struct Bench {
        batcher: Batcher<Doubling>,
        gate: Arc<tokio::sync::Semaphore>,
        batches: Arc<AtomicUsize>,
        tasks: TaskTracker,
    }

    fn bench(limits: Limits) -> Bench {
        let (gate, batches, tasks) = (
            Arc::new(tokio::sync::Semaphore::new(0)),
            Arc::default(),
            TaskTracker::new(),
        );
        let work = Doubling {
            gate: gate.clone(),
            batches: Arc::clone(&batches),
        };
        Bench {
            batcher: Batcher::start("test", limits, work, &tasks),
            gate,
            batches,
            tasks,
        }
    }

    #[tokio::test]
    async fn items_that_arrive_during_a_batch_go_into_the_next() {
        let bench = bench(Limits {
            max_queued: 100,
            max_batch: 100,
            max_in_flight: 1,
        });
        let callers: Vec<_> = (0..50_u32)
            .map(|n| {
                let batcher = bench.batcher.clone();
                tokio::spawn(async move { batcher.submit(n * 2).await })
            })
            .collect();
        tokio::task::yield_now().await;
        bench.gate.add_permits(2);
        for (n, caller) in callers.into_iter().enumerate() {
            assert_eq!(
                caller.await.unwrap(),
                Ok(n as u32 * 4),
                "each caller has its own answer"
            );
        }
        assert!(bench.batches.load(SeqCst) <= 2);
    }

    #[tokio::test]
    async fn a_failed_batch_answers_every_caller_and_the_next_one_works() {
        let bench = bench(Limits {
            max_queued: 100,
            max_batch: 100,
            max_in_flight: 1,
        });
        bench.gate.add_permits(10);
        let (one, two) = tokio::join!(bench.batcher.submit(1), bench.batcher.submit(2));
        assert_eq!(
            (one, two),
            (
                Err(BatchError::Failed("odd")),
                Err(BatchError::Failed("odd"))
            )
        );
        assert_eq!(bench.batcher.submit(4).await, Ok(8));
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let bench = bench(Limits {
            max_queued: 2,
            max_batch: 1,
            max_in_flight: 1,
        });
        let mut waiting: Vec<_> = Vec::new();
        // One is under way, two wait, the fourth is refused.
        for n in [2, 4, 6] {
            let batcher = bench.batcher.clone();
            waiting.push(tokio::spawn(async move { batcher.submit(n).await }));
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.batcher.submit(8).await, Err(BatchError::Overloaded));
        bench.gate.add_permits(3);
        for caller in waiting {
            assert!(caller.await.unwrap().is_ok());
        }
    }

    #[tokio::test]
    async fn closing_finishes_what_was_taken() {
        let bench = bench(Limits {
            max_queued: 10,
            max_batch: 1,
            max_in_flight: 2,
        });
        let callers: Vec<_> = [2, 4, 6]
            .map(|n| {
                let batcher = bench.batcher.clone();
                tokio::spawn(async move { batcher.submit(n).await })
            })
            .into();
        tokio::task::yield_now().await;
        drop(bench.batcher);
        bench.tasks.close();
        bench.gate.add_permits(3);
        tokio::time::timeout(Duration::from_secs(5), bench.tasks.wait())
            .await
            .expect("the workers end");
        for caller in callers {
            assert!(caller.await.unwrap().is_ok());
        }
    }
}
