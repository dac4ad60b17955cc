//! The worker's settings: each is an environment variable and a flag, parsed once and checked
//! before anything starts.

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_common::{
    process::{
        secret_setting::{SecretSetting, help},
        settings::{ProcessSettings, SettingError, ToldSettings, seconds},
    },
    sealing::{ACCOUNT_KEYS, SEALING_KEYS, SealedColumn, key_ring},
};
use letterbox_database::{DATABASE_URL, Database, DatabaseSettings, DatabaseTarget, Role};
use letterbox_workflow::actions::TIMEOUT;
use url::Url;
use uuid::Uuid;

use crate::{
    egress::{AllowList, EGRESS_PROXY, Egress, WayOut},
    executor::{MIN_LEASE, Timeouts},
    notices::{Mailer, SMTP_URL},
    upkeep::retention::Retention,
    worker::Worker,
};

/// A shutdown must outlast a request plus 5 s to record its answer. One that may take longer is cut
/// off, as by a crash.
const MIN_SHUTDOWN: Duration = Duration::from_secs(TIMEOUT.as_secs() + 5);

/// Consumes accepted messages from RabbitMQ, stores signals, starts runs and executes them
#[derive(Debug, Clone, Parser)]
#[command(name = "letterbox-worker", version, after_help = help(&SECRETS))]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9081")))]
pub(crate) struct WorkerSettings {
    /// Maximum number of unacknowledged messages from one queue
    #[arg(long, env = "LETTERBOX_PREFETCH", value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub prefetch: u16,

    /// Maximum number of messages whose entries are stored in one transaction
    #[arg(long, env = "LETTERBOX_BATCH_SIZE", value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub batch_size: u16,

    /// Maximum number of runs that are executed at once
    #[arg(long, env = "LETTERBOX_RUN_CONCURRENCY", value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub run_concurrency: u16,

    /// Maximum number of runs of one workspace that are executed at once
    #[arg(long, env = "LETTERBOX_RUNS_PER_WORKSPACE", value_name = "N", default_value_t = 96,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub runs_per_workspace: u16,

    /// Maximum number of requests to one account at once
    #[arg(long, env = "LETTERBOX_REQUESTS_PER_ACCOUNT", value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub requests_per_account: u16,

    #[command(flatten)]
    pub timeouts: Timeouts,

    /// Private networks that actions may reach, as CIDR[:PORT][,CIDR[:PORT]...] [default: none]
    #[arg(long, env = "LETTERBOX_EGRESS_ALLOW", value_name = "NETWORKS")]
    pub egress_allow: Option<String>,

    /// PEM file with authorities that actions trust beside the system's [default: none]
    #[arg(long, env = "LETTERBOX_EGRESS_CA_FILE", value_name = "FILE")]
    pub egress_ca_file: Option<PathBuf>,

    /// Megabytes that one workspace may store in a day (UTC); above this its runs are refused
    #[arg(long, env = "LETTERBOX_WORKSPACE_DAILY_MEGABYTES", value_name = "N",
          default_value_t = 51_200,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub workspace_daily_megabytes: u64,

    #[command(flatten)]
    pub retention: Retention,

    /// Sender of e-mail, such as 'Letterbox <letterbox@example.com>'; needed with the SMTP URL
    #[arg(long, env = "LETTERBOX_SMTP_FROM", value_name = "ADDRESS")]
    pub smtp_from: Option<String>,

    /// Address of the desk as people see it; begins the links in notices
    #[arg(
        long,
        env = "LETTERBOX_DESK_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8082"
    )]
    pub desk_url: Url,

    /// How long what happens in a workspace is gathered into one notice, in seconds
    #[arg(long, env = "LETTERBOX_NOTICE_SECONDS", value_name = "SECONDS", default_value = "60",
        value_parser = seconds)]
    pub notice: Duration,

    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub process: ProcessSettings,
}

/// The validated settings, and what is made of them.
pub(crate) struct Config {
    pub(crate) settings: WorkerSettings,
    pub worker: Worker,
    pub broker: BrokerTarget,
    /// `None` sends no e-mail.
    pub mailer: Option<Mailer>,
    /// What it tells others of its settings.
    pub told: ToldSettings,
}

/// The secrets that this process needs.
const SECRETS: [&SecretSetting; 6] = [
    &DATABASE_URL,
    &AMQP_URL,
    &ACCOUNT_KEYS,
    &SEALING_KEYS,
    &SMTP_URL,
    &EGRESS_PROXY,
];

impl Config {
    /// Checks the settings. Connects to nothing.
    pub(crate) fn from_settings(
        settings: WorkerSettings,
        mut told: ToldSettings,
    ) -> Result<Self, SettingError> {
        if settings.timeouts.lease < MIN_LEASE {
            let problem = format!(
                "must be at least {}, because a lease must outlast the longest request",
                MIN_LEASE.as_secs()
            );
            return Err(SettingError::new("LETTERBOX_RUN_LEASE_SECONDS", problem));
        }
        if settings.process.shutdown_timeout < MIN_SHUTDOWN {
            let problem = format!(
                "must be at least {} in a worker, because a shutdown must outlast the longest \
                 request",
                MIN_SHUTDOWN.as_secs()
            );
            return Err(SettingError::new("LETTERBOX_SHUTDOWN_SECONDS", problem));
        }
        let allowed = settings.egress_allow.as_deref().unwrap_or_default();
        let allowed: AllowList = allowed
            .parse()
            .map_err(|error| SettingError::new("LETTERBOX_EGRESS_ALLOW", error))?;
        let ca_file = settings.egress_ca_file.as_deref();
        let out = WayOut::from_settings(ca_file)?;
        told.insert(EGRESS_PROXY.name.to_owned(), out.told.clone());
        let mailer = mailer(settings.smtp_from.as_deref())?;
        // Whether there is one, and not its password.
        let has_mailer = mailer.as_ref().map_or("", |_| "set");
        told.insert(SMTP_URL.name.to_owned(), has_mailer.to_owned());
        let name = letterbox_common::process::name("letterbox-worker");
        let database = DatabaseTarget::from_environment()?;
        let worker = Worker {
            id: Uuid::now_v7(),
            database: Database::new(&database, &settings.database, Role::Worker, &name)?,
            name,
            keys: key_ring(SealedColumn::AccountCredential)?,
            egress: Egress::new(&allowed, &out)
                .map_err(|error| SettingError::new("LETTERBOX_EGRESS_ALLOW", error))?,
        };
        Ok(Self {
            worker,
            broker: BrokerTarget::from_environment()?,
            mailer,
            settings,
            told,
        })
    }
}

/// The way to the mail server, if one is named.
fn mailer(from: Option<&str>) -> Result<Option<Mailer>, SettingError> {
    let Some(url) = SMTP_URL.read()? else {
        return Ok(None);
    };
    let Some(from) = from.filter(|from| !from.is_empty()) else {
        let problem = "is needed where LETTERBOX_SMTP_URL is set";
        return Err(SettingError::new("LETTERBOX_SMTP_FROM", problem));
    };
    // The error quotes neither the URL nor its password.
    let mailer = Mailer::new(url.expose(), from);
    mailer
        .map(Some)
        .map_err(|error| SettingError::new("LETTERBOX_SMTP_URL or LETTERBOX_SMTP_FROM", error))
}
