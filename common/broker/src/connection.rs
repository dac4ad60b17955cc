//! A supervised connection: connect, declare what all connections need or check that it is there,
//! work until something breaks, back off, and start again, forever.
//!
//! lapin's own recovery is off. It gives up after a number of attempts, and a publish that is in
//! flight when the connection breaks may hang. Here any failure ends the session, and the next one
//! starts from a known state. Every await on lapin has a time limit.

use std::{pin::pin, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::StreamExt;
use lapin::{Channel, Connection, ConnectionProperties, Event, options::ConfirmSelectOptions};
use letterbox_common::process::readiness::Component;
use tokio_util::sync::CancellationToken;

use crate::{
    BrokerError, BrokerTarget,
    error::{CLOSE_TIMEOUT, with_timeout},
    metrics,
    topology::{self, ANSWER_TIMEOUT, QueueLength},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A session that lasted this long was healthy: the next delay is the shortest again.
const HEALTHY_AFTER: Duration = Duration::from_secs(2);

/// Opens a channel on which every publish is confirmed.
pub(crate) async fn open_channel(connection: &Connection) -> Result<Channel, BrokerError> {
    let channel = with_timeout(ANSWER_TIMEOUT, connection.create_channel()).await?;
    let confirming = channel.confirm_select(ConfirmSelectOptions::default());
    with_timeout(ANSWER_TIMEOUT, confirming).await?;
    Ok(channel)
}

/// The work done on one connection.
pub trait Session: Send + Sync {
    /// Works until `stop`, then finishes what is in flight and returns `Ok`. An error ends the
    /// connection; `run` is called again with the next one.
    fn run(
        &self,
        connection: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Called when the broker blocks publishing (`Some(reason)`) or unblocks it (`None`).
    fn blocked(&self, component: &Component, reason: Option<String>);

    /// Whether the session goes on when the broker has closed one of its channels. Otherwise that
    /// ends it, as every other error does.
    fn outlives_channels(&self) -> bool {
        false
    }
}

/// Says of a component that publishes whether the broker blocks that.
pub fn publishing_blocked(component: &Component, reason: Option<String>) {
    match reason {
        Some(reason) => component.not_ready(format!("the broker blocks publishing: {reason}")),
        None => component.ready(),
    }
}

/// Keeps `session` running on a live connection called `name` until `stop`. The session marks
/// `component` as ready; this function marks it as not ready.
pub async fn supervise(
    target: BrokerTarget,
    name: impl AsRef<str>,
    component: Component,
    session: impl Session,
    stop: CancellationToken,
) {
    let name = name.as_ref();
    let mut delays = retry_delays(BACKOFF_MIN);
    for tries in 0.. {
        if stop.is_cancelled() {
            return;
        }
        let outcome = tokio::select! {
            outcome = connect(&target, tries, name) => outcome,
            () = stop.cancelled() => return,
        };
        let began = tokio::time::Instant::now();
        let outcome = match outcome {
            Ok(connection) => {
                metrics::CONNECTED.set_under([name.to_owned()], 1.0);
                work(&connection, &component, &session, &stop).await
            }
            Err(error) => Err(error),
        };
        metrics::CONNECTED.set_under([name.to_owned()], 0.0);
        let Err(error) = outcome else { return };
        component.not_ready(error.to_string());
        tracing::warn!(connection = name, %error, "broker connection ended");
        metrics::CONNECTION_FAILURES.add([name.to_owned()], 1);

        if began.elapsed() > HEALTHY_AFTER {
            delays = retry_delays(BACKOFF_MIN);
        }
        let delay = delays.next().unwrap_or(BACKOFF_MAX);
        tokio::select! { () = tokio::time::sleep(delay) => {}, () = stop.cancelled() => return }
    }
}

/// An endless series of jittered delays between attempts while a server is away: from `shortest` up
/// to 5 s, each between half of its value and all of it.
pub fn retry_delays(shortest: Duration) -> impl Iterator<Item = Duration> + Send {
    // backon's jitter adds up to as much again, hence the halves.
    ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(shortest / 2)
        .with_max_delay(BACKOFF_MAX / 2)
        .without_max_times()
        .build()
}

/// Connects, declares the topology and closes the connection.
pub async fn declare(target: &BrokerTarget, name: &str) -> Result<(), BrokerError> {
    let connection = connect_any(target, name).await?;
    topology::declare_on(&connection, &topology::work_queues(1)).await?;
    let _ = with_timeout(CLOSE_TIMEOUT, connection.close(200, "declared".into())).await;
    Ok(())
}

/// Returns the length of every queue, with `queues` queues in each family.
///
/// # Errors
/// When the broker can't be reached, does not answer or refuses, or a queue is missing.
pub async fn queue_lengths(
    target: &BrokerTarget,
    name: &str,
    queues: u16,
) -> Result<Vec<QueueLength>, BrokerError> {
    let connection = connect_any(target, name).await?;
    topology::declare_on(&connection, &topology::work_queues(1)).await?;
    let lengths = topology::lengths_on(&connection, queues).await?;
    let _ = with_timeout(CLOSE_TIMEOUT, connection.close(200, "looked".into())).await;
    Ok(lengths)
}

/// Connects to one node, a different one for each try.
pub(crate) async fn connect(
    target: &BrokerTarget,
    tries: usize,
    name: &str,
) -> Result<Connection, BrokerError> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = async_rs::Runtime::tokio_current();
    let node = target.node(tries);
    let connecting =
        Connection::connect_uri_with_config(node.uri.clone(), properties, node.tls(), runtime);
    let connection = with_timeout(CONNECT_TIMEOUT, connecting).await?;

    if target.declares {
        // No work queue: whoever has one that can't be declared must not keep off the others.
        topology::declare_on(&connection, &[]).await?;
    } else {
        topology::find_on(&connection).await?;
    }
    Ok(connection)
}

/// Connects to the first node that answers.
pub(crate) async fn connect_any(
    target: &BrokerTarget,
    name: &str,
) -> Result<Connection, BrokerError> {
    let mut tries = 0;
    loop {
        match connect(target, tries, name).await {
            Err(_) if tries + 1 < target.nodes() => tries += 1,
            connected => return connected,
        }
    }
}

/// Runs the session until it ends, the connection breaks, or it is told to stop.
async fn work(
    connection: &Connection,
    component: &Component,
    session: &impl Session,
    stop: &CancellationToken,
) -> Result<(), BrokerError> {
    let mut events = pin!(connection.events_listener());
    let watching = async {
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(reason) => session.blocked(component, Some(reason)),
                Event::ConnectionUnblocked => session.blocked(component, None),
                Event::Error(error)
                    if session.outlives_channels() && error.is_amqp_soft_error() => {}
                Event::Error(error) => return BrokerError::Lapin(error),
                _ => {}
            }
        }
        BrokerError::Ended("the connection was closed".into())
    };
    let outcome = tokio::select! {
        outcome = session.run(connection, component, stop) => outcome,
        error = watching => Err(error),
    };
    let _ = with_timeout(CLOSE_TIMEOUT, connection.close(200, "done".into())).await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_delay_is_longer_than_five_seconds() {
        let delays: Vec<_> = retry_delays(Duration::from_millis(200)).take(200).collect();
        assert!(delays[0] <= Duration::from_millis(200), "{delays:?}");
        let longest = delays.iter().max().unwrap();
        assert!(*longest <= BACKOFF_MAX, "{delays:?}");
        let late = &delays[10..];
        let shortest = late.iter().min().unwrap();
        assert!(*shortest >= BACKOFF_MAX / 2, "{late:?}");
        let distinct: std::collections::BTreeSet<_> = late.iter().collect();
        assert!(distinct.len() > 100, "jittered");
    }
}
