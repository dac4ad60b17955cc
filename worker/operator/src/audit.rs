//! A look at the audit log, which the database itself writes.

use crate::{AuditEntry, AuditFilter, Operator, OperatorError, store};

impl Operator {
    /// The newest entries of the audit log, at most `limit`.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, OperatorError> {
        Ok(store::audit(&self.database, filter, limit).await?)
    }
}
