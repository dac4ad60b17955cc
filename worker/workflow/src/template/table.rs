//! `{{ form | table }}`: all answers of a submission, each with the label of its field, in the
//! order of the form.

use std::fmt::Write;

use letterbox_common::form::Form;
use minijinja::{Error, HtmlEscape, State, Value, value::ValueKind};

use super::insertions::{AS_TYPED, scalar_text};

/// The filter's name.
pub(super) const TABLE: &str = "table";
/// The name of the labels in a context. Definitions can't use it.
pub(super) const LABELS: &str = "form_labels";

/// The labels of a form's fields. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Labels(pub(super) Value);

impl Labels {
    /// Those of a form.
    pub fn of(form: &Form) -> Self {
        let fields = form.fields.iter();
        Self::new(fields.map(|field| (&*field.key, &*field.label)))
    }

    /// Pairs of a key and a label.
    pub(super) fn new<'l>(pairs: impl Iterator<Item = (&'l str, &'l str)>) -> Self {
        let pairs = pairs.map(|(key, label)| Value::from_iter([key, label]));
        Self(pairs.collect())
    }
}

/// The answers: as lines, or as a table of HTML where that is the place. What was left out has no
/// line.
pub(super) fn table(state: &State<'_, '_>, is_html: bool) -> Result<Value, Error> {
    let named = |name: &str| state.lookup(name).unwrap_or_default();
    let (answers, labels) = (named(AS_TYPED), named(LABELS));
    let mut table = String::new();
    for pair in labels.try_iter()? {
        let label = scalar_text(&pair.get_item_by_index(1)?)?;
        let answer = answers.get_item(&pair.get_item_by_index(0)?)?;
        let answer = match answer.kind() {
            ValueKind::Undefined | ValueKind::None => continue,
            ValueKind::Bool => if answer.is_true() { "✓" } else { "–" }.to_owned(),
            _ => scalar_text(&answer)?,
        };
        // What a stranger writes into further lines is not taken for further answers.
        let ends = [
            '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
        ];
        let answer = answer.trim_end().replace("\r\n", "\n");
        let answer: Vec<_> = answer.split(ends).collect();
        let label = label.trim();
        let written = match is_html {
            true => {
                let answer = answer.iter().map(|line| HtmlEscape(line).to_string());
                let answer = answer.collect::<Vec<_>>().join("<br>");
                let label = HtmlEscape(label);
                writeln!(
                    table,
                    "<tr><th align=\"left\">{label}</th><td>{answer}</td></tr>"
                )
            }
            false => writeln!(table, "{label}: {}", answer.join("\n  ")),
        };
        written?;
    }
    Ok(match is_html {
        true => Value::from_safe_string(format!("<table>\n{table}</table>")),
        false => Value::from(table.trim_end()),
    })
}
