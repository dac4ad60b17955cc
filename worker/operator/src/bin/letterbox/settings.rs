//! The settings of the command line, parsed once. Which of them a command needs, it says itself.

use letterbox_broker::{AMQP_URL, BrokerTarget};
use letterbox_common::{
    ids::UserId,
    process::{secret_setting::SecretSetting, settings::SettingError},
    sealing::{ACCOUNT_KEYS, SEALING_KEYS, SealedColumn, WEBHOOK_KEYS, key_ring},
};
use letterbox_database::{DATABASE_URL, DatabaseTarget};
use letterbox_operator::{Addresses, KeyRings, Named, Operator, OperatorError, Orderer};
use letterbox_trials::WEBHOOK_SECRET;

use crate::{Failure, Result, dashboard::DASHBOARD_URL};

/// The secrets that commands use.
pub(crate) const SECRETS: [&SecretSetting; 7] = [
    &DATABASE_URL,
    &WEBHOOK_KEYS,
    &ACCOUNT_KEYS,
    &SEALING_KEYS,
    &WEBHOOK_SECRET,
    &AMQP_URL,
    &DASHBOARD_URL,
];

/// The keys of both columns.
pub(crate) fn key_rings() -> Result<KeyRings, SettingError> {
    Ok(KeyRings {
        webhooks: key_ring(SealedColumn::WebhookSecret)?,
        accounts: key_ring(SealedColumn::AccountCredential)?,
    })
}

/// The broker, if one is named.
pub(crate) fn broker() -> Result<Option<BrokerTarget>, SettingError> {
    let named = AMQP_URL.read()?;
    named.map(|_| BrokerTarget::from_environment()).transpose()
}

/// The heading above the options that every command has.
const GLOBAL: &str = "Options of every command";

/// Settings of every command.
#[derive(clap::Args)]
pub(crate) struct CliSettings {
    /// Print one JSON object or array instead of a table
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,

    /// Id or e-mail address of the user who answers for the order
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "USER")]
    by: Option<Named<UserId>>,

    /// Why, for the audit log
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "TEXT")]
    reason: Option<String>,

    /// The words of the command.
    #[arg(skip)]
    pub(crate) command: String,

    #[command(flatten)]
    pub(crate) addresses: Addresses,
}

impl CliSettings {
    pub(crate) async fn operator(&self) -> Result<Operator, OperatorError> {
        let target = DatabaseTarget::from_environment()?;
        let by = match &self.by {
            Some(by) => {
                let operator = Operator::connect(&target).await?;
                Some(operator.user(operator.id(by).await?).await?.user_id)
            }
            None => None,
        };
        let orderer = Orderer {
            by,
            command: Some(self.command.clone()),
            reason: self.reason.clone(),
        };
        Operator::connect_as(&target, orderer).await
    }

    /// As [`Self::operator`], for orders that a person must answer for; gives who does.
    pub(crate) async fn operator_by(&self) -> Result<(Operator, UserId)> {
        let operator = self.operator().await?;
        let by = operator.ordered_by().ok_or(Failure::NoOrderer)?;
        Ok((operator, by))
    }
}
