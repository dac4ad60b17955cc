//! How the page of a live form looks.

use letterbox_common::form::{Page, TokenHash};
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// What the owner says of the page.
    PAGE = form_page "SELECT page FROM live_form_links WHERE token_sha256 = $1 AND is_open";
}

/// None where the form is not live, or not any more.
pub(super) async fn page(
    database: &Database,
    token: TokenHash,
) -> Result<Option<Page>, DatabaseError> {
    let hash = &token.as_bytes()[..];
    let Some(row) = database
        .query_opt(&PAGE, &[/* $1 token_sha256 */ &hash])
        .await?
    else {
        return Ok(None);
    };
    let page: Option<&str> = row.try_get("page")?;
    // What nobody deployed through Letterbox is shown plain.
    let page = page.and_then(|page| serde_json::from_str(page).ok());
    Ok(Some(page.unwrap_or_default()))
}
