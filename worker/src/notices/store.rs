//! The statements of notices.

use std::collections::HashMap;

use letterbox_common::ids::{AccountId, UserId, WorkspaceId};
use letterbox_database::{FromRow, Row, RowError, statements};
use uuid::Uuid;

statements! {
    /// Makes letters of what happened longer ago than this, in seconds.
    pub(super) fn write_letters(seconds: f64) = "SELECT write_letters($1) AS written";

    /// The letters that are due, each for one attempt, with the newest failed runs, which are below
    /// this address, and why subscriptions stall now.
    pub(super) fn take_letters(most: i32, runs: &str) -> Vec<Letter> = "
SELECT workspace_id AS workspace, letter_id AS id, workspace_name, email, account_id, account_user,
    base_url, header_name, credential_sealed, told::text AS told,
    coalesce((SELECT string_agg($2 || f.run_id, E'\n' ORDER BY f.run_id) FROM (
        SELECT n.run_id FROM (
            SELECT r.run_id, r.state FROM runs r WHERE r.workspace_id = l.workspace_id
            ORDER BY r.run_id DESC LIMIT 1000) n
        WHERE n.state = 'failed'
        ORDER BY n.run_id DESC LIMIT least(coalesce((l.told ->> 'failure')::integer, 0), 3)) f
    ), '') AS failed,
    coalesce((SELECT string_agg(s.target || ': ' || s.failure, E'\n' ORDER BY s.target)
        FROM subscriptions s
        WHERE s.workspace_id = l.workspace_id AND l.told ? 'stalled_subscription'), '') AS why
FROM take_letters($1) l";

    /// Notes what came of an attempt.
    pub(super) fn end_letter(workspace: WorkspaceId, letter: Uuid, failure: Option<&str>) = "
SELECT end_letter($1, $2, $3)";

    /// Takes a request for a link to sign in, and makes the link.
    pub(super) fn answer_sign_in_request(token_sha256: &[u8]) -> Option<SignInRequest> = "
SELECT address, is_known FROM answer_sign_in_request($1)";
}

/// A notice to one recipient.
#[derive(FromRow)]
pub(super) struct Letter {
    pub(super) workspace: WorkspaceId,
    pub(super) id: Uuid,
    pub(super) workspace_name: String,
    #[row(from = by)]
    pub(super) by: By,
    /// Of how many it tells, by the kind of news.
    #[row(with = counts)]
    pub(super) told: HashMap<String, i64>,
    /// Where the newest failed runs are seen.
    pub(super) failed: String,
    /// The subscriptions that fail now, each with its reason.
    pub(super) why: String,
}

fn counts(json: &str) -> HashMap<String, i64> {
    serde_json::from_str(json).unwrap_or_default()
}

/// How a letter is sent.
pub(super) enum By {
    /// To this e-mail address.
    Mail(String),
    /// Through this account.
    Account(NoticeAccount),
    /// The account has no credential: it was disconnected meanwhile, or waits for its owner.
    Nothing,
}

/// A connected account.
#[derive(FromRow)]
pub(super) struct NoticeAccount {
    #[row(name = account_id)]
    pub(super) id: AccountId,
    #[row(name = account_user)]
    pub(super) user: UserId,
    pub(super) base_url: String,
    #[row(name = header_name)]
    pub(super) header: String,
    pub(super) credential_sealed: Vec<u8>,
}

#[derive(FromRow)]
pub(super) struct SignInRequest {
    pub(super) address: String,
    /// Whether it is a user's, for whom the link was made.
    pub(super) is_known: bool,
}

fn by(row: &Row) -> Result<By, RowError> {
    let (email, account): (Option<String>, Option<AccountId>) =
        (row.try_get("email")?, row.try_get("account_id")?);
    Ok(match (email, account) {
        (Some(email), _) => By::Mail(email),
        (None, Some(_)) => By::Account(NoticeAccount::from_row(row)?),
        (None, None) => By::Nothing,
    })
}
