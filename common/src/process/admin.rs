//! The admin address: `/livez` (the process runs), `/readyz` (it can do its work, or what it is
//! waiting for) and `/metrics` (Prometheus). Never served on the public address.

use std::{convert::Infallible, error::Error, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{
    accept, bind,
    metrics::{Counter, Metric, MetricKind},
    readiness::Readiness,
    settings::ProcessSettings,
};
use crate::metrics::{BUILD_INFO, READY};

/// How often the exporter's upkeep runs.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The admin address of a process, and the metrics that it exports there.
pub struct Admin {
    socket: TcpListener,
    metrics: PrometheusHandle,
}

impl Admin {
    /// Binds the address, and starts collecting metrics for the whole process: those of `declared`,
    /// and the operating system's.
    ///
    /// # Errors
    /// When the address could not be bound, or collecting has been started already.
    pub fn open<'a>(
        program: &'static str,
        declared: impl IntoIterator<Item = &'a Metric>,
        settings: &ProcessSettings,
    ) -> Result<Self, Box<dyn Error>> {
        let declared: Vec<_> = declared.into_iter().collect();
        let mut builder = PrometheusBuilder::new();
        for metric in &declared {
            if let Some(buckets) = metric.kind.buckets() {
                builder = builder
                    .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)?;
            }
        }
        let metrics = builder.install_recorder()?;
        for metric in declared {
            let help = metric.help.trim();
            match metric.kind {
                MetricKind::Counter => {
                    metrics::describe_counter!(metric.name, help);
                    // A counter that first appears with a value would seem not to have grown.
                    if metric.labels.is_empty() {
                        Counter { metric: *metric }.increment(0);
                    }
                }
                MetricKind::Gauge => metrics::describe_gauge!(metric.name, help),
                MetricKind::Seconds | MetricKind::Delays | MetricKind::Sizes => {
                    metrics::describe_histogram!(metric.name, help);
                }
            }
        }
        Collector::default().describe();
        let version = env!("CARGO_PKG_VERSION");
        BUILD_INFO.set_under([program, version], 1.0);
        let socket = bind("admin", settings.admin_listen)?;
        Ok(Self { socket, metrics })
    }

    /// Serves the admin address until `stop`. It keeps serving while the process drains, so that
    /// `/readyz` can say so.
    pub async fn serve(self, readiness: Readiness, stop: CancellationToken) {
        let upkeep = async {
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                self.metrics.run_upkeep();
            }
        };
        let accepting = async {
            loop {
                let (stream, _) = accept(&self.socket).await;
                let serving = serve_connection(stream, readiness.clone(), self.metrics.clone());
                tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
            }
        };
        tokio::select! { () = stop.cancelled() => {}, () = accepting => {}, () = upkeep => {} }
    }
}

async fn serve_connection(stream: TcpStream, readiness: Readiness, metrics: PrometheusHandle) {
    let service = service_fn(move |request| {
        let response = respond(&request, &readiness, &metrics);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

fn respond(
    request: &Request<Incoming>,
    readiness: &Readiness,
    metrics: &PrometheusHandle,
) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, content_type, body) = match request.uri().path() {
        "/livez" | "/readyz" | "/metrics" if !is_read => {
            let only = "GET only\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", only)
        }
        "/livez" => (StatusCode::OK, "text/plain", "alive\n".to_owned()),
        "/readyz" => {
            let waiting = readiness.waiting();
            let body = serde_json::json!({
                "ready": waiting.is_empty(),
                "waiting": waiting,
                "degraded": readiness.degraded(),
            });
            let status = match waiting.is_empty() {
                true => StatusCode::OK,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, "application/json", body.to_string())
        }
        "/metrics" => {
            Collector::default().collect();
            READY.set(f64::from(u8::from(readiness.waiting().is_empty())));
            let text = "text/plain; version=0.0.4";
            (StatusCode::OK, text, metrics.render())
        }
        _ => {
            let known = "/livez, /readyz or /metrics\n".to_owned();
            (StatusCode::NOT_FOUND, "text/plain", known)
        }
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
