//! Wakes of runs: each is handled by itself, many at once, and acknowledged when its run has come
//! as far as it can now. A run that can't be recorded, because the database is away, is held.

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::message::Delivery;
use letterbox_broker::{Alone, BrokerError, Publisher, RunWake, republished};
use letterbox_database::Fault;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    AWAY_TOO_LONG, MAX_HOLD, STOPPED_WHILE_AWAY, patience::Patience, subscription::Subscription,
};
use crate::{
    dead_letters,
    executor::{Executor, FencingToken},
    metrics,
    outcome::{self, Cause, Rejection},
};

/// Consumes the queue of wakes.
pub(super) struct WakeConsumer<'c> {
    pub(super) executor: &'c Executor,
    /// For dead letters.
    pub(super) publisher: &'c Publisher,
}

/// How a wake ended. Either way it is acknowledged.
enum Ended {
    /// The run came as far as it can now.
    Advanced,
    /// The run can't be executed, and not even be marked as failed.
    Unprocessable(Rejection),
}

impl WakeConsumer<'_> {
    pub(super) async fn consume(
        &self,
        subscription: &mut Subscription,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let queue = subscription.queue.clone();
        let queue = queue.as_str();
        let mut in_progress = FuturesUnordered::new();
        let mut fetching = true;
        loop {
            tokio::select! {
                biased;
                Some(result) = in_progress.next(), if !in_progress.is_empty() => {
                    let () = result?;
                }
                batch = subscription.next(stop), if fetching => match batch? {
                    Some(batch) => {
                        let handling = batch.into_iter().map(|wake| self.handle(queue, wake, stop));
                        in_progress.extend(handling);
                    }
                    None => fetching = false,
                },
                else => return Ok(()),
            }
        }
    }

    async fn handle(
        &self,
        queue: &str,
        message: Delivery,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let _taken = metrics::PLACES_TAKEN.hold();
        let ended = match RunWake::decode(&message.properties) {
            Ok(wake) => {
                let advanced = self.advance(wake, stop).await?;
                self.executor.relay.look();
                advanced
            }
            Err(error) => Ended::Unprocessable(Rejection {
                cause: Cause::Malformed,
                reason: error.to_string(),
            }),
        };
        let label = match ended {
            Ended::Advanced => "done",
            Ended::Unprocessable(rejection) => {
                let alone = Alone {
                    properties: republished(&message.properties),
                    body: message.data.clone().into(),
                };
                // Held by itself: the other wakes go on.
                let mut patience = Patience::new(stop);
                while dead_letters::publish(self.publisher, queue, &alone, &rejection)
                    .await
                    .is_err()
                {
                    patience.pause().await?;
                }
                "rejected"
            }
        };
        metrics::ENTRIES.add([queue.to_owned(), label.to_owned()], 1);
        Subscription::acknowledge(&message, false).await
    }

    /// Advances a run, and waits for the database if it is away.
    async fn advance(&self, wake: RunWake, stop: &CancellationToken) -> Result<Ended, BrokerError> {
        let began = Instant::now();
        for pause in outcome::pauses() {
            // A task of its own: a request in flight is brought to its end, whatever becomes of
            // this connection, and a panic is that run's failure.
            let (executor, RunWake { workspace, run }) = (self.executor.clone(), wake.clone());
            let token = FencingToken::default();
            let held = token.clone();
            let task = tokio::spawn(async move { executor.advance(workspace, run, &held).await });
            let fault = match task.await {
                Ok(Ok(())) => return Ok(Ended::Advanced),
                Ok(Err(error)) => {
                    tracing::warn!(run_id = %wake.run, %error, "the run could not be advanced");
                    error.fault
                }
                Err(_) => Fault::Permanent,
            };
            if fault == Fault::Permanent {
                match self
                    .executor
                    .abandon(wake.workspace, wake.run, &token)
                    .await
                {
                    Ok(()) => return Ok(Ended::Advanced),
                    Err(error) if error.fault == Fault::Permanent => {
                        return Ok(Ended::Unprocessable(Rejection::from(&error)));
                    }
                    Err(_) => {}
                }
            }
            if began.elapsed() > MAX_HOLD {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // The wake returns to the queue.
                () = stop.cancelled() => {
                    return Err(BrokerError::Ended(STOPPED_WHILE_AWAY.into()));
                }
            }
        }
        Err(BrokerError::Ended(AWAY_TOO_LONG.into()))
    }
}
