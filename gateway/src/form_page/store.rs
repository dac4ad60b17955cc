//! The look-up of a page's look.

use letterbox_common::form::{Page, TokenHash};
use letterbox_database::{Database, DatabaseError, statements};

statements! {
    /// The look of the page of a live form, as its owner set it.
    PAGE = form_page "SELECT page FROM live_form_links WHERE token_sha256 = $1 AND is_open";
}

/// Finds the look of a form's page; `None` if the form is not live.
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
    // A look that was not deployed through Letterbox is ignored, and the page is plain.
    let page = page.and_then(|page| serde_json::from_str(page).ok());
    Ok(Some(page.unwrap_or_default()))
}
