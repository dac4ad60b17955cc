//! `letterbox dead-letters …`

use clap::{Args, Subcommand};
use letterbox_broker::BrokerTarget;
use letterbox_operator::{DeadLetterFilter, DeadLetterRow, Operator, OperatorError, Reason};
use serde_json::{Value, json};

use crate::{Failure, Output, output, settings::CliSettings};

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
        /// Of the message, or of one of its entries
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
}

/// Those that are redriven.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Chosen {
    /// Only the message with this id, or with an entry of this id
    #[arg(conflicts_with_all = ["unclaimed", "all"])]
    id: Option<String>,
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["unclaimed", "all"])]
    reason: Option<String>,
    /// All that somebody has claimed
    #[arg(long, conflicts_with = "unclaimed")]
    all: bool,
    /// Those that nobody has claimed, and no others: say so only if you know that they are genuine,
    /// because the database was restored
    #[arg(long)]
    unclaimed: bool,
}

/// Some of the dead letters.
#[derive(Args)]
pub(crate) struct Which {
    /// Only those whose reason contains this text
    #[arg(long, value_name = "TEXT")]
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
            let rows = Operator::dead_letters(&broker, &filter, limit as usize, false).await?;
            Output::Many {
                rows: rows.iter().map(row).collect(),
                columns: &COLUMNS,
            }
        }
        DeadLettersCommand::Show { id } => {
            let filter = DeadLetterFilter {
                id: Some(id),
                reason: None,
            };
            let rows = Operator::dead_letters(&broker, &filter, 1, true).await?;
            match rows.first() {
                Some(row) => Output::one(row),
                None => return Err(none_such()),
            }
        }
        DeadLettersCommand::Redrive { chosen, rate } => {
            let operator = settings.operator().await?;
            if chosen.unclaimed {
                return Ok(Output::one(
                    &operator.redrive_unclaimed(&broker, rate).await?,
                ));
            }
            let filter = DeadLetterFilter {
                id: chosen.id,
                reason: chosen.reason,
            };
            let redriven = operator.redrive(&broker, &filter, rate).await?;
            if filter.id.is_some() && redriven.redriven == 0 {
                return Err(none_such());
            }
            Output::one(&redriven)
        }
    })
}

fn none_such() -> Failure {
    OperatorError::from(Reason::NotFound("dead letter")).into()
}

/// A dead letter in one row: of its entries people see how many they are, and of which kind.
fn row(letter: &DeadLetterRow) -> Value {
    let mut row = output::value(letter);
    row["kind"] = json!(letter.entries.first().map(|entry| entry.kind));
    row["count"] = json!(letter.entries.len());
    row
}
