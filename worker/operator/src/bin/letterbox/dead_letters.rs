//! `letterbox dead-letters …`

use clap::Subcommand;
use letterbox_broker::BrokerTarget;

use crate::{Failure, Output, settings::CliSettings};

#[derive(Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// Have dead letters processed after all
    Redrive {
        /// Those that nobody has claimed: say so only if you know that they are genuine, because
        /// the database was restored
        #[arg(long, required = true)]
        unclaimed: bool,
    },
}

pub(crate) async fn run(
    settings: &CliSettings,
    verb: DeadLettersCommand,
) -> Result<Output, Failure> {
    let DeadLettersCommand::Redrive { unclaimed: _ } = verb;
    let operator = settings.operator().await?;
    let broker = BrokerTarget::from_environment()?;
    Ok(Output::one(&operator.redrive_unclaimed(&broker).await?))
}
