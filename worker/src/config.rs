//! The worker's settings: every one an environment variable and a flag, read once, checked before
//! anything starts.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use letterbox_common::{
    broker::{BrokerSettings, BrokerTarget},
    database::{self, DatabaseSettings, Role},
    process::{
        networks::Networks,
        settings::{ProcessSettings, SecretText, SettingError, milliseconds, seconds},
    },
    sealing::KeyRing,
};

use crate::{
    egress::{self, Egress},
    executor::Patience,
};

/// A request, and its record.
const LEASE_MIN: Duration = Duration::from_secs(egress::TIMEOUT.as_secs() + 15);

/// Letterbox's back room: takes accepted messages from RabbitMQ and makes signals and runs of them,
/// and executes the runs
#[derive(Debug, Clone, Parser)]
#[command(name = "letterbox-worker", version)]
pub struct Settings {
    /// Where /livez, /readyz and /metrics are; keep it private
    #[arg(
        long,
        env = "LETTERBOX_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9081"
    )]
    pub admin_listen: SocketAddr,

    /// Messages of one queue that may be fetched and not yet acknowledged
    #[arg(long, env = "LETTERBOX_PREFETCH", value_name = "N", default_value_t = 200,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub prefetch: u16,

    /// Most messages that are stored in one transaction
    #[arg(long, env = "LETTERBOX_BATCH_SIZE", value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub batch_size: u16,

    /// Runs that are executed at once
    #[arg(long, env = "LETTERBOX_RUN_CONCURRENCY", value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub run_concurrency: u16,

    /// How long a worker may be silent about a run before another one takes it, in seconds; more
    /// than 45
    #[arg(long, env = "LETTERBOX_RUN_LEASE_SECONDS", value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub run_lease: Duration,

    /// Pause before the second attempt at an action, in milliseconds; doubled before each further
    /// one
    #[arg(long, env = "LETTERBOX_RETRY_MILLISECONDS", value_name = "MS", default_value = "2000", value_parser = milliseconds)]
    pub retry: Duration,

    /// How long a person may take to approve an action, in seconds
    #[arg(long, env = "LETTERBOX_APPROVAL_SECONDS", value_name = "SECONDS", default_value = "604800", value_parser = seconds)]
    pub approval: Duration,

    /// Private networks that actions may reach all the same, as CIDR[,CIDR...] [default: none]
    #[arg(
        long,
        env = "LETTERBOX_EGRESS_ALLOW",
        value_name = "NETWORKS",
        default_value = "",
        hide_default_value = true
    )]
    pub egress_allow: String,

    /// Keys that open the credentials of connected accounts, as ID:KEY[,ID:KEY...], each key 64
    /// hexadecimal digits
    #[arg(
        long,
        env = "LETTERBOX_SEALING_KEYS",
        value_name = "KEYS",
        hide_env_values = true
    )]
    pub sealing_keys: SecretText,

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
    pub run_concurrency: u16,
    pub patience: Patience,
    pub keys: KeyRing,
    pub egress: Egress,
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
        let lease = settings.run_lease;
        if lease < LEASE_MIN {
            let problem = format!(
                "has to be more than {}: a lease must outlive its request",
                LEASE_MIN.as_secs()
            );
            return Err(SettingError::new("LETTERBOX_RUN_LEASE_SECONDS", problem));
        }
        let allowed = settings.egress_allow.parse::<Networks>();
        let allowed =
            allowed.map_err(|error| SettingError::new("LETTERBOX_EGRESS_ALLOW", error))?;
        let keys = settings.sealing_keys.expose().parse();
        let name = letterbox_common::process::name("letterbox-worker");
        Ok(Self {
            pool: database::create_pool(&settings.database, Role::Worker, &name)?,
            broker: settings.broker.target()?,
            prefetch: settings.prefetch,
            batch_size: usize::from(settings.batch_size),
            run_concurrency: settings.run_concurrency,
            patience: Patience {
                lease,
                retry: settings.retry,
                approval: settings.approval,
            },
            keys: keys.map_err(|error| SettingError::new("LETTERBOX_SEALING_KEYS", error))?,
            egress: Egress::new(allowed)
                .map_err(|error| SettingError::new("LETTERBOX_EGRESS_ALLOW", error))?,
            shutdown_timeout: settings.process.shutdown_timeout,
            name,
        })
    }
}
