//! The settings of a workspace: read as a whole, and changed where they are given.

use std::str::FromStr;

use clap::Args;
use letterbox_common::ids::WorkspaceId;
use letterbox_database::{FromRow, statements};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Operator, Reason, Result, asking::Sought, given};

statements! {
    /// Sets those settings of a workspace that are members of an object.
    fn change_settings(workspace: WorkspaceId, given: &Value) = "
UPDATE workspaces w SET (run_allowance, retry_attempts, retry_first_milliseconds, keep_answers,
    is_searchable, notify_by_email) = (
    SELECT n.run_allowance, n.retry_attempts, n.retry_first_milliseconds, n.keep_answers,
        n.is_searchable, n.notify_by_email
    FROM jsonb_populate_record(w, $2) n)
WHERE w.workspace_id = $1";

    /// The settings of a workspace.
    fn settings(workspace: WorkspaceId) -> Option<WorkspaceSettings> = "
SELECT name, run_allowance, retry_attempts, retry_first_milliseconds, keep_answers, is_searchable,
    notify_by_email
FROM workspaces WHERE workspace_id = $1";
}

/// The value of a setting that has another source where it is `None`: no limit, or the workers.
pub(crate) type Nullable<T> = Option<T>;

/// The limits and the settings of a workspace. A document and the flags of the command line are
/// this: what is `None` is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, FromRow, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceSettings {
    /// For people; of one workspace only, or it could not be found by it.
    #[arg(skip)]
    pub name: String,
    /// Runs that may start in a calendar month (UTC), or 'unlimited'
    #[arg(long, value_name = "N", value_parser = or_unlimited)]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[row(with = allowance)]
    pub run_allowance: Option<Nullable<u32>>,
    /// Attempts at one action, the first included, or 'default': the setting of the workers
    #[arg(long, value_name = "N", value_parser = or_default)]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[row(with = Some)]
    pub retry_attempts: Option<Nullable<i32>>,
    /// Pause before the second attempt, doubled for each further one, up to an hour; or 'default'
    #[arg(long, value_name = "MS", value_parser = or_default)]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "given"
    )]
    #[row(with = Some)]
    pub retry_first_milliseconds: Option<Nullable<i32>>,
    /// Keep the responses of accounts, sealed, after their runs have succeeded; or drop them then
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_answers: Option<bool>,
    /// Let runs be found by submitted values (run list --field), from now on; 'off' deletes what is
    /// stored for it
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_searchable: Option<bool>,
    /// Tell the owners and editors by e-mail, within a minute, what waits and what went wrong;
    /// needs LETTERBOX_SMTP_URL in the workers
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify_by_email: Option<bool>,
}

impl Operator {
    /// Changes those settings of a workspace that are given, and gives all of them. Where a search
    /// is switched off, what stands for the values of runs is deleted in small pieces.
    pub async fn set_settings(
        &self,
        workspace: WorkspaceId,
        wanted: &WorkspaceSettings,
    ) -> Result<WorkspaceSettings> {
        if *wanted != WorkspaceSettings::default() {
            self.change_settings(workspace, wanted).await?;
        }
        // After the change, so that no run is made searchable behind it.
        if wanted.is_searchable == Some(false) {
            self.end_search(workspace).await?;
        }
        self.settings(workspace).await
    }

    /// The settings of a workspace, all of them.
    pub(crate) async fn settings(&self, workspace: WorkspaceId) -> Result<WorkspaceSettings> {
        settings(self, workspace).await?.found("workspace")
    }

    /// Changes those settings that are given. A search that is off is still to be ended.
    pub(crate) async fn change_settings(
        &self,
        workspace: WorkspaceId,
        wanted: &WorkspaceSettings,
    ) -> Result<()> {
        wanted.check()?;
        self.need_workspace(workspace).await?;
        // What is `None` is no member, and stays as it is.
        change_settings(self, workspace, &json!(wanted)).await
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

/// A number of runs, or 'unlimited'.
pub fn or_unlimited(text: &str) -> Result<Nullable<u32>, &'static str> {
    number_or("unlimited", text).ok_or("must be a number or 'unlimited'")
}

fn or_default(text: &str) -> Result<Nullable<i32>, &'static str> {
    number_or("default", text).ok_or("must be a number or 'default'")
}

fn number_or<N: FromStr>(word: &str, text: &str) -> Option<Nullable<N>> {
    match text == word {
        true => Some(None),
        false => text.parse().ok().map(Some),
    }
}

/// Whether a setting is on.
pub(crate) fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be 'on' or 'off'"),
    }
}

/// An allowance as the database stores it.
pub(crate) fn stored_allowance(runs: Option<u32>) -> Result<Option<i32>, Reason> {
    runs.map(i32::try_from)
        .transpose()
        .map_err(|_| Reason::AllowanceTooLarge)
}
