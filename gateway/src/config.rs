//! The settings of the gateway: each has an environment variable and a flag, is parsed once, and is
//! checked before anything starts.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_common::{
    process::{
        client_address::TrustedProxies,
        secret_setting::{SecretSetting, help},
        settings::{ProcessSettings, SettingError, ToldSettings, milliseconds, seconds},
    },
    sealing::{KeyRing, SEALING_KEYS, SealedColumn, WEBHOOK_KEYS, key_ring},
};
use letterbox_database::{DATABASE_URL, Database, DatabaseSettings, DatabaseTarget, Role};
use url::Url;

use crate::cors::AllowedOrigins;

/// Takes form submissions and signed webhook deliveries and hands them to RabbitMQ
#[derive(Debug, Clone, Parser)]
#[command(name = "letterbox-gateway", version, after_help = help(&SECRETS))]
pub(crate) struct GatewaySettings {
    /// Public address for senders; HTTP/1.1, to be run behind a proxy that terminates TLS
    #[arg(
        long,
        env = "LETTERBOX_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080"
    )]
    pub listen: SocketAddr,

    /// URL of this service as senders see it
    #[arg(
        long,
        env = "LETTERBOX_BASE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub base_url: Url,

    /// URL of the app; browsers may call from its origin [default: the base URL]
    #[arg(long, env = "LETTERBOX_APP_URL", value_name = "URL")]
    pub app_url: Option<Url>,

    /// Proxies in front of the gateway whose X-Forwarded-For is trusted, as CIDR[,CIDR...]
    /// [default: none]
    #[arg(long, env = "LETTERBOX_TRUSTED_PROXIES", value_name = "NETWORKS")]
    pub trusted_proxies: Option<String>,

    /// Whether X-Request-Id is taken over from the trusted proxies, too; only if they make it
    /// themselves and pass on nobody's
    #[arg(long, env = "LETTERBOX_TRUSTED_REQUEST_IDS", value_name = "BOOL", default_value_t = false,
          action = clap::ArgAction::Set)]
    pub trusted_request_ids: bool,

    /// Maximum number of open connections; further ones wait to be accepted
    #[arg(long, env = "LETTERBOX_MAX_CONNECTIONS", value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,

    /// Lease of a claim, after which a retry may take over the delivery or submission, in seconds
    #[arg(long, env = "LETTERBOX_CLAIM_LEASE_SECONDS", value_name = "SECONDS", default_value =
        "15", value_parser = seconds)]
    pub claim_lease: Duration,

    /// How long to wait for the broker's confirm before a message is spilled to the database, in
    /// milliseconds; less than the lease
    #[arg(long, env = "LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS", value_name = "MS", default_value =
        "2000", value_parser = milliseconds)]
    pub publish_timeout: Duration,

    /// Queues for deliveries, and as many for submissions; each workspace uses one of each
    #[arg(long, env = "LETTERBOX_WORK_QUEUES", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub work_queues: u16,

    /// Number of lanes, which record batches concurrently, for deliveries, and as many for
    /// submissions
    #[arg(long, env = "LETTERBOX_LANES", value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub lanes: u16,

    /// Maximum number of spilled deliveries and submissions, which wait in the database for workers
    /// while RabbitMQ is away, over all gateways; beyond it, senders are refused
    #[arg(
        long,
        env = "LETTERBOX_SPILL_MESSAGES",
        value_name = "N",
        default_value_t = 100_000
    )]
    pub spill_messages: u64,

    /// Maximum megabytes of what is spilled, over all gateways
    #[arg(long, env = "LETTERBOX_SPILL_MEGABYTES", value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub spill_megabytes: u64,

    /// Maximum megabytes that one workspace may have stored in a day (UTC); beyond it, deliveries
    /// to its webhooks are refused
    #[arg(long, env = "LETTERBOX_WORKSPACE_DAILY_MEGABYTES", value_name = "N",
          default_value_t = 51_200,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub workspace_daily_megabytes: u64,

    /// Maximum megabytes that one webhook may have stored in a day (UTC); beyond it, deliveries are
    /// refused
    #[arg(long, env = "LETTERBOX_WEBHOOK_DAILY_MEGABYTES", value_name = "N",
          default_value_t = 10_240,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub webhook_daily_megabytes: u64,

    /// Zero bits that a proof of work must begin with, for forms that need one; up to six more
    /// while many submissions are refused
    #[arg(long, env = "LETTERBOX_PROOF_BITS", value_name = "BITS", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(0..=24))]
    pub proof_bits: u32,

    #[command(flatten)]
    pub database: DatabaseSettings,

    #[command(flatten)]
    pub process: ProcessSettings,
}

/// The settings, checked, and what is made of them.
pub(crate) struct Config {
    pub(crate) settings: GatewaySettings,
    pub database: Database,
    pub broker: BrokerTarget,
    pub keys: KeyRing,
    pub(crate) origins: AllowedOrigins,
    pub(crate) proxies: TrustedProxies,
    /// The name by which this process identifies itself to its servers: `letterbox-gateway@host`.
    pub name: String,
    /// What it tells others of its settings.
    pub told: ToldSettings,
}

/// The secrets that this process reads.
const SECRETS: [&SecretSetting; 4] = [&DATABASE_URL, &AMQP_URL, &WEBHOOK_KEYS, &SEALING_KEYS];

impl Config {
    /// Checks the settings, without connecting yet.
    pub(crate) fn from_settings(
        settings: GatewaySettings,
        told: ToldSettings,
    ) -> Result<Self, SettingError> {
        if settings.publish_timeout >= settings.claim_lease {
            let name = "LETTERBOX_PUBLISH_TIMEOUT_MILLISECONDS";
            let problem =
                "must be less than LETTERBOX_CLAIM_LEASE_SECONDS: a claim must outlast its publish";
            return Err(SettingError::new(name, problem));
        }
        for (name, url) in [
            ("LETTERBOX_BASE_URL", Some(&settings.base_url)),
            ("LETTERBOX_APP_URL", settings.app_url.as_ref()),
        ] {
            if url.is_some_and(|url| !matches!(url.scheme(), "http" | "https")) {
                let problem = "must begin with http:// or https://";
                return Err(SettingError::new(name, problem));
            }
        }
        let name = letterbox_common::process::name("letterbox-gateway");
        let database = DatabaseTarget::from_environment()?;
        let proxies = settings.trusted_proxies.as_deref().unwrap_or_default();
        let app_url = settings.app_url.as_ref().unwrap_or(&settings.base_url);
        Ok(Self {
            database: Database::new(&database, &settings.database, Role::Gateway, &name)?,
            // The gateway's login may only publish.
            broker: BrokerTarget::from_environment()?
                .without_declaring()
                .to_publish(),
            keys: key_ring(SealedColumn::WebhookSecret)?,
            origins: AllowedOrigins::of(&[app_url, &settings.base_url]),
            proxies: TrustedProxies::from_setting(proxies)?,
            settings,
            name,
            told,
        })
    }
}
