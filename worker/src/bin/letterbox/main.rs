//! `letterbox`: the operator command line. Arguments in, an order carried out, its result out: as a
//! table for people, as JSON for programs. Exit code 1 when refused or failed, 2 when the command
//! itself makes no sense.

mod account;
mod approval;
mod file;
mod form_link;
mod keys;
mod member;
mod output;
mod receive;
mod run;
mod send;
mod signal;
mod user;
mod webhook;
mod workflow;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use letterbox_common::{
    database::DatabaseTarget,
    process::settings::{SecretText, SettingError},
    sealing::KeyRing,
};
use letterbox_worker::owner::{self, Owner, OwnerError};
use output::Output;
use url::Url;

/// Manages a Letterbox: workspaces, people, workflows and their forms, accounts, approvals,
/// webhooks, runs, signals, keys
#[derive(Parser)]
#[command(name = "letterbox", version)]
struct Cli {
    #[command(flatten)]
    settings: Settings,

    #[command(subcommand)]
    noun: Noun,
}

#[derive(clap::Args)]
struct Settings {
    /// Print one JSON object or array instead of a table
    #[arg(long, global = true)]
    json: bool,

    /// PostgreSQL, as postgres://USER:PASSWORD@HOST:PORT/DATABASE[?sslmode=...]
    #[arg(
        long,
        global = true,
        env = "DATABASE_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    database_url: Option<SecretText>,

    /// Sealing keys, as ID:KEY[,ID:KEY...], each key 64 hexadecimal digits; the first one seals
    #[arg(
        long,
        global = true,
        env = "LETTERBOX_SEALING_KEYS",
        value_name = "KEYS",
        hide_env_values = true
    )]
    sealing_keys: Option<SecretText>,

    /// Address of the gateway as senders see it; begins the URLs that are printed
    #[arg(
        long,
        global = true,
        env = "LETTERBOX_BASE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080"
    )]
    base_url: Url,

    /// Address of the app; begins the form links that are printed [default: the base URL]
    #[arg(long, global = true, env = "LETTERBOX_APP_URL", value_name = "URL")]
    app_url: Option<Url>,
}

#[derive(Subcommand)]
enum Noun {
    /// Bring the database's schema up to date
    Migrate,
    /// Tenants
    #[command(subcommand)]
    Workspace(workspace::Verb),
    /// People
    #[command(subcommand)]
    User(user::Verb),
    /// Who belongs to a workspace, and as what
    #[command(subcommand)]
    Member(member::Verb),
    /// What public forms start
    #[command(subcommand)]
    Workflow(workflow::Verb),
    /// Links to public forms
    #[command(subcommand)]
    FormLink(form_link::Verb),
    /// What workflows may call, and with which credential
    #[command(subcommand)]
    Account(account::Verb),
    /// Requests that wait for somebody's approval
    #[command(subcommand)]
    Approval(approval::Verb),
    /// Addresses that other tools send signed events to
    #[command(subcommand)]
    Webhook(webhook::Verb),
    /// What became of form submissions
    #[command(subcommand)]
    Run(run::Verb),
    /// What became of deliveries
    #[command(subcommand)]
    Signal(signal::Verb),
    /// Try an endpoint
    #[command(subcommand)]
    Send(send::Verb),
    /// Take what actions send, answer 200 and print it: for trying them
    Receive {
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9099")]
        listen: std::net::SocketAddr,
    },
    /// Keys that seal secrets
    #[command(subcommand)]
    Keys(keys::Verb),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Setting(#[from] SettingError),
    #[error("{0}")]
    Owner(#[from] OwnerError),
    #[error("{0}")]
    File(#[from] file::FileError),
    #[error("{0}: {1}")]
    Receive(std::net::SocketAddr, std::io::Error),
    #[error("{0}")]
    Send(#[from] send::SendError),
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(if matches!(self, Self::Setting(_)) {
            2
        } else {
            1
        })
    }
}

impl Settings {
    fn database(&self) -> Result<DatabaseTarget, SettingError> {
        self.database_url
            .as_ref()
            .ok_or_else(|| SettingError::new("DATABASE_URL", "is missing"))?
            .expose()
            .parse()
    }

    fn keys(&self) -> Result<KeyRing, SettingError> {
        let missing = || SettingError::new("LETTERBOX_SEALING_KEYS", "is missing");
        let text = self.sealing_keys.as_ref().ok_or_else(missing)?;
        text.expose()
            .parse()
            .map_err(|error| SettingError::new("LETTERBOX_SEALING_KEYS", error))
    }

    async fn owner(&self) -> Result<Owner, Failure> {
        Ok(Owner::connect(&self.database()?).await?)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Cli { settings, noun } = Cli::parse();
    match carry_out(&settings, noun).await {
        Ok(output) => output.print(settings.json),
        Err(failure) => {
            output::error(&failure.to_string());
            failure.exit_code()
        }
    }
}

async fn carry_out(settings: &Settings, noun: Noun) -> Result<Output, Failure> {
    match noun {
        Noun::Migrate => Ok(Output::one(&owner::migrate(&settings.database()?).await?)),
        Noun::Workspace(verb) => workspace::carry_out(&settings.owner().await?, verb).await,
        Noun::User(verb) => user::carry_out(&settings.owner().await?, verb).await,
        Noun::Member(verb) => member::carry_out(&settings.owner().await?, verb).await,
        Noun::Workflow(verb) => workflow::carry_out(settings.owner().await?, verb).await,
        Noun::FormLink(verb) => form_link::carry_out(settings, verb).await,
        Noun::Account(verb) => account::carry_out(settings, verb).await,
        Noun::Approval(verb) => approval::carry_out(&settings.owner().await?, verb).await,
        Noun::Webhook(verb) => webhook::carry_out(settings, verb).await,
        Noun::Run(verb) => run::carry_out(&settings.owner().await?, verb).await,
        Noun::Signal(verb) => signal::carry_out(&settings.owner().await?, verb).await,
        Noun::Send(verb) => send::carry_out(verb).await,
        Noun::Receive { listen } => Err(Failure::Receive(listen, receive::receive(listen).await)),
        Noun::Keys(verb) => keys::carry_out(settings, verb).await,
    }
}
