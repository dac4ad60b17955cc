//! The page behind a form link: a document with the form of a live link and the look that its owner
//! chose, and the files that it loads. The same limits and checks apply, and the same silence about
//! dead links, as for the form itself; the page submits through the public endpoint like any other
//! client.

mod document;
mod files;
mod store;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use letterbox_common::form::{Page, TokenHash};
use letterbox_database::{Database, DatabaseError};

pub(crate) use self::{document::Documents, files::AskedFile, store::STATEMENTS};
use crate::response::{self, Response};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Serves form pages.
pub(crate) struct FormPages {
    pub(crate) documents: Documents,
    database: Database,
}

impl FormPages {
    pub(crate) fn new(documents: Documents, database: Database) -> Self {
        Self {
            documents,
            database,
        }
    }

    /// The look of a live form's page; `None` if the form is no longer live.
    pub(crate) async fn look(&self, token: TokenHash) -> Result<Option<Page>, DatabaseError> {
        let found = store::form_page(&self.database, token.as_bytes()).await?;
        Ok(found.map(|look| look.page))
    }
}

/// A response that only pages of this origin may load.
fn own(media_type: &'static str, content: Bytes) -> Response {
    let mut response = response::content(media_type, content);
    response.headers_mut().insert(RESOURCE_POLICY, SAME_ORIGIN);
    response
}
