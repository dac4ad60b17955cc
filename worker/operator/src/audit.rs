//! The audit log. The database itself writes it: triggers note every change of a table, and
//! [`note_order`] what changes none.

use clap::Args;
use jiff::Timestamp;
use letterbox_common::{
    ids::{UserId, WorkspaceId},
    states::Proof,
};
use letterbox_database::{FromRow, statements};
use serde::Serialize;
use serde_json::Value;

use crate::{Operator, Result, moment};

statements! {
    /// Writes down an order that changes no table: what it is about, and its arguments.
    pub(crate) fn note_order(subject: &str, ordered: &Value) = "SELECT note_order($1, $2)";

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

    /// The newest entries about a workspace, as its owners may see them.
    desk fn history(
        workspace: WorkspaceId, before: Option<i64>, limit: i64,
    ) -> Vec<HistoryEntry> = "
SELECT entry_id, ordered_at, ordered_by, proven_by, command, subject, subject_id, reason, before,
       after
FROM audit_log
WHERE workspace_id = $1 AND entry_id < coalesce($2, 9223372036854775807)
ORDER BY entry_id DESC LIMIT $3";
}

/// Which entries of the audit log. The flags of the command line are this, which names the
/// workspace otherwise.
#[derive(Debug, Clone, Default, Args)]
pub struct AuditFilter {
    /// Only those about this workspace.
    #[arg(skip)]
    pub workspace: Option<WorkspaceId>,
    /// Only those about the thing with this id
    #[arg(long, value_name = "ID")]
    pub subject: Option<String>,
    /// Only those since a time, such as 2026-01-31T08:00:00Z, yesterday or 1h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<Timestamp>,
    /// Only those before this entry
    #[arg(long, value_name = "ENTRY_ID")]
    pub before: Option<i64>,
}

/// An order that was carried out, without where it came from.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct HistoryEntry {
    /// Counts the entries.
    pub entry_id: i64,
    /// By the database's clock.
    pub ordered_at: Timestamp,
    /// The user who answers for it; `None` if no user was named.
    pub ordered_by: Option<UserId>,
    /// How that user has proven who they are; `None` if no user was named.
    pub proven_by: Option<Proof>,
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

/// An order that was carried out, with where it came from.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct AuditEntry {
    /// What was ordered, by whom, and what it has changed.
    #[serde(flatten)]
    #[row(flatten)]
    pub entry: HistoryEntry,
    /// The workspace of what was changed; `None` if it belongs to none.
    pub workspace_id: Option<WorkspaceId>,
    /// The login of the database that gave the order.
    pub login: String,
    /// Where it came from, if known: as the desk says, otherwise the client of the database.
    pub address: Option<String>,
}

impl Operator {
    /// Lists the newest entries about a workspace, at most `limit`.
    pub async fn history(
        &self,
        workspace: WorkspaceId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>> {
        history(self, workspace, before, limit.into()).await
    }

    /// Lists the newest entries of the audit log, at most `limit`.
    pub async fn audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditEntry>> {
        let AuditFilter { since, before, .. } = *filter;
        let subject = filter.subject.as_deref();
        audit(self, filter.workspace, subject, since, before, limit.into()).await
    }
}
