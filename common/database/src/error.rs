//! Database errors, classified by whether trying again can help.

use std::{io, sync::Arc, time::Duration};

use deadpool_postgres::PoolError;
use letterbox_common::{process::settings::SettingError, text_enum, text_enum::UnknownWord};
use tokio_postgres::error::{DbError, SqlState};

/// What mends it when the server refuses a write and does not say why.
const WRITES_REFUSED: &str = "the database refuses writes: let DATABASE_URL name the primary if it \
     is a standby, or RESET default_transaction_read_only";

text_enum! {
    /// Whether the same work can succeed later, as metrics have it.
    pub enum Fault {
        /// The server is away, overloaded, read-only, or asks for another try
        Transient = "transient",
        /// The data or the statement is wrong, and will be wrong again
        Permanent = "permanent",
    }
}

/// A failed database call. Cheap to clone: one failed batch answers many callers.
///
/// Its text holds the server's message and code, never parameters. It is for the log, not for
/// senders.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct DatabaseError {
    /// Whether the same work can succeed later.
    pub fault: Fault,
    /// The server's code; `None` if the error did not come from the server.
    pub code: Option<SqlState>,
    /// The constraint that the statement violated, if any.
    pub constraint: Option<Arc<str>>,
    message: Arc<str>,
}

impl DatabaseError {
    fn without_code(fault: Fault, message: &str) -> Self {
        Self {
            fault,
            code: None,
            constraint: None,
            message: message.into(),
        }
    }

    pub(crate) fn setting(error: &SettingError) -> Self {
        Self::without_code(Fault::Permanent, &error.to_string())
    }

    pub(crate) fn timed_out(name: &str, limit: Duration) -> Self {
        let told = format!("{name} took longer than {limit:?}");
        Self::without_code(Fault::Transient, &told)
    }

    /// Nothing has been answered for a while, so nothing was tried.
    pub(crate) fn silent() -> Self {
        Self::without_code(Fault::Transient, "the database does not answer")
    }

    /// The work of a transaction rolled it back although the caller needs it to commit.
    pub fn rolled_back(name: &str) -> Self {
        Self::without_code(Fault::Transient, &format!("{name} was rolled back"))
    }

    /// Something that the work of a transaction needs is gone, so it rolled back: without the item
    /// that needed it, the others can go on.
    pub fn gone(name: &str) -> Self {
        Self {
            code: Some(SqlState::NO_DATA),
            ..Self::rolled_back(name)
        }
    }

    /// The session can't write: told as if a write of it had been refused.
    pub(crate) fn read_only(message: &str) -> Self {
        Self {
            code: Some(SqlState::READ_ONLY_SQL_TRANSACTION),
            ..Self::without_code(Fault::Transient, message)
        }
    }

    /// The session's commits do not wait for the disk.
    pub(crate) fn not_durable(message: &str) -> Self {
        Self::without_code(Fault::Transient, message)
    }

    /// A statement returned no row although there must be one.
    pub fn no_row(name: &str) -> Self {
        Self::without_code(Fault::Permanent, &format!("{name} returned no row"))
    }

    /// A statement returned several rows although there can be one at most.
    pub fn many_rows(name: &str) -> Self {
        let told = format!("{name} returned more than one row");
        Self::without_code(Fault::Permanent, &told)
    }

    /// Whether the server rejects the login, the database or a missing right: a retry fails, too,
    /// until an operator changes that.
    pub fn is_refusal(&self) -> bool {
        self.code.as_ref().is_some_and(|code| {
            // Invalid authorization, and no such database.
            let of_class = matches!(code.code().get(..2), Some("28" | "3D"));
            of_class || *code == SqlState::INSUFFICIENT_PRIVILEGE
        })
    }

    /// Whether the database takes no writes: a standby, or made read-only by an operator.
    pub fn is_read_only(&self) -> bool {
        self.code == Some(SqlState::READ_ONLY_SQL_TRANSACTION)
    }

    /// Whether it waited in vain: for a locked row, or for longer than a statement may take.
    pub fn is_of_lock(&self) -> bool {
        self.is_one_of(&[SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED])
    }

    /// Whether the server rolled the work back so that it can be retried.
    pub fn asks_for_retry(&self) -> bool {
        self.is_one_of(&[
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ])
    }

    pub(crate) fn is_one_of(&self, codes: &[SqlState]) -> bool {
        self.code.as_ref().is_some_and(|code| codes.contains(code))
    }
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::from(&error)
    }
}

/// The one way to tell an error of the driver: its own text for what the server says is `db error`.
impl From<&tokio_postgres::Error> for DatabaseError {
    fn from(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refusal) => Self {
                fault: fault_of_code(refusal.code()),
                code: Some(refusal.code().clone()),
                constraint: refusal.constraint().map(Into::into),
                message: in_words(refusal).into(),
            },
            // The source adds detail and quotes no parameter.
            None => Self::without_code(fault_of_client_error(error), &with_source(error)),
        }
    }
}

/// What the server says, with what mends it where that is not in its words.
fn in_words(refusal: &DbError) -> String {
    let told = format!("{} (SQLSTATE {})", refusal.message(), refusal.code().code());
    match *refusal.code() == SqlState::READ_ONLY_SQL_TRANSACTION {
        true => format!("{told}: {WRITES_REFUSED}"),
        false => told,
    }
}

impl From<PoolError> for DatabaseError {
    fn from(error: PoolError) -> Self {
        match error {
            // The call has sent nothing yet while its connection is opened: it may work later.
            PoolError::Backend(error) => Self {
                fault: Fault::Transient,
                ..error.into()
            },
            other => Self::without_code(Fault::Transient, &other.to_string()),
        }
    }
}

fn with_source(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Data errors (class 22) and violated constraints (class 23) are permanent. Everything else may
/// pass: the connection, resources, locks, a server that starts or stops, a read-only standby, a
/// privilege or table that an operator must add. When in doubt, nothing is thrown away.
fn fault_of_code(code: &SqlState) -> Fault {
    match code.code().get(..2) {
        Some("22" | "23") => Fault::Permanent,
        _ => Fault::Transient,
    }
}

/// Classifies an error of the driver. Connection errors come from I/O or have no source, and are
/// transient. A word unknown to an enum of this program may belong to a newer schema, which a newer
/// program can read. Any other source is a value that can't be encoded or decoded, now or later.
fn fault_of_client_error(error: &tokio_postgres::Error) -> Fault {
    match std::error::Error::source(error) {
        Some(source)
            if !error.is_closed() && !source.is::<io::Error>() && !source.is::<UnknownWord>() =>
        {
            Fault::Permanent
        }
        _ => Fault::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_errors_and_broken_constraints_are_permanent() {
        let fault = |code| fault_of_code(&SqlState::from_code(code));
        for code in ["22P05", "22003", "23503", "23505", "23514"] {
            assert_eq!(fault(code), Fault::Permanent, "{code}");
        }
        for code in [
            "57P01", "08006", "40001", "40P01", "55P03", "57014", "25006", "53300", "42501",
            "42P01", "XX000",
        ] {
            assert_eq!(fault(code), Fault::Transient, "{code}");
        }
    }
}
