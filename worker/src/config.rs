//! The worker's settings: each is an environment variable and a flag, parsed once and checked
//! before anything starts.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_common::{
    process::{
        secret_setting::{SecretSetting, help},
        settings::{ProcessSettings, SettingError, ToldSettings, milliseconds, seconds},
    },
    sealing::{ACCOUNT_KEYS, KeyRing, SEALING_KEYS, SealedColumn, key_ring},
};
use letterbox_database::{DATABASE_URL, Database, DatabaseSettings, DatabaseTarget, Role};
use url::Url;

use crate::{
    egress::{self, AllowList, Egress},
    executor::{Limits, MIN_LEASE, Timeouts},
    notices::{Mailer, SMTP_URL},
    retention::Retention,
};

/// A shutdown must outlast the longest request plus 5 s to record its answer.
const MIN_SHUTDOWN: Duration = Duration::from_secs(egress::TIMEOUT.as_secs() + 5);

/// Consumes accepted messages from RabbitMQ, stores signals, starts runs and executes them
#[derive(Debug, Clone, Parser)]
#[command(name = "letterbox-worker", version, after_help = help(&SECRETS))]
pub(crate) struct WorkerSettings {
    /// Address that serves /livez, /readyz and /metrics; keep it private
    #[arg(
        long,
        env = "LETTERBOX_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9081"
    )]
    pub admin_listen: SocketAddr,

    /// Maximum number of unacknowledged messages from one queue
    #[arg(long, env = "LETTERBOX_PREFETCH", value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub prefetch: u16,

    /// Maximum number of messages whose entries are stored in one transaction
    #[arg(long, env = "LETTERBOX_BATCH_SIZE", value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub batch_size: u16,

    /// Maximum number of runs that are executed at once
    #[arg(long, env = "LETTERBOX_RUN_CONCURRENCY", value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub run_concurrency: u16,

    /// Maximum number of runs of one workspace that are executed at once
    #[arg(long, env = "LETTERBOX_RUNS_PER_WORKSPACE", value_name = "N", default_value_t = 24,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub runs_per_workspace: u16,

    /// Maximum number of requests to one account at once
    #[arg(long, env = "LETTERBOX_REQUESTS_PER_ACCOUNT", value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub requests_per_account: u16,

    /// Time after which another worker takes over a run that its worker has not advanced, in
    /// seconds; at least 35
    #[arg(long, env = "LETTERBOX_RUN_LEASE_SECONDS", value_name = "SECONDS", default_value = "60",
        value_parser = seconds)]
    pub run_lease: Duration,

    /// Pause before the second attempt at an action, in milliseconds; doubled before each later one
    #[arg(long, env = "LETTERBOX_RETRY_MILLISECONDS", value_name = "MS", default_value = "3500",
        value_parser = milliseconds)]
    pub retry: Duration,

    /// Time that a person has to approve an action, in seconds
    #[arg(long, env = "LETTERBOX_APPROVAL_SECONDS", value_name = "SECONDS", default_value =
        "604800", value_parser = seconds)]
    pub approval: Duration,

    /// Private networks that actions may reach, as CIDR[:PORT][,CIDR[:PORT]...] [default: none]
    #[arg(
        long,
        env = "LETTERBOX_EGRESS_ALLOW",
        value_name = "NETWORKS",
        default_value = "",
        hide_default_value = true
    )]
    pub egress_allow: String,

    /// Megabytes that one workspace may store in a day (UTC); above this its runs are refused
    #[arg(long, env = "LETTERBOX_WORKSPACE_DAILY_MEGABYTES", value_name = "N",
          default_value_t = 51_200,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub workspace_daily_megabytes: u64,

    /// Days for which the bodies of signals are kept [default: forever]
    #[arg(long, env = "LETTERBOX_KEEP_BODIES_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub keep_bodies: Option<u16>,

    /// Days for which the inputs of finished runs are kept [default: forever]
    #[arg(long, env = "LETTERBOX_KEEP_INPUTS_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub keep_inputs: Option<u16>,

    /// Days for which the requests sent by finished runs are kept [default: forever]
    #[arg(long, env = "LETTERBOX_KEEP_REQUESTS_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub keep_requests: Option<u16>,

    /// Days for which finished runs are kept [default: forever]
    #[arg(long, env = "LETTERBOX_KEEP_RUNS_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u16).range(1..=36_500))]
    pub keep_runs: Option<u16>,

    /// Sender of e-mail, such as 'Letterbox <letterbox@example.com>'; needed with the SMTP URL
    #[arg(
        long,
        env = "LETTERBOX_SMTP_FROM",
        value_name = "ADDRESS",
        default_value = "",
        hide_default_value = true
    )]
    pub smtp_from: String,

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

/// The validated settings.
pub(crate) struct Config {
    pub database: Database,
    pub broker: BrokerTarget,
    pub prefetch: u16,
    pub max_batch: usize,
    pub run_concurrency: u16,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub keys: KeyRing,
    pub egress: Egress,
    pub max_daily_bytes: u64,
    /// `None` sends no e-mail.
    pub mailer: Option<Mailer>,
    pub desk: Url,
    pub notice: Duration,
    pub retention: Retention,
    pub shutdown_timeout: Duration,
    /// Name of this process as its servers see it: `letterbox-worker@host`.
    pub name: String,
    /// What it tells others of its settings.
    pub told: ToldSettings,
}

/// The secrets that this process needs.
const SECRETS: [&SecretSetting; 5] = [
    &DATABASE_URL,
    &AMQP_URL,
    &ACCOUNT_KEYS,
    &SEALING_KEYS,
    &SMTP_URL,
];

impl Config {
    /// Checks the settings. Connects to nothing.
    ///
    /// # Errors
    /// Names the first invalid setting.
    pub(crate) fn from_settings(
        settings: &WorkerSettings,
        told: ToldSettings,
    ) -> Result<Self, SettingError> {
        let lease = settings.run_lease;
        if lease < MIN_LEASE {
            let problem = format!(
                "must be at least {}, because a lease must outlast the longest request",
                MIN_LEASE.as_secs()
            );
            return Err(SettingError::new("LETTERBOX_RUN_LEASE_SECONDS", problem));
        }
        let shutdown_timeout = settings.process.shutdown_timeout;
        if shutdown_timeout < MIN_SHUTDOWN {
            let problem = format!(
                "must be at least {} in a worker, because a shutdown must outlast the longest \
                 request",
                MIN_SHUTDOWN.as_secs()
            );
            return Err(SettingError::new("LETTERBOX_SHUTDOWN_SECONDS", problem));
        }
        let allowed = settings.egress_allow.parse::<AllowList>();
        let allowed =
            allowed.map_err(|error| SettingError::new("LETTERBOX_EGRESS_ALLOW", error))?;
        let name = letterbox_common::process::name("letterbox-worker");
        let database = DatabaseTarget::from_environment()?;
        Ok(Self {
            database: Database::new(&database, &settings.database, Role::Worker, &name)?,
            broker: BrokerTarget::from_environment()?,
            prefetch: settings.prefetch,
            max_batch: usize::from(settings.batch_size),
            run_concurrency: settings.run_concurrency,
            limits: Limits {
                workspace: usize::from(settings.runs_per_workspace),
                account: usize::from(settings.requests_per_account),
            },
            timeouts: Timeouts {
                lease,
                retry: settings.retry,
                approval: settings.approval,
            },
            keys: key_ring(SealedColumn::AccountCredential)?,
            egress: Egress::new(&allowed)
                .map_err(|error| SettingError::new("LETTERBOX_EGRESS_ALLOW", error))?,
            max_daily_bytes: settings.workspace_daily_megabytes << 20,
            mailer: mailer(&settings.smtp_from)?,
            desk: settings.desk_url.clone(),
            notice: settings.notice,
            retention: Retention {
                bodies: settings.keep_bodies,
                inputs: settings.keep_inputs,
                requests: settings.keep_requests,
                runs: settings.keep_runs,
            },
            shutdown_timeout,
            name,
            told,
        })
    }
}

/// The way to the mail server, if one is named.
fn mailer(from: &str) -> Result<Option<Mailer>, SettingError> {
    let Some(url) = SMTP_URL.read()? else {
        return Ok(None);
    };
    if from.is_empty() {
        let problem = "is needed where LETTERBOX_SMTP_URL is set";
        return Err(SettingError::new("LETTERBOX_SMTP_FROM", problem));
    }
    // The error quotes neither the URL nor its password.
    let mailer = Mailer::new(url.expose(), from);
    mailer
        .map(Some)
        .map_err(|error| SettingError::new("LETTERBOX_SMTP_URL or LETTERBOX_SMTP_FROM", error))
}
