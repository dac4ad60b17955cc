//! Rows as values, by the names of their columns.

use tokio_postgres::{Error, Row, types::FromSqlOwned};

/// A value that a row is read into. A struct derives it, each field from the column of its name:
///
/// ```
/// use letterbox_database::FromRow;
///
/// #[derive(FromRow)]
/// struct Named {
///     name: String,
/// }
///
/// #[derive(FromRow)]
/// struct Counted {
///     #[row(flatten)]
///     named: Named,
///     #[row(with = i64::unsigned_abs)]
///     count: u64,
/// }
/// ```
pub trait FromRow: Sized {
    /// Reads the columns by name.
    ///
    /// # Errors
    /// When a column is missing, or holds a value of another type.
    fn from_row(row: &Row) -> Result<Self, Error>;
}

/// The only column of a row.
impl<T: FromSqlOwned> FromRow for (T,) {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok((row.try_get(0)?,))
    }
}

/// Two columns, in their order.
impl<A: FromSqlOwned, B: FromSqlOwned> FromRow for (A, B) {
    fn from_row(row: &Row) -> Result<Self, Error> {
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}
