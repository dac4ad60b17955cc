//! Form links.

use jiff::Timestamp;
use letterbox_common::ids::{FormLinkId, UserId, WorkflowId, WorkspaceId};
use letterbox_database::{Database, DatabaseError, Transaction, statements};
use serde::Serialize;
use tokio_postgres::{Error, Row};

statements! {
    /// Creates a form link of a workflow, with the second token where its submissions need a proof
    /// of work. Whether it may have a link is decided by the table's trigger.
    CREATE_FORM_LINK = create_form_link "
INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id, token_sha256,
    closes_at, max_answers)
SELECT f.workspace_id, $2, f.workflow_id, f.live_release_id,
    CASE WHEN r.least_seconds IS NULL THEN $3::bytea ELSE $4::bytea END, $5, $6
FROM workspaces w JOIN workflows f ON f.workspace_id = w.workspace_id AND f.workflow_id = $1
LEFT JOIN releases r
    ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
    AND r.release_id = f.live_release_id
RETURNING workspace_id, token_sha256 = $4::bytea AS wants_proof";

    /// The live links of a workflow, or of all workflows of a member.
    LIVE_LINKS = live_links "
SELECT f.workflow_id, f.name, l.form_link_id, l.created_at
FROM workspaces w JOIN workflows f
    ON f.workspace_id = w.workspace_id
    AND (f.workflow_id = $1 OR (f.workspace_id = $2 AND f.owner_id = $3))
JOIN form_links l
    ON l.workspace_id = f.workspace_id AND l.workflow_id = f.workflow_id AND l.ended_at IS NULL
ORDER BY f.name, f.workflow_id";
}

/// When a link closes by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Closing {
    /// From then on it takes nothing new.
    pub at: Option<Timestamp>,
    /// After so many submissions, from 1, it takes nothing new.
    pub after_answers: Option<i32>,
}

/// A link that people may hold.
#[derive(Debug, Clone, Serialize)]
pub struct LiveLink {
    /// The workflow that its form starts.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow_name: String,
    /// Names the link without being its token.
    pub form_link_id: FormLinkId,
    /// By the database's clock.
    pub created_at: Timestamp,
}

impl LiveLink {
    fn decode(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            workflow_id: row.try_get("workflow_id")?,
            workflow_name: row.try_get("name")?,
            form_link_id: row.try_get("form_link_id")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

/// A link to create.
pub(crate) struct NewLink<'a> {
    pub(crate) workflow: WorkflowId,
    pub(crate) link: FormLinkId,
    /// Of its token, where submissions need no proof of work.
    pub(crate) plain_sha256: &'a [u8; 32],
    /// The same, where they need one.
    pub(crate) wanting_proof_sha256: &'a [u8; 32],
    pub(crate) closing: Closing,
}

/// The workspace, and whether submissions need a proof of work; None if there is no such workflow.
pub(crate) async fn create_form_link(
    transaction: &Transaction<'_>,
    new: &NewLink<'_>,
) -> Result<Option<(WorkspaceId, bool)>, DatabaseError> {
    let plain = new.plain_sha256.as_slice();
    let wanting_proof = new.wanting_proof_sha256.as_slice();
    let row = transaction
        .query_opt(
            &CREATE_FORM_LINK,
            &[
                /* $1 workflow_id */ &new.workflow,
                /* $2 form_link_id */ &new.link,
                /* $3 plain */ &plain,
                /* $4 wanting_proof */ &wanting_proof,
                /* $5 closes_at */ &new.closing.at,
                /* $6 max_answers */ &new.closing.after_answers,
            ],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some((
        row.try_get("workspace_id")?,
        row.try_get("wants_proof")?,
    )))
}

pub(crate) async fn live_links(
    database: &Database,
    workflow: Option<WorkflowId>,
    member: Option<(WorkspaceId, UserId)>,
) -> Result<Vec<LiveLink>, DatabaseError> {
    let (workspace, user) = member.unzip();
    let rows = database
        .query(&LIVE_LINKS, &[&workflow, &workspace, &user])
        .await?;
    rows.iter().map(|row| Ok(LiveLink::decode(row)?)).collect()
}
