//! Subscriptions: hands signals to those who subscribe, in a queue or at a URL.
//!
//! A subscription is a cursor. A worker leases one that has something to hand over, reads on from
//! there, hands it over, and moves the cursor as far as it was taken. Whatever happens in between
//! is done again from the cursor: some signals come twice, under one id, and none is left out. Who
//! is full, gone or away lets the cursor stand.

mod queues;
mod store;
mod urls;

use std::time::{Duration, Instant};

use letterbox_common::condition::Condition;
use letterbox_database::DatabaseError;
use tokio_util::sync::CancellationToken;

use self::store::{Leased, NextSubscription, SubscriptionCursor};
pub(crate) use self::{queues::Subscriptions, store::STATEMENTS, urls::post_signals};
use crate::{metrics, worker::Worker};

/// How long a subscription is served before others have their turn.
const TURN: Duration = Duration::from_secs(2);
/// How long others leave a subscription to this worker: longer than what is handed over at once may
/// take.
const LEASE: Duration = Duration::from_secs(30);
/// Signals that are read at first; each further time twice as many as before, because a queue that
/// is nearly full takes few.
const FIRST_BATCH: i32 = 32;
const MAX_BATCH: i32 = 512;
/// Maximum characters of a reason, which may have a server's message in it.
const MAX_REASON: usize = 300;

/// Who takes the signals of a subscription.
trait Receiver: Sync {
    /// Bytes of bodies after which no more is read for it.
    const MAX_BYTES: i64;

    /// How many signals are handed over at once: the cursor moves after each lot.
    fn at_once(&self) -> usize;

    /// Gives how many were taken, from the first on without a gap, and why the next one was not.
    fn hand_over(
        &self,
        lot: &[NextSubscription],
    ) -> impl Future<Output = (usize, Option<NotTaken>)> + Send;
}

/// Why a signal was not taken.
#[derive(Default)]
struct NotTaken {
    why: String,
    /// The beginning of the answer that says so.
    received: Option<String>,
    /// Whether the broker said nothing.
    is_silent: bool,
}

impl NotTaken {
    fn because(why: String) -> Self {
        Self {
            why,
            ..Self::default()
        }
    }
}

/// Serves a subscription until its turn is over. Returns why it could not go on, if so.
async fn serve<R: Receiver>(
    worker: &Worker,
    mut leased: Leased,
    receiver: &R,
    stop: &CancellationToken,
) -> Result<Option<NotTaken>, DatabaseError> {
    let conditions = leased.conditions.iter().map(|one| one.parse());
    let Ok(conditions) = conditions.collect::<Result<Vec<Condition>, _>>() else {
        return Ok(Some(NotTaken::because("a condition can't be read".into())));
    };
    let mut most = FIRST_BATCH;
    let began = Instant::now();
    let is_over = || stop.is_cancelled() || began.elapsed() >= TURN;
    while !is_over() {
        let Leased {
            workspace, id, by, ..
        } = leased;
        let database = &worker.database;
        let reading = store::read_subscription(database, workspace, id, by, most, R::MAX_BYTES);
        let mut batch = reading.await?;
        if batch.is_empty() {
            break;
        }
        if !conditions.is_empty() {
            leave_out(&mut batch, &conditions).await;
        }
        let mut rest = batch.as_slice();
        while !rest.is_empty() && !is_over() {
            let (lot, after) = rest.split_at(lot(rest, receiver.at_once()));
            let (taken, failure) = receiver.hand_over(lot).await;
            metrics::SIGNALS_PUBLISHED.increment(taken as u64);
            if let Some(to) = reached(lot, taken)
                && !move_cursor(worker, &mut leased, to, taken).await?
            {
                // Another worker goes on, or an operator has set the cursor.
                return Ok(None);
            }
            if failure.is_some() {
                return Ok(failure);
            }
            rest = after;
        }
        most = MAX_BATCH.min(most * 2);
    }
    Ok(None)
}

/// Leaves out signals whose bodies a condition does not hold for; so a body that was deleted.
async fn leave_out(batch: &mut [NextSubscription], conditions: &[Condition]) {
    for next in batch {
        next.wanted.take_if(|signal| {
            let body = signal.body.as_deref().unwrap_or_default();
            !conditions.iter().all(|one| one.holds(body))
        });
        // A few milliseconds each, if bodies and pointers are made for it.
        tokio::task::yield_now().await;
    }
}

/// Moves a cursor from where it was read; `false` if it is not there any more.
async fn move_cursor(
    worker: &Worker,
    leased: &mut Leased,
    to: SubscriptionCursor,
    taken: usize,
) -> Result<bool, DatabaseError> {
    let moving = store::move_cursor(
        &worker.database,
        leased.workspace,
        leased.id,
        leased.by,
        leased.cursor.position,
        leased.cursor.signal,
        to.position,
        to.signal,
        taken as i64,
        LEASE.as_secs_f64(),
    );
    leased.cursor = to;
    Ok(moving.await? > 0)
}

/// Gives a subscription back, with why it could not go on; returns whether the broker was silent.
/// Without the database, the lease ends by itself.
async fn give_back(
    worker: &Worker,
    leased: &Leased,
    served: Result<Option<NotTaken>, DatabaseError>,
) -> bool {
    let Ok(failure) = served else { return false };
    let workspace = leased.workspace;
    let id = leased.id;
    let told = failure.as_ref().map(|failure| {
        let failure: String = failure.why.chars().take(MAX_REASON).collect();
        tracing::warn!(workspace_id = %workspace, subscription_id = %id, failure,
            "signals were not published");
        failure
    });
    let told = told.as_deref();
    let received = failure.as_ref().and_then(|one| one.received.as_deref());
    let database = &worker.database;
    let _ = store::release_subscription(database, workspace, id, leased.by, told, received).await;
    failure.is_some_and(|failure| failure.is_silent)
}

/// How many of the next signals are handed over at once, so that no more than `most` are wanted.
fn lot(next: &[NextSubscription], most: usize) -> usize {
    let wanted = next
        .iter()
        .enumerate()
        .filter(|(_, one)| one.wanted.is_some());
    wanted.map(|(at, _)| at).nth(most).unwrap_or(next.len())
}

/// Where the cursor stands when so many of the wanted ones are taken: before the first that is not.
/// `None` if that is where it was.
fn reached(lot: &[NextSubscription], taken: usize) -> Option<SubscriptionCursor> {
    let mut left = taken;
    let passed = lot.iter().take_while(|next| {
        let is_taken = next.wanted.is_none() || left > 0;
        left = left.saturating_sub(usize::from(next.wanted.is_some()));
        is_taken
    });
    passed.last().map(|next| next.cursor)
}

#[cfg(test)]
mod tests {
    use letterbox_common::{
        ids::{DeliveryId, WebhookId},
        states::SignalKind,
        webhook::KeptHeaders,
    };

    use super::{store::WantedSignals, *};

    fn next(position: i64, is_wanted: bool) -> NextSubscription {
        let wanted = || WantedSignals {
            webhook: WebhookId::generate(),
            webhook_name: String::new(),
            kind: SignalKind::Generic,
            received_at: jiff::Timestamp::UNIX_EPOCH,
            stored_at: jiff::Timestamp::UNIX_EPOCH,
            fields: Vec::new(),
            headers: KeptHeaders::default(),
            body: None,
        };
        NextSubscription {
            cursor: SubscriptionCursor {
                position,
                signal: DeliveryId::generate(),
            },
            wanted: is_wanted.then(wanted),
        }
    }

    #[test]
    fn the_cursor_stops_before_the_first_that_is_not_taken() {
        let batch = [next(1, true), next(2, false), next(3, true), next(4, false)];
        let reached = |taken| reached(&batch, taken).map(|cursor| cursor.position);
        assert_eq!(reached(0), None);
        assert_eq!(reached(1), Some(2));
        assert_eq!(reached(2), Some(4));
        let unwanted = [next(1, false), next(2, true)];
        assert_eq!(super::reached(&unwanted, 0).map(|it| it.position), Some(1));
        assert_eq!([1, 2, 3].map(|most| lot(&batch, most)), [2, 4, 4]);
        assert_eq!([1, 2].map(|most| lot(&unwanted, most)), [2, 2]);
    }
}
