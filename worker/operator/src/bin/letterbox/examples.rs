//! Examples: one at least for each command, shown at the end of its `--help` and in its man page.

use clap::Command;

/// Commands as they are typed.
const EXAMPLES: &[&str] = &[
    "letterbox migrate",
    "letterbox workspace create --name Acme",
    "letterbox workspace list",
    "letterbox workspace settings Acme --retry-attempts 5 --retry-first-milliseconds 1000",
    "letterbox workspace settings Acme --run-allowance 10000 --notify-by-email on",
    "letterbox workspace usage Acme",
    "letterbox workspace hold Acme --by ada@example.com --reason 'wrong price list'",
    "letterbox workspace release Acme",
    "letterbox workspace delete 01a1ff48-6c80-7651-82c4-c95867595738 --name Acme",
    "letterbox use Acme",
    "letterbox user create --email ada@example.com --name 'Ada Lovelace'",
    "letterbox user list --limit 20",
    "letterbox user deactivate ada@example.com",
    "letterbox user sign-in-link ada@example.com",
    "letterbox user sign-out ada@example.com",
    "letterbox user trust-issuer --issuer https://id.example.com",
    "letterbox user distrust-issuer --issuer https://id.example.com",
    "letterbox user issuers",
    "letterbox user unbind-issuer ada@example.com --issuer https://id.example.com",
    "letterbox user show ada@example.com",
    "letterbox member set --workspace Acme --user ada@example.com --role editor",
    "letterbox member remove --workspace Acme --user ada@example.com",
    "letterbox member list --workspace Acme",
    "letterbox workflow create --workspace Acme --owner ada@example.com --name Contact \
     --definition contact.json",
    "letterbox workflow deploy Contact --definition contact.json",
    "letterbox workflow deploy Contact --definition contact.json --dry-run",
    "letterbox workflow check contact.json",
    "letterbox workflow transfer Contact --to bob@example.com",
    "letterbox workflow pause Contact",
    "letterbox workflow activate Contact",
    "letterbox workflow draft Contact",
    "letterbox workflow delete 01a1ff48-6c80-7651-82c4-c95867595738",
    "letterbox workflow show Contact",
    "letterbox workflow export Contact --since 2026-01-01T00:00:00Z > contact.csv",
    "letterbox workflow list --workspace Acme",
    "letterbox form-link create Contact",
    "letterbox form-link end Contact",
    "letterbox account connect --workspace Acme --user ada@example.com --name crm \
     --base-url https://crm.example.com/api --bearer-file token",
    "letterbox account connect --workspace Acme --user ada@example.com --name crm \
     --base-url https://crm.example.com/api --token-url https://crm.example.com/oauth/token \
     --client-id letterbox --client-secret-file secret",
    "letterbox account connect --workspace Acme --user ada@example.com --name mail \
     --smtp smtps://mail.example.com --from 'Bakery <shop@example.com>' --basic-file password",
    "letterbox account list --workspace Acme",
    "letterbox account rotate crm --bearer-file token",
    "letterbox account try crm --path /me",
    "letterbox account disconnect 01a1ff48-6c80-7651-82c4-c95867595738",
    "letterbox approval list --workspace Acme",
    "letterbox approval show 01a1ff48",
    "letterbox approval approve 01a1ff48 --by ada@example.com",
    "letterbox approval deny 01a1ff48 --by ada@example.com --reason 'not our customer'",
    "letterbox policy show Acme --version 3",
    "letterbox policy set Acme policy.json --dry-run",
    "letterbox policy history Acme",
    "letterbox policy reset Acme",
    "letterbox audit list --workspace Acme --since 2026-01-31T08:00:00Z",
    "letterbox webhook tools zoom",
    "letterbox webhook show github",
    "letterbox webhook create --workspace Acme --name github --tool github",
    "letterbox webhook create --workspace Acme --name stripe --tool stripe --secret-later",
    "letterbox webhook set-secret stripe --secret-file secret",
    "letterbox webhook replace 01a1ff48-6c80-7651-82c4-c95867595738 --overlap 24h",
    "letterbox webhook log 01a1ff48-6c80-7651-82c4-c95867595738",
    "letterbox webhook list --workspace Acme",
    "letterbox webhook delete 01a1ff48-6c80-7651-82c4-c95867595738",
    "letterbox run list --workspace Acme --state failed --since 2026-01-31T08:00:00Z",
    "letterbox run list --workspace Acme --field email=ada@example.com",
    "letterbox run show 01a1ff48",
    "letterbox run cancel --workspace Acme --workflow Contact --yes",
    "letterbox run retry --workspace Acme --failure 'no connection' --rate 5 --yes",
    "letterbox run retry --workspace Acme --account crm --now",
    "letterbox run erase 01a1ff48-6c80-7651-82c4-c95867595738",
    "letterbox status --watch",
    "letterbox ready http://127.0.0.1:9080",
    "letterbox apply acme.json --plan",
    "letterbox apply acme.json webhooks.toml --prune --yes",
    "letterbox workspace export Acme",
    "letterbox schema definition",
    "letterbox doctor",
    "letterbox check --hours 72",
    "letterbox signal list --workspace Acme --limit 20",
    "letterbox signal list --workspace Acme --follow",
    "letterbox signal show 01a1ff48",
    "letterbox signal subscribe --workspace Acme --queue acme.crm --login acme-crm",
    "letterbox signal subscribe --workspace Acme --queue acme.won --signal-kind proposal.won \
     --from 7d",
    "letterbox signal subscribe --workspace Acme --url https://crm.example.com/hooks",
    "letterbox signal subscriptions --workspace Acme",
    "letterbox signal pause --workspace Acme --queue acme.crm",
    "letterbox signal resume --workspace Acme --queue acme.crm",
    "letterbox signal rewind --workspace Acme --queue acme.crm --to 1h",
    "letterbox signal unsubscribe --workspace Acme --queue acme.crm --delete-queue --yes",
    "letterbox dead-letters list --reason 'given up'",
    "letterbox dead-letters show 01a1ff48-6c80-7651-82c4-c95867595738",
    "letterbox dead-letters redrive --reason 'foreign key' --rate 20",
    "letterbox dead-letters discard --reason 'unknown message type' --yes",
    "letterbox send form --url 'https://letterbox.example.com/forms?token=…' answer.json",
    "letterbox send webhook --url https://letterbox.example.com/webhooks/incoming/… \
     --secret-file secret event.json",
    "letterbox prove https://letterbox.example.com/webhooks/incoming/… --secret-file secret \
     --queue prove --fault 'systemctl restart rabbitmq-server'",
    "letterbox receive --listen 127.0.0.1:9099",
    "letterbox keys rotate",
    "letterbox demo --folder .local --definition deploy/lib/demo-workflow.json \
     --receiver-url http://127.0.0.1:9099 --gateway-admin-url http://127.0.0.1:9080 \
     --worker-admin-url http://127.0.0.1:9081 \
     --desk-admin-url http://127.0.0.1:9082",
    "letterbox completion bash > /usr/share/bash-completion/completions/letterbox",
    "letterbox man /usr/local/share/man/man1",
];

/// The same commands with their examples.
pub(crate) fn with_examples(command: Command) -> Command {
    let path = command.get_name().to_owned();
    add(command, &path)
}

fn add(command: Command, path: &str) -> Command {
    if !command.has_subcommands() {
        let lines: String = of(path).map(|line| format!("\n  {line}")).collect();
        return command.after_help(format!("Examples:{lines}"));
    }
    command.mut_subcommands(|one| {
        let path = format!("{path} {}", one.get_name());
        add(one, &path)
    })
}

fn of(path: &str) -> impl Iterator<Item = &'static str> {
    EXAMPLES.iter().copied().filter(move |line| {
        let rest = line.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// The words of a line, as a shell has them; what it does with the output is left out.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" > ").next().unwrap();
        let quoted = line.split('\'').enumerate();
        let pieces = quoted.flat_map(|(place, piece)| match place % 2 {
            1 => vec![piece.to_owned()],
            _ => piece.split_whitespace().map(str::to_owned).collect(),
        });
        pieces.collect()
    }

    #[test]
    fn every_command_has_an_example_and_takes_it() {
        fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
            let mut subcommands = command.get_subcommands().peekable();
            if subcommands.peek().is_none() {
                found.push(path.to_owned());
            }
            for one in subcommands {
                leaves(one, &format!("{path} {}", one.get_name()), found);
            }
        }
        let mut found = Vec::new();
        leaves(&Cli::command(), "letterbox", &mut found);
        assert!(found.len() > 50, "{found:?}");
        for path in &found {
            assert!(of(path).next().is_some(), "{path} has no example");
        }
        for line in EXAMPLES {
            let of_one = found.iter().any(|path| of(path).any(|one| one == *line));
            assert!(of_one, "{line}");
            let parsed = Cli::command().try_get_matches_from(words(line));
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}
