//! The settings of a workspace: read as a whole, and changed where they are given.

use letterbox_common::ids::WorkspaceId;
use letterbox_database::{FromRow, statements};
use serde::{Deserialize, Serialize};

use crate::{Operator, OperatorError, Reason, asking::Sought};

statements! {
    /// How often a workspace has its actions tried.
    fn retries(workspace: WorkspaceId) -> Option<Retries> = "
SELECT workspace_id, retry_attempts AS attempts,
       retry_first_milliseconds AS first_pause_milliseconds
FROM workspaces WHERE workspace_id = $1";

    /// Sets those settings of a workspace that are given; what may be null is in a list of one.
    fn change_settings(
        workspace: WorkspaceId, run_allowance: Option<&[Option<i32>]>,
        retry_attempts: Option<&[Option<i32>]>, retry_first_milliseconds: Option<&[Option<i32>]>,
        keep_answers: Option<bool>, is_searchable: Option<bool>, notify_by_email: Option<bool>,
    ) = "
UPDATE workspaces SET
    run_allowance = CASE WHEN $2::int[] IS NULL THEN run_allowance ELSE ($2::int[])[1] END,
    retry_attempts = CASE WHEN $3::int[] IS NULL THEN retry_attempts ELSE ($3::int[])[1] END,
    retry_first_milliseconds = CASE WHEN $4::int[] IS NULL THEN retry_first_milliseconds
        ELSE ($4::int[])[1] END,
    keep_answers = coalesce($5, keep_answers), is_searchable = coalesce($6, is_searchable),
    notify_by_email = coalesce($7, notify_by_email)
WHERE workspace_id = $1";

    /// The settings of a workspace.
    fn settings(workspace: WorkspaceId) -> Option<WorkspaceSettings> = "
SELECT name, run_allowance, retry_attempts, retry_first_milliseconds,
    keep_answers AS keeps_answers, is_searchable, notify_by_email AS notifies_by_email
FROM workspaces WHERE workspace_id = $1";
}

/// The limits and the settings of a workspace: those that are given.
#[derive(Debug, Clone, Default, PartialEq, Eq, FromRow, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSettings {
    /// For people; of one workspace only, or it could not be found by it.
    pub name: String,
    /// Runs that may start in a month; `null` is unlimited.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::given"
    )]
    #[row(with = allowance)]
    pub run_allowance: Option<Option<u32>>,
    /// Attempts at one action; `null` is the workers' setting.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::given"
    )]
    #[row(with = Some)]
    pub retry_attempts: Option<Option<i32>>,
    /// Pause before the second attempt; `null` is the workers' setting.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::given"
    )]
    #[row(with = Some)]
    pub retry_first_milliseconds: Option<Option<i32>>,
    /// Whether answers of accounts are kept after a run has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps_answers: Option<bool>,
    /// Whether runs are found by what was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_searchable: Option<bool>,
    /// Whether its owners and editors are told by e-mail what waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifies_by_email: Option<bool>,
}

/// How often an action of a workspace is tried; `None` is the workers' setting.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize)]
pub struct Retries {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// Attempts at one action, the first included.
    pub attempts: Option<i32>,
    /// Pause before the second attempt, doubled for each further one, up to an hour.
    pub first_pause_milliseconds: Option<i32>,
}

impl Operator {
    /// Tells how often actions of a workspace are tried.
    pub async fn retries(&self, workspace: WorkspaceId) -> Result<Retries, OperatorError> {
        retries(self, workspace).await?.found("workspace")
    }

    /// Sets how often actions of a workspace are tried: 1 to 30 attempts, and 1 ms to an hour
    /// before the second one.
    pub async fn set_retries(&self, retries: &Retries) -> Result<Retries, OperatorError> {
        let wanted = WorkspaceSettings {
            retry_attempts: Some(retries.attempts),
            retry_first_milliseconds: Some(retries.first_pause_milliseconds),
            ..WorkspaceSettings::default()
        };
        self.change_settings(retries.workspace_id, &wanted).await?;
        self.retries(retries.workspace_id).await
    }

    /// Sets whether responses of accounts are kept, sealed, after their run has succeeded.
    pub async fn keep_answers(
        &self,
        workspace: WorkspaceId,
        keep: bool,
    ) -> Result<(), OperatorError> {
        let wanted = WorkspaceSettings {
            keeps_answers: Some(keep),
            ..WorkspaceSettings::default()
        };
        self.change_settings(workspace, &wanted).await
    }

    /// Sets whether runs can be found by what was submitted to them. On, that holds for new runs;
    /// off, for all: what stands for their values is deleted in small pieces.
    pub async fn set_search(
        &self,
        workspace: WorkspaceId,
        is_searchable: bool,
    ) -> Result<(), OperatorError> {
        let wanted = WorkspaceSettings {
            is_searchable: Some(is_searchable),
            ..WorkspaceSettings::default()
        };
        self.change_settings(workspace, &wanted).await?;
        match is_searchable {
            true => Ok(()),
            false => self.end_search(workspace).await,
        }
    }

    /// The settings of a workspace, all of them.
    pub(crate) async fn settings(
        &self,
        workspace: WorkspaceId,
    ) -> Result<WorkspaceSettings, OperatorError> {
        settings(self, workspace).await?.found("workspace")
    }

    /// Changes those settings that are given. A search that is off is still to be ended.
    pub(crate) async fn change_settings(
        &self,
        workspace: WorkspaceId,
        wanted: &WorkspaceSettings,
    ) -> Result<(), OperatorError> {
        wanted.check()?;
        self.need_workspace(workspace).await?;
        let given = |value: Option<Option<i32>>| value.map(|value| [value]);
        let allowance = wanted.run_allowance.map(stored_allowance).transpose()?;
        change_settings(
            self,
            workspace,
            given(allowance).as_ref().map(|one| &one[..]),
            given(wanted.retry_attempts).as_ref().map(|one| &one[..]),
            given(wanted.retry_first_milliseconds)
                .as_ref()
                .map(|one| &one[..]),
            wanted.keeps_answers,
            wanted.is_searchable,
            wanted.notifies_by_email,
        )
        .await
    }
}

impl WorkspaceSettings {
    /// Checks what the database would refuse.
    pub(crate) fn check(&self) -> Result<(), Reason> {
        stored_allowance(self.run_allowance.flatten())?;
        let is_within = |value: Option<Option<i32>>, most| {
            value
                .flatten()
                .is_none_or(|value| (1..=most).contains(&value))
        };
        let is_good = is_within(self.retry_attempts, 30)
            && is_within(self.retry_first_milliseconds, 3_600_000);
        is_good.then_some(()).ok_or(Reason::InvalidRetries)
    }
}

fn allowance(stored: Option<i32>) -> Option<Option<u32>> {
    Some(stored.map(i32::unsigned_abs))
}

/// An allowance as the database stores it.
pub(crate) fn stored_allowance(runs: Option<u32>) -> Result<Option<i32>, Reason> {
    runs.map(i32::try_from)
        .transpose()
        .map_err(|_| Reason::AllowanceTooLarge)
}
