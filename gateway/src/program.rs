//! The program: parses the settings, binds the sockets, and runs until it is told to stop.

use std::process::ExitCode;

use letterbox_common::process::{
    self, admin, logging,
    settings::{ToldSettings, parse},
    shutdown,
};

use crate::{
    all_metrics,
    config::{Config, GatewaySettings},
    server::{Sockets, run},
};

const PROGRAM: &str = "letterbox-gateway";

/// Runs the gateway. Exits with 2 if a flag or variable can't be parsed, and with 1 if it can't
/// start.
#[tokio::main]
pub async fn main() -> ExitCode {
    process::exit_code(PROGRAM, start(parse()).await)
}

async fn start(
    (settings, told): (GatewaySettings, ToldSettings),
) -> Result<(), Box<dyn std::error::Error>> {
    logging::start(&settings.process)?;
    let config = Config::from_settings(&settings, told)?;
    let traces = letterbox_traces::start(PROGRAM)?;
    let metrics = admin::start_metrics(PROGRAM, all_metrics())?;
    let sockets = Sockets::bind(settings.listen, settings.admin_listen)?;
    run(config, sockets, metrics, shutdown::on_signal()?).await;
    traces.end().await;
    Ok(())
}
