//! `letterbox dead-letters …`

use std::num::NonZero;

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
        /// Only the message with this id, or with an entry of this id
        #[arg(conflicts_with = "unclaimed")]
        id: Option<String>,
        #[command(flatten)]
        which: Which,
        /// How many of them in each second [default: all at once]
        #[arg(long, value_name = "PER_SECOND")]
        rate: Option<NonZero<u32>>,
        /// Those that nobody has claimed, and no others: say so only if you know that they are
        /// genuine, because the database was restored
        #[arg(long, conflicts_with = "reason")]
        unclaimed: bool,
    },
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
                None => return Err(OperatorError::from(Reason::NotFound("dead letter")).into()),
            }
        }
        DeadLettersCommand::Redrive {
            id,
            which,
            rate,
            unclaimed,
        } => {
            let (operator, rate) = (settings.operator().await?, rate.map(NonZero::get));
            let filter = DeadLetterFilter {
                id,
                reason: which.reason,
            };
            Output::one(&match unclaimed {
                true => operator.redrive_unclaimed(&broker, rate).await?,
                false => operator.redrive(&broker, &filter, rate).await?,
            })
        }
    })
}

/// A dead letter in one row: of its entries people see how many they are, and of which kind.
fn row(letter: &DeadLetterRow) -> Value {
    let mut row = output::value(letter);
    row["kind"] = json!(letter.entries.first().map(|entry| entry.kind));
    row["count"] = json!(letter.entries.len());
    row
}
