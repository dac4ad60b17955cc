//! Results: tables for people, JSON for programs. The only file of the command line that prints.
//!
//! Text from outside may contain anything: it is escaped before a terminal sees it.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use comfy_table::{Table, presets};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use letterbox_operator::escape;

/// The exit code where something should be looked at.
pub(crate) const LOOK: u8 = 3;

/// The result of a command.
pub(crate) enum Output {
    /// A text for people; the same as JSON text for programs. The exit code says how things are.
    Text {
        text: String,
        json: String,
        code: u8,
    },
    One(Value),
    /// JSON, for people and for programs.
    Json(Value),
    /// The output was printed already.
    Nothing,
    Many {
        rows: Vec<Value>,
        columns: &'static str,
    },
}

impl Output {
    /// A text for people, and the thing that it is about for programs.
    pub(crate) fn text(text: String, thing: &impl Serialize) -> Self {
        Self::status(text, thing, 0)
    }

    /// The same, with an exit code.
    #[expect(
        clippy::expect_used,
        reason = "results are structs of ids, words, numbers and times"
    )]
    pub(crate) fn status(text: String, thing: &impl Serialize, code: u8) -> Self {
        let json = serde_json::to_string_pretty(thing);
        let json = json.expect("structs with text keys always serialize");
        Self::Text { text, json, code }
    }

    /// One thing, all of it.
    pub(crate) fn one(thing: &impl Serialize) -> Self {
        Self::One(json!(thing))
    }

    /// Many things: people see these columns, named with spaces between, programs everything.
    pub(crate) fn many(things: &[impl Serialize], columns: &'static str) -> Self {
        Self::Many {
            rows: things.iter().map(|thing| json!(thing)).collect(),
            columns,
        }
    }

    /// Prints to standard output.
    pub(crate) fn print(self, json: bool) -> ExitCode {
        let success = match self {
            Self::Text { code, .. } => ExitCode::from(code),
            _ => ExitCode::SUCCESS,
        };
        if let Self::Nothing = self {
            return success;
        }
        let text = if json { self.json() } else { self.table() };
        // A reader that has gone away (`| head`) is not a failure.
        match writeln!(io::stdout(), "{text}") {
            Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
                error(&format!("standard output: {why}"));
                ExitCode::FAILURE
            }
            _ => success,
        }
    }

    fn json(self) -> String {
        match self {
            Self::Text { json, .. } => escape::json(&json),
            Self::One(value) | Self::Json(value) => escape::json(&format!("{value:#}")),
            Self::Nothing => String::new(),
            Self::Many { rows, .. } => escape::json(&format!("{:#}", Value::Array(rows))),
        }
    }

    fn table(self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match self {
            Self::One(Value::Object(members)) => {
                let mut members: Vec<_> = members.into_iter().collect();
                // Stable: the others stay as they are.
                members.sort_by_key(|(name, _)| place(name));
                for (name, value) in members {
                    table.add_row([name, block(&value)]);
                }
            }
            Self::One(value) => return plain(&value),
            Self::Json(_) | Self::Nothing => return self.json(),
            Self::Text { text, code: 0, .. } => return escape::lines(&text),
            Self::Text { text, .. } => return marked(&escape::lines(&text)),
            Self::Many { rows, .. } if rows.is_empty() => return "(none)".into(),
            Self::Many { rows, columns } => {
                table.set_header(columns.split(' '));
                for row in rows {
                    let columns = columns.split(' ');
                    table.add_row(columns.map(|column| cell(column, &row[column])));
                }
            }
        }
        let lines = table.lines().map(|line| {
            // The table's own margin.
            let text = line.strip_prefix(' ').unwrap_or(&line);
            text.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A value in a table, where a time is short: programs read the whole one.
fn cell(column: &str, value: &Value) -> String {
    let time = value.as_str().filter(|_| column.ends_with("_at"));
    let time = time.and_then(|time| time.parse::<Timestamp>().ok());
    time.map_or_else(|| plain(value), |time| time.strftime("%FT%TZ").to_string())
}

/// Where people look for a member of a thing: first what the next step needs.
fn place(name: &str) -> usize {
    let first = ["url", "secret", "token", "name", "email"];
    let first = first.iter().position(|one| *one == name);
    first.unwrap_or(if name.ends_with("_at") { 101 } else { 100 })
}

/// Marks what an operator should look at, where colors are wanted (no-color.org).
#[expect(
    clippy::disallowed_methods,
    reason = "what all programs of a terminal heed, not a setting of this one"
)]
fn marked(text: &str) -> String {
    let has_no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if has_no_color || !io::stdout().is_terminal() {
        return text.to_owned();
    }
    let red = |text: String, word| text.replace(word, &format!("\x1b[1;31m{word}\x1b[0m"));
    let words = ["LATE:", "NOT READY"].into_iter();
    words.fold(text.to_owned(), red)
}

/// The members of an object, a line for each.
pub(crate) fn members(thing: &Value) -> String {
    Output::One(thing.clone()).table()
}

/// A value in a cell of its own: an object takes a line for each member that is not empty.
fn block(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let said = members
                .iter()
                .filter(|(_, value)| !value.is_null() && *value != &Value::Array(Vec::new()));
            let lines = said.map(|(name, value)| {
                format!("{}: {}", plain(&Value::from(name.as_str())), plain(value))
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            values.iter().map(block).collect::<Vec<_>>().join("\n\n")
        }
        other => plain(other),
    }
}

/// A value for people, harmless to a terminal.
fn plain(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    escape::line(&text)
}

/// Prints one line of JSON to standard output. Returns `false` if standard output is closed.
pub(crate) fn line(value: &Value) -> bool {
    writeln!(io::stdout(), "{}", escape::json(&value.to_string())).is_ok()
}

/// Prints one line for people to standard output. Returns `false` if standard output is closed.
pub(crate) fn text_line(text: &str) -> bool {
    writeln!(io::stdout(), "{}", escape::line(text)).is_ok()
}

/// Writes bytes to standard output as they are. Returns `false` if standard output is closed.
///
/// # Errors
/// When they can't be written for another reason.
pub(crate) fn bytes(bytes: &[u8]) -> io::Result<bool> {
    let mut stdout = io::stdout();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(why),
        written => Ok(written.is_ok()),
    }
}

/// Clears the screen and shows a text. Returns `false` if standard output is closed.
pub(crate) fn screen(text: &str) -> bool {
    let text = marked(&escape::lines(text));
    writeln!(io::stdout(), "\x1b[H\x1b[2J{text}").is_ok()
}

/// Prints to standard error.
pub(crate) fn error(message: &str) {
    let _ = writeln!(io::stderr(), "letterbox: {}", escape::lines(message));
}

/// Prints one line of JSON to standard error.
pub(crate) fn error_line(value: &Value) {
    let _ = writeln!(io::stderr(), "{}", escape::json(&value.to_string()));
}

/// Tells people at a terminal which workspace a command is about that names none.
pub(crate) fn workspace(name: &str) {
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr(), "workspace: {}", escape::line(name));
    }
}

/// Prints the usual next step to standard error.
pub(crate) fn hint(step: &str) {
    let _ = writeln!(io::stderr(), "next: {step}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_takes_a_line_for_each_member() {
        let run = serde_json::json!({"id": "1", "actions": [{"a": "x\u{1b}", "none": null},
            {"b": {"c": 1}}]});
        assert_eq!(
            Output::one(&run).table(),
            "actions  a: x\\u{1b}\n\n         b: {\"c\":1}\nid       1"
        );
    }

    #[test]
    fn programs_get_everything_and_people_the_columns() {
        let rows = [serde_json::json!({"id": "1", "name": "n", "more": null})];
        assert_eq!(Output::many(&rows, "id more").table(), "id  more\n1   -");
        let json = Output::many(&rows, "id").json();
        assert!(json.contains("\"name\": \"n\""));
    }
}
