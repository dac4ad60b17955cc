//! The page behind a form link: a document with the form of a live link and the look that its owner
//! chose, and the files that it loads. The same limits and checks apply, and the same silence about
//! dead links, as for the form itself; the page submits through the public endpoint like any other
//! client.

mod store;

use hyper::header::HeaderMap;
use letterbox_common::form::{Page, TokenHash};
use letterbox_database::{Database, DatabaseError};
use letterbox_form_page::{AskedFile, Document, Documents, Shown};

pub(crate) use self::store::STATEMENTS;
use crate::{
    admission::LiveForm,
    error::Refusal,
    proof::Challenge,
    response::{self, Response},
};

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

/// The document of a live form.
pub(crate) fn with_form(
    documents: &Documents,
    live: &LiveForm,
    page: &Page,
    challenge: Option<Challenge>,
) -> Result<Response, Refusal> {
    let form = live.parse();
    let form = form.map_err(|_| Refusal::temporarily_unavailable())?;
    let shown = Shown {
        json: &live.definition,
        form: &form,
        page,
        workflow: live.release.workflow,
    };
    let document = documents.with_form(shown, challenge);
    let document = document.map_err(|_| Refusal::temporarily_unavailable())?;
    Ok(response::with_headers(document.headers, document.html))
}

/// The document that says why there is no form, the same for every token.
pub(crate) fn refused(documents: &Documents, refusal: Refusal) -> Response {
    let document = documents.refused(refusal.status().as_u16(), refusal.retry_after());
    let mut response = Response::from(refusal);
    response.headers_mut().extend(document.headers);
    *response.body_mut() = document.html.into();
    response
}

/// The document of a page that fetches the form.
pub(crate) fn without_form(documents: &Documents) -> Response {
    let Document { html, headers } = documents.without_form();
    response::with_headers(headers, html)
}

/// A file of the page, for who has sent these headers.
pub(crate) fn file(file: AskedFile, asked: &HeaderMap) -> Response {
    let (headers, content) = file.answer(asked);
    response::with_headers(headers, content)
}
