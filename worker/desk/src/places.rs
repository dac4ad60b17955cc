//! Places for connections. When all are taken, the connection that has been idle longest is closed:
//! first those without a session, then those of signed-in people, never one that is serving a
//! signed-in person. So a flood of strangers, from any number of addresses, shuts out only
//! strangers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections of signed-in people are closed after all others.
const SIGNED_IN: u64 = 1 << 63;

/// All places of a desk.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    waiting: Arc<Waiting>,
}

/// The connections that make room, in the order in which they began to wait.
#[derive(Default)]
struct Waiting {
    last: AtomicU64,
    ends: Mutex<BTreeMap<u64, CancellationToken>>,
}

impl Places {
    pub(crate) fn of(most: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            waiting: Arc::default(),
        }
    }

    /// A place: at once, unless people who are signed in have all.
    pub(crate) async fn take(&self) -> Option<Arc<ConnectionPlace>> {
        if self.free.available_permits() == 0 {
            let first = self.waiting.ends.lock().pop_first();
            first.inspect(|(_, end)| end.cancel());
        }
        let place = Arc::new(ConnectionPlace {
            _free: self.free.clone().acquire_owned().await.ok()?,
            number: AtomicU64::default(),
            end: CancellationToken::new(),
            waiting: self.waiting.clone(),
        });
        place.wait(0);
        Some(place)
    }
}

/// The place of one connection.
pub(crate) struct ConnectionPlace {
    _free: OwnedSemaphorePermit,
    number: AtomicU64,
    end: CancellationToken,
    waiting: Arc<Waiting>,
}

impl ConnectionPlace {
    /// Waits until another connection needs the place.
    pub(crate) async fn needed(&self) {
        self.end.cancelled().await;
    }

    /// Counts it as a stranger's: it isn't known yet who sends the next request.
    pub(crate) fn begin(&self) {
        self.leave();
        self.wait(0);
    }

    /// Keeps the place: it serves a signed-in person.
    pub(crate) fn keep(self: &Arc<Self>) -> Kept {
        self.leave();
        Kept(self.clone())
    }

    fn wait(&self, behind: u64) {
        let number = behind | self.waiting.last.fetch_add(1, Relaxed);
        self.number.store(number, Relaxed);
        self.waiting.ends.lock().insert(number, self.end.clone());
    }

    fn leave(&self) {
        self.waiting.ends.lock().remove(&self.number.load(Relaxed));
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A place that is kept until this is dropped.
pub(crate) struct Kept(Arc<ConnectionPlace>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.wait(SIGNED_IN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_longest_makes_room_and_who_is_signed_in_does_not() {
        let places = Places::of(3);
        let [first, second, third] = [
            places.take().await.unwrap(),
            places.take().await.unwrap(),
            places.take().await.unwrap(),
        ];
        let kept = first.keep();
        let (fourth, ()) = tokio::join!(places.take(), async {
            second.needed().await;
            drop(second);
        });
        let fourth = fourth.unwrap();
        assert!(!third.end.is_cancelled());
        // Who was kept waits behind the strangers, also behind those that come later.
        drop(kept);
        let (fifth, ()) = tokio::join!(places.take(), async {
            third.needed().await;
            drop(third);
        });
        let (sixth, ()) = tokio::join!(places.take(), async {
            fourth.needed().await;
            drop(fourth);
        });
        // And no longer once a stranger's request has come the same way.
        first.begin();
        fifth.as_ref().unwrap().begin();
        let (seventh, ()) = tokio::join!(places.take(), async {
            sixth.as_ref().unwrap().needed().await;
            drop(sixth);
        });
        let (eighth, ()) = tokio::join!(places.take(), async {
            first.needed().await;
            drop(first);
        });
        drop((fifth, seventh, eighth));
        assert!(places.waiting.ends.lock().is_empty());
        assert_eq!(places.free.available_permits(), 3);
    }
}
