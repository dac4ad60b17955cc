//! Shell completion: commands, options, and names and ids from the database.

use std::{ffi::OsStr, time::Duration};

use clap::{Arg, Command};
use clap_complete::{
    ArgValueCompleter, CompletionCandidate, Shell,
    env::{CompleteEnv, Shells},
};
use letterbox_database::DatabaseTarget;
use letterbox_operator::{Noun, Operator};

use crate::{Failure, Output, Result, output};

/// The variable by which a shell's script asks.
const ASKED_BY: &str = "LETTERBOX_COMPLETE";
const PROGRAM: &str = "letterbox";
/// A shell does not wait longer for names.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a shell's script, if it is one that asks, and ends the program.
pub(crate) fn answer(command: impl Fn() -> Command) {
    let command = || with_names(command());
    CompleteEnv::with_factory(command).var(ASKED_BY).complete();
}

/// Prints the script by which a shell asks.
pub(crate) fn script(shell: Shell) -> Result<Output> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    if let Some(shell) = shells.completer(&shell.to_string()) {
        let written = shell.write_registration(ASKED_BY, PROGRAM, PROGRAM, PROGRAM, &mut script);
        written.map_err(Failure::Output)?;
    }
    output::bytes(&script).map_err(Failure::Output)?;
    Ok(Output::Nothing)
}

/// The same commands; arguments that name something complete to what there is.
fn with_names(command: Command) -> Command {
    let named = |arg: &Arg| Noun::named_by(arg.get_value_parser().type_id());
    let command = command.mut_args(|arg| match named(&arg) {
        Some((noun, by_name)) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
            candidates(noun, by_name, typed)
        })),
        None => arg,
    });
    command.mut_subcommands(with_names)
}

/// Candidates of a kind that begin with the typed text; none if the database can't be reached.
fn candidates(noun: Noun, by_name: bool, typed: &OsStr) -> Vec<CompletionCandidate> {
    let found = asked(noun, &typed.to_string_lossy()).unwrap_or_default();
    let shown = found.into_iter().map(|(id, shown)| {
        match by_name && noun.has_names() && is_plain(&shown) {
            true => CompletionCandidate::new(shown).help(Some(id.to_string().into())),
            false => CompletionCandidate::new(id.to_string()).help(Some(shown.into())),
        }
    });
    let begins = |one: &CompletionCandidate| {
        let value = one.get_value().as_encoded_bytes();
        value.starts_with(typed.as_encoded_bytes())
    };
    shown.filter(begins).collect()
}

/// Whether a name is one word for a shell, no option, and can't be taken for an id.
fn is_plain(name: &str) -> bool {
    let is_word = |one: char| one.is_alphanumeric() || "@._+-".contains(one);
    let is_digits = |one: char| one == '-' || one.is_ascii_hexdigit();
    name.chars().all(is_word) && !name.starts_with('-') && !name.chars().all(is_digits)
}

/// Asks the database, on a runtime of its own: a shell's question is answered before the program's
/// begins.
fn asked(noun: Noun, typed: &str) -> Option<Vec<(uuid::Uuid, String)>> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().ok()?;
    let asking = async {
        let target = DatabaseTarget::from_environment().ok()?;
        let operator = Operator::connect(&target).await.ok()?;
        operator.nameable(noun, typed).await.ok()
    };
    let found = runtime.block_on(async { tokio::time::timeout(PATIENCE, asking).await });
    // Or it would wait for what still resolves a name.
    runtime.shutdown_background();
    found.ok()?
}
