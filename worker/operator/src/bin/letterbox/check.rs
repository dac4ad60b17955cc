//! `letterbox check`: whether the data agree, and mending what does not.

use crate::{
    Failure, Output,
    confirm::ask,
    doctor,
    settings::{CliSettings, key_rings},
};
use clap::Args;
use letterbox_broker::{AMQP_URL, BrokerTarget};
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
    /// Mend what can be mended, after saying what that is
    #[arg(long)]
    repair: bool,
    /// Do not ask
    #[arg(long, requires = "repair")]
    yes: bool,
}

pub(crate) async fn run(settings: &CliSettings, command: &CheckCommand) -> Result<Output, Failure> {
    let operator = settings.operator().await?;
    let broker = match AMQP_URL.read()? {
        Some(_) => Some(BrokerTarget::from_environment()?),
        None => None,
    };
    let is_named = [&WEBHOOK_KEYS, &ACCOUNT_KEYS, &SEALING_KEYS];
    let is_named = is_named.map(SecretSetting::read).into_iter();
    let keys = match is_named
        .collect::<Result<Vec<_>, _>>()?
        .iter()
        .any(Option::is_some)
    {
        true => Some(key_rings()?),
        false => None,
    };
    let hours = f64::from(command.hours);
    let found = operator
        .check(hours, keys.as_ref(), broker.as_ref())
        .await?;
    if !command.repair {
        return Ok(doctor::output(&found));
    }
    let wrong = found.iter().filter(|one| one.repairs);
    let wrong: Vec<_> = wrong
        .map(|one| format!("{}: {}", one.about, one.detail))
        .collect();
    if wrong.is_empty() {
        return Ok(doctor::output(&found));
    }
    if !command.yes {
        ask(format!("this would be mended:\n{}", wrong.join("\n")))?;
    }
    let mended = operator.repair().await?;
    let mut found = operator
        .check(hours, keys.as_ref(), broker.as_ref())
        .await?;
    found.extend(mended);
    Ok(doctor::output(&found))
}
