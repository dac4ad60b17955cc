//! The usual next step, told to people at a terminal.

use std::io::{IsTerminal, stderr};

use crate::output;

/// Commands, and what follows them.
const STEPS: &[(&str, &str)] = &[
    (
        "migrate",
        "letterbox workspace create --name NAME, or letterbox status",
    ),
    (
        "workspace create",
        "letterbox webhook create --workspace …, or letterbox user create and letterbox member set",
    ),
    (
        "user create",
        "letterbox member set --workspace WORKSPACE --user … --role owner",
    ),
    (
        "member set",
        "letterbox workflow create, or letterbox account connect",
    ),
    ("workflow create", "letterbox workflow deploy …"),
    ("workflow deploy", "letterbox form-link create …"),
    ("workflow activate", "letterbox form-link create …"),
    ("form-link create", "letterbox send form --url URL FILE"),
    (
        "webhook create",
        "give the tool the address and the secret; letterbox webhook log … tells what it sends",
    ),
    (
        "webhook replace",
        "give the sender the new address and secret; letterbox webhook log … tells what it sends",
    ),
    ("dead-letters list", "letterbox dead-letters show ID"),
    (
        "dead-letters show",
        "mend the cause, then letterbox dead-letters redrive ID",
    ),
    (
        "dead-letters redrive",
        "letterbox dead-letters list: what can't be processed still comes back",
    ),
    ("approval list", "letterbox approval show ID"),
    (
        "approval show",
        "letterbox approval approve ID --by USER, or deny",
    ),
    ("run list", "letterbox run show ID"),
    ("signal list", "letterbox signal show ID"),
];

/// Says what follows a command that was carried out.
pub(crate) fn hint(words: &str) {
    if !stderr().is_terminal() {
        return;
    }
    if let Some((_, step)) = STEPS.iter().find(|(command, _)| *command == words) {
        output::hint(step);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    #[test]
    fn steps_follow_commands_that_there_are() {
        for (words, step) in STEPS {
            let commands = step.split("letterbox ").skip(1);
            let named = commands.map(|rest| rest.split([',', ':', ';']).next().unwrap());
            for words in named.chain([*words]) {
                let mut command = &Cli::command();
                let mut found = 0;
                for word in words.split_whitespace().take(2) {
                    let Some(one) = command.find_subcommand(word) else {
                        break;
                    };
                    (command, found) = (one, found + 1);
                }
                assert!(found > 0 && !command.has_subcommands(), "{words}");
            }
        }
    }
}
