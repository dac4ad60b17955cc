//! `letterbox check`: whether the data agree.

use crate::{
    Output, Result, doctor,
    settings::{CliSettings, broker, key_rings},
};
use clap::Args;
use letterbox_common::{
    process::secret_setting::SecretSetting,
    sealing::{ACCOUNT_KEYS, SEALING_KEYS, WEBHOOK_KEYS},
};

/// Compare what was accepted, stored, run and asked; exit code 1 for a failure, 3 for a warning
#[derive(Args)]
pub(crate) struct CheckCommand {
    /// How far back accepted and stored things are compared one by one
    #[arg(long, value_name = "N", default_value_t = 24,
          value_parser = clap::value_parser!(u32).range(1..=8_760))]
    hours: u32,
}

pub(crate) async fn run(settings: &CliSettings, command: &CheckCommand) -> Result<Output> {
    let operator = settings.operator().await?;
    let named = [&WEBHOOK_KEYS, &ACCOUNT_KEYS, &SEALING_KEYS].map(SecretSetting::read);
    let named = named.into_iter().collect::<Result<Vec<_>, _>>()?;
    let keys = match named.iter().any(Option::is_some) {
        true => Some(key_rings()?),
        false => None,
    };
    let hours = f64::from(command.hours);
    let broker = broker()?;
    let checking = operator.check(hours, keys.as_ref(), broker.as_ref());
    Ok(doctor::output(&checking.await?))
}
