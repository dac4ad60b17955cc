//! `letterbox`: the operator command line. Arguments in, an order carried out, its result out: as a
//! table for people, as JSON for programs.

mod account;
mod apply;
mod approval;
mod audit;
mod check;
mod completion;
mod confirm;
mod dashboard;
mod dead_letters;
mod demo;
mod doctor;
mod examples;
mod export;
mod failure;
mod file;
mod follow;
mod form_link;
mod in_workspace;
mod keys;
mod manual;
mod member;
mod migrate;
mod next;
mod output;
mod policy;
mod ready;
mod run;
mod schema;
mod send;
mod settings;
mod signal;
mod status;
mod story;
mod subscription;
mod times;
mod user;
mod webhook;
mod workflow;
mod workspace;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use examples::with_examples;
use failure::{Failure, FailureKind, Result};
use letterbox_common::process::{deep_stacks::with_deep_stacks, secret_setting::help};
use letterbox_trials::{ProveCommand, SendCommand, receive};
use output::Output;
use settings::{CliSettings, SECRETS};
use url::Url;

/// Manages a Letterbox: workspaces, people, workflows and their forms, accounts, approvals,
/// webhooks, runs, signals, keys
///
/// An id can be given by its beginning or ending, or by the name or e-mail address of what it
/// names; orders that can't be undone take a whole id.
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
    /// Workspaces: tenants with their settings
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// People
    #[command(subcommand)]
    User(user::UserCommand),
    /// Choose the workspace of further commands, or show it
    Use(in_workspace::UseCommand),
    /// The members of workspaces and their roles
    #[command(subcommand)]
    Member(member::MemberCommand),
    /// Workflows, which public forms start
    #[command(subcommand)]
    Workflow(workflow::WorkflowCommand),
    /// Links to public forms
    #[command(subcommand)]
    FormLink(form_link::FormLinkCommand),
    /// Connected accounts: the servers that workflows call, and their credentials
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Requests that wait for a person's approval
    #[command(subcommand)]
    Approval(approval::ApprovalCommand),
    /// Policies and their history
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// The audit log: who ordered what
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Webhooks: addresses that other tools send signed events to
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Runs, one for each submission of a form
    #[command(subcommand)]
    Run(run::RunCommand),
    /// Show what is ready, what waits and for how long; exit code 3 if something is late
    Status(status::StatusCommand),
    /// Look for what may be wrong with the installation, and say what mends it; exit code 1 for a
    /// failure, 3 for a warning
    Doctor,
    Check(check::CheckCommand),
    /// Ask a gateway or a worker whether it is ready; exit code 75 if it is not
    Ready {
        /// Its admin address, such as http://127.0.0.1:9080
        url: Url,
    },
    /// Signals, one for each delivery to a webhook
    #[command(subcommand)]
    Signal(signal::SignalCommand),
    /// Apply files that describe workspaces: for each workspace all or nothing
    Apply(apply::ApplyCommand),
    /// Print the JSON Schema of definitions, policies or documents
    Schema {
        kind: schema::Kind,
    },
    /// Messages that could not be processed
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLettersCommand),
    /// Send a form or a signed event, to try an endpoint
    #[command(subcommand)]
    Send(SendCommand),
    Prove(ProveCommand),
    /// Answer 200 to every request of an action and print it, to try actions
    Receive {
        /// The address to listen on
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9099")]
        listen: SocketAddr,
    },
    /// Keys that seal secrets
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Create or repair the demo workspace, and show how to use it
    Demo(demo::DemoCommand),
    /// Print the script by which a shell completes commands
    ///
    /// For bash: source <(letterbox completion bash)
    Completion {
        shell: Shell,
    },
    /// Write a man page for each command
    ///
    /// To read one: man FOLDER/letterbox-run-cancel.1
    Man {
        /// The folder for the pages
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    completion::answer(Cli::command);
    with_deep_stacks(carry_out)
}

#[tokio::main(flavor = "current_thread")]
async fn carry_out() -> ExitCode {
    if std::env::args_os().len() <= 1 {
        let _ = with_examples(Cli::command()).print_help();
        return ExitCode::SUCCESS;
    }
    let parsed = with_examples(Cli::command())
        .try_get_matches()
        .and_then(|matches| {
            let cli = Cli::from_arg_matches(&matches)?;
            Ok((cli, words(&matches)))
        });
    let (mut cli, words) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            let misused = FailureKind::Misused;
            output::error_line(&misused.told(&error.to_string()));
            return misused.exit_code();
        }
        // Or what was asked for: help, the version.
        Err(error) => error.exit(),
    };
    cli.settings.command = words;
    let json = cli.settings.json;
    match Box::pin(run_command(&cli.settings, cli.command)).await {
        Ok(output) => {
            let code = output.print(json);
            if !json {
                next::hint(&cli.settings.command);
            }
            code
        }
        Err(failure) => fail(&failure, json),
    }
}

/// Says why a command was not carried out.
fn fail(failure: &Failure, json: bool) -> ExitCode {
    if json {
        output::error_line(&failure.told())
    } else {
        output::error(&failure.to_string())
    }
    failure.kind().exit_code()
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

async fn run_command(settings: &CliSettings, command: Command) -> Result<Output> {
    match command {
        Command::Migrate => migrate::run().await,
        Command::Workspace(command) => workspace::run(&settings.operator().await?, command).await,
        Command::Use(command) => in_workspace::choose(&settings.operator().await?, command).await,
        Command::User(command) => user::run(settings, command).await,
        Command::Member(command) => member::run(&settings.operator().await?, command).await,
        Command::Workflow(command) => workflow::run(settings, command).await,
        Command::FormLink(command) => form_link::run(settings, command).await,
        Command::Account(command) => account::run(settings, command).await,
        Command::Approval(command) => approval::run(settings, command).await,
        Command::Policy(command) => policy::run(&settings.operator().await?, command).await,
        Command::Audit(command) => audit::run(settings, command).await,
        Command::Webhook(command) => webhook::run(settings, command).await,
        Command::Run(command) => run::run(settings, command).await,
        Command::Status(command) => status::run(settings, &command).await,
        Command::Doctor => doctor::run(settings).await,
        Command::Check(command) => check::run(settings, &command).await,
        Command::Ready { url } => ready::run(&url).await,
        Command::Signal(command) => signal::run(settings, command).await,
        Command::Apply(command) => apply::run(settings, command).await,
        Command::Schema { kind } => schema::print(kind),
        Command::DeadLetters(command) => dead_letters::run(settings, command).await,
        Command::Send(command) => send::run(command).await,
        Command::Prove(command) => send::prove(command).await,
        Command::Receive { listen } => Err(receive(listen, output::line).await.into()),
        Command::Keys(command) => keys::run(settings, command).await,
        Command::Demo(command) => demo::run(settings, command).await,
        Command::Completion { shell } => completion::script(shell),
        Command::Man { folder } => manual::man(with_examples(Cli::command()), &folder),
    }
}
