//! The look-up of a page's look.

use letterbox_common::form::Page;
use letterbox_database::{FromRow, statements};

statements! {
    /// The look of the page of a live form, as its owner set it.
    pub(super) fn form_page(token_sha256: &[u8]) -> Option<PageLook> = "
SELECT page FROM live_form_links WHERE token_sha256 = $1 AND is_open";
}

/// The look of a form's page.
#[derive(FromRow)]
pub(super) struct PageLook {
    #[row(with = look)]
    pub(super) page: Page,
}

/// A look that was not deployed through Letterbox is ignored, and the page is plain.
fn look(page: Option<&str>) -> Page {
    let page = page.and_then(|page| serde_json::from_str(page).ok());
    page.unwrap_or_default()
}
