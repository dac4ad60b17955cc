//! Settings that hold secrets: environment variables, or files that another variable names. They
//! have no flags, because any user of a machine can read argument lists.

use std::{env, ffi::OsString, fmt, fs};

use zeroize::Zeroizing;

use super::settings::SettingError;

/// The text of a secret setting. Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// The secret.
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
    /// The environment variable. With the suffix `_FILE`, the one that names a file.
    pub name: &'static str,
    /// The description in `--help`.
    pub about: &'static str,
}

impl SecretSetting {
    /// Reads the secret from the environment or its file, without the line break at its end; `None`
    /// if it is missing or empty.
    ///
    /// # Errors
    /// When both variables are set, or the file can't be read.
    pub fn read(&self) -> Result<Option<SecretText>, SettingError> {
        let value = variable(self.name);
        let file = variable(&self.file_name());
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
                let problem = format!("{} is set, too: unset one of them", self.file_name());
                return Err(self.wrong(problem));
            }
        };
        let mut text = SecretText::from(text);
        let length = text.0.trim_end_matches(['\r', '\n']).len();
        text.0.truncate(length);
        Ok(Some(text).filter(|text| !text.0.is_empty()))
    }

    /// Reads a secret that must not be missing.
    ///
    /// # Errors
    /// As [`Self::read`], and when it is missing or empty.
    pub fn require(&self) -> Result<SecretText, SettingError> {
        self.read()?.ok_or_else(|| self.missing())
    }

    /// The error for a missing secret.
    pub fn missing(&self) -> SettingError {
        let file = self.file_name();
        self.wrong(format!(
            "is missing: set it, or set {file} to the path of a file"
        ))
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

/// The part of `--help` that lists secrets.
pub fn help(settings: &[&SecretSetting]) -> String {
    let mut text =
        "Secrets have no flags; set NAME, or NAME_FILE to the path of a file:".to_owned();
    for SecretSetting { name, about } in settings {
        text += &format!("\n  {about} [env: {name}=]");
    }
    text
}
