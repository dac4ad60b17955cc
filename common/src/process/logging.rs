//! Structured logs on standard error.
//!
//! Some libraries log confidential data: lapin prints returned messages with their bodies and
//! frames with their contents, tokio-postgres prints statement parameters. Their levels are capped
//! here, in code, so that no setting can raise them. What lapin says of a connection that breaks is
//! said by whoever has the connection.

use tracing::{Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, filter::filter_fn, layer::SubscriberExt, util::SubscriberInitExt,
};

use super::settings::{LogFormat, ProcessSettings, SettingError};

/// Targets whose lines may hold bodies, parameters or credentials, with the most verbose level that
/// is safe for each.
const CAPPED: [(&str, LevelFilter); 8] = [
    ("lapin", LevelFilter::OFF),
    ("amq_protocol", LevelFilter::OFF),
    ("tokio_postgres", LevelFilter::WARN),
    ("deadpool", LevelFilter::WARN),
    ("refinery", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("rustls", LevelFilter::WARN),
    ("opentelemetry", LevelFilter::WARN),
];

/// Starts logging for the whole process.
///
/// # Errors
/// When LETTERBOX_LOG is not a filter.
pub fn start(settings: &ProcessSettings) -> Result<(), SettingError> {
    let wanted = EnvFilter::try_new(&settings.log)
        .map_err(|error| SettingError::new("LETTERBOX_LOG", error))?;
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let layer = match settings.log_format {
        LogFormat::Json => {
            let layer = layer.json().flatten_event(true);
            layer.with_span_list(false).boxed()
        }
        LogFormat::Text => layer.boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter_fn(is_harmless)))
        .with(wanted)
        .init();
    Ok(())
}

fn is_harmless(line: &Metadata<'_>) -> bool {
    CAPPED
        .iter()
        .all(|(target, most)| !line.target().starts_with(target) || line.level() <= most)
}
