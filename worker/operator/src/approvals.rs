//! Approvals: questions whether a request may be sent, the context a person needs to answer them,
//! and the answers.

use jiff::Timestamp;
use letterbox_common::{
    ids::{ApprovalId, RunId, UserId, WorkflowId, WorkspaceId},
    states::ApprovalState,
};
use letterbox_database::{FromRow, statements};
use letterbox_workflow::{ApproveBy, Steering, Untrusted};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Member, Operator, Reason, Result, Submission, asking::Sought, json, members::member_columns,
    optional_json,
};

/// Questions of one workflow that are counted for a list.
const MOST_COUNTED: i64 = 10_000;

/// The columns of an [`ApprovalRow`]: of an approval `p` and its action `a`.
macro_rules! columns {
    () => {
        "p.approval_id, p.workspace_id, p.run_id, p.action_id, p.state, p.expires_at, p.decided_by,
    p.decided_at, p.reason, p.created_at, a.type AS action_type, a.untrusted, a.steered_by,
    a.decision_rule, a.policy_version, a.request"
    };
}

statements! {
    /// What waits for an answer, of each workflow the oldest few; no more than so many are counted.
    desk fn waiting_approvals(
        workspace: Option<WorkspaceId>, each: i64, most_counted: i64,
    ) -> Vec<WaitingApproval> = concat!("
SELECT ", columns!(), ", w.name AS workspace_name, f.workflow_id, f.name AS workflow_name,
       (SELECT count(*) FROM (
           SELECT FROM approvals q
           WHERE q.workspace_id = f.workspace_id AND q.workflow_id = f.workflow_id
             AND q.state = 'pending' AND q.expires_at > clock.now LIMIT $3) AS counted) AS waiting
FROM workspaces w
CROSS JOIN LATERAL (SELECT question_clock(w.workspace_id) AS now) AS clock
JOIN workflows f ON f.workspace_id = w.workspace_id
CROSS JOIN LATERAL (
    SELECT * FROM approvals q
    WHERE q.workspace_id = f.workspace_id AND q.workflow_id = f.workflow_id
      AND q.state = 'pending' AND q.expires_at > clock.now
    ORDER BY q.created_at LIMIT $2) AS p
JOIN run_actions a
    ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id AND a.action_id = p.action_id
WHERE $1::uuid IS NULL OR w.workspace_id = $1
ORDER BY w.name, w.workspace_id, f.name, f.workflow_id, p.created_at, p.approval_id");

    /// One question with its context.
    desk fn approval(approval: ApprovalId) -> Option<QuestionRow> = concat!("
SELECT ", columns!(), ", f.workflow_id, f.name AS workflow_name, w.name AS workspace_name,
       coalesce(u.name, 'a former member') AS owner_name, d.name AS decided_by_name,
       r.run_as AS owner_id, r.received_at,
       l.actions, l.on_failure,
       p.state = 'pending' AND p.expires_at > question_clock(w.workspace_id) AS is_open
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN run_actions a
    ON a.workspace_id = p.workspace_id AND a.run_id = p.run_id AND a.action_id = p.action_id
JOIN runs r ON r.workspace_id = p.workspace_id AND r.run_id = p.run_id
LEFT JOIN users u ON u.user_id = r.run_as
LEFT JOIN users d ON d.user_id = p.decided_by
JOIN workflows f ON f.workspace_id = r.workspace_id AND f.workflow_id = r.workflow_id
JOIN releases l ON l.workspace_id = r.workspace_id AND l.workflow_id = r.workflow_id
    AND l.release_id = r.release_id");

    /// The members who may answer a question.
    desk fn may_answer(approval: ApprovalId) -> Vec<Member> = concat!("
SELECT ", member_columns!(), "
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN runs r ON r.workspace_id = p.workspace_id AND r.run_id = p.run_id
JOIN members m ON m.workspace_id = p.workspace_id
JOIN users u ON u.user_id = m.user_id
WHERE approval_stands(p.workspace_id, m.user_id, r.run_as, 'link') ORDER BY u.email");

    /// Who may answer a question by the policy, and whether the run acts as this user, who has
    /// proven who they are.
    desk fn approve_by(approval: ApprovalId, by: UserId) -> Option<ApprovalRule> = "
SELECT approve_by(r.workspace_id) AS approve_by, r.run_as = $2 AS is_own,
       EXISTS (SELECT FROM acting() WHERE user_id = $2) AS is_proven
FROM workspaces w JOIN approvals p ON p.workspace_id = w.workspace_id AND p.approval_id = $1
JOIN runs r ON r.workspace_id = p.workspace_id AND r.run_id = p.run_id";

    /// Answers a question that is still open, for a member who may, and lets the run go on.
    desk fn answer_approval(
        approval: ApprovalId, by: UserId, answer: ApprovalState,
    ) -> Option<ApprovalRow> = concat!("
SELECT ", columns!(), "
FROM answer_approval($1, $2, $3) p JOIN run_actions a USING (workspace_id, run_id, action_id)");
}

/// A question whether a request may be sent.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct ApprovalRow {
    /// The id by which it is answered.
    pub approval_id: ApprovalId,
    /// The workspace of the run.
    pub workspace_id: WorkspaceId,
    /// The run that waits.
    pub run_id: RunId,
    /// The id of the action in its release.
    pub action_id: String,
    /// The kind of the action, such as `http.request`.
    #[serde(rename = "type")]
    pub action_type: String,
    /// The answer so far.
    pub state: ApprovalState,
    /// The request exactly as it will be sent, without the credential.
    #[row(with = optional_json)]
    pub request: Option<Value>,
    /// How text that a submitter wrote reaches the request; empty if it does not.
    pub untrusted: Vec<Untrusted>,
    /// The kinds of decisions by which such text led to the action; empty if it did not.
    pub steered_by: Vec<Steering>,
    /// The rule of the policy that decided, from 1; `None` if the default did.
    pub decision_rule: Option<i32>,
    /// The version of the policy that was asked; 0 is the default policy.
    pub policy_version: Option<i32>,
    /// From this time on it can't be answered.
    pub expires_at: Timestamp,
    /// Who answered; `None` while it is open, and if it expired.
    pub decided_by: Option<UserId>,
    /// When it was answered or closed; `None` while it is open.
    pub decided_at: Option<Timestamp>,
    /// Why, in the words of who answered.
    pub reason: Option<String>,
    /// When it was asked, by the database's clock.
    pub created_at: Timestamp,
}

/// A question that waits, as one of those of its workflow.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct WaitingApproval {
    /// The question.
    #[row(flatten)]
    #[serde(flatten)]
    pub row: ApprovalRow,
    /// The name of the workspace.
    pub workspace_name: String,
    /// The workflow of the run.
    pub workflow_id: WorkflowId,
    /// Its name.
    pub workflow_name: String,
    /// How many questions of this workflow wait, as far as they were counted.
    pub waiting: i64,
    /// Whether all of them were counted.
    #[row(default)]
    pub is_counted: bool,
}

/// A question with the context a person needs to answer it.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct ApprovalDetail {
    /// The question.
    #[row(flatten)]
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
    /// The name of who answered; `None` while nobody has, and for who was deleted.
    pub decided_by_name: Option<String>,
    /// When the submission was received.
    pub received_at: Timestamp,
    /// The submission, which a stranger wrote; `None` if it was forgotten.
    #[row(default)]
    pub input: Option<Submission>,
    /// What models were asked and conditions compared on the way here.
    #[row(default)]
    pub steered_through: Vec<SteeringAction>,
    /// Whether it can still be answered.
    pub is_open: bool,
    /// The members who may answer.
    #[row(default)]
    pub may_answer: Vec<Member>,
}

/// A question, with the release of its run.
#[derive(FromRow)]
struct QuestionRow {
    #[row(flatten)]
    detail: ApprovalDetail,
    actions: String,
    on_failure: Option<String>,
}

/// Who may answer a question.
#[derive(FromRow)]
struct ApprovalRule {
    approve_by: ApproveBy,
    is_own: bool,
    is_proven: bool,
}

/// An action of the run that had a part in what comes next.
#[derive(Debug, Clone, Serialize)]
pub struct SteeringAction {
    /// Its id in the release.
    pub action_id: String,
    /// Its kind, such as `ai.condition`.
    #[serde(rename = "type")]
    pub action_type: String,
    /// The question to a model, the goal of an agent, or the expression of a condition.
    pub asks: String,
    /// The branch that was chosen.
    pub outcome: Option<String>,
}

impl Operator {
    /// Lists the questions that wait for an answer in a workspace, or in all, by workflow: of each
    /// the oldest `each`. Of each, no more than 10,000 are counted.
    pub async fn waiting_approvals(
        &self,
        workspace: Option<WorkspaceId>,
        each: u32,
    ) -> Result<Vec<WaitingApproval>> {
        self.need_workspace(workspace).await?;
        let each = i64::from(each);
        let looked_at = MOST_COUNTED + 1;
        let mut waiting = waiting_approvals(self, workspace, each, looked_at).await?;
        for one in &mut waiting {
            one.is_counted = one.waiting <= MOST_COUNTED;
            one.waiting = one.waiting.min(MOST_COUNTED);
        }
        Ok(waiting)
    }

    /// Gives one question with its context.
    pub async fn approval(&self, id: ApprovalId) -> Result<ApprovalDetail> {
        let found = approval(self, id).await?.found("approval")?;
        let mut detail = found.detail;
        let actions = [Some(&found.actions), found.on_failure.as_ref()];
        let actions: Vec<Value> = actions
            .into_iter()
            .flatten()
            .map(|text| json(text))
            .collect();
        let run = self.run(detail.row.run_id).await?;
        let done = run.actions.iter().filter(|action| action.part_of.is_none());
        let steered_through = done.filter_map(|action| {
            Some(SteeringAction {
                action_id: action.action_id.clone(),
                action_type: action.action_type.clone(),
                asks: asked_by(&actions, &action.action_id)?,
                outcome: action.branch.map(|branch| branch.to_string()),
            })
        });
        detail.steered_through = steered_through.collect();
        detail.input = run.input;
        detail.may_answer = may_answer(self, id).await?;
        Ok(detail)
    }

    /// Lets a request be sent, and wakes the run that waits.
    ///
    /// # Errors
    /// When the question is answered or has expired, or the user may not answer it.
    pub async fn approve(&self, approval: ApprovalId, by: UserId) -> Result<ApprovalRow> {
        self.answer(approval, by, ApprovalState::Approved).await
    }

    /// Keeps a request from being sent, and wakes the run that waits.
    pub async fn deny(&self, approval: ApprovalId, by: UserId) -> Result<ApprovalRow> {
        self.answer(approval, by, ApprovalState::Denied).await
    }

    async fn answer(
        &self,
        approval: ApprovalId,
        by: UserId,
        answer: ApprovalState,
    ) -> Result<ApprovalRow> {
        if let Some(answered) = answer_approval(self, approval, by, answer).await? {
            return Ok(answered);
        }
        // The statement has decided. Why it refused is found out for the person who reads it.
        let found = self.approval(approval).await?;
        let rule = approve_by(self, approval, by).await?.found("approval")?;
        let may_answer = found.may_answer.iter().any(|member| member.user_id == by);
        let reason = match found.row.state {
            ApprovalState::Pending if !found.is_open => Reason::ApprovalExpired,
            ApprovalState::Pending if rule.approve_by == ApproveBy::Another && rule.is_own => {
                Reason::NeedsAnother
            }
            ApprovalState::Pending if may_answer && !rule.is_proven => Reason::NeedsProof,
            ApprovalState::Pending => Reason::MayNotAnswer,
            state => Reason::AlreadyAnswered(state),
        };
        Err(reason.into())
    }
}

/// What an action of a release asks, at any depth; `None` if it asks nothing.
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
