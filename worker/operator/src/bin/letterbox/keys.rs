//! `letterbox keys …`

use clap::Subcommand;

use crate::{
    Output, Result,
    settings::{CliSettings, key_rings},
};

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Seal every secret again with the first key, while everything goes on running
    Rotate,
}

pub(crate) async fn run(settings: &CliSettings, verb: KeysCommand) -> Result<Output> {
    let KeysCommand::Rotate = verb;
    let keys = key_rings()?;
    let operator = settings.operator().await?;
    Ok(Output::one(&operator.rotate_keys(&keys).await?))
}
