//! The worker's settings: every one an environment variable and a flag, read once, checked before anything starts.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use letterbox_common::{
    broker::{BrokerSettings, BrokerTarget},
    database::{self, DatabaseSettings, Role},
    process::settings::{ProcessSettings, SettingError},
};

/// Letterbox's back room: takes accepted messages from RabbitMQ and makes signals and runs of them
#[derive(Debug, Clone, Parser)]
#[command(name = "letterbox-worker", version)]
pub struct Settings {
    /// Where /livez, /readyz and /metrics are; keep it private
    #[arg(long, env = "LETTERBOX_ADMIN_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:9081")]
    pub admin_listen: SocketAddr,

    /// Messages of one queue that may be fetched and not yet acknowledged
    #[arg(long, env = "LETTERBOX_PREFETCH", value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub prefetch: u16,

    /// Most messages that are stored in one transaction
    #[arg(long, env = "LETTERBOX_BATCH_SIZE", value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub batch_size: u16,

    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub broker: BrokerSettings,

    #[command(flatten)]
    pub process: ProcessSettings,
}

/// The settings, checked and ready to use.
pub struct Config {
    pub pool: deadpool_postgres::Pool,
    pub broker: BrokerTarget,
    pub prefetch: u16,
    pub batch_size: usize,
    pub shutdown_timeout: Duration,
    /// Names this process to its servers: `letterbox-worker@host`.
    pub name: String,
}

impl Config {
    /// Checks the settings. Connects to nothing.
    ///
    /// # Errors
    /// Names the first setting that does not make sense.
    pub fn from_settings(settings: &Settings) -> Result<Self, SettingError> {
        let name = letterbox_common::process::name("letterbox-worker");
        Ok(Self {
            pool: database::create_pool(&settings.database, Role::Worker, &name)?,
            broker: settings.broker.target()?,
            prefetch: settings.prefetch,
            batch_size: usize::from(settings.batch_size),
            shutdown_timeout: settings.process.shutdown_timeout,
            name,
        })
    }
}
