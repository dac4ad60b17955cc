//! Orders about form links.

use letterbox_common::{
    form::{FormToken, TokenHash},
    ids::{FormLinkId, UserId, WorkflowId, WorkspaceId},
};
use letterbox_database::{DatabaseError, Transaction, Work};

use crate::{Closing, LiveLink, Operator, OperatorError, Reason, store};

/// A form link and its token, at the only time that it is shown.
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

/// Which workflows lose their links by a move.
#[derive(Debug, Clone, Copy)]
pub enum Losing {
    /// This one.
    Workflow(WorkflowId),
    /// All that this member owns.
    Member(WorkspaceId, UserId),
}

/// A link that shall be made, with the token for each kind of form: which one it is, is known when
/// it is made.
pub(crate) struct Planned {
    link: FormLinkId,
    plain: FormToken,
    wanting_proof: FormToken,
    closing: Closing,
}

impl Planned {
    pub(crate) fn new(closing: Closing) -> Result<Self, OperatorError> {
        Ok(Self {
            link: FormLinkId::generate(),
            plain: FormToken::generate()?,
            wanting_proof: FormToken::generate_wanting_proof()?,
            closing,
        })
    }

    /// Makes it; None if there is no such workflow.
    pub(crate) async fn make(
        &self,
        transaction: &Transaction<'_>,
        workflow: WorkflowId,
    ) -> Result<Option<NewFormLink>, DatabaseError> {
        let hashes = self.hashes();
        let new = store::NewLink {
            workflow,
            link: self.link,
            plain_sha256: hashes[0].as_bytes(),
            wanting_proof_sha256: hashes[1].as_bytes(),
            closing: self.closing,
        };
        let made = store::create_form_link(transaction, &new).await?;
        Ok(made.map(|(workspace, wants_proof)| NewFormLink {
            workspace,
            workflow,
            link: self.link,
            token: match wants_proof {
                true => self.wanting_proof.clone(),
                false => self.plain.clone(),
            },
        }))
    }

    fn hashes(&self) -> [TokenHash; 2] {
        [self.plain.hash(), self.wanting_proof.hash()]
    }
}

impl Operator {
    /// Creates a form link that closes by no time and no number of answers. The one before is dead
    /// from the same moment.
    ///
    /// # Errors
    /// When the workflow is not deployed, or its owner may not run it.
    pub async fn create_form_link(
        &self,
        workflow: WorkflowId,
    ) -> Result<NewFormLink, OperatorError> {
        self.create_closing_form_link(workflow, Closing::default())
            .await
    }

    /// As [`Self::create_form_link`], of a link that closes.
    ///
    /// # Errors
    /// Also when it would be closed already.
    pub async fn create_closing_form_link(
        &self,
        workflow: WorkflowId,
        closing: Closing,
    ) -> Result<NewFormLink, OperatorError> {
        let planned = Planned::new(closing)?;
        let work = Create { workflow, planned };
        let made = self.database.transaction("create form link", &work).await;
        made.map_err(explain)?
            .ok_or(Reason::NotFound("workflow").into())
    }

    /// The links that a move ends.
    ///
    /// # Errors
    /// When the database can't be asked.
    pub async fn live_links(&self, of: Losing) -> Result<Vec<LiveLink>, OperatorError> {
        let (workflow, member) = match of {
            Losing::Workflow(workflow) => (Some(workflow), None),
            Losing::Member(workspace, user) => (None, Some((workspace, user))),
        };
        Ok(store::live_links(&self.database, workflow, member).await?)
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

struct Create {
    workflow: WorkflowId,
    planned: Planned,
}

impl Work for Create {
    type Output = NewFormLink;

    async fn run(
        &self,
        transaction: &Transaction<'_>,
    ) -> Result<Option<Self::Output>, DatabaseError> {
        self.planned.make(transaction, self.workflow).await
    }
}
