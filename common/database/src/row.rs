//! Rows as values: a struct whose fields have the names of the columns is read with one line,
//! [`from_row!`](crate::from_row).

use tokio_postgres::{Error, Row, types::FromSqlOwned};

/// A value that a row is read into.
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

/// Reads a struct from a row, each field from the column of its name, through a function if one is
/// named. A field behind `..` is itself a struct that is read from the same row:
///
/// ```
/// struct Named { name: String }
/// letterbox_database::from_row!(Named { name });
///
/// struct Counted { named: Named, count: u64 }
/// letterbox_database::from_row!(Counted { ..named, count: i64::unsigned_abs });
/// ```
#[macro_export]
macro_rules! from_row {
    (@read $row:ident $field:ident) => { $row.try_get(stringify!($field))? };
    (@read $row:ident $field:ident $read:path) => { $read($row.try_get(stringify!($field))?) };
    ($name:ident { $(..$inner:ident,)? $($field:ident $(: $read:path)?),* $(,)? }) => {
        impl $crate::FromRow for $name {
            fn from_row(row: &$crate::Row) -> Result<Self, $crate::RowError> {
                Ok(Self {
                    $($inner: $crate::FromRow::from_row(row)?,)?
                    $($field: $crate::from_row!(@read row $field $($read)?),)*
                })
            }
        }
    };
}
