//! Connected accounts: where their credentials are sealed to.

use letterbox_common::{
    ids::{AccountId, WorkspaceId},
    sealing::Place,
};

/// Where the credential of an account belongs.
#[must_use]
pub fn seal_place(workspace: WorkspaceId, account: &AccountId) -> Place<'_> {
    Place {
        table: "connected_accounts",
        column: "credential_sealed",
        workspace,
        row: account.as_bytes(),
    }
}
