//! What people will see of a draft: the very page of the form, in a frame of its own that has no
//! part in the session and sends nothing.

use axum::{
    extract::Request,
    http::header,
    response::{IntoResponse, Response},
};
use letterbox_common::{
    form::{Form, Page},
    ids::WorkflowId,
};
use letterbox_form_page::{AskedFile, Shown};
use serde_json::Value;

use super::{To, refused};
use crate::response::{Answered, RESOURCE_POLICY, Trouble};

/// Begins the addresses of the page's files, which it names from where it is.
const FOLDER: &str = "/previews";

/// The page of the draft, to be filled in.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    let definition = workflow.definition.unwrap_or(Value::Null);
    let form = serde_json::from_value::<Form>(definition["form"].clone());
    let none = |_| refused("The draft has no form that could be shown: look at it as JSON.");
    let form = form.map_err(none)?;
    let page = serde_json::from_value::<Page>(definition["page"].clone()).unwrap_or_default();
    let json = serde_json::to_string(&form).map_err(none)?;
    let shown = Shown {
        json: &json,
        form: &form,
        page: &page,
        workflow: workflow.row.workflow_id,
    };
    let document = visit.asked.desk.form_pages.preview(shown).map_err(none)?;
    let framed = [(header::X_FRAME_OPTIONS, "SAMEORIGIN")];
    Ok((document.headers, framed, document.html).into_response())
}

/// A file of the page, the same for everybody. The frame counts as another site.
pub(crate) async fn file(request: Request) -> Result<Response, Trouble> {
    let path = request.uri().path().strip_prefix(FOLDER);
    let file = path.and_then(AskedFile::at).ok_or(Trouble::NotFound)?;
    let others = [
        (RESOURCE_POLICY, "cross-origin"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    let (headers, content) = file.answer(request.headers());
    Ok((headers, others, content).into_response())
}
