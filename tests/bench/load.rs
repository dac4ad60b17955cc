//! The load generator: so many connections, one signed request at a time on each, every body
//! distinct.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use letterbox_common::{
    sealing::Secret,
    webhook::{SIGNATURE_HEADER, SigningKey},
};
use letterbox_tests::Webhook;
use tokio::{net::TcpStream, task::JoinSet};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A body like a real one, unlike every other in this run.
pub fn body() -> Bytes {
    let (n, run) = (NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
    format!(
        concat!(
            r#"{{"type":"proposal.created","entity":"Example GmbH","sourceTool":"bench","#,
            r#""amount":{{"value":1250.5,"currency":"EUR"}},"eventId":"{run}-{n}"}}"#,
        ),
        run = run,
        n = n,
    )
    .into()
}

/// What a run measured.
pub struct Measured {
    pub elapsed: Duration,
    /// Sorted.
    pub latencies: Vec<Duration>,
    pub failures: u64,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    pub fn quantile(&self, q: f64) -> Duration {
        let index = ((self.latencies.len() as f64 * q) as usize)
            .min(self.latencies.len().saturating_sub(1));
        self.latencies.get(index).copied().unwrap_or_default()
    }
}

/// Posts to `address` for `time`. Only 202 counts; everything else is a failure.
pub async fn run(address: &str, webhook: &Webhook, connections: usize, time: Duration) -> Measured {
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for _ in 0..connections {
        senders.spawn(send(address.to_owned(), webhook.clone(), began + time));
    }
    let (mut latencies, mut failures) = (Vec::new(), 0);
    for (more, failed) in senders.join_all().await {
        latencies.extend(more);
        failures += failed;
    }
    let elapsed = began.elapsed();
    latencies.sort_unstable();
    Measured {
        elapsed,
        latencies,
        failures,
    }
}

async fn send(address: String, webhook: Webhook, until: Instant) -> (Vec<Duration>, u64) {
    let stream = TcpStream::connect(&address)
        .await
        .expect("the server listens");
    stream.set_nodelay(true).expect("a socket");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .expect("a connection");
    tokio::spawn(connection);
    let key = SigningKey::new(&Secret::new(webhook.secret.clone().into_bytes()));
    let path = format!("/webhooks/incoming/{}", webhook.address);
    let (mut latencies, mut failures) = (Vec::new(), 0);
    while Instant::now() < until {
        let body = body();
        let request = Request::post(&path)
            .header("host", &address)
            .header("content-type", "application/json")
            .header(SIGNATURE_HEADER, key.sign(&body).to_string())
            .body(Full::new(body))
            .expect("a request");
        let began = Instant::now();
        let response = sender.send_request(request).await.expect("an answer");
        let status = response.status();
        response.into_body().collect().await.expect("a body");
        if status == 202 {
            latencies.push(began.elapsed())
        } else {
            failures += 1
        }
    }
    (latencies, failures)
}
