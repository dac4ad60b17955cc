//! The link by which people reach a form: made, shown once, ended.

use askama::Template;
use axum::response::Response;
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use letterbox_common::{
    form::{Field, FieldType},
    ids::WorkflowId,
};
use letterbox_operator::{Closing, NewFormLink, WorkflowDetail};
use qrcode::{Color, QrCode};
use url::form_urlencoded;

use super::{To, Visit, draft::form_of, refused};
use crate::{
    pages::filters,
    response::{Answered, Trouble, see},
};

/// What ends the link that people have needs a ticked box.
pub(super) fn need_sure_of_link(visit: &Visit, workflow: &WorkflowDetail) -> Result<(), Trouble> {
    match workflow.form_link_id {
        Some(_) => visit.need_sure(),
        None => Ok(()),
    }
}

/// Makes a form link, which is shown once.
pub(crate) async fn make(To(visit, workflow): To<WorkflowId>) -> Answered {
    let form = &visit.asked.form;
    let answers = form.get("max_answers").map(str::parse::<i32>).transpose();
    let answers = answers.map_err(|_| refused("The number of submissions must be a number."))?;
    if answers.is_some_and(|answers| answers < 1) {
        return Err(refused("The number of submissions must be at least 1."));
    }
    let closing = Closing {
        at: form
            .get("closes_at")
            .map(|text| moment(text, visit.filled("zone")))
            .transpose()?,
        after_answers: answers,
    };
    need_sure_of_link(&visit, &visit.operator.workflow(workflow).await?)?;
    let made = visit.operator.create_form_link(workflow, closing).await?;
    Ok(show_link(&visit, &made))
}

pub(super) fn show_link(visit: &Visit, made: &NewFormLink) -> Response {
    let place = format!("/forms/{}/link", made.workflow);
    visit.show_once(&place, &made.workflow, made.token.expose())
}

#[derive(Template)]
#[template(path = "form_link.html")]
struct NewLinkPage {
    workflow: WorkflowDetail,
    url: String,
    /// The link as a QR code: how many modules wide, and a path of the dark ones.
    code: Option<(usize, String)>,
}

impl NewLinkPage {
    /// Answers to the first questions, as a link brings them.
    fn example(&self) -> String {
        let fields = form_of(&self.workflow).map(|form| form.fields);
        let answer = |field: Field| match field.kind {
            FieldType::Text | FieldType::Textarea => {
                let first = field.choices.into_iter().next();
                Some((field.key, first.unwrap_or_else(|| "answer".to_owned())))
            }
            FieldType::Email => Some((field.key, "ada@example.com".to_owned())),
            _ => None,
        };
        let answers = fields.into_iter().flatten().filter_map(answer).take(2);
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(answers)
            .finish()
    }
}

/// A text as a QR code, for a screen and for paper.
fn qr_code(text: &str) -> Option<(usize, String)> {
    let code = QrCode::new(text).ok()?;
    let width = code.width();
    let dark = code.to_colors().into_iter().enumerate();
    let dark = dark.filter(|(_, color)| *color == Color::Dark);
    let path = dark.map(|(at, _)| format!("M{} {}h1v1h-1z", at % width, at / width));
    Some((width, path.collect()))
}

/// The link that was made just now; only the workflow, if it was shown already.
pub(crate) async fn show(To(visit, workflow): To<WorkflowId>) -> Answered {
    let workflow = visit.operator.workflow(workflow).await?;
    let id = workflow.row.workflow_id;
    let Some(token) = visit.asked.made(&id) else {
        return Ok(see(&format!("/forms/{id}")));
    };
    let url = visit.asked.desk.addresses.form_url(token);
    let code = qr_code(&url);
    let page = NewLinkPage {
        workflow,
        url,
        code,
    };
    Ok(visit.once("Form link", &page))
}

/// A time as browsers write one, which is meant in the time zone that was shown beside it.
fn moment(text: &str, zone: &str) -> Result<Timestamp, Trouble> {
    let time = text.parse::<DateTime>().ok();
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    let time = time.and_then(|time| time.to_zoned(zone).ok());
    let time = time.ok_or_else(|| refused("That is not a time: write 2026-01-31T08:00."));
    Ok(time?.timestamp())
}

/// Ends the link of a workflow.
pub(crate) async fn end(To(visit, workflow): To<WorkflowId>) -> Answered {
    visit.need_sure()?;
    let ended = visit.operator.end_form_link(workflow).await?;
    Ok(see(&format!("/forms/{}", ended.workflow_id)))
}
