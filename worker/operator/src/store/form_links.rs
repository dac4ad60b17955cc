//! Form links.

use letterbox_common::ids::{FormLinkId, WorkflowId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// Creates a form link of a workflow. Whether it may have one is decided by the table's
    /// trigger.
    CREATE_FORM_LINK = create_form_link "
INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id, token_sha256)
SELECT f.workspace_id, $2, f.workflow_id, f.live_release_id, $3
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
RETURNING workspace_id";
}

/// None if there is no such workflow.
pub(crate) async fn create_form_link(
    database: &Database,
    workflow: WorkflowId,
    link: FormLinkId,
    token_sha256: &[u8; 32],
) -> Result<Option<WorkspaceId>, DatabaseError> {
    let token = token_sha256.as_slice();
    let row = database
        .query_opt(&CREATE_FORM_LINK, &[&workflow, &link, &token])
        .await?;
    Ok(row.map(|row| row.try_get("workspace_id")).transpose()?)
}
