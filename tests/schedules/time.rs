//! Time in a schedule: it stands still while tasks work, and moves on towards the next timer now
//! and then. So any task may be late, and no test waits.

pub use std::time::Duration;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Add,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use shuttle::rand::{Rng, thread_rng};

/// How seldom the clock moves on when it could.
const RARELY: u32 = 24;
/// How far it moves on at most, so that a long wait takes long.
const STEP: Duration = Duration::from_secs(1);

thread_local! {
    // A schedule runs on one thread.
    static CLOCK: RefCell<Clock> = RefCell::default();
}

#[derive(Default)]
struct Clock {
    now: Duration,
    drawn: u64,
    timers: BTreeMap<(Duration, u64), Waker>,
}

impl Clock {
    /// Moves towards the next timer; returns its waker when it is there.
    fn move_on(&mut self) -> Option<Waker> {
        let next = self.timers.first_entry()?;
        let due = next.key().0;
        if due > self.now + STEP {
            self.now += STEP;
            return None;
        }
        self.now = self.now.max(due);
        Some(next.remove())
    }
}

fn clock<T>(of: impl FnOnce(&mut Clock) -> T) -> T {
    CLOCK.with_borrow_mut(of)
}

/// Moves the clock for as long as `work` takes.
pub(crate) async fn passing<T>(work: impl Future<Output = T> + Send + 'static) -> T
where
    T: Send + 'static,
{
    drop(clock(std::mem::take));
    let work = shuttle_tokio::spawn(work);
    while !work.is_finished() {
        shuttle::future::yield_now().await;
        if thread_rng().gen_ratio(1, RARELY) {
            let due = clock(Clock::move_on);
            due.into_iter().for_each(Waker::wake);
        }
    }
    work.await.expect("nobody aborts it")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        Self(clock(|clock| clock.now))
    }

    pub fn elapsed(&self) -> Duration {
        Self::now().0 - self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0 + later)
    }
}

pub struct Sleep {
    key: (Duration, u64),
}

pub fn sleep(duration: Duration) -> Sleep {
    let key = clock(|clock| {
        clock.drawn += 1;
        (clock.now + duration, clock.drawn)
    });
    Sleep { key }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        clock(|clock| match clock.now >= self.key.0 {
            true => Poll::Ready(()),
            false => {
                clock.timers.insert(self.key, context.waker().clone());
                Poll::Pending
            }
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        clock(|clock| clock.timers.remove(&self.key));
    }
}

#[derive(Debug)]
pub struct Elapsed;

pub async fn timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut work = pin!(work);
    shuttle_tokio::select! {
        biased;
        done = &mut work => Ok(done),
        () = sleep(limit) => Err(Elapsed),
    }
}

#[derive(Clone, Copy)]
pub enum MissedTickBehavior {
    Delay,
}

pub struct Interval {
    period: Duration,
    next: Sleep,
}

pub fn interval(period: Duration) -> Interval {
    let next = sleep(Duration::ZERO);
    Interval { period, next }
}

impl Interval {
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        let MissedTickBehavior::Delay = behavior;
    }

    pub async fn tick(&mut self) {
        Pin::new(&mut self.next).await;
        self.next = sleep(self.period);
    }
}
