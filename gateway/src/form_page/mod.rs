//! The page behind a form link: a document with the form of a live link and the look that its owner
//! chose, and the files that it loads. The same limits and checks apply, and the same silence about
//! dead links, as for the form itself; the page submits through the public endpoint like any other
//! client.

use letterbox_form_page::{Document, Documents, Shown};

use crate::{
    admission::LiveForm,
    error::Refusal,
    proof::Challenge,
    response::{self, Response},
};

/// The document of a live form.
pub(crate) fn with_form(
    documents: &Documents,
    live: &LiveForm,
    challenge: Option<Challenge>,
) -> Result<Response, Refusal> {
    let definition = &live.definition;
    let form = definition.form.as_ref();
    let shown = Shown {
        json: &definition.json,
        form: form.ok_or_else(Refusal::temporarily_unavailable)?,
        page: &definition.page,
        workflow: live.release.workflow,
    };
    let document = documents.with_form(shown, challenge);
    let document = document.map_err(|_| Refusal::temporarily_unavailable())?;
    Ok(response::with_headers(document.headers, document.html))
}

/// The document that says why there is no form, the same for every token.
pub(crate) fn refused(documents: &Documents, refusal: Refusal) -> Response {
    let document = documents.refused(refusal.status.as_u16(), refusal.retry_after);
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
