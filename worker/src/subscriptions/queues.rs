//! Signals on their way to queues, on one connection to the broker. A queue that is full or gone,
//! and a broker that is away, let the cursor stand.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use lapin::Connection;
use letterbox_broker::{
    BrokerError, NotPublished, Published, Session, SignalChannel, SignalMessage, publishing_blocked,
};
use letterbox_common::process::readiness::Component;
use tokio_util::sync::CancellationToken;

use super::{
    LEASE, NotTaken, Receiver, give_back,
    store::{self, Leased, NextSubscription, SubscriptionCursor, WantedSignals},
};
use crate::{
    leased::{Pace, Place, work},
    worker::Worker,
};

pub(super) const PACE: Pace = Pace {
    every: Duration::from_millis(200),
    at_once: 16,
    // Each step finds out whether the lease is over.
    begins_within: LEASE,
};
/// After how many subscriptions in a row for which the broker did not answer another node is asked.
const MAX_SILENT: u32 = 3;

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
            let database = &self.0.database;
            store::take_subscriptions(database, most, seconds, false, None).await
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
        let served = match SignalChannel::open(connection, &self.0.name, &leased.target).await {
            Ok(channel) => {
                let queue = Queue(channel, leased.clone());
                let served = super::serve(&self.0, leased.clone(), &queue, stop).await;
                queue.0.close().await;
                served
            }
            Err(failure) => Ok(Some(failure.into())),
        };
        give_back(&self.0, &leased, served).await
    }
}

/// The queue of a subscription.
struct Queue(SignalChannel, Leased);

impl Receiver for Queue {
    const MAX_BYTES: i64 = 2 << 20;

    /// All that is read is published at once.
    fn at_once(&self) -> usize {
        usize::MAX
    }

    async fn hand_over(&self, lot: &[NextSubscription]) -> (usize, Option<NotTaken>) {
        let messages = lot
            .iter()
            .filter_map(|next| Some(message(&self.1, next.cursor, next.wanted.as_ref()?)));
        let messages: Vec<_> = messages.collect();
        let Published { confirmed, failure } = self.0.publish(&messages).await;
        (confirmed, failure.map(NotTaken::from))
    }
}

impl From<NotPublished> for NotTaken {
    fn from(failure: NotPublished) -> Self {
        Self {
            why: failure.to_string(),
            is_silent: failure == NotPublished::Silent,
            ..Self::default()
        }
    }
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
