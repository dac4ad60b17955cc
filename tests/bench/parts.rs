//! The parts alone: bare hyper, confirmed publishing, claiming and settling.

use std::{
    convert::Infallible,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn,
};
use hyper_util::rt::TokioIo;
use letterbox_broker::{
    BatchBody, BrokerTarget, Publisher, Receipt, WebhookDelivery, publisher, supervise,
    topology::QueueFamily,
};
use letterbox_common::{ids::DeliveryId, process::readiness::Readiness, webhook::WebhookAddress};
use letterbox_database::{Database, DatabaseSettings, Role};
use letterbox_gateway::{
    claims::{Claimed, Claims, DeliveryKey},
    open_batches::{BatchId, Settlements},
};
use letterbox_tests::{Webhook, World, eventually};
use tokio::{io::AsyncBufReadExt, net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{CALLERS, MEASURE, WARM_UP, load};

/// A server that reads a body and answers 202: what HTTP costs by itself. A process of its own, as
/// the gateway is.
pub async fn bare_hyper() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("a socket");
        tokio::spawn(async move {
            let service = service_fn(async |request: Request<Incoming>| {
                let _ = request.into_body().collect().await;
                let mut response =
                    Response::new(Full::new(Bytes::from_static(br#"{"received":true}"#)));
                *response.status_mut() = StatusCode::ACCEPTED;
                Ok::<_, Infallible>(response)
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// H: requests a second through bare hyper.
pub async fn hyper_alone(webhook: &Webhook) -> f64 {
    let program = std::env::current_exe().expect("this program");
    let mut server = tokio::process::Command::new(program)
        .arg("bare-hyper")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a process");
    let mut lines = tokio::io::BufReader::new(server.stdout.take().expect("piped")).lines();
    let address = lines
        .next_line()
        .await
        .expect("readable")
        .expect("its address");
    load::run(&address, webhook, CALLERS, WARM_UP).await;
    let measured = load::run(&address, webhook, CALLERS, MEASURE).await;
    let _ = server.kill().await;
    measured.per_second()
}

/// As [`rate_of`], with as many callers as the gateway has at most.
async fn rate<F: Future<Output = ()> + Send + 'static>(
    step: impl Fn() -> F + Clone + Send + 'static,
) -> f64 {
    rate_of(CALLERS, step).await
}

/// Runs `callers` loops of `step` for the warm-up and the measurement; steps a second in the
/// latter.
async fn rate_of<F: Future<Output = ()> + Send + 'static>(
    callers: usize,
    step: impl Fn() -> F + Clone + Send + 'static,
) -> f64 {
    let mut rate = 0.0;
    for time in [WARM_UP, MEASURE] {
        let began = Instant::now();
        let mut running = JoinSet::new();
        for _ in 0..callers {
            let step = step.clone();
            running.spawn(async move {
                let mut steps = 0_u64;
                while began.elapsed() < time {
                    step().await;
                    steps += 1;
                }
                steps
            });
        }
        let steps: u64 = running.join_all().await.into_iter().sum();
        rate = steps as f64 / began.elapsed().as_secs_f64();
    }
    rate
}

/// B: confirmed publishes a second, as the gateway does them.
pub async fn publish_alone(world: &World) -> f64 {
    let (publisher, session) = publisher(4, Duration::from_secs(10));
    let (readiness, stop) = (Readiness::default(), CancellationToken::new());
    let target: BrokerTarget = world.amqp_url.parse().expect("a broker");
    let (component, stopping) = (readiness.component("broker"), stop.clone());
    let supervised =
        tokio::spawn(async move { supervise(target, "bench", component, session, stopping).await });
    eventually("connected", async || readiness.waiting().is_empty()).await;
    let address = WebhookAddress::generate();
    let rate = rate(move || publish(publisher.clone(), address)).await;
    stop.cancel();
    let _ = supervised.await;
    rate
}

async fn publish(publisher: Publisher, address: WebhookAddress) {
    let delivery = WebhookDelivery {
        delivery: DeliveryId::generate(),
        workspace: address.workspace,
        webhook: address.webhook,
        receipt: Receipt {
            received_at: jiff::Timestamp::now(),
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        },
    };
    let id = delivery.delivery.to_string();
    let body = BatchBody::encode(&[(delivery, load::body())]);
    let message = body.into_message("webhooks".into(), id, "bench");
    publisher.publish(message).await.expect("confirmed");
}

/// C: claims, each settled, a second, made in lanes as the gateway makes them.
pub async fn claims_alone(world: &World, address: WebhookAddress) -> f64 {
    const LANES: usize = 2;
    let Ok(database_url) = world.database_url.parse();
    let settings = DatabaseSettings {
        database_url,
        database_pool_size: 8,
    };
    let database = Database::new(&settings, Role::Gateway, "bench").expect("a database");
    let settlements = Arc::new(Settlements::default());
    let claims = Claims::new(database, Duration::from_secs(15), settlements.clone());
    let batch = CALLERS / LANES;
    let step = move || claim(claims.clone(), settlements.clone(), address, batch);
    batch as f64 * rate_of(LANES, step).await
}

async fn claim(claims: Claims, settlements: Arc<Settlements>, address: WebhookAddress, n: usize) {
    let batch = BatchId::generate();
    let keys: Vec<_> = (0..n)
        .map(|_| (DeliveryKey::new(address, &load::body()), batch))
        .collect();
    let claimed = claims.claim(&keys).await.expect("claimed");
    assert!(claimed.iter().all(|one| matches!(one, Claimed::Held(_))));
    settlements.confirm(batch);
}

/// Throws away what has been published, so that every measurement finds an empty queue.
pub async fn empty_queue(world: &World) {
    let channel = world
        .broker()
        .await
        .create_channel()
        .await
        .expect("a channel");
    let queue = QueueFamily::Webhooks.queue(1).name;
    channel
        .queue_purge(queue.into(), Default::default())
        .await
        .expect("purged");
}
