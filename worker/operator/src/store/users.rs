//! Users.

use jiff::Timestamp;
use letterbox_common::ids::UserId;
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// Creates a user.
    CREATE_USER = create_user "
INSERT INTO users (user_id, email, name) VALUES ($1, $2, $3)
RETURNING user_id, email, name, created_at";

    /// The user with an id.
    USER = user "SELECT user_id, email, name, created_at FROM users WHERE user_id = $1";

    /// All users, oldest first.
    USERS = users "
SELECT user_id, email, name, created_at FROM users ORDER BY created_at, user_id LIMIT $1";
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

impl User {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            user_id: row.try_get("user_id")?,
            email: row.try_get("email")?,
            name: row.try_get("name")?,
            created_at: row.try_get("created_at")?,
        })
    }
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
    Ok(User::decode(&row)?)
}

pub(crate) async fn user(database: &Database, id: UserId) -> Result<Option<User>, DatabaseError> {
    let row = database.query_opt(&USER, &[&id]).await?;
    Ok(row.map(|row| User::decode(&row)).transpose()?)
}

pub(crate) async fn users(database: &Database, limit: u32) -> Result<Vec<User>, DatabaseError> {
    let rows = database.query(&USERS, &[&i64::from(limit)]).await?;
    rows.iter().map(|row| Ok(User::decode(row)?)).collect()
}
