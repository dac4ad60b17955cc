//! `letterbox`: the operator command line. Arguments in, an order carried out, its result out: as a
//! table for people, as JSON for programs.

mod account;
mod approval;
mod audit;
mod confirm;
mod dead_letters;
mod demo;
mod escape;
mod examples;
mod export;
mod failure;
mod file;
mod follow;
mod form_link;
mod keys;
mod manual;
mod member;
mod migrate;
mod model;
mod next;
mod output;
mod policy;
mod ready;
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

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use examples::with_examples;
use failure::{Failure, FailureKind};
use letterbox_common::process::secret_setting::help;
use output::Output;
use settings::{CliSettings, SECRETS};
use url::Url;

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
    /// Ask a gateway or a worker whether it is ready; exit code 75 where it is not
    Ready {
        /// Its admin address, such as http://127.0.0.1:9080
        url: Url,
    },
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
    /// Print the script by which a shell completes commands
    ///
    /// For bash: source <(letterbox completion bash)
    Completion { shell: Shell },
    /// Write a man page for each command
    ///
    /// To read one: man FOLDER/letterbox-run-cancel.1
    Man {
        /// Where they are written
        folder: PathBuf,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let parsed = with_examples(Cli::command())
        .try_get_matches()
        .and_then(|matches| {
            let cli = Cli::from_arg_matches(&matches)?;
            Ok((cli, words(&matches)))
        });
    let (mut cli, words) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            return fail(FailureKind::Misused, &error.to_string(), true);
        }
        // Or what was asked for: help, the version.
        Err(error) => error.exit(),
    };
    cli.settings.command = words;
    let json = cli.settings.json;
    match run_command(&cli.settings, cli.command).await {
        Ok(output) => {
            let code = output.print(json);
            if !json {
                next::hint(&cli.settings.command);
            }
            code
        }
        Err(failure) => fail(failure.kind(), &failure.to_string(), json),
    }
}

/// Says why a command was not carried out.
fn fail(kind: FailureKind, message: &str, json: bool) -> ExitCode {
    match json {
        true => output::error_line(&kind.told(message)),
        false => output::error(message),
    }
    kind.exit_code()
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
        Command::Ready { url } => ready::run(&url).await,
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
        Command::Completion { shell } => manual::completion(Cli::command(), shell),
        Command::Man { folder } => manual::man(with_examples(Cli::command()), &folder),
    }
}
