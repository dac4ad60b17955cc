//! What every call of the database needs: an end in time, and text that PostgreSQL can hold.

use std::time::Duration;

use super::DatabaseError;

/// Waits for a call, but not for ever. Whether it has taken effect when it is given up is unknown.
///
/// # Errors
/// The call's own, or a transient one that says what took too long.
pub async fn within<T>(
    deadline: Duration,
    what: &str,
    call: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let answer = tokio::time::timeout(deadline, call).await;
    answer.unwrap_or_else(|_| Err(DatabaseError::transient(&format!("{what} took too long"))))
}

/// Text that PostgreSQL can hold: every character but U+0000, which becomes U+FFFD.
#[must_use]
pub fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
