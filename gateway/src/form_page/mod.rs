//! The page behind a form link: a document that carries the form of a live link, with how its owner
//! wants it to look, and the files that it loads. It is answered under the same limits, liveness
//! and silence as the form itself; the page submits through the public endpoint, like anybody else.

mod document;
mod files;
mod store;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use letterbox_common::form::{Page, TokenHash};
use letterbox_database::{Database, DatabaseError};

pub(crate) use self::{document::Documents, files::PageFile, store::STATEMENTS};
use crate::response::{self, Response};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Answers with pages.
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

    /// How the page of a live form looks; None where the form is not live any more.
    ///
    /// # Errors
    /// When the database did not answer.
    pub(crate) async fn look(&self, token: TokenHash) -> Result<Option<Page>, DatabaseError> {
        store::page(&self.database, token).await
    }
}

/// A file for pages of this service only.
fn own(media_type: &'static str, content: Bytes) -> Response {
    let mut response = response::content(media_type, content);
    response.headers_mut().insert(RESOURCE_POLICY, SAME_ORIGIN);
    response
}
