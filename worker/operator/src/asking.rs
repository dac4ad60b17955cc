//! How orders ask the database: what it refuses is why an order was not carried out.

use letterbox_database::{FromRow, Parameters, Statement};

use crate::{Operator, OperatorError, Reason};

impl Operator {
    /// Every row.
    pub(crate) async fn fetch_all<T: FromRow>(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Vec<T>, OperatorError> {
        Ok(self.database.fetch_all(statement, parameters).await?)
    }

    /// The row that there always is.
    pub(crate) async fn fetch_one<T: FromRow>(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<T, OperatorError> {
        Ok(self.database.fetch_one(statement, parameters).await?)
    }

    /// The row, if there is one.
    pub(crate) async fn fetch_optional<T: FromRow>(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Option<T>, OperatorError> {
        Ok(self.database.fetch_optional(statement, parameters).await?)
    }

    /// The row; without one there is no such `noun`.
    pub(crate) async fn find<T: FromRow>(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
        noun: &'static str,
    ) -> Result<T, OperatorError> {
        let found = self.fetch_optional(statement, parameters).await?;
        found.ok_or(Reason::NotFound(noun).into())
    }

    /// The number of rows that were changed.
    pub(crate) async fn execute(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<u64, OperatorError> {
        Ok(self.database.execute(statement, parameters).await?)
    }
}
