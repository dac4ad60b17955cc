//! `letterbox-gateway`: reads the settings, binds the sockets, runs until told to stop.

use std::process::ExitCode;

use clap::Parser;
use letterbox_common::process::{admin, logging, shutdown};
use letterbox_gateway::{
    Sockets,
    config::{Config, Settings},
    run,
};

#[tokio::main]
async fn main() -> ExitCode {
    match start(Settings::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "letterbox-gateway: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn start(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    logging::start(&settings.process)?;
    let config = Config::from_settings(&settings)?;
    let metrics = admin::start_metrics()?;
    let sockets = Sockets::bind(settings.listen, settings.admin_listen).await?;
    run(config, sockets, metrics, shutdown::on_signal()?).await;
    Ok(())
}
