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
    /// List dead letters, oldest first; they stay in their queue
    List {
        /// Only those whose reason contains this text
        #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason)]
        reason: Option<String>,
        /// Most dead letters to list
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Show one dead letter with its bodies
    Show {
        /// The id of the message or of one of its entries; its beginning is enough
        id: String,
    },
    /// Process dead letters again, oldest first; each entry still takes effect once
    Redrive {
        #[command(flatten)]
        chosen: ChosenLetters,
        /// Messages each second [default: all at once]
        #[arg(long, value_name = "PER_SECOND",
              value_parser = clap::value_parser!(u32).range(1..=1_000))]
        rate: Option<u32>,
    },
    /// Delete dead letters permanently
    Discard {
        #[command(flatten)]
        doomed: Doomed,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// The dead letters to delete.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Doomed {
    /// Only the message with this id, or with an entry of this id; its beginning is enough
    id: Option<String>,
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason)]
    reason: Option<String>,
}

/// The dead letters to redrive.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct ChosenLetters {
    /// Only the message with this id, or with an entry of this id; its beginning is enough
    #[arg(conflicts_with = "all")]
    id: Option<String>,
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", value_parser = part_of_a_reason, conflicts_with = "all")]
    reason: Option<String>,
    /// All that have a claim
    #[arg(long, conflicts_with = "unclaimed")]
    all: bool,
    /// Redrive only those without a claim, and claim them; use it only after a database restore
    #[arg(long)]
    unclaimed: bool,
}

pub(crate) async fn run(
    settings: &CliSettings,
    verb: DeadLettersCommand,
) -> Result<Output, Failure> {
    let broker = BrokerTarget::from_environment()?;
    Ok(match verb {
        DeadLettersCommand::List { reason, limit } => {
            let filter = DeadLetterFilter { id: None, reason };
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
            let redriving = operator.redrive(&broker, &filter, rate, chosen.unclaimed);
            Output::one(&redriving.await?)
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
    if text.trim().is_empty() {
        Err("must not be blank")
    } else {
        Ok(text.to_owned())
    }
}

/// A dead letter in one row: of its entries people see how many they are, and of which kind.
fn row(letter: &DeadLetterRow) -> Value {
    let mut row = output::value(letter);
    row["kind"] = json!(letter.entries.first().map(|entry| entry.kind));
    row["count"] = json!(letter.entries.len());
    row
}
