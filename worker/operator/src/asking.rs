//! How orders ask the database: what it refuses is why an order was not carried out.

use letterbox_database::{Answered, Client, Parameters, Statement};

use crate::{Operator, OperatorError, Reason, Result};

impl Client for Operator {
    type Error = OperatorError;

    async fn ask(&self, statement: &Statement, parameters: Parameters<'_>) -> Result<Answered> {
        Ok(self.database.ask(statement, parameters).await?)
    }
}

/// The kind of thing that was looked for.
pub(crate) trait Sought<T> {
    /// It; otherwise there is no such `noun`.
    fn found(self, noun: &'static str) -> Result<T>;
}

impl<T> Sought<T> for Option<T> {
    fn found(self, noun: &'static str) -> Result<T> {
        self.ok_or(Reason::NotFound(noun).into())
    }
}

/// So many were found, or changed.
impl Sought<()> for u64 {
    fn found(self, noun: &'static str) -> Result<()> {
        (self > 0).then_some(()).found(noun)
    }
}
