//! What was submitted to a form, as CSV for its owner's spreadsheet.

use jiff::Timestamp;
use letterbox_common::ids::WorkflowId;
use letterbox_operator::{FormAnswer, Operator};
use serde_json::Value;

use crate::{Failure, Output, output};

/// Answers that are read at once.
const PIECE: u32 = 1_000;

/// Writes a line for each answer, oldest first.
pub(crate) async fn export(
    operator: &Operator,
    workflow: WorkflowId,
    between: (Option<Timestamp>, Option<Timestamp>),
) -> Result<Output, Failure> {
    let workflow = operator.workflow(workflow).await?.row;
    let keys = operator.field_keys(workflow.workflow_id).await?;
    let own = ["run_id", "received_at", "state"].map(str::to_owned);
    let mut lines = vec![own.iter().chain(&keys).cloned().collect::<Vec<_>>()];
    let mut after = None;
    loop {
        let reading = operator.form_answers(&workflow, between, after, PIECE);
        let answers = reading.await?;
        lines.extend(answers.iter().map(|answer| line(answer, &keys)));
        let goes_on = output::bytes(&csv(&lines)?);
        let Some(last) = answers.last().filter(|_| goes_on) else {
            return Ok(Output::Nothing);
        };
        after = Some(last.run_id);
        lines.clear();
    }
}

fn line(answer: &FormAnswer, keys: &[String]) -> Vec<String> {
    let own = [
        answer.run_id.to_string(),
        answer.received_at.to_string(),
        answer.state.to_string(),
    ];
    let values = keys.iter().map(|key| cell(&answer.input[key.as_str()]));
    own.into_iter().chain(values).collect()
}

/// A value in a cell. A stranger's text must not become a formula of whoever opens the file, and
/// must not steer a terminal.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => {
            let plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
            let text = text.replace("\r\n", "\n");
            let text = text.chars().map(|c| if plain(c) { c } else { '\u{fffd}' });
            let text: String = text.collect();
            match text.starts_with(['=', '+', '-', '@', '\t', '\n', '\u{fffd}']) {
                true => format!("'{text}"),
                false => text,
            }
        }
        other => other.to_string(),
    }
}

fn csv(lines: &[Vec<String>]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for line in lines {
        writer.write_record(line)?;
    }
    writer.into_inner().map_err(|error| {
        let cause = error.into_error();
        Failure::Csv(cause.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_a_formula() {
        for (value, shown) in [
            (Value::from("=1+1"), "'=1+1"),
            ("@SUM(A1)".into(), "'@SUM(A1)"),
            ("+49 30 1".into(), "'+49 30 1"),
            ("\t=1".into(), "'\t=1"),
            ("\r=1".into(), "'\u{fffd}=1"),
            ("a\u{1b}[2J".into(), "a\u{fffd}[2J"),
            ("two\r\nlines".into(), "two\nlines"),
            ((-5).into(), "-5"),
            (true.into(), "true"),
            (Value::Null, ""),
        ] {
            assert_eq!(cell(&value), shown);
        }
        let lines = [vec!["a,\"b\"".to_owned(), "c\nd".to_owned()]];
        assert_eq!(csv(&lines).unwrap(), b"\"a,\"\"b\"\"\",\"c\nd\"\n");
    }
}
