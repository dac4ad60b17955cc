//! Wakes of runs: many are handled at once, each by itself, and acknowledged when the run has
//! advanced as far as it can now. While the database is unavailable, wakes are held.

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::message::Delivery;
use letterbox_broker::{Alone, BrokerError, Publisher, RunWake, republished};
use letterbox_database::Fault;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    patience::{AWAY_TOO_LONG, MAX_HOLD, Patience, STOPPED_WHILE_AWAY},
    subscription::Subscription,
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

/// How a wake ended.
enum Ended {
    /// The run has advanced as far as it can now.
    Advanced,
    /// The run can be neither executed nor marked as failed.
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
                // Finished wakes first: acknowledging them frees places for new ones.
                biased;
                Some(result) = in_progress.next(), if !in_progress.is_empty() => {
                    let () = result?;
                }
                batch = subscription.next(stop), if fetching => match batch? {
                    Some(batch) => {
                        let handling = batch.into_iter().map(|wake| self.handle(queue, wake, stop));
                        in_progress.extend(handling);
                    }
                    // Stopped: finish the runs in progress, then return.
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
                // Every line that is logged meanwhile names the run, whatever the level.
                let (run_id, workspace_id) = (wake.run, wake.workspace);
                let span = tracing::error_span!("run", %run_id, %workspace_id);
                let advanced = self.advance(wake, stop).instrument(span).await?;
                // A place is free: the relay may hand over the next run.
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
                // Publish before acknowledging. Only this wake is held meanwhile; others go on.
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

    /// Advances a run, waiting while the database is unavailable.
    async fn advance(&self, wake: RunWake, stop: &CancellationToken) -> Result<Ended, BrokerError> {
        let began = Instant::now();
        for pause in outcome::pauses() {
            // A task of its own, so that a request in flight is finished even if this connection
            // is lost, and a panic fails only this run.
            let (executor, RunWake { workspace, run }) = (self.executor.clone(), wake.clone());
            let token = FencingToken::default();
            let held = token.clone();
            let advancing = async move { executor.advance(workspace, run, &held).await };
            let task = tokio::spawn(advancing.in_current_span());
            let fault = match task.await {
                Ok(Ok(())) => return Ok(Ended::Advanced),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the run could not be advanced");
                    error.fault
                }
                // The task panicked, and would panic again.
                Err(_) => Fault::Permanent,
            };
            // Mark the run as failed, or every worker would try it in turn.
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
                    // The database is unavailable: the next round tries the run again.
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
