//! Users.

use jiff::Timestamp;
use letterbox_common::ids::UserId;
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;

statements! {
    /// Creates a user.
    CREATE_USER = create_user "
INSERT INTO users (user_id, email, name) VALUES ($1, $2, $3) RETURNING created_at";
}

/// A person.
#[derive(Debug, Clone, Serialize)]
pub struct User {
    /// The identity under which the user's workflows run.
    pub user_id: UserId,
    /// As it was given; unique without regard to case.
    pub email: String,
    /// For people; need not be unique.
    pub name: String,
    /// By the database's clock.
    pub created_at: Timestamp,
}

pub(crate) async fn create_user(
    database: &Database,
    id: UserId,
    email: &str,
    name: &str,
) -> Result<User, DatabaseError> {
    let row = database
        .query_one(&CREATE_USER, &[&id, &email, &name])
        .await?;
    let created_at = row.try_get("created_at")?;
    Ok(User {
        user_id: id,
        email: email.to_owned(),
        name: name.to_owned(),
        created_at,
    })
}
