//! Form links: a workflow has at most one that is alive, and its token is shown once.

use jiff::Timestamp;
use letterbox_common::{
    form::FormToken,
    ids::{FormLinkId, RunId, UserId, WorkflowId, WorkspaceId},
};
use letterbox_database::{Client, DatabaseError, FromRow, statements};
use serde::Serialize;

use crate::{Operator, OperatorError, Reason, Result, asking::Sought, received::a_day_ago};

statements! {
    /// Creates a form link of a workflow, with the second token if its submissions need a proof of
    /// work. The table's trigger decides whether the workflow may have a link.
    desk fn create_form_link(
        workspace: WorkspaceId, workflow: WorkflowId, link: FormLinkId, plain: &[u8],
        wanting_proof: &[u8], closes_at: Option<Timestamp>, max_answers: Option<i32>,
    ) -> Option<(bool,)> = "
WITH wanted AS (
    SELECT f.workspace_id, f.workflow_id, f.live_release_id,
        r.least_seconds IS NOT NULL AS wants_proof
    FROM workflows f LEFT JOIN releases r
        ON r.workspace_id = f.workspace_id AND r.workflow_id = f.workflow_id
        AND r.release_id = f.live_release_id
    WHERE f.workspace_id = $1 AND f.workflow_id = $2
), made AS (
    INSERT INTO form_links (workspace_id, form_link_id, workflow_id, release_id, token_sha256,
        closes_at, max_answers)
    SELECT workspace_id, $3, workflow_id, live_release_id,
        CASE WHEN wants_proof THEN $5::bytea ELSE $4::bytea END, $6, $7
    FROM wanted RETURNING workspace_id
)
SELECT wants_proof FROM wanted JOIN made USING (workspace_id)";

    /// Ends the live link of a workflow.
    desk fn end_form_link(workspace: WorkspaceId, workflow: WorkflowId) -> Option<FormLinkRow> = "
UPDATE form_links l SET ended_at = clock_timestamp()
FROM workflows f
WHERE f.workspace_id = $1 AND f.workflow_id = $2
  AND l.workspace_id = f.workspace_id AND l.workflow_id = f.workflow_id AND l.ended_at IS NULL
RETURNING f.workflow_id, f.name AS workflow_name, l.form_link_id, l.created_at";

    /// The live links of a workflow, of a workspace, or of all workflows of a member.
    desk fn live_links(
        workflow: Option<WorkflowId>, workspace: Option<WorkspaceId>, owner: Option<UserId>,
        a_day_ago: RunId,
    ) -> Vec<LiveLink> = "
SELECT f.workflow_id, f.name AS workflow_name, l.form_link_id, l.created_at,
       coalesce((SELECT times FROM form_link_waits s
                 WHERE s.workspace_id = l.workspace_id AND s.form_link_id = l.form_link_id), 0)
           AS waited,
       (SELECT count(*) FROM (
            SELECT FROM runs r
            WHERE r.workflow_id = f.workflow_id AND r.workspace_id = f.workspace_id
              AND r.run_id >= $4 AND r.received_at >= l.created_at
            ORDER BY r.run_id DESC LIMIT 1001) AS used) AS used_today
FROM workspaces w JOIN workflows f
    ON f.workspace_id = w.workspace_id AND ($1::uuid IS NULL OR f.workflow_id = $1)
    AND ($2::uuid IS NULL OR f.workspace_id = $2) AND ($3::uuid IS NULL OR f.owner_id = $3)
JOIN form_links l
    ON l.workspace_id = f.workspace_id AND l.workflow_id = f.workflow_id AND l.ended_at IS NULL
ORDER BY f.name, f.workflow_id";
}

/// When a link closes by itself; the default is never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Closing {
    /// Take nothing new from a time on, such as 2026-01-31T08:00:00Z
    #[arg(long = "closes-at", value_name = "TIME")]
    pub at: Option<Timestamp>,
    /// Take nothing new after so many submissions
    #[arg(long = "max-answers", value_name = "N",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub after_answers: Option<i32>,
}

/// A form link with its token, which is shown only now.
#[derive(Debug, Clone)]
pub struct NewFormLink {
    /// The workspace of the workflow.
    pub workspace: WorkspaceId,
    /// The workflow that its form starts.
    pub workflow: WorkflowId,
    /// Names the link without being its token.
    pub link: FormLinkId,
    /// The only credential of the link.
    pub token: FormToken,
}

/// A form link; not its token.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct FormLinkRow {
    /// The workflow that its form starts.
    pub workflow_id: WorkflowId,
    /// The workflow's name.
    pub workflow_name: String,
    /// Names the link without being its token.
    pub form_link_id: FormLinkId,
    /// By the database's clock.
    pub created_at: Timestamp,
}

/// A live form link, and how much it is used.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct LiveLink {
    /// The link.
    #[serde(flatten)]
    #[row(flatten)]
    pub row: FormLinkRow,
    /// Submissions since it was made, in the last 24 hours; 1001 for more than a thousand.
    pub used_today: i64,
    /// Requests since it was made that found more than its limit in a minute, and had to wait.
    pub waited: i64,
}

impl LiveLink {
    /// How much it is used, in words.
    pub fn usage(&self) -> String {
        let used = match self.used_today {
            0 => "not used".to_owned(),
            1 => "used once".to_owned(),
            times @ ..=1000 => format!("used {times} times"),
            _ => "used more than 1,000 times".to_owned(),
        };
        let waited = match self.waited {
            0 => String::new(),
            1 => "; one request had to wait, because too many came at once".to_owned(),
            times => format!("; {times} requests had to wait, because too many came at once"),
        };
        format!("{used} in the last 24 hours{waited}")
    }
}

/// The workflows whose links are meant: those that lose them by a move.
#[derive(Debug, Clone, Copy)]
pub enum Losing {
    /// This one.
    Workflow(WorkflowId),
    /// All of this workspace.
    Workspace(WorkspaceId),
    /// All that this member owns.
    Member(WorkspaceId, UserId),
    /// All that this user owns in any workspace.
    User(UserId),
}

/// A link to make, with a token for each kind of form: only the statement that makes it finds out
/// whether the release wants a proof of work.
pub(crate) struct PlannedLink {
    plain: NewFormLink,
    wanting_proof: FormToken,
    closing: Closing,
}

impl PlannedLink {
    pub(crate) fn new(
        workspace: WorkspaceId,
        workflow: WorkflowId,
        closing: Closing,
    ) -> Result<Self> {
        let plain = NewFormLink {
            workspace,
            workflow,
            link: FormLinkId::generate(),
            token: FormToken::generate()?,
        };
        let wanting_proof = FormToken::generate_wanting_proof()?;
        Ok(Self {
            plain,
            wanting_proof,
            closing,
        })
    }

    /// Makes it; `None` if there is no such workflow.
    pub(crate) async fn make<C: Client>(
        &self,
        client: &C,
    ) -> Result<Option<NewFormLink>, C::Error> {
        let plain = &self.plain;
        let created = create_form_link(
            client,
            plain.workspace,
            plain.workflow,
            plain.link,
            plain.token.hash().as_bytes(),
            self.wanting_proof.hash().as_bytes(),
            self.closing.at,
            self.closing.after_answers,
        )
        .await?;
        Ok(created.map(|(wants_proof,)| {
            let mut made = self.plain.clone();
            if wants_proof {
                made.token = self.wanting_proof.clone();
            }
            made
        }))
    }
}

impl Operator {
    /// Creates a form link. The one before is dead from the same moment.
    ///
    /// # Errors
    /// When the workflow is not deployed, its owner may not run it, or the link would be closed
    /// already.
    pub async fn create_form_link(
        &self,
        workflow: WorkflowId,
        closing: Closing,
    ) -> Result<NewFormLink> {
        let planned = PlannedLink::new(self.home(workflow).await?, workflow, closing)?;
        let made = planned.make(&self.database).await.map_err(explain)?;
        made.found("workflow")
    }

    /// Ends the live link of a workflow, which stays deployed.
    pub async fn end_form_link(&self, workflow: WorkflowId) -> Result<FormLinkRow> {
        let workspace = self.home(workflow).await?;
        let ended = end_form_link(self, workspace, workflow).await?;
        ended.found("live form link")
    }

    /// Lists live links, which a move would end.
    pub async fn live_links(&self, of: Losing) -> Result<Vec<LiveLink>> {
        let (workflow, workspace, user) = match of {
            Losing::Workflow(workflow) => (Some(workflow), Some(self.home(workflow).await?), None),
            Losing::Workspace(workspace) => (None, Some(workspace), None),
            Losing::Member(workspace, user) => (None, Some(workspace), Some(user)),
            Losing::User(user) => (None, None, Some(user)),
        };
        live_links(self, workflow, workspace, user, a_day_ago()).await
    }
}

/// Says why a link can't be made.
pub(crate) fn explain(error: DatabaseError) -> OperatorError {
    match error.constraint.as_deref() {
        Some("owner_may_run") => Reason::OwnerCannotRun.into(),
        Some("workflow_is_deployed") => Reason::NotDeployed.into(),
        Some("closes_later") => Reason::ClosesInThePast.into(),
        _ => OperatorError::from(error),
    }
}
