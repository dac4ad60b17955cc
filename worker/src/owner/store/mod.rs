//! The statements behind an owner's orders, by what they are about.

mod accounts;
mod approvals;
mod people;
mod runs;
mod sealed;
mod signals;
mod webhooks;
mod workspaces;

use serde_json::Value;

pub use self::{
    accounts::*, approvals::*, people::*, runs::*, sealed::*, signals::*, webhooks::*,
    workspaces::*,
};

/// JSON text of ours as a value.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Every statement of this store, for the test that prepares them against the schema under the
/// operator's role.
pub const STATEMENTS: [&str; 29] = [
    workspaces::CREATE_WORKSPACE,
    workspaces::WORKSPACES,
    workspaces::WORKSPACE_EXISTS,
    workspaces::ALLOWANCE,
    workspaces::SET_ALLOWANCE,
    people::CREATE_USER,
    people::SET_MEMBER,
    people::REMOVE_MEMBER,
    people::MEMBERS,
    webhooks::CREATE_WEBHOOK,
    webhooks::WEBHOOKS,
    webhooks::DELETE_WEBHOOK,
    sealed::SEALED[0].page,
    sealed::SEALED[0].replace,
    sealed::SEALED[1].page,
    sealed::SEALED[1].replace,
    accounts::CONNECT_ACCOUNT,
    accounts::ACCOUNTS,
    accounts::DISCONNECT_ACCOUNT,
    approvals::POLICY,
    approvals::SET_POLICY,
    approvals::APPROVALS,
    approvals::APPROVAL,
    approvals::DECIDE,
    signals::SIGNALS,
    signals::SIGNAL,
    runs::RUNS,
    runs::RUN,
    runs::RUN_ACTIONS,
];
