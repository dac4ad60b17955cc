//! Statements: SQL with a name. The name labels log lines and latencies, and a test prepares every
//! statement against the schema under the role that runs it.

use tokio_postgres::types::ToSql;

use crate::{DatabaseError, FromRow, Row};

/// One SQL statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// In `snake_case`, unique among all statements.
    pub name: &'static str,
    /// With `$1`, `$2`, … where arguments belong.
    pub sql: &'static str,
    /// Whether the desk runs it for people, under its role.
    pub is_of_desk: bool,
}

/// Arguments of a statement, in the order of its `$1`, `$2`, ….
pub type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// What a statement was answered.
#[derive(Debug)]
pub struct Answered {
    /// The rows that it returned.
    pub rows: Vec<Row>,
    /// How many rows it has changed, or returned.
    pub count: u64,
}

/// What runs statements: a database, a transaction in it, or what has one of them.
pub trait Client: Sync {
    /// What is told when the database refuses, or does not answer.
    type Error: From<DatabaseError> + Send;

    /// Runs a statement.
    fn ask(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> impl Future<Output = Result<Answered, Self::Error>> + Send;
}

/// What a statement is asked for: nothing, how many rows it has changed, all rows, the row if there
/// is one, or the row that there always is.
pub trait Answer: Sized {
    /// Reads it from what was answered.
    ///
    /// # Errors
    /// When there are more rows than one, or none, where there is always one; or a row is no such
    /// value.
    fn read(statement: &Statement, answered: Answered) -> Result<Self, DatabaseError>;
}

impl Answer for () {
    fn read(_: &Statement, _: Answered) -> Result<Self, DatabaseError> {
        Ok(())
    }
}

impl Answer for u64 {
    fn read(_: &Statement, answered: Answered) -> Result<Self, DatabaseError> {
        Ok(answered.count)
    }
}

impl<T: FromRow> Answer for Vec<T> {
    fn read(_: &Statement, answered: Answered) -> Result<Self, DatabaseError> {
        let rows = answered.rows.iter();
        rows.map(|row| Ok(T::from_row(row)?)).collect()
    }
}

impl<T: FromRow> Answer for Option<T> {
    fn read(statement: &Statement, answered: Answered) -> Result<Self, DatabaseError> {
        match &answered.rows[..] {
            [] => Ok(None),
            [row] => Ok(Some(T::from_row(row)?)),
            _ => Err(DatabaseError::many_rows(statement.name)),
        }
    }
}

impl<T: FromRow> Answer for T {
    fn read(statement: &Statement, answered: Answered) -> Result<Self, DatabaseError> {
        let row = Option::read(statement, answered)?;
        row.ok_or_else(|| DatabaseError::no_row(statement.name))
    }
}

/// Asks a statement for something.
pub async fn ask<A: Answer, C: Client>(
    client: &C,
    statement: &Statement,
    parameters: Parameters<'_>,
) -> Result<A, C::Error> {
    let answered = client.ask(statement, parameters).await?;
    Ok(A::read(statement, answered)?)
}

/// Declares the statements of a store, each with its arguments and its [`Answer`] as a function,
/// and `STATEMENTS`, the list of them:
///
/// ```
/// letterbox_database::statements! {
///     /// The name of a user
///     fn find_name(user: i64) -> Option<(String,)> = "SELECT name FROM users WHERE user_id = $1";
///     /// Deletes users
///     DELETE_USERS = delete_users "DELETE FROM users WHERE user_id = ANY ($1)";
/// }
/// assert_eq!(STATEMENTS[0].name, "find_name");
/// # let _ = &DELETE_USERS;
/// # async fn name(database: &letterbox_database::Database) {
/// let name = find_name(database, 7).await;
/// # }
/// ```
///
/// `desk fn` is one that the desk runs for people, too. A crate collects the lists of its stores in
/// one function; `tests/suite/schema.rs` prepares what it returns, and `tests/suite/closed_sets.rs`
/// finds lists that are missing from it.
#[macro_export]
macro_rules! statements {
    (@next [$($list:expr,)*]) => {
        /// Every statement of this store.
        pub(crate) static STATEMENTS: &[&$crate::Statement] = &[$($list,)*];
    };
    (@next $list:tt $(#[$doc:meta])* desk $visible:vis fn $($rest:tt)+) => {
        $crate::statements! { @fn true $list [$(#[$doc])*] $visible fn $($rest)+ }
    };
    (@next $list:tt $(#[$doc:meta])* $visible:vis fn $($rest:tt)+) => {
        $crate::statements! { @fn false $list [$(#[$doc])*] $visible fn $($rest)+ }
    };
    (@next [$($list:expr,)*] $(#[$doc:meta])*
        $constant:ident = $name:ident $sql:expr; $($rest:tt)*) => {
        $(#[$doc])*
        static $constant: $crate::Statement = $crate::Statement {
            name: stringify!($name),
            sql: $sql,
            is_of_desk: false,
        };
        $crate::statements! { @next [$($list,)* &$constant,] $($rest)* }
    };
    (@fn $is_of_desk:literal [$($list:expr,)*] [$($doc:tt)*] $visible:vis fn $name:ident
        ($($parameter:ident: $type:ty),* $(,)?) $(-> $answer:ty)? = $sql:expr; $($rest:tt)*) => {
        $($doc)*
        #[allow(clippy::too_many_arguments, reason = "a statement has as many as its columns")]
        $visible async fn $name<C: $crate::Client>(
            client: &C,
            $($parameter: $type),*
        ) -> Result<($($answer)?), C::Error> {
            static STATEMENT: $crate::Statement = $crate::Statement {
                name: stringify!($name),
                sql: $sql,
                is_of_desk: $is_of_desk,
            };
            let parameters: $crate::Parameters<'_> = &[$(&$parameter),*];
            $crate::ask(client, &STATEMENT, parameters).await
        }
        $crate::statements! { @next [$($list,)* &$crate::Statement {
            name: stringify!($name),
            sql: $sql,
            is_of_desk: $is_of_desk,
        },] $($rest)* }
    };
    (@$at:ident $($rest:tt)*) => {
        compile_error!("a statement is `fn name(argument: Type) -> Answer = \"SQL\";`");
    };
    ($($all:tt)+) => { $crate::statements! { @next [] $($all)+ } };
}

/// The lists of statements of stores, which are modules here.
#[macro_export]
macro_rules! stores {
    ($($store:ident)+) => {
        [$($store::STATEMENTS),+].into_iter()
    };
}
