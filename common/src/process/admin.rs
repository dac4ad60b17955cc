//! The admin address: `/livez` (the process runs), `/readyz` (it can do its work, or what it waits
//! for) and `/metrics` (Prometheus). Never on the public address.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::readiness::Readiness;

/// Bounds of the histograms of durations, in seconds.
const SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0,
];
/// Bounds of the histograms of batch sizes.
const SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// Starts collecting metrics for the whole process.
///
/// # Errors
/// When it has been started already.
pub fn start_metrics() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_batch_size".into()), &SIZES)?
        .install_recorder()
}

/// Serves the admin address until `stop`. It goes on while the process drains, so that `/readyz`
/// can say so.
pub async fn serve(
    listener: TcpListener,
    readiness: Readiness,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let tidy = metrics.clone();
    let tidying = async move {
        loop {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            tidy.run_upkeep();
        }
    };
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    serve_connection(stream, readiness.clone(), metrics.clone(), stop.clone())
                }
                Err(error) => {
                    tracing::warn!(%error, "admin: accept failed");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! { () = stop.cancelled() => {}, () = accepting => {}, () = tidying => {} }
}

fn serve_connection(
    stream: tokio::net::TcpStream,
    readiness: Readiness,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let answer = answer(&request, &readiness, &metrics);
            async { Ok::<_, Infallible>(answer) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! { _ = connection => {}, () = stop.cancelled() => {} }
    });
}

fn answer(
    request: &Request<Incoming>,
    readiness: &Readiness,
    metrics: &PrometheusHandle,
) -> Response<Full<Bytes>> {
    let known = matches!(request.uri().path(), "/livez" | "/readyz" | "/metrics");
    if known && !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "GET only\n".into(),
        );
    }
    match request.uri().path() {
        "/livez" => text(StatusCode::OK, "text/plain", "alive\n".into()),
        "/readyz" => ready(readiness),
        "/metrics" => text(
            StatusCode::OK,
            "text/plain; version=0.0.4",
            metrics.render(),
        ),
        _ => text(
            StatusCode::NOT_FOUND,
            "text/plain",
            "/livez, /readyz or /metrics\n".into(),
        ),
    }
}

fn ready(readiness: &Readiness) -> Response<Full<Bytes>> {
    let waiting = readiness.waiting();
    let status = if waiting.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = serde_json::json!({ "ready": waiting.is_empty(), "waiting": waiting });
    text(status, "application/json", body.to_string())
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    response
}
