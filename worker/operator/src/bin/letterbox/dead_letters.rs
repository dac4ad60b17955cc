//! `letterbox dead-letters …`

use clap::{Args, Subcommand};
use letterbox_broker::BrokerTarget;
use letterbox_operator::{DeadLetterFilter, DeadLetterRow, Operator, part_of_a_reason};
use serde_json::{Value, json};

use crate::{Output, Result, confirm::confirm_loss, settings::CliSettings};

const COLUMNS: &str = "message_id dead_since queue kind count reason";

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
#[group(required = true, multiple = true, args = ["id", "reason"])]
pub(crate) struct Doomed {
    #[command(flatten)]
    filter: DeadLetterFilter,
}

/// The dead letters to redrive.
#[derive(Args)]
#[group(required = true, multiple = true, args = ["id", "reason", "all", "unclaimed"])]
pub(crate) struct ChosenLetters {
    #[command(flatten)]
    filter: DeadLetterFilter,
    /// All that have a claim
    #[arg(long, conflicts_with_all = ["id", "reason", "unclaimed"])]
    all: bool,
    /// Redrive only those without a claim, and claim them; use it only after a database restore
    #[arg(long)]
    unclaimed: bool,
}

pub(crate) async fn run(settings: &CliSettings, verb: DeadLettersCommand) -> Result<Output> {
    let broker = BrokerTarget::from_environment()?;
    Ok(match verb {
        DeadLettersCommand::List { reason, limit } => {
            let filter = DeadLetterFilter { id: None, reason };
            let rows = Operator::dead_letters(&broker, &filter, limit as usize).await?;
            Output::many(&rows.iter().map(row).collect::<Vec<_>>(), COLUMNS)
        }
        DeadLettersCommand::Show { id } => Output::one(&Operator::dead_letter(&broker, &id).await?),
        DeadLettersCommand::Redrive { chosen, rate } => {
            let operator = settings.operator().await?;
            let redriving = operator.redrive(&broker, &chosen.filter, rate, chosen.unclaimed);
            Output::one(&redriving.await?)
        }
        DeadLettersCommand::Discard { doomed, yes } => {
            confirm_loss("these dead letters are gone for good", yes)?;
            let operator = settings.operator().await?;
            let discarding = operator.discard_dead_letters(&broker, &doomed.filter);
            Output::one(&discarding.await?)
        }
    })
}

/// A dead letter in one row: of its entries people see how many they are, and of which kind.
fn row(letter: &DeadLetterRow) -> Value {
    let mut row = json!(letter);
    row["kind"] = json!(letter.entries.first().map(|entry| entry.kind));
    row["count"] = json!(letter.entries.len());
    row
}
