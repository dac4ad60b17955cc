//! Trials of accounts: what one answers to a GET, or to a step of a draft, before a workflow calls
//! it. A worker sends it; the answer is kept for an hour.

use std::time::Duration;

use jiff::Timestamp;
use letterbox_common::ids::{AccountId, UserId, WorkspaceId};
use letterbox_database::{FromRow, statements};
use letterbox_workflow::rehearsal::SampledStep;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use crate::{AccountRow, Operator, Reason, Result, asking::Sought, run_detail::FailedAnswer};

const LOOK_EVERY: Duration = Duration::from_millis(250);

statements! {
    /// Asks for a trial; `None` if one was asked for a moment ago.
    desk fn ask_trial(
        workspace: WorkspaceId, account: AccountId, path: Option<&str>, step: Option<&str>,
    ) -> (Option<Timestamp>,) = "SELECT ask_trial($1, $2, $3, $4) AS asked_at";

    /// The last trials of the accounts of a workspace, or of one of them.
    desk fn trials(workspace: WorkspaceId, account: Option<AccountId>) -> Vec<TrialRow> = "
SELECT account_id, workspace_id, path, step, asked_at, answered_at, status, answer, error,
       begun_at IS NOT NULL AS has_begun,
       coalesce(begun_at + interval '150 seconds', asked_at + interval '70 seconds') < now()
           AS is_over
FROM account_trials
WHERE workspace_id = $1 AND ($2::uuid IS NULL OR account_id = $2)";
}

/// The last trial of an account.
#[derive(Debug, Clone, FromRow, Serialize)]
pub struct TrialRow {
    /// The account.
    pub account_id: AccountId,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
    /// The path below its base URL, with a query; `None` if a step was sent.
    pub path: Option<String>,
    /// The step of a draft that was sent.
    #[serde(skip)]
    #[row(with = known)]
    pub step: Option<SampledStep>,
    /// When it was asked for, by the database's clock.
    pub asked_at: Timestamp,
    /// Whether a worker has begun to send it.
    #[serde(skip)]
    pub has_begun: bool,
    /// Whether no answer is awaited any more: if it has begun, nobody knows what came of it.
    #[serde(skip)]
    pub is_over: bool,
    /// When it was answered; `None` while no worker has.
    pub answered_at: Option<Timestamp>,
    /// The status of the answer; `None` if none came.
    pub status: Option<i32>,
    /// The beginning of the answer. A stranger may have written it.
    #[row(with = known)]
    pub answer: Option<FailedAnswer>,
    /// Why an action would fail, or be tried again; `None` if it would be done.
    pub error: Option<String>,
}

/// What was stored, if it is still known here.
fn known<T: DeserializeOwned>(json: Option<&str>) -> Option<T> {
    serde_json::from_str(json?).ok()
}

impl Operator {
    /// Sends a GET to an account, and waits so long for its answer.
    ///
    /// # Errors
    /// When there is no such account, it sends e-mail, or it was tried a moment ago.
    pub async fn try_account(
        &self,
        account: AccountId,
        path: &str,
        patience: Duration,
    ) -> Result<TrialRow> {
        let found = self.connected_account(account).await?;
        if found.sender.is_some() || !path.starts_with('/') || path.len() > 2_000 {
            return Err(Reason::InvalidTrial.into());
        }
        self.ask(&found, Some(path), None, patience).await
    }

    /// Sends a step of a draft to the account of that name that its owner has connected, and waits
    /// so long for its answer.
    ///
    /// # Errors
    /// When there is no such account, or it was tried a moment ago.
    pub async fn try_step(
        &self,
        workspace: WorkspaceId,
        owner: UserId,
        name: &str,
        step: &SampledStep,
        patience: Duration,
    ) -> Result<TrialRow> {
        let mut accounts = self.accounts(workspace).await?.into_iter();
        let account = accounts
            .find(|one| one.user_id == owner && one.name == name && one.disconnected_at.is_none());
        let account = account.found("account")?;
        let step = step.to_json();
        self.ask(&account, None, Some(&step), patience).await
    }

    async fn ask(
        &self,
        account: &AccountRow,
        path: Option<&str>,
        step: Option<&str>,
        patience: Duration,
    ) -> Result<TrialRow> {
        let (workspace, account) = (account.workspace_id, account.account_id);
        let (asked_at,) = ask_trial(self, workspace, account, path, step).await?;
        let asked_at = asked_at.ok_or(Reason::TriedJustNow)?;
        let began = Instant::now();
        loop {
            sleep(LOOK_EVERY).await;
            let row = trials(self, workspace, Some(account)).await?.pop();
            let row = row.filter(|row| row.asked_at == asked_at);
            let row = row.found("trial: it was asked for once more")?;
            if row.answered_at.is_some() || began.elapsed() > patience {
                return Ok(row);
            }
        }
    }

    /// The last trials of the accounts of a workspace.
    pub async fn trials(&self, workspace: WorkspaceId) -> Result<Vec<TrialRow>> {
        trials(self, workspace, None).await
    }
}
