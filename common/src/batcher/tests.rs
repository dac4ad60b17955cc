//! The promises of a batcher to its callers.

use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use super::*;

const LIMITS: BatchLimits = BatchLimits {
    max_queued: 100,
    max_bytes: 1_000,
    max_batch: 100,
    max_batch_bytes: 1_000,
    max_in_flight: 1,
    gather: Duration::ZERO,
};

/// Doubles numbers; fails a batch with an odd one; holds each batch until the gate has a permit.
struct Doubling {
    gate: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
    batches: Arc<AtomicUsize>,
}

impl LookUp for Doubling {
    type Item = u32;
    type Output = u32;

    async fn look_up(&self, items: Vec<u32>) -> Option<Vec<u32>> {
        self.begun.fetch_add(1, SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.batches.fetch_add(1, SeqCst);
        let double = |n: u32| n.is_multiple_of(2).then_some(n * 2);
        items.into_iter().map(double).collect()
    }
}

struct Bench {
    batcher: Batcher<LookUps<Doubling>>,
    gate: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
    batches: Arc<AtomicUsize>,
    tasks: TaskTracker,
}

fn bench(limits: BatchLimits) -> Bench {
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::default();
    let batches = Arc::default();
    let tasks = TaskTracker::new();
    let work = LookUps(Doubling {
        gate: gate.clone(),
        begun: Arc::clone(&begun),
        batches: Arc::clone(&batches),
    });
    Bench {
        batcher: Batcher::start("test", limits, work, &tasks),
        gate,
        begun,
        batches,
        tasks,
    }
}

type Caller = tokio::task::JoinHandle<Option<u32>>;

impl Bench {
    /// Waits until so many batches have begun.
    async fn await_begun(&self, number: usize) {
        while self.begun.load(SeqCst) < number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Asks in a task of its own, and lets it run until it waits.
    async fn begin(&self, n: u32) -> Caller {
        let task = tokio::spawn(self.batcher.ask(n));
        tokio::task::yield_now().await;
        task
    }

    /// Asks for the first even numbers, each in a task of its own.
    async fn begin_many(&self, count: u32) -> Vec<Caller> {
        let mut callers = Vec::new();
        for n in 0..count {
            callers.push(self.begin(n * 2).await);
        }
        callers
    }
}

async fn assert_all_answered(callers: Vec<Caller>) {
    for (n, caller) in callers.into_iter().enumerate() {
        let its_own = Some(n as u32 * 4);
        assert_eq!(caller.await.unwrap(), its_own);
    }
}

#[tokio::test]
async fn items_that_arrive_during_a_batch_go_into_the_next() {
    let bench = bench(LIMITS);
    let callers = bench.begin_many(50).await;
    bench.gate.add_permits(2);
    assert_all_answered(callers).await;
    assert!(bench.batches.load(SeqCst) <= 2);
}

#[tokio::test]
async fn a_failed_batch_answers_every_caller_and_the_next_one_works() {
    let bench = bench(LIMITS);
    bench.gate.add_permits(10);
    let (one, two) = tokio::join!(bench.batcher.ask(1), bench.batcher.ask(2));
    assert_eq!((one, two), (None, None));
    assert_eq!(bench.batcher.ask(4).await, Some(8));
}

#[tokio::test]
async fn what_waits_is_bounded_by_count_and_by_bytes() {
    let by_count = BatchLimits {
        max_queued: 2,
        max_batch: 1,
        ..LIMITS
    };
    let by_bytes = BatchLimits {
        max_bytes: 3 * size_of::<u32>(),
        max_batch: 1,
        ..LIMITS
    };
    for limits in [by_count, by_bytes] {
        let bench = bench(limits);
        // One is under way, two wait, the fourth is refused.
        let waiting = bench.begin_many(3).await;
        assert_eq!(bench.batcher.ask(8).await, None);
        bench.gate.add_permits(4);
        assert_all_answered(waiting).await;
        let again = bench.batcher.ask(8).await;
        assert_eq!(again, Some(16), "there is room again");
    }
}

#[test]
fn one_party_has_a_quarter_at_most() {
    let limits = BatchLimits {
        max_queued: 8,
        max_bytes: 100,
        ..LIMITS
    };
    let shares = limits.shares();
    let first = shares.take_sized(1, 5).unwrap();
    let second = shares.take_sized(1, 5).unwrap();
    assert!(shares.take_sized(1, 5).is_none(), "two of eight items");
    let other = shares.take_sized(2, 20).unwrap();
    assert!(shares.take_sized(2, 6).is_none(), "a quarter of the bytes");
    drop(first);
    let third = shares.take_sized(1, 20);
    assert!(third.is_some(), "there is room again");
    drop((second, other, third));
    assert!(shares.take_sized(2, 25).is_some());
}

#[tokio::test]
async fn a_batch_is_bounded_by_bytes() {
    let bench = bench(BatchLimits {
        max_batch_bytes: 2 * size_of::<u32>(),
        ..LIMITS
    });
    let callers = bench.begin_many(5).await;
    bench.gate.add_permits(5);
    assert_all_answered(callers).await;
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
    assert_eq!(busy.await.unwrap(), Some(4));
    // The odd one would have failed the batch.
    assert_eq!(waits.await.unwrap(), Some(8));
}

#[tokio::test]
async fn a_second_task_helps_where_the_first_is_held_up() {
    let bench = bench(BatchLimits {
        max_in_flight: 2,
        ..LIMITS
    });
    let callers = bench.begin_many(3).await;
    bench.gate.add_permits(2);
    in_time(assert_all_answered(callers)).await;
    assert_eq!(bench.batches.load(SeqCst), 2, "the first one goes on");

    let callers = bench.begin_many(2).await;
    in_time(bench.await_begun(4)).await;
    bench.gate.add_permits(2);
    in_time(assert_all_answered(callers)).await;
}

#[tokio::test]
async fn who_is_held_up_is_waited_for_once() {
    let bench = bench(BatchLimits {
        max_in_flight: 3,
        ..LIMITS
    });
    let mut callers = bench.begin_many(2).await;
    assert_eq!(bench.begun.load(SeqCst), 1, "the second one waits");
    in_time(bench.await_begun(2)).await;
    callers.push(bench.begin(4).await);
    tokio::task::yield_now().await;
    assert_eq!(bench.begun.load(SeqCst), 3, "the third one does not");
    bench.gate.add_permits(3);
    assert_all_answered(callers).await;
}

#[tokio::test]
async fn as_many_as_before_are_gathered() {
    let gather = Duration::from_secs(60);
    let bench = bench(BatchLimits { gather, ..LIMITS });
    // One, and the others behind it.
    let callers = bench.begin_many(3).await;
    bench.gate.add_permits(10);
    in_time(assert_all_answered(callers)).await;
    let first = bench.begin(0).await;
    assert_eq!(bench.begun.load(SeqCst), 2, "two gather again");
    in_time(assert_all_answered(vec![first, bench.begin(2).await])).await;
    assert_eq!(bench.begun.load(SeqCst), 3);
}

#[tokio::test]
async fn nobody_gathers_without_end() {
    let gather = Duration::from_millis(1);
    let bench = bench(BatchLimits { gather, ..LIMITS });
    let callers = bench.begin_many(3).await;
    bench.gate.add_permits(10);
    in_time(assert_all_answered(callers)).await;
    in_time(assert_all_answered(bench.begin_many(1).await)).await;
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    let in_time = tokio::time::timeout(Duration::from_secs(5), what).await;
    in_time.expect("it ends")
}

#[tokio::test]
async fn closing_finishes_what_was_taken() {
    let bench = bench(BatchLimits {
        max_batch: 1,
        max_in_flight: 2,
        ..LIMITS
    });
    let callers = bench.begin_many(3).await;
    drop(bench.batcher);
    bench.tasks.close();
    bench.gate.add_permits(3);
    in_time(bench.tasks.wait()).await;
    assert_all_answered(callers).await;
}

/// Answers when the gate has a permit; counts the calls of `idle`.
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

/// With its gate, and how often it was idle.
fn idling(max_in_flight: usize) -> (Batcher<Idling>, Arc<Semaphore>, Arc<AtomicUsize>) {
    let gate = Arc::new(Semaphore::new(0));
    let idle = Arc::new(AtomicUsize::new(0));
    let work = Idling {
        gate: gate.clone(),
        idle: idle.clone(),
    };
    let limits = BatchLimits {
        max_in_flight,
        ..LIMITS
    };
    let batcher = Batcher::start("test", limits, work, &TaskTracker::new());
    (batcher, gate, idle)
}

#[tokio::test]
async fn it_is_idle_also_when_the_last_one_in_the_queue_has_given_up() {
    let (batcher, gate, idle) = idling(1);
    let ask = || tokio::spawn(batcher.ask(()));
    let first = ask();
    tokio::task::yield_now().await;
    let gone = ask();
    tokio::task::yield_now().await;
    let before = idle.load(SeqCst);
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    assert_eq!(first.await.unwrap(), Some(()));
    tokio::task::yield_now().await;
    assert!(idle.load(SeqCst) > before);
}

#[tokio::test]
async fn it_is_idle_when_the_last_task_at_work_is_done() {
    let (batcher, gate, idle) = idling(2);
    let is_idle = async |times| {
        while idle.load(SeqCst) < times {
            tokio::task::yield_now().await;
        }
    };
    // One task waits; the other one while it is at work; then it is done.
    in_time(is_idle(1)).await;
    let asked = tokio::spawn(async move { batcher.ask(()).await });
    in_time(is_idle(2)).await;
    gate.add_permits(1);
    in_time(is_idle(3)).await;
    assert!(asked.await.unwrap().is_some());
}
