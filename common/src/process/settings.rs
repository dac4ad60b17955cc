//! Building blocks of the settings: their error, durations with a unit, and the settings that all
//! processes share.

use std::{collections::BTreeMap, ffi::OsStr, fmt, net::SocketAddr, time::Duration};

use clap::{Args, Parser, ValueEnum};

/// A setting is missing or invalid. Never quotes a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct SettingError {
    /// The environment variable.
    pub name: &'static str,
    /// The problem with its value.
    pub problem: String,
}

impl SettingError {
    /// Creates an error about the environment variable `name`.
    pub fn new(name: &'static str, problem: impl fmt::Display) -> Self {
        Self {
            name,
            problem: problem.to_string(),
        }
    }
}

/// Parses a whole number of seconds.
///
/// # Errors
/// For anything but a whole number from 1 to 86,400,000.
pub fn seconds(text: &str) -> Result<Duration, String> {
    positive(text).map(Duration::from_secs)
}

/// Parses a whole number of milliseconds.
///
/// # Errors
/// For anything but a whole number from 1 to 86,400,000.
pub fn milliseconds(text: &str) -> Result<Duration, String> {
    positive(text).map(Duration::from_millis)
}

fn positive(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=86_400_000).contains(number))
        .ok_or_else(|| "must be a whole number from 1 to 86400000".into())
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line
    Json,
    /// For people
    Text,
}

/// The settings of a process by their variables. None is a secret: those are no flags.
pub type ToldSettings = BTreeMap<String, String>;

/// Characters of a setting that are told.
const MAX_TOLD: usize = 500;

/// Parses the settings of a process, and gives them as they are told to others, too. Exits with 2
/// if one can't be parsed.
pub fn parse<S: Parser>() -> (S, ToldSettings) {
    let command = S::command();
    let matches = command.clone().get_matches();
    let told = command.get_arguments().filter_map(|argument| {
        let name = argument.get_env()?.to_string_lossy().into_owned();
        // What is not set is told, too: others may have set it.
        let values = matches.get_raw(argument.get_id().as_str());
        let values = values.into_iter().flatten().map(OsStr::to_string_lossy);
        let values = Vec::from_iter(values);
        Some((name, values.join(",").chars().take(MAX_TOLD).collect()))
    });
    let told = told.collect();
    let settings = S::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    (settings, told)
}

/// Settings of every long-running process.
#[derive(Debug, Clone, Args)]
pub struct ProcessSettings {
    /// Address that serves /livez, /readyz and /metrics; keep it private
    #[arg(
        long,
        env = "LETTERBOX_ADMIN_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9080"
    )]
    pub admin_listen: SocketAddr,

    /// Log filter: a level, or a list of target=level
    #[arg(long, env = "LETTERBOX_LOG", default_value = "info")]
    pub log: String,

    /// Format of log lines
    #[arg(long, env = "LETTERBOX_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// Time limit for finishing accepted work when the process stops, in seconds
    #[arg(long, env = "LETTERBOX_SHUTDOWN_SECONDS", value_name = "SECONDS", default_value = "25",
        value_parser = seconds)]
    pub shutdown_timeout: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_positive_whole_numbers() {
        assert_eq!(seconds("2"), Ok(Duration::from_secs(2)));
        assert_eq!(milliseconds("2"), Ok(Duration::from_millis(2)));
        for text in ["", "0", "-1", "1.5", "1s", "99999999999999999999"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
