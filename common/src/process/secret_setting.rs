//! Settings that hold secrets: environment variables, or files that another variable names. They
//! have no flags, because every user of a machine can read argument lists.

use std::{env, ffi::OsString, fmt, fs};

use zeroize::Zeroizing;

use super::settings::SettingError;

/// The text of a secret setting. Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// The secret.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A setting that holds a secret.
#[derive(Debug, PartialEq, Eq)]
pub struct SecretSetting {
    /// The environment variable. With `_FILE` behind it, the one that names a file.
    pub name: &'static str,
    /// What it is, for `--help`.
    pub about: &'static str,
}

impl SecretSetting {
    /// The secret, from the environment or from its file, without the line break at its end; none
    /// where it is missing or empty.
    ///
    /// # Errors
    /// When both variables are set, or the file can't be read.
    pub fn read(&self) -> Result<Option<SecretText>, SettingError> {
        let (value, file) = (variable(self.name), variable(&self.file_name()));
        let text = match (value, file) {
            (None, None) => return Ok(None),
            (Some(value), None) => value
                .into_string()
                .map_err(|_| self.wrong("is not UTF-8"))?,
            (None, Some(file)) => fs::read_to_string(&file).map_err(|error| {
                let file = file.to_string_lossy();
                self.wrong(format!("{} {file}: {error}", self.file_name()))
            })?,
            (Some(_), Some(_)) => {
                return Err(self.wrong(format!("{} is set, too", self.file_name())));
            }
        };
        let mut text = SecretText::from(text);
        let length = text.0.trim_end_matches(['\r', '\n']).len();
        text.0.truncate(length);
        Ok(Some(text).filter(|text| !text.0.is_empty()))
    }

    /// The secret.
    ///
    /// # Errors
    /// Also when it is missing.
    pub fn require(&self) -> Result<SecretText, SettingError> {
        self.read()?.ok_or_else(|| self.missing())
    }

    /// Says that it is missing.
    #[must_use]
    pub fn missing(&self) -> SettingError {
        self.wrong(format!("must be set, or {}", self.file_name()))
    }

    fn wrong(&self, problem: impl fmt::Display) -> SettingError {
        SettingError::new(self.name, problem)
    }

    fn file_name(&self) -> String {
        format!("{}_FILE", self.name)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "clap would give it a flag; it is read once, into a Config"
)]
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The part of `--help` that is about secrets.
#[must_use]
pub fn help(settings: &[&SecretSetting]) -> String {
    let mut text = "Secrets, which have no flags; NAME_FILE names a file instead:".to_owned();
    for SecretSetting { name, about } in settings {
        text += &format!("\n  {about} [env: {name}=]");
    }
    text
}
