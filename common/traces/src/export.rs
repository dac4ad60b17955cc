//! The export to the collector: OTLP over HTTP, in batches, in the background. Spans that the
//! collector does not accept are lost; nothing waits for it.
//!
//! OpenTelemetry's own environment variables configure it.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use letterbox_common::process::settings::SettingError;
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use reqwest::{blocking::Client, redirect::Policy};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::task::{block_in_place, spawn_blocking};

/// The variables that name the collector; the second one is for traces alone.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];
/// The time limit of one request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for sending the last spans when a process ends.
const END_TIMEOUT: Duration = Duration::from_secs(3);

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

pub(crate) fn provider() -> Option<&'static SdkTracerProvider> {
    PROVIDER.get()
}

/// The tracing of the process, to be ended with it. Empty when traces are off.
pub struct Traces(Option<SdkTracerProvider>);

/// Starts traces for the whole process if a collector is configured. Must be called within the
/// runtime.
///
/// # Errors
/// When the address of the collector is invalid.
pub fn start(program: &'static str) -> Result<Traces, SettingError> {
    let Some(name) = ENDPOINTS.iter().find(|name| is_given(name)) else {
        return Ok(Traces(None));
    };
    let wrong = |error: &dyn std::fmt::Display| SettingError::new(name, error);
    // A missing root store is no error: a collector behind plain http needs none.
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .timeout(TIMEOUT)
        .redirect(Policy::none())
        .no_proxy();
    // It runs on a thread of its own, and so does the exporter that waits for it.
    let client = block_in_place(|| client.build()).map_err(|error| wrong(&error))?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .build()
        .map_err(|error| wrong(&error))?;
    let mut resource = Resource::builder();
    if !is_given("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name(program);
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build();
    // Called once, so the cell is empty.
    let _ = PROVIDER.set(provider.clone());
    Ok(Traces(Some(provider)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "OpenTelemetry reads its variables itself"
)]
fn is_given(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

impl Traces {
    /// Sends the remaining spans, for a few seconds at most: the collector may be away.
    pub async fn end(self) {
        let Self(Some(provider)) = self else { return };
        let ending = spawn_blocking(move || drop(provider.shutdown_with_timeout(END_TIMEOUT)));
        let _ = ending.await;
    }
}
