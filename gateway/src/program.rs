//! The program: parses the settings, binds the sockets, and runs until it is told to stop.

use std::process::ExitCode;

use letterbox_common::process::{
    self,
    admin::Admin,
    bind, logging,
    settings::{ToldSettings, parse},
    shutdown,
};

use crate::{
    all_metrics,
    config::{Config, GatewaySettings},
    server::run,
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
    let config = Config::from_settings(settings, told)?;
    let settings = &config.settings;
    let traces = letterbox_traces::start(PROGRAM)?;
    let public = bind("public", settings.listen)?;
    let admin = Admin::open(PROGRAM, all_metrics(), &settings.process)?;
    run(config, public, admin, shutdown::on_signal()?).await;
    traces.end().await;
    Ok(())
}
