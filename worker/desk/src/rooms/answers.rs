//! Answers to a form: what people have submitted as a table, and as files.

use askama::Template;
use axum::{
    BoxError,
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use letterbox_common::ids::{RunId, WorkflowId};
use letterbox_operator::{Column, Csv, FormAnswer, WorkflowDetail};

use super::{To, Visit, id, or_refusal};
use crate::{
    pages::filters,
    response::{Answered, Trouble},
};

/// Answers on one page, and in one piece of a file: one may have 64 KiB.
const EACH: u32 = 50;

#[derive(Template)]
#[template(path = "answers.html")]
struct AnswersPage<'v> {
    visit: &'v Visit,
    workflow: WorkflowDetail,
    columns: Vec<Column>,
    answers: Vec<FormAnswer>,
    /// The query for those before.
    older: Option<String>,
    refused: Option<String>,
}

/// The newest answers to a form, which the person then has seen.
pub(crate) async fn list(To(visit, workflow): To<WorkflowId>) -> Answered {
    let operator = &visit.operator;
    let query = &visit.asked.query;
    let workflow = operator.workflow(workflow).await?;
    let columns = operator.answer_columns(workflow.row.workflow_id).await?;
    let before: Option<RunId> = query.get("before").map(id).transpose()?;
    let value = query.get("value").map(str::trim);
    let reading = operator.newest_answers(&workflow.row, &columns, value, before, EACH);
    let read = or_refusal(reading.await)?;
    let refused = read.as_ref().err().cloned();
    let answers = read.unwrap_or_default();
    let is_newest = before.is_none() && value.is_none();
    if let Some(newest) = answers.first().filter(|_| is_newest) {
        operator.see_answers(&workflow.row, newest.run_id).await?;
    }
    let last = answers.last().filter(|_| answers.len() == EACH as usize);
    let older = last.map(|last| format!("{}&before={}", query.without("before"), last.run_id));
    let page = AnswersPage {
        visit: &visit,
        workflow,
        columns,
        answers,
        older,
        refused,
    };
    Ok(visit.page("Answers", &page))
}

/// All answers to a form as a file, oldest first; of those with this value, newest first, if the
/// query gives one.
pub(crate) async fn file(To(visit, workflow): To<WorkflowId>) -> Answered {
    let style = match visit.asked.query.get("for") {
        Some("semicolon") => Csv::Spreadsheet(b';'),
        Some("comma") => Csv::Spreadsheet(b','),
        Some("program") => Csv::Program,
        _ => return Err(Trouble::Unreadable),
    };
    let workflow = visit.operator.workflow(workflow).await?.row;
    let columns = visit.operator.answer_columns(workflow.workflow_id).await?;
    // Whoever reads it slowly keeps their place for as long.
    let reader = (visit, workflow, columns);
    let pieces = stream::try_unfold((reader, Some(None)), move |(reader, at)| async move {
        let Some(after) = at else {
            return Ok(None);
        };
        let (visit, workflow, columns) = &reader;
        let operator = &visit.operator;
        let reading = match visit.asked.query.get("value") {
            None => {
                operator
                    .form_answers(workflow, (None, None), after, EACH)
                    .await
            }
            value => {
                operator
                    .newest_answers(workflow, columns, value, after, EACH)
                    .await
            }
        };
        let answers =
            reading.inspect_err(|error| tracing::error!(%error, "a file of answers breaks off"))?;
        let mut piece = match after {
            None => style.title(columns)?,
            Some(_) => Vec::new(),
        };
        piece.extend(style.answers(&answers, columns)?);
        let next = answers.last().map(|last| Some(last.run_id));
        Ok::<_, BoxError>(Some((piece, (reader, next))))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"answers.csv\"",
        ),
    ];
    let response: Response = (headers, Body::from_stream(pieces)).into_response();
    Ok(response)
}
