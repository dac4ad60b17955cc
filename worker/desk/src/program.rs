//! The program: parses the settings, binds the sockets, and runs until it is told to stop.

use std::process::ExitCode;

use clap::Parser;
use letterbox_common::process::{self, admin, bind, logging, shutdown};

use crate::{
    all_metrics,
    config::{Config, DeskSettings},
    server::run,
};

const PROGRAM: &str = "letterbox-desk";

/// Runs the desk. Exits with 2 if a flag or variable can't be parsed, and with 1 if it can't start.
#[tokio::main]
pub async fn main() -> ExitCode {
    process::exit_code(PROGRAM, start(DeskSettings::parse()).await)
}

async fn start(settings: DeskSettings) -> Result<(), Box<dyn std::error::Error>> {
    logging::start(&settings.process)?;
    let config = Config::from_settings(&settings)?;
    let metrics = admin::start_metrics(PROGRAM, all_metrics())?;
    let public = bind("public", settings.listen)?;
    let admin = bind("admin", settings.admin_listen)?;
    run(config, public, admin, metrics, shutdown::on_signal()?).await;
    Ok(())
}
