//! How orders ask the database: what it refuses is why an order was not carried out.

use letterbox_database::{Client, Parameters, Row, Statement};

use crate::{Operator, OperatorError, Reason};

impl Client for Operator {
    type Error = OperatorError;

    async fn query(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, OperatorError> {
        Ok(self.database.query(statement, parameters).await?)
    }

    async fn execute(
        &self,
        statement: &Statement,
        parameters: Parameters<'_>,
    ) -> Result<u64, OperatorError> {
        Ok(self.database.execute(statement, parameters).await?)
    }
}

/// What was looked for.
pub(crate) trait Sought<T> {
    /// It; otherwise there is no such `noun`.
    fn found(self, noun: &'static str) -> Result<T, OperatorError>;
}

impl<T> Sought<T> for Option<T> {
    fn found(self, noun: &'static str) -> Result<T, OperatorError> {
        self.ok_or(Reason::NotFound(noun).into())
    }
}
