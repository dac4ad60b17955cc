//! A publisher like the gateway's, for what is measured without a gateway.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use letterbox_broker::{BatchBody, BrokerTarget, Entry, Message, Publisher, publisher, supervise};
use letterbox_common::process::readiness::Readiness;
use letterbox_tests::{World, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const DEADLINE: Duration = Duration::from_secs(10);
/// As many entries as the gateway puts into one message.
const ENTRIES: usize = 32;
/// Messages that wait for their confirms at once.
const UNCONFIRMED: usize = 64;

/// A publisher that is connected.
pub struct Publishing {
    pub publisher: Publisher,
    stop: CancellationToken,
    supervised: JoinHandle<()>,
}

impl Publishing {
    pub async fn start(world: &World, channels: u16) -> Self {
        let (publisher, session) = publisher(channels, DEADLINE);
        let (readiness, stop) = (Readiness::default(), CancellationToken::new());
        let target: BrokerTarget = world.amqp_url.parse().expect("a broker");
        let (component, stopping) = (readiness.component("broker"), stop.clone());
        let supervised = tokio::spawn(async move {
            supervise(target, "bench", component, session, stopping).await;
        });
        eventually("connected", async || readiness.waiting().is_empty()).await;
        Self {
            publisher,
            stop,
            supervised,
        }
    }

    /// Claims and publishes `number` entries in full messages; how many of them were not confirmed.
    pub async fn publish_all<E: Entry + Send>(
        &self,
        world: &World,
        number: usize,
        entry: impl Fn() -> (E, Bytes),
    ) -> u64 {
        let sizes = (0..number).step_by(ENTRIES);
        let sizes = sizes.map(|at| ENTRIES.min(number - at));
        let publishing = stream::iter(sizes).map(|size| {
            let entries: Vec<_> = (0..size).map(|_| entry()).collect();
            let message = message(&entries);
            let publisher = self.publisher.clone();
            async move {
                world.claim(&message).await;
                match publisher.publish(message).await {
                    Ok(()) => 0,
                    Err(_) => size as u64,
                }
            }
        });
        let lost = publishing.buffer_unordered(UNCONFIRMED);
        lost.fold(0, async |sum, lost| sum + lost).await
    }

    pub async fn end(self) {
        self.stop.cancel();
        let _ = self.supervised.await;
    }
}

/// Publishes entries as one message; whether it was confirmed.
pub fn publish<E: Entry>(
    publisher: &Publisher,
    entries: &[(E, Bytes)],
) -> impl Future<Output = bool> + Send + use<E> {
    let (message, publisher) = (message(entries), publisher.clone());
    async move { publisher.publish(message).await.is_ok() }
}

fn message<E: Entry>(entries: &[(E, Bytes)]) -> Message {
    let (key, id) = (E::QUEUES.routing_key(1), Uuid::new_v4().to_string());
    BatchBody::encode(entries).into_message(key, id, "bench")
}
