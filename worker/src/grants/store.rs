//! The statements of grants.

use std::time::Instant;

use letterbox_common::{
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{GrantRow, Place},
};
use letterbox_database::{FromRow, statements};

statements! {
    /// The grants that are due, each for one exchange.
    pub(super) fn take_grants(most: i32) -> Vec<Due> = "
SELECT workspace_id, account_id, user_id, header_name, base_url, token_url, client_id, scope,
    is_code, client_secret_sealed, grant_sealed, revision
FROM take_grants($1)";

    /// Gives an account its token, and lets its runs go on.
    pub(super) fn keep_token(
        workspace: WorkspaceId, account: AccountId, revision: i64, used_grant: Option<&[u8]>,
        token: &[u8], next_grant: Option<&[u8]>, is_spent: bool, renew_in_seconds: Option<f64>,
    ) = "SELECT keep_token($1, $2, $3, $4, $5, $6, $7, $8)";

    /// Notes that an exchange gave no token.
    pub(super) fn keep_failure(
        workspace: WorkspaceId, account: AccountId, revision: i64, why: &str, is_final: bool,
        is_spent: bool,
    ) = "SELECT keep_failure($1, $2, $3, $4, $5, $6)";

    /// Whether an account that has refused this credential, sealed as it was loaded, gets another
    /// one; `is_again` if it has refused another one since it answered something else.
    pub(crate) fn refuse_token(
        workspace: WorkspaceId, account: AccountId, used: &[u8], is_again: bool,
    ) -> (bool,) = "SELECT refuse_token($1, $2, $3, $4) AS is_renewed";
}

/// A grant that is to be exchanged for a token.
#[derive(FromRow)]
pub(super) struct Due {
    pub(super) workspace_id: WorkspaceId,
    pub(super) account_id: AccountId,
    user_id: UserId,
    header_name: String,
    base_url: String,
    pub(super) token_url: String,
    pub(super) client_id: String,
    /// Words with spaces between them.
    pub(super) scope: Option<String>,
    /// The owner lets Letterbox in; otherwise the client's own credentials do.
    pub(super) is_code: bool,
    pub(super) client_secret_sealed: Option<Vec<u8>>,
    pub(super) grant_sealed: Option<Vec<u8>>,
    pub(super) revision: i64,
}

impl Due {
    pub(super) fn client_secret(&self) -> Place<'_> {
        Place::ClientSecret(self.row())
    }

    pub(super) fn grant(&self) -> Place<'_> {
        Place::Grant(self.row())
    }

    pub(super) fn credential(&self) -> Place<'_> {
        Place::AccountCredential {
            workspace: self.workspace_id,
            account: self.account_id,
            user: self.user_id,
            header: &self.header_name,
            base_url: &self.base_url,
        }
    }

    fn row(&self) -> GrantRow<'_> {
        GrantRow {
            workspace: self.workspace_id,
            account: self.account_id,
            user: self.user_id,
            token_url: &self.token_url,
            client_id: &self.client_id,
        }
    }
}

/// What an exchange gave, sealed.
pub(super) struct KeptGrant {
    pub(super) token: Vec<u8>,
    /// The next refresh token; `None` if there is no other one.
    pub(super) grant: Option<Vec<u8>>,
    /// What was exchanged works no second time.
    pub(super) is_spent: bool,
    /// `None` if it is renewed only when it is refused.
    pub(super) renew_at: Option<Instant>,
}
