//! One run: its submission and everything that it has done; cancel it, retry it, or forget what was
//! submitted.

use std::collections::HashMap;

use jiff::Timestamp;
use letterbox_common::{
    ids::{ApprovalId, RunId, UserId, WorkspaceId},
    sealing::{KeyRing, Place},
    states::{AccountWait, ActionState, ApprovalState, InputTrust},
};
use letterbox_database::{FromRow, Row, RowError, statements};
use letterbox_workflow::{Decision, Steering, Untrusted, actions::Branch};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    CancelOutcome, Operator, Reason, Result, RetryOutcome, RunRow, Submission, asking::Sought,
    optional_json,
};

statements! {
    /// One run with its input.
    desk fn run(run: RunId) -> Option<RunDetail> = "
SELECT r.run_id, r.workspace_id, r.workflow_id, r.release_id, r.run_as, r.state, r.refused_reason,
       r.failure, r.received_at, r.created_at, r.started_at, r.finished_at, r.input_trust,
       r.is_active AND (SELECT true FROM run_actions a
           WHERE a.workspace_id = r.workspace_id AND a.run_id = r.run_id AND a.state = 'retrying'
             AND a.attempts > 0 LIMIT 1) IS TRUE AS is_retrying,
       r.input,
       coalesce(changed_repeats(r.workspace_id, r.run_id), 0) AS changed_repeats,
       f.name AS workflow_name, l.number AS release_number,
       coalesce(u.name, 'a former member') AS owner_name, r.request_id,
       nullif(split_part(r.traceparent, '-', 2), '') AS trace_id,
       r.finished_at IS NULL AND (w.held_at IS NOT NULL
           OR EXISTS (SELECT FROM all_workspaces WHERE held_at IS NOT NULL)) AS is_held,
       waiting.name AS waits_for_account, waiting.waits_for, waiting.error AS account_error
FROM workspaces w JOIN visible_runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1
LEFT JOIN users u ON u.user_id = r.run_as
JOIN workflows f ON f.workspace_id = r.workspace_id AND f.workflow_id = r.workflow_id
JOIN releases l ON l.workspace_id = r.workspace_id AND l.workflow_id = r.workflow_id
    AND l.release_id = r.release_id
LEFT JOIN LATERAL (
    SELECT c.name, c.waits_for, g.error
    FROM active_runs a
    JOIN connected_accounts c ON c.workspace_id = a.workspace_id AND c.account_id = a.account_id
        AND c.waits_for IS NOT NULL AND c.disconnected_at IS NULL
    LEFT JOIN grants g ON g.workspace_id = c.workspace_id AND g.account_id = c.account_id
    WHERE a.workspace_id = r.workspace_id AND a.run_id = r.run_id) AS waiting ON true";

    /// The actions of a run, in order.
    desk fn run_actions(workspace: WorkspaceId, run: RunId) -> Vec<RunAction> = "
SELECT a.action_id, a.type AS action_type, a.state, a.untrusted, a.steered_by, a.decision,
       a.decision_rule, a.policy_version, a.part_of, a.is_told,
       a.request, a.idempotency_key, a.attempts, a.response_status, a.branch,
       a.error, a.retry_at, a.started_at, a.finished_at,
       trunc(extract(epoch FROM a.finished_at - a.started_at) * 1000)::bigint
           AS duration_milliseconds,
       p.approval_id, p.state AS approval_state, p.decided_by, p.decided_at, p.reason, p.expires_at,
       u.name AS decided_by_name
FROM run_actions a LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
LEFT JOIN users u ON u.user_id = p.decided_by
WHERE a.workspace_id = $1 AND a.run_id = $2 ORDER BY a.position";

    /// What accounts answered to actions of a run that failed, for who may see it.
    desk fn failed_answers(workspace: WorkspaceId, run: RunId) -> Vec<(String, String)> = "
SELECT action_id, answer FROM failed_answers($1, $2)";

    /// The responses that are kept of a run, sealed.
    fn kept_answers(workspace: WorkspaceId, run: RunId) -> Vec<(String, Vec<u8>)> = "
SELECT action_id, answer_sealed FROM run_actions
WHERE workspace_id = $1 AND run_id = $2 AND answer_sealed IS NOT NULL";

    /// The workspace of a run.
    desk fn run_workspace(run: RunId) -> Option<(WorkspaceId,)> = "
SELECT r.workspace_id
FROM workspaces w JOIN runs r ON r.workspace_id = w.workspace_id AND r.run_id = $1";
}

/// An action as far as a run has executed it.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct RunAction {
    /// The id of the action in the run's release.
    pub action_id: String,
    /// The kind of the action, such as `http.request`.
    #[serde(rename = "type")]
    pub action_type: String,
    /// The agent whose question or call it is; `None` for actions of the release.
    pub part_of: Option<String>,
    /// Its state.
    pub state: ActionState,
    /// Whether it failed or was denied and its agent was told so.
    pub is_told: bool,
    /// How text that a submitter wrote reaches it; empty if it does not.
    pub untrusted: Vec<Untrusted>,
    /// The kinds of decisions by which such text led to it; empty if it did not.
    pub steered_by: Vec<Steering>,
    /// The last decision of the policy; `None` if it was not asked.
    pub decision: Option<Decision>,
    /// The rule that decided, from 1; `None` if the default did.
    pub decision_rule: Option<i32>,
    /// The version of the policy that was asked; 0 is the default policy, `None` if none was asked.
    pub policy_version: Option<i32>,
    /// The question that people were asked, and their answer.
    #[row(from = ActionApproval::of)]
    pub approval: Option<ActionApproval>,
    /// The request, without the credential.
    #[row(with = optional_json)]
    pub request: Option<Value>,
    /// The `Idempotency-Key` of every attempt, by which the account recognizes it.
    pub idempotency_key: Uuid,
    /// How many attempts have begun; 0 where it sends nothing.
    pub attempts: i32,
    /// HTTP status of the last response; `None` if there was none.
    pub response_status: Option<i32>,
    /// Whether its response is kept, sealed; `false` where nobody looked.
    #[row(default)]
    pub is_answer_kept: bool,
    /// Its response, if it is kept and was opened.
    #[row(default)]
    pub answer: Option<String>,
    /// Its last response, if that was a failure, for who may see it.
    #[row(default)]
    pub failed_with: Option<FailedAnswer>,
    /// The branch that a condition took.
    #[serde(rename = "outcome")]
    pub branch: Option<Branch>,
    /// Why it failed, was denied, or must be tried again.
    pub error: Option<String>,
    /// When the next attempt is due; `None` unless it waits for one.
    pub retry_at: Option<Timestamp>,
    /// From start to finish, with all waiting; `None` while it is not over.
    pub duration_milliseconds: Option<i64>,
    /// When the run came to it, by the database's clock.
    pub started_at: Timestamp,
    /// When it ended; `None` while it is not over.
    pub finished_at: Option<Timestamp>,
}

/// The beginning of a response that was a failure. A stranger may have written it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailedAnswer {
    /// Its media type.
    #[serde(rename = "type")]
    pub media_type: Option<String>,
    /// The first 2 KiB.
    pub body: String,
}

/// An approval as part of a run.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct ActionApproval {
    /// The id by which it is answered.
    pub approval_id: ApprovalId,
    /// The answer so far.
    #[row(name = approval_state)]
    pub state: ApprovalState,
    /// Who answered; `None` while it is open, and if it expired.
    pub decided_by: Option<UserId>,
    /// The name of that user.
    pub decided_by_name: Option<String>,
    /// When it was answered or closed; `None` while it is open.
    pub decided_at: Option<Timestamp>,
    /// Why, in the words of who answered.
    pub reason: Option<String>,
    /// From this time on it can't be answered.
    pub expires_at: Timestamp,
}

impl ActionApproval {
    /// `None` if no person was asked.
    fn of(row: &Row) -> Result<Option<Self>, RowError> {
        let asked: Option<ApprovalId> = row.try_get("approval_id")?;
        asked.map(|_| Self::from_row(row)).transpose()
    }
}

/// A run with its input and everything that it has done.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct RunDetail {
    /// The run as in a list.
    #[row(flatten)]
    #[serde(flatten)]
    pub row: RunRow,
    /// The name of the workflow.
    pub workflow_name: String,
    /// Counts the releases of the workflow.
    pub release_number: i32,
    /// The `X-Request-Id` that its submitter was answered; `None` if it is not known.
    pub request_id: Option<String>,
    /// Its trace, if it is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Whether it is not over and its workspace, or all, are held: no action of it begins.
    pub is_held: bool,
    /// The name of the account that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for_account: Option<String>,
    /// What that account waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<AccountWait>,
    /// Why that account got no token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_error: Option<String>,
    /// The name of the user as whom it runs.
    pub owner_name: String,
    /// Its actions so far, in order.
    #[row(default)]
    pub actions: Vec<RunAction>,
    /// Always untrusted: a submitter wrote the input.
    pub input_trust: InputTrust,
    /// The validated payload: values by the keys of their fields; `None` if it was refused
    /// or forgotten.
    #[row(with = Submission::stored)]
    pub input: Option<Submission>,
    /// How often its idempotency key came back with another payload, which changed nothing.
    pub changed_repeats: i64,
}

impl RunDetail {
    /// What it waits for, as a sentence for people; `None` if it waits for no account.
    pub fn waits(&self) -> Option<String> {
        let account = self.waits_for_account.as_ref()?;
        let what = match self.waits_for? {
            AccountWait::Token => format!("for a token of the account {account}"),
            AccountWait::Owner => {
                format!("for the account {account}, until its owner connects it again")
            }
        };
        let why = self.account_error.as_ref();
        Some(why.map_or(what.clone(), |why| format!("{what}: {why}")))
    }
}

impl Operator {
    /// Gives one run with its input and its actions.
    pub async fn run(&self, id: RunId) -> Result<RunDetail> {
        let mut found = run(self, id).await?.found("run")?;
        let workspace = found.row.workspace_id;
        found.actions = run_actions(self, workspace, id).await?;
        let failed: HashMap<_, _> = failed_answers(self, workspace, id)
            .await?
            .into_iter()
            .collect();
        for action in &mut found.actions {
            let answer = failed.get(&action.action_id);
            action.failed_with = answer.and_then(|answer| serde_json::from_str(answer).ok());
        }
        Ok(found)
    }

    /// As [`Self::run`], with the responses to its actions, as far as they are kept and these keys
    /// open them. They are for operators only.
    pub async fn run_with_answers(&self, id: RunId, keys: Option<&KeyRing>) -> Result<RunDetail> {
        let mut run = self.run(id).await?;
        let workspace = run.row.workspace_id;
        for (id_of_action, sealed) in kept_answers(self, workspace, id).await? {
            let mut actions = run.actions.iter_mut();
            // It may have begun since the actions were read.
            let Some(action) = actions.find(|action| action.action_id == id_of_action) else {
                continue;
            };
            let place = Place::ActionAnswer {
                workspace,
                run: id,
                action: &id_of_action,
            };
            let opened = keys.and_then(|keys| keys.open(place, &sealed).ok());
            action.is_answer_kept = true;
            action.answer =
                opened.map(|answer| String::from_utf8_lossy(answer.expose()).into_owned());
        }
        Ok(run)
    }

    /// Cancels one run, in whichever workspace it is.
    ///
    /// # Errors
    /// When there is no such run, or it is over.
    pub async fn cancel_run(&self, run: RunId) -> Result<CancelOutcome> {
        let workspace = self.workspace_of_run(run).await?;
        let cancelled = self.cancel_runs(workspace, &[run]).await?;
        let outcome = cancelled.first().and_then(|one| one.outcome);
        outcome.ok_or(Reason::RunOver.into())
    }

    /// Lets one run go on.
    ///
    /// # Errors
    /// When there is no such run, it did not end in a way that can be retried, or its input was
    /// forgotten.
    pub async fn retry_run(&self, run: RunId) -> Result<RunDetail> {
        let workspace = self.workspace_of_run(run).await?;
        let retried = self.retry_runs(workspace, &[run], None).await?;
        match retried.first().and_then(|one| one.outcome) {
            Some(RetryOutcome::Queued) => self.run(run).await,
            Some(RetryOutcome::Forgotten) => Err(Reason::InputForgotten.into()),
            Some(RetryOutcome::NotEnded) | None => Err(Reason::NotRetryable.into()),
        }
    }

    async fn workspace_of_run(&self, run: RunId) -> Result<WorkspaceId> {
        Ok(run_workspace(self, run).await?.found("run")?.0)
    }

    /// Forgets the submission of a run that is over, and the requests that were sent from it. The
    /// run itself stays known.
    ///
    /// # Errors
    /// When there is no such run, or it is not over.
    pub async fn erase_run(&self, id: RunId) -> Result<RunDetail> {
        let workspace = self.workspace_of_run(id).await?;
        match self.erase_runs(workspace, &[id]).await?.is_empty() {
            true => Err(Reason::RunNotOver.into()),
            false => self.run(id).await,
        }
    }
}
