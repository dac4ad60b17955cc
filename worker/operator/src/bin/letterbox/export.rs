//! Submissions to a form: as CSV for its owner's spreadsheet, or exactly as they are, as JSON for
//! programs. What people wrote stays as they wrote it: letters that can't be seen join the letters
//! of many scripts, and are made visible where text is shown, not where it is handed over.

use std::collections::HashMap;

use csv::QuoteStyle;
use jiff::Timestamp;
use letterbox_common::{ids::WorkflowId, json_object};
use letterbox_operator::{
    FormAnswer, Operator,
    escape::{self, is_plain},
};
use serde_json::{Value, json};

use crate::{Failure, Output, output};

/// Answers that are read at once.
const PIECE: u32 = 1_000;

/// Writes a line for each answer, oldest first, or one JSON array of them.
pub(crate) async fn export(
    operator: &Operator,
    workflow: WorkflowId,
    between: (Option<Timestamp>, Option<Timestamp>),
    is_json: bool,
) -> Result<Output, Failure> {
    let workflow = operator.workflow(workflow).await?.row;
    let keys = operator.field_keys(workflow.workflow_id).await?;
    let own = ["run_id", "received_at", "state"].map(str::to_owned);
    let titles = own.into_iter().chain(keys.iter().map(|key| text(key)));
    let mut piece = match is_json {
        true => b"[".to_vec(),
        false => csv(&[titles.collect()])?,
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
            let lines: Vec<_> = answers.iter().map(|answer| line(answer, &keys)).collect();
            piece.extend(csv(&lines)?);
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

/// A text in a cell, as it was written but for control characters, which would steer a terminal. It
/// must not become a formula for the person who opens the file.
fn text(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let text = text.replace(
        |c: char| c.is_control() && c != '\n' && c != '\t',
        "\u{fffd}",
    );
    // The signs of full width are taken for the others by some programs, and what can't be seen
    // before a sign may be passed over.
    let signs = [
        '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
    ];
    let seen = text.trim_start_matches(|c: char| !is_plain(c) && !c.is_control());
    if seen.starts_with(signs) || text.starts_with(['\t', '\n', '\u{fffd}']) {
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
            ("\"\u{200b}=1+1\"", "'\u{200b}=1+1"),
            ("\"gpj\u{202e}.exe\"", "gpj\u{202e}.exe"),
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

    /// What is no control character comes out as it went in, behind an apostrophe at most.
    #[test]
    fn every_letter_stays() {
        for c in ('\0'..=char::MAX).filter(|c| !c.is_control()) {
            let written = format!("a{c}b{c}");
            assert_eq!(text(&written), written, "{c:?}");
            let alone = c.to_string();
            assert_eq!(
                text(&alone).trim_start_matches('\''),
                alone.trim_start_matches('\'')
            );
        }
    }
}
