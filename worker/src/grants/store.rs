//! The statements of grants.

use std::time::Instant;

use letterbox_common::{
    ids::{AccountId, UserId, WorkspaceId},
    sealing::{GrantRow, Place},
};
use letterbox_database::{Database, DatabaseError, FromRow, statements};

statements! {
    /// The grants that are due, each for one exchange.
    TAKE_GRANTS = take_grants "
SELECT workspace_id, account_id, user_id, header_name, base_url, token_url, client_id, scope,
    is_code, client_secret_sealed, grant_sealed, revision
FROM take_grants($1)";

    /// Gives an account its token, and lets its runs go on.
    KEEP_TOKEN = keep_token "SELECT keep_token($1, $2, $3, $4, $5, $6, $7, $8)";

    /// Notes that an exchange gave no token.
    KEEP_FAILURE = keep_failure "SELECT keep_failure($1, $2, $3, $4, $5, $6)";

    /// An account has refused this credential: whether it gets another one, by a grant.
    REFUSE_TOKEN = refuse_token "SELECT refuse_token($1, $2, $3, $4) AS is_renewed";
}

/// A grant that is to be exchanged for a token.
#[derive(FromRow)]
pub(super) struct Due {
    workspace_id: WorkspaceId,
    account_id: AccountId,
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
    revision: i64,
}

impl Due {
    /// The account, for logs.
    pub(super) fn account(&self) -> AccountId {
        self.account_id
    }

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
pub(super) struct Kept {
    pub(super) token: Vec<u8>,
    /// The next refresh token; `None` if there is no other one.
    pub(super) grant: Option<Vec<u8>>,
    /// What was exchanged works no second time.
    pub(super) is_spent: bool,
    /// `None` if it is renewed only when it is refused.
    pub(super) renew_at: Option<Instant>,
}

pub(super) async fn take_grants(database: &Database, most: i32) -> Result<Vec<Due>, DatabaseError> {
    database.fetch_all(&TAKE_GRANTS, &[&most]).await
}

pub(super) async fn keep_token(
    database: &Database,
    due: &Due,
    kept: &Kept,
) -> Result<(), DatabaseError> {
    // The token has lasted a while already, if its exchange or the database was slow.
    let renew_in = kept
        .renew_at
        .map(|at| at.saturating_duration_since(Instant::now()));
    let parameters = &[
        /* $1 workspace_id */ &due.workspace_id as _,
        /* $2 account_id */ &due.account_id as _,
        /* $3 revision */ &due.revision as _,
        /* $4 used_grant */ &due.grant_sealed as _,
        /* $5 token */ &kept.token as _,
        /* $6 next_grant */ &kept.grant as _,
        /* $7 is_spent */ &kept.is_spent as _,
        /* $8 seconds */ &renew_in.map(|renew_in| renew_in.as_secs_f64()) as _,
    ];
    database.execute(&KEEP_TOKEN, parameters).await.map(drop)
}

pub(super) async fn keep_failure(
    database: &Database,
    due: &Due,
    why: &str,
    is_final: bool,
    is_spent: bool,
) -> Result<(), DatabaseError> {
    let parameters = &[
        /* $1 workspace_id */ &due.workspace_id as _,
        /* $2 account_id */ &due.account_id as _,
        /* $3 revision */ &due.revision as _,
        /* $4 why */ &why as _,
        /* $5 is_final */ &is_final as _,
        /* $6 is_spent */ &is_spent as _,
    ];
    database.execute(&KEEP_FAILURE, parameters).await.map(drop)
}

/// Whether an account that has refused this credential, sealed as it was loaded, gets another one;
/// `is_again` if it has refused another one since it answered something else.
pub(crate) async fn refuse_token(
    database: &Database,
    workspace: WorkspaceId,
    account: AccountId,
    used: &[u8],
    is_again: bool,
) -> Result<bool, DatabaseError> {
    let row = database
        .query_one(&REFUSE_TOKEN, &[&workspace, &account, &used, &is_again])
        .await?;
    Ok(row.try_get("is_renewed")?)
}
