//! Answers: what people have submitted to a form, as rows of a table. What they wrote stays as they
//! wrote it: letters that can't be seen join the letters of many scripts, and are made visible
//! where text is shown, not where it is handed over.

use std::collections::HashMap;

use csv::QuoteStyle;
use letterbox_common::{
    form::{Form, meant_ids, personal_ids},
    ids::{RunId, UserId, WorkflowId, WorkspaceId},
    json_object,
};
use letterbox_database::{FromRow, statements};
use serde_json::Value;
use uuid::Uuid;

use crate::{FormAnswer, Operator, Result, WorkflowRow, escape::is_plain};

statements! {
    /// The forms of a workflow, the one of the newest release first.
    desk fn forms_of_workflow(workspace: WorkspaceId, workflow: WorkflowId) -> Vec<(String,)> = "
SELECT form FROM releases WHERE workspace_id = $1 AND workflow_id = $2 ORDER BY number DESC";

    /// The newest submissions to a workflow, of those that have one of these values, if some are
    /// given.
    desk fn newest_answers(
        workspace: WorkspaceId, workflow: WorkflowId, before: Option<RunId>,
        found_by: Option<&[Uuid]>, limit: i64,
    ) -> Vec<FormAnswer> = "
SELECT run_id, state, received_at, input FROM visible_runs
WHERE workspace_id = $1 AND workflow_id = $2 AND input IS NOT NULL
  AND ($3::uuid IS NULL OR run_id < $3) AND ($4::uuid[] IS NULL OR found_by && $4)
ORDER BY run_id DESC LIMIT $5";

    /// How many answers came since the person last looked, to their own forms and to those whose
    /// answers they have looked at.
    desk fn new_answers(person: UserId, most: i64) -> Vec<NewAnswers> = "
SELECT f.workflow_id, f.name, w.name AS workspace_name, u.count
FROM workflows f
JOIN workspaces w USING (workspace_id)
LEFT JOIN seen_answers s USING (workspace_id, workflow_id)
CROSS JOIN LATERAL (
    SELECT count(r.input) FROM (
        SELECT r.input FROM runs r
        WHERE r.workflow_id = f.workflow_id AND r.workspace_id = f.workspace_id
          AND r.run_id > coalesce(s.run_id, '00000000-0000-0000-0000-000000000000')
        ORDER BY r.run_id DESC LIMIT $2) AS r
) AS u
WHERE f.state <> 'deleted' AND u.count > 0 AND (f.owner_id = $1 OR s.user_id IS NOT NULL)
ORDER BY f.name, f.workflow_id";

    /// Notes that the person who acts has seen the answers up to this one.
    desk fn see_answers(workspace: WorkspaceId, workflow: WorkflowId, newest: RunId) -> u64 = "
SELECT see_answers($1, $2, $3)";

    /// The keys of all fields that forms of a workspace have had, as JSON, which may hold what no
    /// text of the database does.
    desk fn keys_of_fields(workspace: WorkspaceId) -> Vec<(String,)> = "
SELECT DISTINCT (field -> 'key')::text AS key
FROM releases r CROSS JOIN LATERAL json_array_elements(r.form::json -> 'fields') AS field
WHERE r.workspace_id = $1";

    /// The newest runs with one of these values, of all workflows of a workspace.
    desk fn runs_with(
        workspace: WorkspaceId, found_by: &[Uuid], limit: i64,
    ) -> Vec<(WorkflowId, RunId)> = "
SELECT workflow_id, run_id FROM visible_runs
WHERE workspace_id = $1 AND input IS NOT NULL AND found_by && $2
ORDER BY run_id DESC LIMIT $3";
}

/// A form that has answers which a person hasn't seen.
#[derive(Debug, Clone, FromRow)]
pub struct NewAnswers {
    /// The form's workflow.
    pub workflow_id: WorkflowId,
    /// Its name.
    pub name: String,
    /// The name of its workspace.
    pub workspace_name: String,
    /// How many, at most [`NewAnswers::MOST`].
    pub count: i64,
}

impl NewAnswers {
    /// How many are counted.
    pub const MOST: i64 = 100;
}

/// A column of answers: a field that forms of the workflow have or had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The key of the field.
    pub key: String,
    /// What the newest form that has it calls it.
    pub label: String,
}

/// For whom a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Csv {
    /// A program: values as they are, but for what would be a formula or steer a terminal.
    Program,
    /// A spreadsheet that takes files with this separator: with a byte order mark, and numbers of
    /// telephones whole.
    Spreadsheet(u8),
}

impl Operator {
    /// Lists all fields that forms of a workflow have had: those of the newest release first, each
    /// once.
    pub async fn answer_columns(&self, workflow: WorkflowId) -> Result<Vec<Column>> {
        let forms = forms_of_workflow(self, self.home(workflow).await?, workflow).await?;
        let forms = forms
            .iter()
            .filter_map(|(form,)| serde_json::from_str::<Form>(form).ok());
        let mut columns: Vec<Column> = Vec::new();
        for field in forms.flat_map(|form| form.fields) {
            if columns.iter().all(|column| column.key != field.key) {
                let (key, label) = (field.key, field.label);
                columns.push(Column { key, label });
            }
        }
        Ok(columns)
    }

    /// Counts the answers that came since a person last looked, to their own forms and to those
    /// whose answers they have looked at: by the time of receipt.
    pub async fn new_answers(&self, person: UserId) -> Result<Vec<NewAnswers>> {
        new_answers(self, person, NewAnswers::MOST).await
    }

    /// Notes that the person who acts has seen the answers to a form up to this one.
    pub async fn see_answers(&self, workflow: &WorkflowRow, newest: RunId) -> Result<()> {
        // An id of a clock that is ahead hides nothing that comes until then.
        let newest = newest.min(RunId::generate());
        see_answers(self, workflow.workspace_id, workflow.workflow_id, newest).await?;
        Ok(())
    }

    /// Lists the newest runs of a workspace, at most `limit`, in whose submissions a text is a
    /// whole answer: with this, a person is found in every form.
    ///
    /// # Errors
    /// When it can't be found.
    pub async fn runs_of_person(
        &self,
        workspace: WorkspaceId,
        text: &str,
        limit: u32,
    ) -> Result<Vec<(WorkflowId, RunId)>> {
        self.need_searchable(workspace, text).await?;
        let keys = keys_of_fields(self, workspace).await?.into_iter();
        let keys = keys.filter_map(|(key,)| serde_json::from_str::<String>(&key).ok());
        let ids = keys.flat_map(|key| personal_ids(workspace, &key, text));
        let ids: Vec<_> = ids.collect();
        runs_with(self, workspace, &ids, limit.into()).await
    }

    /// Lists the newest submissions to a workflow, at most `limit`: those before a run, and those
    /// with this value in one of the columns, if they are given.
    ///
    /// # Errors
    /// When a value is wanted that can't be found.
    pub async fn newest_answers(
        &self,
        workflow: &WorkflowRow,
        columns: &[Column],
        value: Option<&str>,
        before: Option<RunId>,
        limit: u32,
    ) -> Result<Vec<FormAnswer>> {
        let workspace = workflow.workspace_id;
        let mut found_by = None;
        if let Some(value) = value {
            self.need_searchable(workspace, value).await?;
            let ids = columns
                .iter()
                .flat_map(|column| meant_ids(workspace, &column.key, value));
            found_by = Some(ids.collect::<Vec<_>>());
        }
        let workflow = workflow.workflow_id;
        newest_answers(
            self,
            workspace,
            workflow,
            before,
            found_by.as_deref(),
            limit.into(),
        )
        .await
    }
}

impl FormAnswer {
    /// The values in these columns, as text.
    pub fn values(&self, columns: &[Column]) -> Vec<String> {
        self.cells(columns, str::to_owned, str::to_owned)
    }

    /// The values in these columns: texts as `text` writes them, all else, such as numbers, as
    /// `other` does with their JSON. Of repeated names the last counts.
    fn cells(
        &self,
        columns: &[Column],
        text: impl Fn(&str) -> String,
        other: impl Fn(&str) -> String,
    ) -> Vec<String> {
        let members = json_object::all(&self.input).unwrap_or_default();
        let members = members
            .into_iter()
            .filter_map(|(key, value)| Some((key?, value.get())));
        let members: HashMap<_, _> = members.collect();
        let cell = |column: &Column| {
            let json = members.get(&column.key)?;
            Some(match serde_json::from_str(json) {
                Ok(Value::String(value)) => text(&value),
                Ok(Value::Null) => String::new(),
                _ => other(json),
            })
        };
        let cells = columns.iter().map(cell);
        cells.map(Option::unwrap_or_default).collect()
    }
}

impl Csv {
    /// The first line of a table.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn title(self, columns: &[Column]) -> Result<Vec<u8>, csv::Error> {
        let own = ["run_id", "received_at", "state"];
        let named = columns.iter().map(|column| match self {
            Self::Program => &*column.key,
            Self::Spreadsheet(_) => &*column.label,
        });
        let line = own.into_iter().chain(named).map(|one| self.text(one));
        let line = self.lines(&[line.collect()])?;
        Ok(match self {
            Self::Program => line,
            Self::Spreadsheet(_) => ["\u{feff}".as_bytes(), &line].concat(),
        })
    }

    /// A line for each answer.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn answers(
        self,
        answers: &[FormAnswer],
        columns: &[Column],
    ) -> Result<Vec<u8>, csv::Error> {
        let line = |answer: &FormAnswer| {
            let own = [
                answer.run_id.to_string(),
                answer.received_at.to_string(),
                answer.state.to_string(),
            ];
            let cells = answer.cells(columns, |text| self.text(text), |json| self.number(json));
            own.into_iter().chain(cells).collect()
        };
        self.lines(&answers.iter().map(line).collect::<Vec<_>>())
    }

    /// A number, digit for digit; with a comma for programs that separate cells by semicolons
    /// because of that.
    fn number(self, json: &str) -> String {
        let digits = json.bytes().filter(u8::is_ascii_digit).count();
        match self {
            Self::Program => json.to_owned(),
            Self::Spreadsheet(_) if digits > MAX_DIGITS => format!("=\"{json}\""),
            Self::Spreadsheet(b';') => json.replace('.', ","),
            Self::Spreadsheet(_) => json.to_owned(),
        }
    }

    /// A text in a cell, as it was written but for control characters, which would steer a
    /// terminal. It must not become a formula for the person who opens the file.
    fn text(self, text: &str) -> String {
        let text = text.replace("\r\n", "\n");
        let text = text.replace(
            |c: char| c.is_control() && c != '\n' && c != '\t',
            "\u{fffd}",
        );
        if self != Self::Program && is_dialled(&text) {
            // Taken for a number it would lose its first signs.
            return format!("=\"{text}\"");
        }
        // The signs of full width are taken for the others by some programs, and what can't be seen
        // before a sign may be passed over.
        let signs = [
            '=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
        ];
        let seen = text.trim_start_matches(|c: char| !is_plain(c) && !c.is_control());
        let is_formula = |text: &str| text.starts_with(signs);
        let mut inert = String::new();
        if is_formula(seen) || text.starts_with(['\t', '\n', '\u{fffd}']) {
            inert.push('\'');
        }
        // A program that separates at another sign takes what follows it for a cell.
        for (at, c) in text.char_indices() {
            inert.push(c);
            let rest = &text[at + c.len_utf8()..];
            if self != Self::Program && [';', ',', '\t', '\n'].contains(&c) && is_formula(rest) {
                inert.push('\'');
            }
        }
        inert
    }

    fn lines(self, lines: &[Vec<String>]) -> Result<Vec<u8>, csv::Error> {
        // Programs that split at other signs respect quotes.
        let mut writer = csv::WriterBuilder::new()
            .quote_style(QuoteStyle::Always)
            .delimiter(match self {
                Self::Program => b',',
                Self::Spreadsheet(separator) => separator,
            })
            .from_writer(Vec::new());
        for line in lines {
            writer.write_record(line)?;
        }
        writer
            .into_inner()
            .map_err(|error| csv::Error::from(error.into_error()))
    }
}

/// The most digits that spreadsheets keep of a number.
const MAX_DIGITS: usize = 15;

/// Whether a text is of digits and what stands between those of a telephone's number or a day, and
/// would be another one as a number or a date.
fn is_dialled(text: &str) -> bool {
    let is_of_digits = text
        .strip_prefix('+')
        .unwrap_or(text)
        .chars()
        .all(|c| c.is_ascii_digit() || " ()/-.".contains(c));
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_changed = text.starts_with(['+', '0', '(']) || digits > MAX_DIGITS;
    let is_changed = is_changed || text.contains(['/', '-', '.']);
    is_of_digits && is_changed && digits > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Csv = Csv::Program;

    fn cell(style: Csv, json: &str) -> String {
        let column = Column {
            key: "k".to_owned(),
            label: String::new(),
        };
        let answer = FormAnswer {
            run_id: RunId::generate(),
            state: letterbox_common::states::RunState::Queued,
            received_at: jiff::Timestamp::UNIX_EPOCH,
            input: format!("{{\"k\": {json}}}"),
        };
        let cells = answer.cells(
            &[column],
            |text| style.text(text),
            |json| style.number(json),
        );
        cells.concat()
    }

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
            assert_eq!(cell(PROGRAM, json), shown);
        }
        let lines = [vec!["a;=\"b\"".to_owned(), "c\nd".to_owned()]];
        assert_eq!(
            PROGRAM.lines(&lines).unwrap(),
            b"\"a;=\"\"b\"\"\",\"c\nd\"\n"
        );
    }

    #[test]
    fn numbers_of_telephones_stay_whole() {
        for (json, shown) in [
            (r#""+49 30 1""#, "=\"+49 30 1\""),
            (r#""0301234""#, "=\"0301234\""),
            (r#""(030) 12-34/5""#, "=\"(030) 12-34/5\""),
            (r#""4111111111111111""#, "=\"4111111111111111\""),
            (r#""10115""#, "10115"),
            (r#""+49+1""#, "'+49+1"),
            (r#""0x41""#, "0x41"),
            (r#""-1.5""#, "=\"-1.5\""),
            (r#""3/4""#, "=\"3/4\""),
            (r#""1-2""#, "=\"1-2\""),
            (r#""=1+1""#, "'=1+1"),
            (r#""x;=1+1""#, "x;'=1+1"),
            (r#""a, b\n@SUM(A1)""#, "a, b\n'@SUM(A1)"),
            ("3.5", "3,5"),
            ("-0.25", "-0,25"),
            ("12345678901234567", "=\"12345678901234567\""),
            ("true", "true"),
        ] {
            assert_eq!(cell(Csv::Spreadsheet(b';'), json), shown);
        }
        assert_eq!(cell(Csv::Spreadsheet(b','), "3.5"), "3.5");
    }

    /// What is no control character comes out as it went in, behind an apostrophe at most.
    #[test]
    fn every_letter_stays() {
        for c in ('\0'..=char::MAX).filter(|c| !c.is_control()) {
            let written = format!("a{c}b{c}");
            assert_eq!(PROGRAM.text(&written), written, "{c:?}");
            let alone = c.to_string();
            assert_eq!(
                PROGRAM.text(&alone).trim_start_matches('\''),
                alone.trim_start_matches('\'')
            );
        }
    }
}
