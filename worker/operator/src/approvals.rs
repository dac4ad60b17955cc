//! Orders about approvals: what waits for an answer, what there is to know of it, and the answer.

use jiff::Timestamp;
use letterbox_common::{
    ids::{ApprovalId, UserId, WorkflowId, WorkspaceId},
    states::ApprovalState,
};
use serde::Serialize;
use serde_json::Value;

use crate::{ApprovalRow, Member, Operator, OperatorError, Reason, WaitingApproval, store};

/// Questions of one workflow that are counted for a list.
const MOST: i64 = 10_000;

/// A question, with what somebody should know who answers it.
#[derive(Debug, Clone, Serialize)]
pub struct ApprovalDetail {
    /// The question.
    #[serde(flatten)]
    pub row: ApprovalRow,
    /// The name of the workspace.
    pub workspace_name: String,
    /// The workflow of the run.
    pub workflow_id: WorkflowId,
    /// Its name.
    pub workflow_name: String,
    /// The user as whom the run acts.
    pub owner_id: UserId,
    /// The name of that user.
    pub owner_name: String,
    /// When the submission was received.
    pub received_at: Timestamp,
    /// What was submitted, by a stranger; None where it was forgotten.
    pub input: Option<Value>,
    /// What models were asked and what conditions have compared, on the way here.
    pub steered_through: Vec<SteeringAction>,
    /// Whether there is time left to answer.
    pub is_open: bool,
    /// The members who may answer.
    pub may_answer: Vec<Member>,
}

/// An action of the run that had a part in what comes next.
#[derive(Debug, Clone, Serialize)]
pub struct SteeringAction {
    /// Its id in the release.
    pub action_id: String,
    /// Its kind, such as `ai.condition`.
    #[serde(rename = "type")]
    pub action_type: String,
    /// The question of a model, the goal of an agent, or the expression of a condition.
    pub asks: String,
    /// The branch that was chosen.
    pub outcome: Option<String>,
}

impl Operator {
    /// The questions that wait for an answer in a workspace, or in all, by workflow: of each the
    /// oldest `each`. Of each, no more than 10,000 are counted.
    ///
    /// # Errors
    /// When there is no such workspace.
    pub async fn waiting_approvals(
        &self,
        workspace: Option<WorkspaceId>,
        each: u32,
    ) -> Result<Vec<WaitingApproval>, OperatorError> {
        if let Some(workspace) = workspace {
            self.need_workspace(workspace).await?;
        }
        Ok(store::waiting_approvals(&self.database, workspace, each, MOST).await?)
    }

    /// One question, with what somebody should know who answers it.
    ///
    /// # Errors
    /// When there is no such question.
    pub async fn approval(&self, id: ApprovalId) -> Result<ApprovalDetail, OperatorError> {
        let missing = || Reason::NotFound("approval");
        let row = store::approval(&self.database, id).await?;
        let row = row.ok_or_else(missing)?;
        let context = store::approval_context(&self.database, id).await?;
        let context = context.ok_or_else(missing)?;
        let run = self.run(row.run_id).await?;
        let may_answer = store::may_answer(&self.database, id).await?;
        let done = run.actions.iter().filter(|action| action.part_of.is_none());
        let steered_through = done.filter_map(|action| {
            Some(SteeringAction {
                action_id: action.action_id.clone(),
                action_type: action.action_type.clone(),
                asks: asked_by(&context.actions, &action.action_id)?,
                outcome: action.branch.map(|branch| branch.to_string()),
            })
        });
        Ok(ApprovalDetail {
            steered_through: steered_through.collect(),
            may_answer,
            workspace_name: context.workspace_name,
            workflow_id: context.workflow_id,
            workflow_name: context.workflow_name,
            owner_id: context.owner_id,
            owner_name: context.owner_name,
            received_at: context.received_at,
            input: context.input,
            is_open: row.state == ApprovalState::Pending && context.is_open,
            row,
        })
    }

    /// Lets a request be sent, and wakes the run that waits.
    ///
    /// # Errors
    /// When the question is answered or has expired, or the user may not answer it.
    pub async fn approve(
        &self,
        approval: ApprovalId,
        by: UserId,
    ) -> Result<ApprovalRow, OperatorError> {
        self.answer(approval, by, ApprovalState::Approved).await
    }

    /// Lets a request not be sent, and wakes the run that waits.
    ///
    /// # Errors
    /// As [`Self::approve`].
    pub async fn deny(
        &self,
        approval: ApprovalId,
        by: UserId,
    ) -> Result<ApprovalRow, OperatorError> {
        self.answer(approval, by, ApprovalState::Denied).await
    }

    async fn answer(
        &self,
        approval: ApprovalId,
        by: UserId,
        answer: ApprovalState,
    ) -> Result<ApprovalRow, OperatorError> {
        if let Some(answered) = store::answer(&self.database, approval, by, answer).await? {
            return Ok(answered);
        }
        let found = self.approval(approval).await?;
        let is_for_another = store::is_for_another(&self.database, approval, by).await?;
        let reason = match found.row.state {
            ApprovalState::Pending if is_for_another => Reason::ForAnother,
            ApprovalState::Pending if found.is_open => Reason::MayNotAnswer,
            ApprovalState::Pending => Reason::ApprovalExpired,
            state => Reason::AlreadyAnswered(state),
        };
        Err(reason.into())
    }
}

/// What an action of a release asks, at any depth; None where it asks nothing.
fn asked_by(actions: &[Value], id: &str) -> Option<String> {
    actions.iter().find_map(|action| match action {
        Value::Array(actions) => asked_by(actions, id),
        Value::Object(members) if members.get("id").is_some_and(|given| given == id) => {
            let mut asked = ["question", "goal", "if"].into_iter();
            asked.find_map(|member| Some(members.get(member)?.as_str()?.to_owned()))
        }
        Value::Object(members) => {
            let branches = ["then", "else"].into_iter();
            let mut branches = branches.filter_map(|branch| members.get(branch)?.as_array());
            branches.find_map(|branch| asked_by(branch, id))
        }
        _ => None,
    })
}
