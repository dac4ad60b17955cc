//! `letterbox keys …`

use clap::Subcommand;

use crate::{Failure, Output, Settings};

#[derive(Subcommand)]
pub enum Verb {
    /// Seal every secret again with the first key; everything may go on running
    Rotate,
}

pub async fn carry_out(settings: &Settings, verb: Verb) -> Result<Output, Failure> {
    let Verb::Rotate = verb;
    let keys = settings.keys()?;
    Ok(Output::one(
        &settings.owner().await?.rotate_keys(&keys).await?,
    ))
}
