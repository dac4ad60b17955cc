//! Users: people, wherever they are members.

use jiff::Timestamp;
use letterbox_common::ids::UserId;
use letterbox_database::{FromRow, statements};
use serde::Serialize;
use tokio_postgres::error::SqlState;

use crate::{Operator, Reason, Result, asking::Sought, check_name, error::Explain};

statements! {
    /// Creates a user.
    fn create_user(user: UserId, email: &str, name: &str) -> User = "
INSERT INTO users (user_id, email, name) VALUES ($1, $2, $3)
RETURNING user_id, email, name, created_at";

    /// The user with an id.
    fn user(user: UserId) -> Option<User> = "
SELECT user_id, email, name, created_at FROM users WHERE user_id = $1";

    /// A user's subjects at OpenID Connect issuers.
    fn subjects(user: UserId) -> Vec<Subject> = "
SELECT issuer, subject FROM subjects WHERE user_id = $1 ORDER BY issuer";

    /// All users, oldest first.
    fn users(limit: i64) -> Vec<User> = "
SELECT user_id, email, name, created_at FROM users ORDER BY created_at, user_id LIMIT $1";
}

/// A person.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct User {
    /// The identity under which the user's workflows run.
    pub user_id: UserId,
    /// As it was given; unique regardless of case.
    pub email: String,
    /// For people; need not be unique.
    pub name: String,
    /// By the database's clock.
    pub created_at: Timestamp,
}

/// A user's subject at an OpenID Connect issuer.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct Subject {
    /// The URL by which the issuer calls itself.
    pub issuer: String,
    /// The user, as the issuer names them.
    pub subject: String,
}

/// A user, with what is known of them elsewhere.
#[derive(Debug, Clone, Serialize)]
pub struct UserDetail {
    /// The user.
    #[serde(flatten)]
    pub row: User,
    /// Their subjects at issuers.
    pub known_as: Vec<Subject>,
}

impl Operator {
    /// Returns the user with this id, with their subjects at issuers.
    pub async fn user_detail(&self, id: UserId) -> Result<UserDetail> {
        Ok(UserDetail {
            row: self.user(id).await?,
            known_as: subjects(self, id).await?,
        })
    }

    /// Gives the user with this id.
    pub async fn user(&self, id: UserId) -> Result<User> {
        user(self, id).await?.found("user")
    }

    /// Lists users, oldest first, at most `limit`.
    pub async fn users(&self, limit: u32) -> Result<Vec<User>> {
        users(self, limit.into()).await
    }

    /// Creates a user.
    ///
    /// # Errors
    /// When the e-mail address is invalid, or another user has it.
    pub async fn create_user(&self, email: &str, name: &str) -> Result<User> {
        check_user(email, name)?;
        let created = create_user(&self.database, UserId::generate(), email, name).await;
        created.explain(&SqlState::UNIQUE_VIOLATION, Reason::DuplicateEmail)
    }
}

/// Checks the e-mail address and the name of a user.
pub(crate) fn check_user(email: &str, name: &str) -> Result<()> {
    check_name(name)?;
    let has_length = (3..=200).contains(&email.chars().count());
    if !email.contains('@') || !has_length || email.contains(char::is_control) {
        return Err(Reason::InvalidEmail.into());
    }
    Ok(())
}
