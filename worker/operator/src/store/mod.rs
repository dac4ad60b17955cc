//! The statements behind the orders, one file for each noun. Things are named by their id alone:
//! where a key begins with a workspace, it is found through the workspaces.

mod accounts;
mod approvals;
mod audit;
mod claims;
mod form_links;
mod members;
mod names;
mod policies;
mod run_detail;
mod runs;
mod sealing_keys;
mod signals;
mod status;
mod users;
mod webhooks;
mod workflows;
mod workspaces;

use letterbox_database::Statement;
use serde_json::Value;

pub use self::{
    accounts::AccountRow,
    approvals::{ApprovalRow, WaitingApproval},
    audit::{AuditEntry, AuditFilter},
    form_links::{Closing, LiveLink},
    members::Member,
    names::Noun,
    policies::{PolicyRow, PolicyVersion},
    run_detail::{ActionApproval, RunAction, RunDetail},
    runs::{CancelOutcome, FormAnswer, RetryOutcome, RunFilter, RunRow},
    signals::{SignalDetail, SignalFilter, SignalReader, SignalRow},
    users::User,
    webhooks::{RefusalRow, Sender, WebhookRow},
    workflows::{WorkflowDetail, WorkflowRow},
    workspaces::{Allowance, Retries, Usage, WebhookUsage, Workspace},
};
pub(crate) use self::{
    accounts::{accounts, connect_account, disconnect_account},
    approvals::{
        answer, approval, approval_context, is_for_another, may_answer, waiting_approvals,
    },
    audit::{audit, note_order},
    claims::{claim_delivery, claim_submission},
    form_links::{NewLink, create_form_link, live_links},
    members::{members, remove_member, set_member},
    names::{NamedThing, named},
    policies::{deployed_actions, policy, policy_history, policy_version, set_policy},
    run_detail::run,
    runs::{cancel_runs, erase_run, form_answers, retry_runs, run_workspace, runs},
    sealing_keys::{SealedValue, replace_sealed, sealed_values},
    signals::{set_signal_reader, signal, signal_readers, signals},
    status::{Waiting, backlog},
    users::{create_user, user, users},
    webhooks::{
        create_webhook, delete_webhook, refusals, replace_webhook, webhook_to_replace, webhooks,
    },
    workflows::{
        NewWorkflow, create_release, create_workflow, deploy, forms, lock_draft, lock_owner,
        move_workflow, owners_accounts, workflow, workflows,
    },
    workspaces::{
        allowance, close_workspace, create_workspace, empty_workspace, hold, is_searchable,
        keep_answers, release, retries, set_allowance, set_retries, set_search, stop_search, usage,
        workspace_exists, workspaces,
    },
};

/// Every statement of the operator.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    let stores = [
        accounts::STATEMENTS,
        approvals::STATEMENTS,
        audit::STATEMENTS,
        claims::STATEMENTS,
        form_links::STATEMENTS,
        members::STATEMENTS,
        names::STATEMENTS,
        policies::STATEMENTS,
        run_detail::STATEMENTS,
        runs::STATEMENTS,
        sealing_keys::STATEMENTS,
        signals::STATEMENTS,
        status::STATEMENTS,
        users::STATEMENTS,
        webhooks::STATEMENTS,
        workflows::STATEMENTS,
        workspaces::STATEMENTS,
    ];
    stores.into_iter().flatten().copied()
}

/// JSON text that Letterbox stored, as a value.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}
