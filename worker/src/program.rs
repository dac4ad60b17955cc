//! The program: parses the settings, binds the admin socket and runs until it is told to stop.

use std::process::ExitCode;

use letterbox_common::process::{
    self,
    admin::Admin,
    deep_stacks::{runtime, with_deep_stacks},
    logging,
    settings::{ToldSettings, parse},
    shutdown,
};

use crate::{
    all_metrics,
    config::{Config, WorkerSettings},
    server::run,
};

const PROGRAM: &str = "letterbox-worker";

/// Runs the worker. Exits with 1 if it can't start and with 2 if a setting is wrong.
pub fn main() -> ExitCode {
    with_deep_stacks(run_worker)
}

fn run_worker() -> ExitCode {
    let settings = parse();
    let ended = runtime().map_err(Into::into).and_then(|runtime| {
        let ended = runtime.block_on(start(settings));
        // Don't wait for a template that is still rendering on a blocking thread.
        runtime.shutdown_background();
        ended
    });
    process::exit_code(PROGRAM, ended)
}

async fn start(
    (settings, told): (WorkerSettings, ToldSettings),
) -> Result<(), Box<dyn std::error::Error>> {
    logging::start(&settings.process)?;
    let config = Config::from_settings(settings, told)?;
    let traces = letterbox_traces::start(PROGRAM)?;
    let admin = Admin::open(PROGRAM, all_metrics(), &config.settings.process)?;
    run(config, admin, shutdown::on_signal()?).await;
    traces.end().await;
    Ok(())
}
