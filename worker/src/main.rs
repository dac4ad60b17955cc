//! `letterbox-worker`: reads the settings, binds the admin socket, runs until told to stop.

use std::process::ExitCode;

use clap::Parser;
use letterbox_common::process::{admin, logging, shutdown};
use letterbox_worker::{
    config::{Config, Settings},
    run,
};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    match start(Settings::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "letterbox-worker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn start(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    logging::start(&settings.process)?;
    let config = Config::from_settings(&settings)?;
    let metrics = admin::start_metrics()?;
    let address = settings.admin_listen;
    let socket = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
    run(config, socket, metrics, shutdown::on_signal()?).await;
    Ok(())
}
