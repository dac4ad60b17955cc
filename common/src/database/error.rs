//! What a database error means: try again, or never.

use std::sync::Arc;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::process::settings::SettingError;

/// Whether the same work can succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server is away, overloaded, read-only or asks for another try.
    Transient,
    /// The data or the statement is wrong and stays so.
    Permanent,
}

/// A failed database call. Cheap to clone: one failed batch answers many callers.
///
/// Its text holds the server's message and code, never parameters. It is for the log, not for
/// senders.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct DatabaseError {
    pub fault: Fault,
    message: Arc<str>,
}

impl DatabaseError {
    pub(super) fn setting(error: &SettingError) -> Self {
        Self {
            fault: Fault::Permanent,
            message: error.to_string().into(),
        }
    }

    /// The work was given up, for a reason of ours.
    #[must_use]
    pub fn transient(message: &str) -> Self {
        Self {
            fault: Fault::Transient,
            message: message.into(),
        }
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refusal) => Self {
                fault: classify(refusal.code()),
                message: format!("{} (SQLSTATE {})", refusal.message(), refusal.code().code())
                    .into(),
            },
            // Everything that did not come from the server is the way to it. Its source says more,
            // and no parameter.
            None => Self {
                fault: classify_client(&error),
                message: with_source(&error).into(),
            },
        }
    }
}

impl From<PoolError> for DatabaseError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            other => Self {
                fault: Fault::Transient,
                message: other.to_string().into(),
            },
        }
    }
}

fn with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Data errors (class 22) and broken constraints (class 23) stay as they are; everything else — the
/// connection, resources, locks, a server that starts or stops, a read-only standby, a missing
/// privilege or table that an operator has to mend — may be well later. When in doubt nothing is
/// thrown away.
fn classify(code: &SqlState) -> Fault {
    match code.code().get(..2) {
        Some("22" | "23") => Fault::Permanent,
        _ => Fault::Transient,
    }
}

fn classify_client(error: &tokio_postgres::Error) -> Fault {
    // A value that can't be sent will not be sendable later. The driver tells it in words only.
    if error.to_string().starts_with("error serializing parameter") {
        Fault::Permanent
    } else {
        Fault::Transient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_and_constraints_are_permanent() {
        for code in ["22P05", "22003", "23503", "23505", "23514"] {
            assert_eq!(
                classify(&SqlState::from_code(code)),
                Fault::Permanent,
                "{code}"
            );
        }
        for code in [
            "57P01", "08006", "40001", "40P01", "55P03", "57014", "25006", "53300", "42501",
            "42P01", "XX000",
        ] {
            assert_eq!(
                classify(&SqlState::from_code(code)),
                Fault::Transient,
                "{code}"
            );
        }
    }
}
