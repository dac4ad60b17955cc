//! Where a process finds its sealing keys: each column that holds sealed values has a setting of
//! its own, so that the gateway is not given what opens credentials, nor the worker what opens
//! webhook secrets.

use super::{KeyRing, SealedColumn};
use crate::process::{
    secret_setting::{SecretSetting, SecretText},
    settings::SettingError,
};

/// Keys of webhook secrets.
pub const WEBHOOK_KEYS: SecretSetting = SecretSetting {
    name: "LETTERBOX_WEBHOOK_KEYS",
    about: "Keys that seal webhook secrets, as ID:KEY[,ID:KEY...], each key 64 hexadecimal \
            digits; the first one seals, all of them open",
};

/// Keys of the credentials of connected accounts.
pub const ACCOUNT_KEYS: SecretSetting = SecretSetting {
    name: "LETTERBOX_ACCOUNT_KEYS",
    about: "Keys that seal the credentials of connected accounts, written like \
            LETTERBOX_WEBHOOK_KEYS",
};

/// Keys of both, for whoever has not told them apart.
pub const SEALING_KEYS: SecretSetting = SecretSetting {
    name: "LETTERBOX_SEALING_KEYS",
    about: "Keys for both, used where the setting of its own is missing",
};

/// The text of a column's keys, from its own setting or the one for both.
///
/// # Errors
/// When both settings are missing, or the one that is there can't be read.
pub fn keys_of(column: SealedColumn) -> Result<SecretText, SettingError> {
    find(column).map(|(_, text)| text)
}

/// The keys of a column, from its own setting or the one for both.
///
/// # Errors
/// Also when what is there is not a key ring. The message does not quote it.
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
        "LETTERBOX_SEALING_KEYS opens every sealed value; {} would open what is needed here",
        column.keys().name
    );
    Ok((&SEALING_KEYS, text))
}
