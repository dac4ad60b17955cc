//! `letterbox`: the operator command line. Arguments in, an order carried out, its result out: as a
//! table for people, as JSON for programs. Exit code 1 when refused or failed, 2 when the command
//! itself makes no sense.

mod account;
mod approval;
mod audit;
mod confirm;
mod dead_letters;
mod demo;
mod escape;
mod export;
mod file;
mod follow;
mod form_link;
mod keys;
mod member;
mod migrate;
mod model;
mod output;
mod policy;
mod receive;
mod run;
mod send;
mod settings;
mod signal;
mod status;
mod story;
mod times;
mod user;
mod webhook;
mod workflow;
mod workspace;

use std::{net::SocketAddr, process::ExitCode};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use letterbox_broker::BrokerError;
use letterbox_common::process::{secret_setting::help, settings::SettingError};
use letterbox_operator::OperatorError;
use output::Output;
use settings::{CliSettings, SECRETS};

/// Manages a Letterbox: workspaces, people, workflows and their forms, accounts, approvals,
/// webhooks, runs, signals, keys
///
/// Wherever an id is wanted, its beginning is enough, or a name or e-mail address; but what can't
/// be undone takes a whole id.
#[derive(Parser)]
#[command(name = "letterbox", version, after_help = help(&SECRETS))]
struct Cli {
    #[command(flatten)]
    settings: CliSettings,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring the database's schema up to date and, where AMQP_URL is set, declare the queues
    Migrate,
    /// Tenants
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// People
    #[command(subcommand)]
    User(user::UserCommand),
    /// Who belongs to a workspace, and as what
    #[command(subcommand)]
    Member(member::MemberCommand),
    /// What public forms start
    #[command(subcommand)]
    Workflow(workflow::WorkflowCommand),
    /// Links to public forms
    #[command(subcommand)]
    FormLink(form_link::FormLinkCommand),
    /// What workflows may call, and with which credential
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Requests that wait for a person's approval
    #[command(subcommand)]
    Approval(approval::ApprovalCommand),
    /// What actions may do, and since when
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Who ordered what
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Addresses that other tools send signed events to
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// What became of form submissions
    #[command(subcommand)]
    Run(run::RunCommand),
    /// What is ready, what waits and for how long; exit code 3 where something is late
    Status(status::StatusCommand),
    /// What became of deliveries
    #[command(subcommand)]
    Signal(signal::SignalCommand),
    /// What could not be processed
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Try an endpoint
    #[command(subcommand)]
    Send(send::SendCommand),
    /// Answer 200 to whatever actions send, and print it: for trying them
    Receive {
        /// Where actions connect
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9099")]
        listen: SocketAddr,
    },
    /// Keys that seal secrets
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Create the demo workspace, or repair it, and say how to use it
    Demo(demo::DemoCommand),
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error(transparent)]
    File(#[from] file::FileError),
    #[error("{0}: {1}")]
    Receive(SocketAddr, std::io::Error),
    #[error(transparent)]
    Send(#[from] send::PostError),
    #[error("a run or --workspace is required")]
    NoSubject,
    #[error("--closes-at and --max-answers are about the link of --new-link")]
    NoNewLink,
    #[error("--by USER is required: a person answers for this")]
    NobodyAnswers,
    #[error("nothing was done")]
    Declined,
    #[error("standard output: {0}")]
    Output(std::io::Error),
    #[error("CSV: {0}")]
    Csv(#[from] csv::Error),
    #[error("the broker: {0}")]
    Broker(#[from] BrokerError),
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        let misuse = matches!(
            self,
            Self::Setting(_)
                | Self::NobodyAnswers
                | Self::NoSubject
                | Self::NoNewLink
                | Self::Operator(OperatorError::Setting(_))
        );
        ExitCode::from(if misuse { 2 } else { 1 })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let Cli {
        mut settings,
        command,
    } = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    settings.command = words(&matches);
    match run_command(&settings, command).await {
        Ok(output) => output.print(settings.json),
        Err(failure) => {
            output::error(&failure.to_string());
            failure.exit_code()
        }
    }
}

/// The words of the command, such as `run cancel`: what the audit log calls it.
fn words(matches: &ArgMatches) -> String {
    let mut words = Vec::new();
    let mut deeper = matches.subcommand();
    while let Some((word, matches)) = deeper {
        words.push(word);
        deeper = matches.subcommand();
    }
    words.join(" ")
}

async fn run_command(settings: &CliSettings, command: Command) -> Result<Output, Failure> {
    match command {
        Command::Migrate => migrate::run().await,
        Command::Workspace(command) => workspace::run(&settings.operator().await?, command).await,
        Command::User(command) => user::run(&settings.operator().await?, command).await,
        Command::Member(command) => member::run(&settings.operator().await?, command).await,
        Command::Workflow(command) => workflow::run(settings, command).await,
        Command::FormLink(command) => form_link::run(settings, command).await,
        Command::Account(command) => account::run(settings, command).await,
        Command::Approval(command) => approval::run(settings, command).await,
        Command::Policy(command) => policy::run(&settings.operator().await?, command).await,
        Command::Audit(command) => audit::run(&settings.operator().await?, command).await,
        Command::Webhook(command) => webhook::run(settings, command).await,
        Command::Run(command) => {
            run::run(&settings.operator().await?, command, settings.json).await
        }
        Command::Status(command) => {
            status::run(&settings.operator().await?, &command, settings.json).await
        }
        Command::Signal(command) => {
            signal::run(&settings.operator().await?, command, settings.json).await
        }
        Command::DeadLetters(command) => dead_letters::run(settings, command).await,
        Command::Send(command) => send::run(command).await,
        Command::Receive { listen } => {
            Err(Failure::Receive(listen, receive::receive(listen).await))
        }
        Command::Keys(command) => keys::run(settings, command).await,
        Command::Demo(command) => demo::run(settings, command).await,
    }
}
