//! Statements: SQL with a name. The name labels log lines and latencies, and a test prepares every
//! statement against the schema under the role that runs it.

/// One SQL statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement {
    /// In `snake_case`, unique among all statements.
    pub name: &'static str,
    /// With `$1`, `$2`, … where arguments belong.
    pub sql: &'static str,
}

/// Declares the statements of a store and `STATEMENTS`, the list of them:
///
/// ```
/// letterbox_database::statements! {
///     /// The name of a user
///     FIND_NAME = find_name "SELECT name FROM users WHERE user_id = $1";
/// }
/// assert_eq!(STATEMENTS[0].name, "find_name");
/// ```
///
/// A crate collects the lists of its stores in one function; `tests/suite/schema.rs` prepares what
/// it returns, and `tests/suite/closed_sets.rs` finds lists that are missing from it.
#[macro_export]
macro_rules! statements {
    ($($(#[$doc:meta])* $constant:ident = $name:ident $sql:expr;)+) => {
        $(
            $(#[$doc])*
            static $constant: $crate::Statement =
                $crate::Statement { name: stringify!($name), sql: $sql };
        )+
        /// Every statement of this store.
        pub(crate) static STATEMENTS: &[&$crate::Statement] = &[$(&$constant),+];
    };
}
