//! A supervised connection: connect, declare, work until something breaks, back off, again —
//! without end.
//!
//! lapin's own recovery is off. It gives up after a number of attempts, and a publish that is under
//! way when the connection breaks may hang; here whatever breaks ends the session, and everything
//! starts anew from a known state. Every await on lapin has a time limit.

use std::{pin::pin, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::StreamExt;
use lapin::{Connection, ConnectionProperties, Event};
use tokio_util::sync::CancellationToken;

use super::{BrokerTarget, topology};
use crate::process::readiness::Part;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A session that lived this long was healthy: the next one is tried at once again.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// Why a session ended although nobody asked it to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BrokerError {
    #[error("{0}")]
    Lapin(#[from] lapin::Error),
    #[error("no answer from the broker within {0:?}")]
    TimedOut(Duration),
    /// What the broker or a queue did that ends the session.
    #[error("{0}")]
    Ended(String),
}

/// What is done with a connection while it stands.
pub trait Session: Send + Sync {
    /// Works until `stop`, then finishes what is under way and returns `Ok`. An error ends the
    /// connection; `run` is called again with the next one.
    fn run(
        &self,
        connection: &Connection,
        part: &Part,
        stop: &CancellationToken,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// The broker takes nothing for now (`Some(reason)`), or again (`None`).
    fn blocked(&self, part: &Part, reason: Option<String>);
}

/// Keeps `session` running on a live connection called `name` until `stop`. The session says itself
/// when it is ready; here `part` is told why it is not.
pub async fn supervise(
    target: BrokerTarget,
    name: &str,
    part: Part,
    session: impl Session,
    stop: CancellationToken,
) {
    let mut delays = delays();
    while !stop.is_cancelled() {
        let began = tokio::time::Instant::now();
        let outcome = tokio::select! {
            outcome = connect(&target, name) => outcome,
            () = stop.cancelled() => return,
        };
        let outcome = match outcome {
            Ok(connection) => work(&connection, &part, &session, &stop).await,
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { return };
        part.waits_for(error.to_string());
        tracing::warn!(connection = name, %error, "broker connection ended");
        metrics::counter!("letterbox_broker_connection_failures_total", "connection" => name.to_owned()).increment(1);

        if began.elapsed() > HEALTHY_AFTER {
            delays = self::delays();
        }
        let delay = delays.next().unwrap_or(BACKOFF_MAX);
        tokio::select! { () = tokio::time::sleep(delay) => {}, () = stop.cancelled() => return }
    }
}

fn delays() -> impl Iterator<Item = Duration> + Send {
    ExponentialBuilder::default()
        .with_jitter()
        .with_min_delay(BACKOFF_MIN)
        .with_max_delay(BACKOFF_MAX)
        .without_max_times()
        .build()
}

async fn connect(target: &BrokerTarget, name: &str) -> Result<Connection, BrokerError> {
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = async_rs::Runtime::tokio_current();
    let connecting =
        Connection::connect_uri_with_config(target.uri.clone(), properties, target.tls(), runtime);
    let connection = in_time(CONNECT_TIMEOUT, connecting).await?;

    // Declared on a channel of its own: a refusal (406) closes the channel it happens on.
    let channel = in_time(CONNECT_TIMEOUT, connection.create_channel()).await?;
    in_time(CONNECT_TIMEOUT, topology::declare(&channel)).await?;
    let _ = in_time(CLOSE_TIMEOUT, channel.close(200, "declared".into())).await;
    Ok(connection)
}

/// Runs the session until it ends, the connection breaks, or it is told to stop.
async fn work(
    connection: &Connection,
    part: &Part,
    session: &impl Session,
    stop: &CancellationToken,
) -> Result<(), BrokerError> {
    let mut events = pin!(connection.events_listener());
    let watching = async {
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(reason) => session.blocked(part, Some(reason)),
                Event::ConnectionUnblocked => session.blocked(part, None),
                Event::Error(error) => return BrokerError::Lapin(error),
                _ => {}
            }
        }
        BrokerError::Ended("the connection was closed".into())
    };
    let outcome = tokio::select! {
        outcome = session.run(connection, part, stop) => outcome,
        error = watching => Err(error),
    };
    let _ = in_time(CLOSE_TIMEOUT, connection.close(200, "done".into())).await;
    outcome
}

pub(super) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(BrokerError::TimedOut(limit)),
    }
}
