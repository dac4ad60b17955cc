//! Leased work: rows that one worker takes for a while, does what they ask for, and settles. If it
//! dies, the lease ends by itself, by the database's clock, and another worker takes the row. The
//! statement that takes rows decides which are due, and notices a clock that was set back.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use letterbox_database::DatabaseError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// How work is paced.
pub(crate) struct Pace {
    /// Time between two looks for what is due, whether or not the last one has failed.
    pub(crate) every: Duration,
    /// How many jobs a worker does at once.
    pub(crate) at_once: usize,
    /// So long after it was taken, no job begins: another worker may take it soon.
    pub(crate) begins_within: Duration,
}

/// The place of a job among those that are done at once, for as long as it takes up room.
pub(crate) type Place = OwnedSemaphorePermit;

/// Takes what is due until `stop`, as much as there is room for, and finishes what was taken.
pub(crate) async fn work<J, T, R>(
    pace: &Pace,
    stop: &CancellationToken,
    take: impl Fn(usize) -> T,
    run: impl Fn(J, Place) -> R,
) where
    T: Future<Output = Result<Vec<J>, DatabaseError>>,
    R: Future<Output = ()>,
{
    let places = Arc::new(Semaphore::new(pace.at_once));
    let mut working = FuturesUnordered::new();
    loop {
        // Polled beside the jobs: a slow database must not stall them.
        let mut look = pin!(async {
            let pause = async {
                sleep(pace.every).await;
                places.acquire().await.map(drop)
            };
            stop.run_until_cancelled(pause).await?.ok()?;
            let at = Instant::now();
            // The database crate logs the failure; the next look tries again.
            let jobs = take(places.available_permits()).await.unwrap_or_default();
            let is_fresh = at.elapsed() < pace.begins_within;
            Some(jobs.into_iter().filter(move |_| is_fresh))
        });
        let jobs = loop {
            tokio::select! {
                jobs = &mut look => break jobs,
                Some(()) = working.next() => {}
            }
        };
        let Some(jobs) = jobs else { break };
        for job in jobs {
            if let Ok(place) = places.clone().try_acquire_owned() {
                working.push(run(job, place));
            }
        }
    }
    while working.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    const PACE: Pace = Pace {
        every: Duration::from_millis(5),
        at_once: 2,
        begins_within: Duration::from_secs(60),
    };

    /// Three jobs are there, for two places: the third one is taken when there is room for it, and
    /// everything that was taken is finished although the process stops meanwhile.
    #[tokio::test]
    async fn what_was_taken_is_finished() {
        let stop = CancellationToken::new();
        let left = AtomicUsize::new(3);
        let working = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let take = async |free: usize| {
            let taken = free.min(left.load(SeqCst));
            left.fetch_sub(taken, SeqCst);
            Ok(vec![(); taken])
        };
        let run = async |(), place: Place| {
            assert!(working.fetch_add(1, SeqCst) < PACE.at_once);
            sleep(Duration::from_millis(50)).await;
            working.fetch_sub(1, SeqCst);
            drop(place);
            match left.load(SeqCst) {
                0 => stop.cancel(),
                _ => sleep(Duration::from_millis(200)).await,
            }
            done.fetch_add(1, SeqCst);
        };
        work(&PACE, &stop, take, run).await;
        assert_eq!(done.into_inner(), 3);
    }

    /// Whoever was held up while it took jobs leaves them to others.
    #[tokio::test]
    async fn what_was_taken_too_long_ago_is_left() {
        let stop = CancellationToken::new();
        let pace = Pace {
            begins_within: Duration::from_millis(10),
            ..PACE
        };
        let take = async |_| {
            sleep(Duration::from_millis(20)).await;
            stop.cancel();
            Ok(vec![()])
        };
        work(&pace, &stop, take, async |(), _| panic!("it has begun")).await;
    }
}
