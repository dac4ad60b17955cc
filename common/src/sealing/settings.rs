//! The settings that hold sealing keys. Webhook secrets and credentials have settings of their own,
//! so that the gateway can't open credentials, nor the worker webhook secrets.

use super::{KeyRing, SealedColumn};
use crate::process::{
    secret_setting::{SecretSetting, SecretText},
    settings::SettingError,
};

/// The keys that seal webhook secrets.
pub const WEBHOOK_KEYS: SecretSetting = SecretSetting {
    name: "LETTERBOX_WEBHOOK_KEYS",
    about: "Keys that seal webhook secrets, as ID:KEY[,ID:KEY...], each key 64 hexadecimal \
            digits; the first one seals, all of them open",
};

/// The keys that seal the credentials and answers of connected accounts, and what signs signals.
pub const ACCOUNT_KEYS: SecretSetting = SecretSetting {
    name: "LETTERBOX_ACCOUNT_KEYS",
    about: "Keys that seal the credentials and answers of connected accounts, and the secrets of \
            subscriptions, written like LETTERBOX_WEBHOOK_KEYS",
};

/// Fallback keys for both, for installations with a single key ring.
pub const SEALING_KEYS: SecretSetting = SecretSetting {
    name: "LETTERBOX_SEALING_KEYS",
    about: "Keys for both, used where LETTERBOX_WEBHOOK_KEYS or LETTERBOX_ACCOUNT_KEYS is missing",
};

impl SealedColumn {
    /// The setting that holds its keys.
    pub fn keys(self) -> &'static SecretSetting {
        match self {
            Self::WebhookSecret | Self::FormerWebhookSecret => &WEBHOOK_KEYS,
            Self::AccountCredential
            | Self::ClientSecret
            | Self::Grant
            | Self::ActionAnswer
            | Self::SubscriptionSecret => &ACCOUNT_KEYS,
        }
    }
}

/// Reads the text of a column's keys, from its own setting or the fallback.
///
/// # Errors
/// When both settings are missing, or the one that is there can't be read.
pub fn keys_of(column: SealedColumn) -> Result<SecretText, SettingError> {
    find(column).map(|(_, text)| text)
}

/// Reads the keys of a column, from its own setting or the fallback.
///
/// # Errors
/// As [`keys_of`], and when the text is not a key ring. The message does not quote it.
pub fn key_ring(column: SealedColumn) -> Result<KeyRing, SettingError> {
    let (setting, text) = find(column)?;
    let keys = text.expose().parse();
    keys.map_err(|error| SettingError::new(setting.name, error))
}

fn find(column: SealedColumn) -> Result<(&'static SecretSetting, SecretText), SettingError> {
    if let Some(text) = column.keys().read()? {
        return Ok((column.keys(), text));
    }
    let text = SEALING_KEYS
        .read()?
        .ok_or_else(|| column.keys().missing())?;
    tracing::warn!(
        "LETTERBOX_SEALING_KEYS opens every sealed value: set {}, which opens only what is needed",
        column.keys().name
    );
    Ok((&SEALING_KEYS, text))
}
