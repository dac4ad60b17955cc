//! Subscriptions: publishes signals to the queues of subscribers.
//!
//! A subscription is a cursor. A worker leases one that has something to publish, reads on from
//! there, publishes, and moves the cursor as far as the broker has confirmed. Whatever happens in
//! between is done again from the cursor: some messages come twice, under one id, and none is left
//! out. A queue that is full or gone, and a broker that is away, let the cursor stand.

mod store;

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

use lapin::Connection;
use letterbox_broker::{
    BrokerError, NotPublished, Published, Session, SignalChannel, SignalMessage, publishing_blocked,
};
use letterbox_common::process::readiness::Component;
use letterbox_database::DatabaseError;
use tokio_util::sync::CancellationToken;

pub(crate) use self::store::STATEMENTS;
use self::store::{Leased, NextSubscription, SubscriptionCursor, WantedSignals};
use crate::{
    leased::{Pace, Place, work},
    metrics,
    worker::Worker,
};

const PACE: Pace = Pace {
    every: Duration::from_millis(200),
    at_once: 16,
    // Each step finds out whether the lease is over.
    begins_within: LEASE,
};
/// How long a subscription is published for before others have their turn.
const TURN: Duration = Duration::from_secs(2);
/// After how many subscriptions in a row for which the broker did not answer another node is asked.
const MAX_SILENT: u32 = 3;
/// How long others leave a subscription to this worker: longer than a batch may take.
const LEASE: Duration = Duration::from_secs(30);
/// Signals of the first batch; each further one may have twice as many as the one before, because
/// a queue that is nearly full takes few.
const FIRST_BATCH: i32 = 32;
const MAX_BATCH: i32 = 512;
/// Bytes of bodies after which a batch ends.
const MAX_BATCH_BYTES: i64 = 2 << 20;
/// Maximum characters of a reason, which may have a server's message in it.
const MAX_REASON: usize = 300;

/// Publishes signals for those who subscribe, on one connection.
pub(crate) struct Subscriptions(pub(crate) Worker);

impl Session for Subscriptions {
    /// Publishes until `stop`, then finishes the batches that are under way.
    async fn run(
        &self,
        connection: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        component.ready();
        let end = stop.child_token();
        let silent = AtomicU32::new(0);
        let take = async |free: usize| {
            // A node that was frozen may leave its channels hanging: the next one is asked. Only
            // some queues may be silent: those of others are served first.
            let is_lost = silent.load(Relaxed) >= MAX_SILENT;
            if is_lost && free == PACE.at_once {
                end.cancel();
            }
            let most = if is_lost { 0 } else { free as i64 };
            let seconds = LEASE.as_secs_f64();
            store::take_subscriptions(&self.0.database, self.0.id, most, seconds).await
        };
        let publish = async |leased, _place: Place| {
            match self.serve(connection, leased, stop).await {
                true => silent.fetch_add(1, Relaxed),
                false => silent.swap(0, Relaxed),
            };
        };
        work(&PACE, &end, take, publish).await;
        match stop.is_cancelled() {
            true => Ok(()),
            false => Err(BrokerError::Ended("the broker takes no signals".into())),
        }
    }

    fn blocked(&self, component: &Component, reason: Option<String>) {
        publishing_blocked(component, reason);
    }

    /// One channel is of one subscription, whose queue may be missing.
    fn outlives_channels(&self) -> bool {
        true
    }
}

impl Subscriptions {
    /// Publishes for one subscription, and gives it back. Returns whether the broker was silent.
    async fn serve(
        &self,
        connection: &Connection,
        leased: Leased,
        stop: &CancellationToken,
    ) -> bool {
        let failure = match SignalChannel::open(connection, &self.0.name, &leased.queue).await {
            Ok(channel) => {
                let failure = self.publish_all(&channel, leased.clone(), stop).await;
                channel.close().await;
                failure
            }
            Err(failure) => Ok(Some(failure)),
        };
        // Without the database, the lease ends by itself.
        let Ok(failure) = failure else { return false };
        let told = failure.as_ref().map(|failure| {
            let failure: String = failure.to_string().chars().take(MAX_REASON).collect();
            tracing::warn!(queue = leased.queue, failure, "signals were not published");
            failure
        });
        let database = &self.0.database;
        let workspace = leased.workspace;
        let told = told.as_deref();
        let releasing =
            store::release_subscription(database, workspace, leased.id, leased.by, told);
        let _ = releasing.await;
        failure == Some(NotPublished::Silent)
    }

    /// Returns why it could not go on, if so.
    async fn publish_all(
        &self,
        channel: &SignalChannel,
        mut leased: Leased,
        stop: &CancellationToken,
    ) -> Result<Option<NotPublished>, DatabaseError> {
        let mut most = FIRST_BATCH;
        let began = Instant::now();
        while !stop.is_cancelled() && began.elapsed() < TURN {
            let database = &self.0.database;
            let workspace = leased.workspace;
            let id = leased.id;
            let reading =
                store::read_subscription(database, workspace, id, leased.by, most, MAX_BATCH_BYTES);
            let batch = reading.await?;
            if batch.is_empty() {
                break;
            }
            let messages = batch
                .iter()
                .filter_map(|next| Some(message(&leased, next.cursor, next.wanted.as_ref()?)));
            let messages: Vec<_> = messages.collect();
            let Published { confirmed, failure } = channel.publish(&messages).await;
            metrics::SIGNALS_PUBLISHED.increment(confirmed as u64);
            if let Some(to) = reached(&batch, confirmed) {
                let moving = store::move_cursor(
                    database,
                    workspace,
                    id,
                    leased.by,
                    leased.cursor.position,
                    leased.cursor.signal,
                    to.position,
                    to.signal,
                    confirmed as i64,
                    LEASE.as_secs_f64(),
                );
                if moving.await? == 0 {
                    // Another worker goes on, or an operator has set the cursor.
                    return Ok(None);
                }
                leased.cursor = to;
            }
            if failure.is_some() {
                return Ok(failure);
            }
            most = MAX_BATCH.min(most * 2);
        }
        Ok(None)
    }
}

/// Where the cursor stands when so many of the wanted ones are confirmed: before the first that is
/// not. `None` if that is where it was.
fn reached(batch: &[NextSubscription], confirmed: usize) -> Option<SubscriptionCursor> {
    let mut left = confirmed;
    let passed = batch.iter().take_while(|next| {
        let is_confirmed = next.wanted.is_none() || left > 0;
        left = left.saturating_sub(usize::from(next.wanted.is_some()));
        is_confirmed
    });
    passed.last().map(|next| next.cursor)
}

fn message(leased: &Leased, cursor: SubscriptionCursor, signal: &WantedSignals) -> SignalMessage {
    let workspace = leased.workspace;
    let webhook = signal.webhook;
    let kind = signal.kind;
    let mut fields = vec![
        ("workspace_id", workspace.to_string()),
        ("webhook_id", webhook.to_string()),
        ("webhook_name", signal.webhook_name.clone()),
        ("received_at", format!("{:.6}", signal.received_at)),
        ("stored_at", format!("{:.6}", signal.stored_at)),
    ];
    fields.extend(signal.fields.iter().cloned());
    if signal.body.is_none() {
        fields.push(("body_forgotten", "true".to_owned()));
    }
    SignalMessage {
        id: cursor.signal.to_string(),
        routing_key: format!("{}.{workspace}.{webhook}.{kind}", leased.id),
        kind: kind.to_string(),
        received_at: signal.received_at,
        fields,
        headers: signal.headers.clone(),
        body: signal.body.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use letterbox_common::{
        ids::{DeliveryId, WebhookId},
        states::SignalKind,
        webhook::KeptHeaders,
    };

    use super::*;

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
    fn the_cursor_stops_before_the_first_that_is_not_confirmed() {
        let batch = [next(1, true), next(2, false), next(3, true), next(4, false)];
        let reached = |confirmed| reached(&batch, confirmed).map(|cursor| cursor.position);
        assert_eq!(reached(0), None);
        assert_eq!(reached(1), Some(2));
        assert_eq!(reached(2), Some(4));
        let unwanted = [next(1, false), next(2, true)];
        assert_eq!(super::reached(&unwanted, 0).map(|it| it.position), Some(1));
    }
}
