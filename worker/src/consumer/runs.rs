//! Wakes of runs: each is handled by itself, many at once, and acknowledged when the run has been
//! brought as far as it can be brought now. A run that can't be recorded, because the database is
//! away, is held.

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::message::Delivery;
use letterbox_common::{
    broker::{BrokerError, Envelope, Publisher, RunWake},
    database::Fault,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{HOLD_AT_MOST, subscription::Subscription};
use crate::{dead_letters, executor::Executor, outcome};

/// Consumes the queue of runs.
pub struct Runs {
    pub executor: Executor,
    /// For dead letters.
    pub publisher: Publisher,
    /// Runs that are worked on at once.
    pub concurrency: u16,
}

impl Runs {
    /// Works until `stop`; then takes nothing more, and finishes what it has.
    pub async fn consume(
        &self,
        subscription: Subscription,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        let Subscription {
            queue,
            channel,
            mut deliveries,
        } = subscription;
        let tag = deliveries.tag();
        let mut under_way = FuturesUnordered::new();
        let mut stopping = std::pin::pin!(stop.cancelled());
        let (mut cancelled, mut ended) = (false, false);
        loop {
            tokio::select! {
                biased;
                () = stopping.as_mut(), if !cancelled => {
                    cancelled = true;
                    Subscription::cancel(&channel, tag.clone()).await?;
                }
                Some(outcome) = under_way.next(), if !under_way.is_empty() => { let () = outcome?; }
                delivery = deliveries.next(), if !ended => match delivery {
                    Some(delivery) => under_way.push(self.handle(queue, delivery?, stop)),
                    None if cancelled => ended = true,
                    None => return Err(Subscription::ended(queue)),
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
        let reason = match Envelope::read(&message.properties) {
            Ok(Envelope::RunWake(wake)) => self.advance(wake, stop).await?,
            Ok(_) => Some("not a wake of a run".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            tracing::warn!(queue, reason, "dead-lettered");
            let published = dead_letters::publish(&self.publisher, queue, &message, &reason).await;
            published.map_err(|error| {
                BrokerError::Ended(format!("a dead letter could not be published: {error}"))
            })?;
        }
        Subscription::acknowledge(&message, false).await
    }

    /// Brings a run further, waiting out outages. Gives the reason why it never can be, and not
    /// even be ended.
    async fn advance(
        &self,
        wake: RunWake,
        stop: &CancellationToken,
    ) -> Result<Option<String>, BrokerError> {
        let began = Instant::now();
        for pause in outcome::pauses() {
            // A task of its own: what is being sent is brought to its end, whatever becomes of this
            // connection; and a panic is that run's failure.
            let (executor, RunWake { workspace, run }) = (self.executor.clone(), wake.clone());
            let advanced =
                tokio::spawn(async move { executor.advance(workspace, run).await }).await;
            let fault = match advanced {
                Ok(Ok(())) => return Ok(None),
                Ok(Err(error)) => {
                    tracing::warn!(run_id = %wake.run, %error, "a run could not be brought further");
                    error.fault
                }
                Err(_) => Fault::Permanent,
            };
            if fault == Fault::Permanent {
                match self.executor.abandon(wake.workspace, wake.run).await {
                    Ok(()) => return Ok(None),
                    Err(error) if error.fault == Fault::Permanent => {
                        return Ok(Some(error.to_string()));
                    }
                    Err(_) => {}
                }
            }
            if began.elapsed() > HOLD_AT_MOST {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // It returns to the queue.
                () = stop.cancelled() => return Err(BrokerError::Ended("stopped while the database is away".into())),
            }
        }
        Err(BrokerError::Ended(
            "the database has been away for too long to hold messages".into(),
        ))
    }
}
