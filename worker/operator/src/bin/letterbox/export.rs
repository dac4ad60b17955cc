//! Submissions to a form: as CSV, or exactly as they are, as JSON.

use jiff::Timestamp;
use letterbox_common::{ids::WorkflowId, json_object};
use letterbox_operator::{Csv, FormAnswer, Operator, escape};
use serde_json::json;

use crate::{Failure, Output, Result, output};

/// Answers that are read at once.
const PIECE: u32 = 1_000;

/// Writes a line for each answer, oldest first, or one JSON array of them.
pub(crate) async fn export(
    operator: &Operator,
    workflow: WorkflowId,
    between: (Option<Timestamp>, Option<Timestamp>),
    is_json: bool,
) -> Result<Output> {
    let workflow = operator.workflow(workflow).await?.row;
    let columns = operator.answer_columns(workflow.workflow_id).await?;
    let mut piece = match is_json {
        true => b"[".to_vec(),
        false => Csv::Program.title(&columns)?,
    };
    let mut after = None;
    let mut between_two = "";
    loop {
        let reading = operator.form_answers(&workflow, between, after, PIECE);
        let answers = reading.await?;
        if is_json {
            for answer in &answers {
                piece.extend(format!("{between_two}\n{}", object(answer)).bytes());
                between_two = ",";
            }
        } else {
            piece.extend(Csv::Program.answers(&answers, &columns)?);
        }
        let last = answers.last();
        if is_json && last.is_none() {
            piece.extend(b"\n]\n");
        }
        let goes_on = output::bytes(&piece).map_err(Failure::Output)?;
        let Some(last) = last.filter(|_| goes_on) else {
            return Ok(Output::Nothing);
        };
        after = Some(last.run_id);
        piece.clear();
    }
}

/// An answer as JSON, with the text that was submitted: null if a gateway has stored anything else.
fn object(answer: &FormAnswer) -> String {
    let is_object = json_object::all(&answer.input).is_some();
    let answers = if is_object {
        answer.input.as_str()
    } else {
        "null"
    };
    let run = json!(answer.run_id);
    let at = json!(answer.received_at);
    let state = json!(answer.state);
    escape::json(&format!(
        r#"{{"run_id":{run},"received_at":{at},"state":{state},"answers":{answers}}}"#
    ))
}
