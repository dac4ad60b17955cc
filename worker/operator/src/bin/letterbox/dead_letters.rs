//! `letterbox dead-letters …`

use clap::{Args, Subcommand};
use letterbox_broker::BrokerTarget;
use letterbox_operator::{DeadLetterFilter, DeadLetterRow, Operator};
use serde_json::{Value, json};

use crate::{Failure, Output, confirm::confirm_loss, output, settings::CliSettings};

const COLUMNS: [&str; 6] = [
    "message_id",
    "dead_since",
    "queue",
    "kind",
    "count",
    "reason",
];

#[derive(Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List what could not be processed, the oldest first. It stays where it is
    List {
        #[command(flatten)]
        which: Which,
        /// Most of them to list
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Show one of them, with what was sent
    Show {
        /// Of the message, or of one of its entries; its beginning is enough
        id: String,
    },
    /// Have dead letters processed after all, the oldest first. What was processed before changes
    /// nothing; what can't be processed still comes back
    Redrive {
        #[command(flatten)]
        chosen: Chosen,
        /// How many of them in each second [default: all at once]
        #[arg(long, value_name = "PER_SECOND",
              value_parser = clap::value_parser!(u32).range(1..=1_000))]
        rate: Option<u32>,
    },
    /// Throw dead letters away, such as what is none of ours. They can't be had back
    Discard {
        #[command(flatten)]
        doomed: Doomed,
        /// Without asking
        #[arg(long)]
        yes: bool,
    },
}

/// Those that are thrown away.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Doomed {
    /// Only the message with this id, or with an entry of this id; its beginning is enough
    id: Option<String>,
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason)]
    reason: Option<String>,
}

/// Those that are redriven.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Chosen {
    /// Only the message with this id, or with an entry of this id; its beginning is enough
    #[arg(conflicts_with = "all")]
    id: Option<String>,
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason, conflicts_with = "all")]
    reason: Option<String>,
    /// All that somebody has claimed
    #[arg(long, conflicts_with = "unclaimed")]
    all: bool,
    /// Those that nobody has claimed, of these or of all, and no others: say so only if you know
    /// that they are genuine, because the database was restored
    #[arg(long)]
    unclaimed: bool,
}

/// Some of the dead letters.
#[derive(Args)]
pub(crate) struct Which {
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason)]
    reason: Option<String>,
}

pub(crate) async fn run(
    settings: &CliSettings,
    verb: DeadLettersCommand,
) -> Result<Output, Failure> {
    let broker = BrokerTarget::from_environment()?;
    Ok(match verb {
        DeadLettersCommand::List { which, limit } => {
            let filter = DeadLetterFilter {
                id: None,
                reason: which.reason,
            };
            let rows = Operator::dead_letters(&broker, &filter, limit as usize).await?;
            Output::Many {
                rows: rows.iter().map(row).collect(),
                columns: &COLUMNS,
            }
        }
        DeadLettersCommand::Show { id } => Output::one(&Operator::dead_letter(&broker, &id).await?),
        DeadLettersCommand::Redrive { chosen, rate } => {
            let operator = settings.operator().await?;
            let filter = DeadLetterFilter {
                id: chosen.id,
                reason: chosen.reason,
            };
            Output::one(&match chosen.unclaimed {
                true => operator.redrive_unclaimed(&broker, &filter, rate).await?,
                false => operator.redrive(&broker, &filter, rate).await?,
            })
        }
        DeadLettersCommand::Discard { doomed, yes } => {
            confirm_loss("these dead letters are gone for good", yes)?;
            let operator = settings.operator().await?;
            let filter = DeadLetterFilter {
                id: doomed.id,
                reason: doomed.reason,
            };
            Output::one(&operator.discard_dead_letters(&broker, &filter).await?)
        }
    })
}

fn part_of_a_reason(text: &str) -> Result<String, &'static str> {
    match text.trim().is_empty() {
        true => Err("must not be blank"),
        false => Ok(text.to_owned()),
    }
}

/// A dead letter in one row: of its entries people see how many they are, and of which kind.
fn row(letter: &DeadLetterRow) -> Value {
    let mut row = output::value(letter);
    row["kind"] = json!(letter.entries.first().map(|entry| entry.kind));
    row["count"] = json!(letter.entries.len());
    row
}
