//! Micro-batching: what many callers want at one moment is done at once.
//!
//! There is no artificial delay. A worker takes whatever waits, works on it, and takes what has
//! gathered meanwhile: a single caller is served at once, and under load batches grow by
//! themselves. What waits is bounded by count and by bytes. Whoever has given up waiting is dropped
//! before it costs anything; from the moment a batch is taken, its work is done whether or not
//! anybody still waits, also when the batcher is closed.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::metrics;

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
            tasks.spawn(working);
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
    pub(crate) async fn ask(&self, item: W::Item) -> Result<W::Answer, Unanswered> {
        let bytes = u32::try_from(W::bytes(&item)).map_err(|_| Unanswered::Overloaded)?;
        let permit = self.bytes.clone().try_acquire_many_owned(bytes);
        let bytes = permit.map_err(|_| Unanswered::Overloaded)?;
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            item,
            answer,
            bytes,
        };
        self.asked
            .try_send(asked)
            .map_err(|_| Unanswered::Overloaded)?;
        answered.await.map_err(|_| Unanswered::Lost)
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

/// Work that gives one output for each item, all at the same time.
pub(crate) trait LookUp: Send + Sync + 'static {
    type Item: Send + 'static;
    type Output: Send + 'static;
    type Error: Clone + Send + 'static;

    /// One output for each item, in the items' order.
    fn look_up(
        &self,
        items: Vec<Self::Item>,
    ) -> impl Future<Output = Result<Vec<Self::Output>, Self::Error>> + Send;
}

/// Why a look-up has no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LookUpError<E> {
    /// Nobody answers.
    Unanswered(Unanswered),
    /// The batch failed.
    Failed(E),
}

/// Look-ups as the work of a batcher.
pub(crate) struct LookUps<L>(pub(crate) L);

impl<L: LookUp> BatchWork for LookUps<L> {
    type Item = L::Item;
    type Answer = Result<L::Output, L::Error>;

    async fn run(&self, batch: Vec<Asked<Self::Item, Self::Answer>>) {
        let (items, answers): (Vec<_>, Vec<_>) = batch.into_iter().map(Asked::split).unzip();
        match self.0.look_up(items).await {
            Ok(outputs) => {
                debug_assert_eq!(outputs.len(), answers.len(), "one output for each item");
                let pairs = answers.into_iter().zip(outputs);
                pairs.for_each(|(answer, output)| answer.give(Ok(output)));
            }
            Err(error) => answers
                .into_iter()
                .for_each(|answer| answer.give(Err(error.clone()))),
        }
    }
}

impl<L: LookUp> Batcher<LookUps<L>> {
    /// Looks one item up.
    ///
    /// # Errors
    /// See [`LookUpError`].
    pub(crate) async fn look_up(&self, item: L::Item) -> Result<L::Output, LookUpError<L::Error>> {
        self.ask(item)
            .await
            .map_err(LookUpError::Unanswered)?
            .map_err(LookUpError::Failed)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicUsize, sync::atomic::Ordering::SeqCst, time::Duration};

    use super::*;

    const LIMITS: Limits = Limits {
        max_queued: 100,
        max_bytes: 1_000,
        max_batch: 100,
        max_batch_bytes: 1_000,
        max_in_flight: 1,
    };

    /// Doubles numbers; fails a batch with an odd one; holds each batch until the gate has a
    /// permit.
    struct Doubling {
        gate: Arc<Semaphore>,
        batches: Arc<AtomicUsize>,
    }

    /// Answers when the gate has a permit; counts how often nothing was waiting.
    struct Idling {
        gate: Arc<Semaphore>,
        idle: Arc<AtomicUsize>,
    }

    impl BatchWork for Idling {
        type Item = ();
        type Answer = ();

        async fn run(&self, batch: Vec<Asked<(), ()>>) {
            self.gate.acquire().await.unwrap().forget();
            batch.into_iter().for_each(|asked| asked.split().1.give(()));
        }

        fn idle(&self) {
            self.idle.fetch_add(1, SeqCst);
        }
    }

    #[tokio::test]
    async fn it_is_idle_also_when_the_last_one_in_the_queue_has_given_up() {
        let (gate, idle) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = Idling {
            gate: gate.clone(),
            idle: idle.clone(),
        };
        let batcher = Batcher::start("test", LIMITS, work, &TaskTracker::new());
        let ask = || {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.ask(()).await })
        };
        let first = ask();
        tokio::task::yield_now().await;
        let gone = ask();
        tokio::task::yield_now().await;
        let before = idle.load(SeqCst);
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        gate.add_permits(1);
        assert_eq!(first.await.unwrap(), Ok(()));
        tokio::task::yield_now().await;
        assert!(idle.load(SeqCst) > before);
    }

    impl LookUp for Doubling {
        type Item = u32;
        type Output = u32;
        type Error = &'static str;

        async fn look_up(&self, items: Vec<u32>) -> Result<Vec<u32>, &'static str> {
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
        batcher: Batcher<LookUps<Doubling>>,
        gate: Arc<Semaphore>,
        batches: Arc<AtomicUsize>,
        tasks: TaskTracker,
    }

    fn bench(limits: Limits) -> Bench {
        let (gate, batches, tasks) = (
            Arc::new(Semaphore::new(0)),
            Arc::default(),
            TaskTracker::new(),
        );
        let work = LookUps(Doubling {
            gate: gate.clone(),
            batches: Arc::clone(&batches),
        });
        Bench {
            batcher: Batcher::start("test", limits, work, &tasks),
            gate,
            batches,
            tasks,
        }
    }

    impl Bench {
        /// Asks in a task of its own, and lets it come to where it waits.
        async fn begin(
            &self,
            n: u32,
        ) -> tokio::task::JoinHandle<Result<u32, LookUpError<&'static str>>> {
            let batcher = self.batcher.clone();
            let task = tokio::spawn(async move { batcher.look_up(n).await });
            tokio::task::yield_now().await;
            task
        }
    }

    #[tokio::test]
    async fn items_that_arrive_during_a_batch_go_into_the_next() {
        let bench = bench(LIMITS);
        let mut callers = Vec::new();
        for n in 0..50_u32 {
            callers.push(bench.begin(n * 2).await);
        }
        bench.gate.add_permits(2);
        for (n, caller) in callers.into_iter().enumerate() {
            let its_own = Ok(n as u32 * 4);
            assert_eq!(caller.await.unwrap(), its_own);
        }
        assert!(bench.batches.load(SeqCst) <= 2);
    }

    #[tokio::test]
    async fn a_failed_batch_answers_every_caller_and_the_next_one_works() {
        let bench = bench(LIMITS);
        bench.gate.add_permits(10);
        let (one, two) = tokio::join!(bench.batcher.look_up(1), bench.batcher.look_up(2));
        let failed = Err(LookUpError::Failed("odd"));
        assert_eq!((one, two), (failed.clone(), failed));
        assert_eq!(bench.batcher.look_up(4).await, Ok(8));
    }

    #[tokio::test]
    async fn what_waits_is_bounded_by_count_and_by_bytes() {
        let overloaded = Err(LookUpError::Unanswered(Unanswered::Overloaded));
        let by_count = Limits {
            max_queued: 2,
            max_batch: 1,
            ..LIMITS
        };
        let by_bytes = Limits {
            max_bytes: 3 * size_of::<u32>(),
            ..by_count
        };
        for limits in [
            by_count,
            Limits {
                max_queued: 100,
                ..by_bytes
            },
        ] {
            let bench = bench(limits);
            // One is under way, two wait, the fourth is refused.
            let waiting = [
                bench.begin(2).await,
                bench.begin(4).await,
                bench.begin(6).await,
            ];
            assert_eq!(bench.batcher.look_up(8).await, overloaded);
            bench.gate.add_permits(4);
            for caller in waiting {
                assert!(caller.await.unwrap().is_ok());
            }
            assert_eq!(
                bench.batcher.look_up(8).await,
                Ok(16),
                "there is room again"
            );
        }
    }

    #[tokio::test]
    async fn a_batch_is_bounded_by_bytes() {
        let bench = bench(Limits {
            max_batch_bytes: 2 * size_of::<u32>(),
            ..LIMITS
        });
        let mut callers = Vec::new();
        for n in 0..5_u32 {
            callers.push(bench.begin(n * 2).await);
        }
        bench.gate.add_permits(5);
        for caller in callers {
            assert!(caller.await.unwrap().is_ok());
        }
        // One alone, and then two by two.
        assert_eq!(bench.batches.load(SeqCst), 3);
    }

    #[tokio::test]
    async fn who_has_given_up_costs_nothing() {
        let bench = bench(LIMITS);
        let busy = bench.begin(2).await;
        let gone = bench.begin(1).await;
        let waits = bench.begin(4).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        bench.gate.add_permits(2);
        assert_eq!(busy.await.unwrap(), Ok(4));
        // The odd one would have failed the batch.
        assert_eq!(waits.await.unwrap(), Ok(8));
    }

    #[tokio::test]
    async fn closing_finishes_what_was_taken() {
        let bench = bench(Limits {
            max_batch: 1,
            max_in_flight: 2,
            ..LIMITS
        });
        let callers = [
            bench.begin(2).await,
            bench.begin(4).await,
            bench.begin(6).await,
        ];
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
