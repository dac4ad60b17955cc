//! The statements behind retention.

use letterbox_common::{ids::WorkspaceId, states::Forgotten};
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Every workspace.
    WORKSPACES = retention_workspaces "SELECT workspace_id FROM workspaces ORDER BY workspace_id";

    /// Forgets a piece of what is older than $3 days.
    FORGET = forget "SELECT forget($1, $2, $3, $4) AS looked_at";
}

/// Every workspace.
///
/// # Errors
/// When the database did not answer.
pub(super) async fn workspaces(database: &Database) -> Result<Vec<WorkspaceId>, DatabaseError> {
    let rows = database.query(&WORKSPACES, &[]).await?;
    rows.iter()
        .map(|row| Ok(row.try_get("workspace_id")?))
        .collect()
}

/// Forgets a piece; gives how much was looked at, 0 when nothing is left.
///
/// # Errors
/// When the database did not answer.
pub(super) async fn forget(
    database: &Database,
    workspace: WorkspaceId,
    what: Forgotten,
    days: i32,
    piece: i32,
) -> Result<i32, DatabaseError> {
    let row = database
        .query_one(
            &FORGET,
            &[
                /* $1 workspace_id */ &workspace,
                /* $2 what */ &what.as_str(),
                /* $3 days */ &days,
                /* $4 most */ &piece,
            ],
        )
        .await?;
    Ok(row.try_get("looked_at")?)
}
