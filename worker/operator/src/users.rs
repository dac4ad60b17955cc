//! Orders about users.

use letterbox_common::ids::UserId;
use tokio_postgres::error::SqlState;

use crate::{Operator, OperatorError, Reason, User, check_name, error::Explain, store};

impl Operator {
    /// The user with this id.
    ///
    /// # Errors
    /// When there is none.
    pub async fn user(&self, id: UserId) -> Result<User, OperatorError> {
        let found = store::user(&self.database, id).await?;
        found.ok_or(Reason::NotFound("user").into())
    }

    /// All users, the oldest first, at most `limit`.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn users(&self, limit: u32) -> Result<Vec<User>, OperatorError> {
        Ok(store::users(&self.database, limit).await?)
    }

    /// Creates a user.
    ///
    /// # Errors
    /// When the e-mail address is invalid, or another user has it.
    pub async fn create_user(&self, email: &str, name: &str) -> Result<User, OperatorError> {
        check_name(name)?;
        let has_length = (3..=200).contains(&email.chars().count());
        if !email.contains('@') || !has_length || email.contains(char::is_control) {
            return Err(Reason::InvalidEmail.into());
        }
        let creating = store::create_user(&self.database, UserId::generate(), email, name);
        creating
            .await
            .explain(&SqlState::UNIQUE_VIOLATION, Reason::DuplicateEmail)
    }
}
