//! The audit log. The database itself writes it: triggers note every change of a table, and
//! [`Operator::note_order`] what changes none.

use jiff::Timestamp;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::Proof,
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;
use serde_json::Value;

use crate::{Operator, OperatorError};

statements! {
    /// Writes down an order that changes no table.
    fn note_order(subject: &str, ordered: &Value) = "SELECT note_order($1, $2)";

    /// The newest entries.
    fn audit(
        workspace: Option<WorkspaceId>, subject: Option<&str>, since: Option<Timestamp>,
        before: Option<i64>, limit: i64,
    ) -> Vec<AuditEntry> = "
SELECT entry_id, workspace_id, ordered_at, ordered_by, proven_by, login, address, command, subject,
       subject_id, reason, before, after
FROM audit_log
WHERE ($1::uuid IS NULL OR workspace_id = $1) AND ($2::text IS NULL OR subject_id = $2)
  AND ($3::timestamptz IS NULL OR ordered_at >= $3) AND ($4::bigint IS NULL OR entry_id < $4)
ORDER BY entry_id DESC LIMIT $5";
}

/// A filter of the audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only entries of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only entries about the thing with this id.
    pub subject: Option<String>,
    /// Only entries since this time, by the database's clock.
    pub since: Option<Timestamp>,
    /// Only entries before this one.
    pub before: Option<i64>,
}

/// An order that was carried out.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct AuditEntry {
    /// Counts the entries.
    pub entry_id: i64,
    /// The workspace of what was changed; `None` if it belongs to none.
    pub workspace_id: Option<WorkspaceId>,
    /// By the database's clock.
    pub ordered_at: Timestamp,
    /// The user who answers for it; `None` if no user was named.
    pub ordered_by: Option<UserId>,
    /// How that user has proven who they are; `None` if no user was named.
    pub proven_by: Option<Proof>,
    /// The login of the database that gave the order.
    pub login: String,
    /// Where it came from, if known: as the desk says, otherwise the client of the database.
    pub address: Option<String>,
    /// The command, such as `run cancel`; else the statement and its table.
    pub command: String,
    /// The table of what was changed.
    pub subject: String,
    /// The id of the row that was changed.
    pub subject_id: Option<String>,
    /// Why, in the words of the user who ordered it.
    pub reason: Option<String>,
    /// The changed columns as they were. Secrets and personal data are `(hidden)`.
    pub before: Value,
    /// The same columns as they are since then.
    pub after: Value,
}

impl Operator {
    /// Lists the newest entries of the audit log, at most `limit`.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, OperatorError> {
        let workspace = filter.workspace;
        let subject = filter.subject.as_deref();
        audit(
            self,
            workspace,
            subject,
            filter.since,
            filter.before,
            limit.into(),
        )
        .await
    }

    /// Writes down an order that changes no table: `subject` is what it is about, `ordered` its
    /// arguments.
    pub(crate) async fn note_order(
        &self,
        subject: &str,
        ordered: &Value,
    ) -> Result<(), OperatorError> {
        note_order(self, subject, ordered).await
    }
}
