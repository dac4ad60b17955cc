//! A supervised connection of the broker: one session at a time, none after the stop, and whoever
//! publishes is told at once what becomes of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use lapin::{BasicProperties, Connection};
use letterbox_broker::{
    BrokerError, BrokerTarget, Message, PublishError, Session, publisher, supervise,
};
use letterbox_common::process::readiness::{Component, Readiness};
use letterbox_tests::{Proxy, World, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Counts the sessions: begun, and under way.
#[derive(Clone, Default)]
struct Counted {
    begun: Arc<AtomicUsize>,
    under_way: Arc<AtomicUsize>,
}

/// One that is under way, however it ends.
struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Session for Counted {
    async fn run(
        &self,
        _: &Connection,
        component: &Component,
        stop: &CancellationToken,
    ) -> Result<(), BrokerError> {
        assert_eq!(self.under_way.fetch_add(1, SeqCst), 0); // no other is under way
        let _under_way = UnderWay(self.under_way.clone());
        self.begun.fetch_add(1, SeqCst);
        component.ready();
        stop.cancelled().await;
        Ok(())
    }

    fn blocked(&self, _: &Component, _: Option<String>) {}
}

/// Supervises a connection until it is told to stop.
pub fn supervised<S: Session + Send + Sync + 'static>(
    url: &str,
    session: S,
    stop: &CancellationToken,
) -> (Readiness, JoinHandle<()>) {
    let target: BrokerTarget = url.parse().unwrap();
    let readiness = Readiness::default();
    let (part, stopping) = (readiness.component("broker"), stop.clone());
    let supervising = async move { supervise(target, "test", part, session, stopping).await };
    (readiness, tokio::spawn(supervising))
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_one_session_at_a_time_and_none_after_the_stop() {
    let world = World::new().await;
    let proxy = Proxy::before(&world.amqp_url).await;
    let (counted, stop) = (Counted::default(), CancellationToken::new());
    let (_readiness, supervised) = supervised(&proxy.url, counted.clone(), &stop);
    for number in 1..=4 {
        eventually("a session begins", async || {
            counted.begun.load(SeqCst) == number && counted.under_way.load(SeqCst) == 1
        })
        .await;
        proxy.cut();
        eventually("it ends", async || counted.under_way.load(SeqCst) == 0).await;
        if number < 4 {
            proxy.pass();
        }
    }
    // It is between two sessions.
    stop.cancel();
    proxy.pass();
    supervised.await.unwrap();
    assert_eq!(counted.begun.load(SeqCst), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_publishes_waits_for_no_deadline_of_a_broken_connection() {
    let world = World::new().await;
    let proxy = Proxy::before(&world.amqp_url).await;
    let hour = Duration::from_secs(3_600);
    let (publisher, session) = publisher(1, hour);
    let stop = CancellationToken::new();
    let (_readiness, supervised) = supervised(&proxy.url, session, &stop);
    eventually("connected", async || publisher.is_open()).await;
    let publish = || {
        let publisher = publisher.clone();
        let message = Message {
            exchange: "",
            routing_key: "nowhere".into(),
            properties: BasicProperties::default(),
            body: "x".into(),
        };
        async move { publisher.publish(message).await }
    };
    proxy.stall_to_client();
    let harmed = proxy.harmed();
    let waiting = tokio::spawn(publish());
    eventually("its confirm is held", async || proxy.harmed() > harmed).await;
    proxy.cut();
    let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert_eq!(told.unwrap().unwrap(), Err(PublishError::Lost));
    eventually("it is known", async || !publisher.is_open()).await;
    assert_eq!(publish().await, Err(PublishError::Unavailable));
    proxy.pass();
    eventually("connected", async || publisher.is_open()).await;
    stop.cancel();
    supervised.await.unwrap();
    assert_eq!(publish().await, Err(PublishError::Unavailable));
}

/// Half of those who send go away in the middle, and the gateway is stopped while no confirm
/// arrives: what it has claimed is confirmed then, and left open for no worker to ask about.
#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_leaves_no_confirmed_batch_open() {
    let (world, broker, mut gateway) = World::with_broker_proxy(&[]).await;
    let webhook = world.webhook(&gateway).await;
    broker.stall_to_client();
    let sending = (0..60).map(|number| {
        let request = webhook.request(format!("{{\"n\":{number}}}")).send();
        tokio::spawn(request)
    });
    let sending: Vec<_> = sending.collect();
    // The first batches are published, and wait for their confirms; the others wait for them.
    eventually("all have come", async || {
        let claimed = world.rows("webhook_deliveries").await;
        claimed > 0 && gateway.metric("letterbox_connections").await >= 60.0
    })
    .await;
    let (gone, staying): (Vec<_>, Vec<_>) = sending
        .into_iter()
        .enumerate()
        .partition(|(number, _)| number % 2 == 0);
    gone.iter().for_each(|(_, request)| request.abort());
    gateway.terminate();
    broker.pass();
    assert!(gateway.ended().await.success());
    for (number, request) in staying {
        let answer = request.await.unwrap().unwrap();
        assert_eq!(answer.status(), 202, "{number}");
    }
    world.assert_rows("open_batches", 0).await;
    let _worker = world.worker().await;
    // Of those who went away the last may not have been read.
    let claimed = world.rows("webhook_deliveries").await;
    assert!(claimed >= 30, "{claimed}");
    world.await_signals(claimed).await;
}
