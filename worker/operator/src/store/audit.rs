//! The audit log.

use jiff::Timestamp;
use letterbox_common::ids::{UserId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::{Error, Row};

use super::json;

statements! {
    /// Writes down an order that changes no table.
    NOTE_ORDER = note_order "SELECT note_order($1, $2::text::jsonb)";

    /// The newest entries.
    AUDIT = audit "
SELECT entry_id, workspace_id, ordered_at, ordered_by, login, command, subject, subject_id, reason,
       before::text, after::text
FROM audit_log
WHERE ($1::uuid IS NULL OR workspace_id = $1) AND ($2::text IS NULL OR subject_id = $2)
  AND ($3::timestamptz IS NULL OR ordered_at >= $3) AND ($4::bigint IS NULL OR entry_id < $4)
ORDER BY entry_id DESC LIMIT $5";
}

/// Which entries of the audit log.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Those of one workspace.
    pub workspace: Option<WorkspaceId>,
    /// Those about what has this id.
    pub subject: Option<String>,
    /// Those since a time, by the database's clock.
    pub since: Option<Timestamp>,
    /// Those before this one.
    pub before: Option<i64>,
}

/// An order that was carried out.
#[derive(Debug, Clone, Serialize)]
pub struct AuditEntry {
    /// Counts the entries.
    pub entry_id: i64,
    /// The workspace of what was changed; None where it belongs to none.
    pub workspace_id: Option<WorkspaceId>,
    /// By the database's clock.
    pub ordered_at: Timestamp,
    /// The user who answers for it; None where nobody was named.
    pub ordered_by: Option<UserId>,
    /// The login of the database that gave the order.
    pub login: String,
    /// The command, such as `run cancel`; else the statement and its table.
    pub command: String,
    /// The table of what was changed.
    pub subject: String,
    /// Which of them.
    pub subject_id: Option<String>,
    /// Why, in the words of whoever ordered it.
    pub reason: Option<String>,
    /// What was changed, as it was. Secrets and what identifies a person are `(hidden)`.
    pub before: Value,
    /// The same, as it is since then.
    pub after: Value,
}

impl AuditEntry {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            entry_id: row.try_get("entry_id")?,
            workspace_id: row.try_get("workspace_id")?,
            ordered_at: row.try_get("ordered_at")?,
            ordered_by: row.try_get("ordered_by")?,
            login: row.try_get("login")?,
            command: row.try_get("command")?,
            subject: row.try_get("subject")?,
            subject_id: row.try_get("subject_id")?,
            reason: row.try_get("reason")?,
            before: json(row.try_get("before")?),
            after: json(row.try_get("after")?),
        })
    }
}

pub(crate) async fn audit(
    database: &Database,
    filter: &AuditFilter,
    limit: u32,
) -> Result<Vec<AuditEntry>, DatabaseError> {
    let rows = database
        .query(
            &AUDIT,
            &[
                /* $1 workspace_id */ &filter.workspace,
                /* $2 subject_id */ &filter.subject,
                /* $3 since */ &filter.since,
                /* $4 before */ &filter.before,
                /* $5 limit */ &i64::from(limit),
            ],
        )
        .await?;
    rows.iter()
        .map(|row| Ok(AuditEntry::decode(row)?))
        .collect()
}

/// Writes down an order that changes no table; `told` is what was ordered of it.
pub(crate) async fn note_order(
    database: &Database,
    about: &str,
    told: &Value,
) -> Result<(), DatabaseError> {
    let told = told.to_string();
    database
        .execute(&NOTE_ORDER, &[&about, &told])
        .await
        .map(drop)
}
