//! Submissions to a form, as CSV for its owner's spreadsheet.

use std::collections::HashMap;

use csv::QuoteStyle;
use jiff::Timestamp;
use letterbox_common::{ids::WorkflowId, json_object};
use letterbox_operator::{FormAnswer, Operator, escape::is_plain};
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
    let titles = keys.iter().map(|key| text(key));
    let mut lines = vec![own.into_iter().chain(titles).collect::<Vec<_>>()];
    let mut after = None;
    loop {
        let reading = operator.form_answers(&workflow, between, after, PIECE);
        let answers = reading.await?;
        lines.extend(answers.iter().map(|answer| line(answer, &keys)));
        let goes_on = output::bytes(&csv(&lines)?).map_err(Failure::Output)?;
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
    // As they were submitted: numbers digit for digit, and of repeated names the last.
    let values: HashMap<_, _> = json_object::all(&answer.input)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(key, value)| Some((key?, value.get())))
        .collect();
    let values = keys
        .iter()
        .map(|key| values.get(key).map_or_else(String::new, |json| cell(json)));
    own.into_iter().chain(values).collect()
}

/// A JSON text in a cell.
fn cell(json: &str) -> String {
    match serde_json::from_str(json) {
        Ok(Value::String(value)) => text(&value),
        Ok(Value::Null) => String::new(),
        _ => json.to_owned(),
    }
}

/// A text in a cell. A stranger's text must not become a formula for the person who opens the file,
/// steer a terminal, or look like another: what reorders a line or can't be seen is left out.
fn text(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let text = text.chars().filter_map(|c| match c {
        '\n' | '\t' => Some(c),
        c if c.is_control() => Some('\u{fffd}'),
        c => is_plain(c).then_some(c),
    });
    let text: String = text.collect();
    // The signs of full width are taken for the others by some programs.
    let signs = [
        '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
    ];
    if text.starts_with(signs) || text.starts_with(['\t', '\n', '\u{fffd}']) {
        format!("'{text}")
    } else {
        text
    }
}

fn csv(lines: &[Vec<String>]) -> Result<Vec<u8>, Failure> {
    // Programs that split at other signs than commas respect quotes.
    let mut writer = csv::WriterBuilder::new()
        .quote_style(QuoteStyle::Always)
        .from_writer(Vec::new());
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
        for (json, shown) in [
            (r#""=1+1""#, "'=1+1"),
            (r#""@SUM(A1)""#, "'@SUM(A1)"),
            (r#""+49 30 1""#, "'+49 30 1"),
            ("\"\u{ff1d}1+1\"", "'\u{ff1d}1+1"),
            ("\"\u{ff20}SUM(A1)\"", "'\u{ff20}SUM(A1)"),
            ("\"\u{200b}=1+1\"", "'=1+1"),
            ("\"gpj\u{202e}.exe\"", "gpj.exe"),
            (r#""\t=1""#, "'\t=1"),
            (r#""\r=1""#, "'\u{fffd}=1"),
            (r#""a\u001b[2J""#, "a\u{fffd}[2J"),
            (r#""two\r\nlines""#, "two\nlines"),
            ("-5", "-5"),
            ("12345678901234567890123.50", "12345678901234567890123.50"),
            ("true", "true"),
            ("null", ""),
        ] {
            assert_eq!(cell(json), shown);
        }
        let lines = [vec!["a;=\"b\"".to_owned(), "c\nd".to_owned()]];
        assert_eq!(csv(&lines).unwrap(), b"\"a;=\"\"b\"\"\",\"c\nd\"\n");
    }
}
