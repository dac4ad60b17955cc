//! Templates and conditions in actions: text with `{{ form.name }}` in it, and `form.seats > 10`.
//!
//! What a submitter wrote is only ever a value: it is inserted, never read as a template, and every
//! place says what a value has to become there. Names are checked at deploy, so a template that
//! knows a name knows it in every run.

use std::{fmt, sync::LazyLock};

use letterbox_common::form::{FieldType, Form};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, filters, tests,
    value::ValueKind,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::definition::Mistakes;

/// Steps that one template may take.
const FUEL: u64 = 50_000;
/// Tags that templates may use.
const TAGS: [&str; 4] = ["if", "elif", "else", "endif"];
const MULTIPLICATIONS: usize = 8;
/// Most characters of a template.
pub const LENGTH: usize = 10_000;
/// What stands for itself in a path segment (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'~')
    .remove(b'.');

/// The names that templates may use.
#[derive(Debug, Clone)]
pub struct Names {
    fields: Vec<(String, FieldType)>,
    /// Whether templates are checked and tried; else they have been.
    try_them: bool,
}

const RUN_NAMES: [&str; 2] = ["id", "received_at"];

impl Names {
    #[must_use]
    pub fn of(form: &Form) -> Self {
        Self {
            fields: form
                .fields
                .iter()
                .map(|field| (field.key.clone(), field.kind))
                .collect(),
            try_them: true,
        }
    }

    /// The names of a release, whose templates were checked when it was deployed.
    #[must_use]
    pub fn of_release() -> Self {
        Self {
            fields: Vec::new(),
            try_them: false,
        }
    }

    /// Whether templates are to be tried.
    #[must_use]
    pub fn try_them(&self) -> bool {
        self.try_them
    }

    fn knows(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some(("form", key)) => self.fields.iter().any(|(known, _)| known == key),
            Some(("run", part)) => RUN_NAMES.contains(&part),
            None => name == "form",
            Some(_) => false,
        }
    }

    /// A run's values with something in every field.
    pub fn sample(&self) -> Input {
        let value = |kind: FieldType| match kind {
            FieldType::Text | FieldType::Textarea => Value::from("text"),
            FieldType::Email => Value::from("name@example.com"),
            FieldType::Number => Value::from(1),
            FieldType::Checkbox => Value::from(true),
        };
        let form = Value::from_iter(
            self.fields
                .iter()
                .map(|(key, kind)| (key.clone(), value(*kind))),
        );
        Input::new(
            form,
            "00000000-0000-7000-8000-000000000000",
            "2026-01-01T00:00:00Z",
        )
    }
}

/// The values that a run's templates see: `form`, what was submitted, and `run`, its id and when it
/// was received.
#[derive(Debug, Clone)]
pub struct Input(Value);

impl Input {
    fn new(form: Value, run: &str, received_at: &str) -> Self {
        let run = Value::from_iter([("id", run), ("received_at", received_at)]);
        Self(Value::from_iter([("form", form), ("run", run)]))
    }

    /// `form` is JSON text of an object.
    ///
    /// # Errors
    /// When it is not JSON.
    pub fn of_run(form: &str, run: &str, received_at: &str) -> serde_json::Result<Self> {
        let form: serde_json::Value = serde_json::from_str(form)?;
        Ok(Self::new(Value::from_serialize(form), run, received_at))
    }
}

/// Why a template has no result for these values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TemplateError(String);

impl From<Error> for TemplateError {
    /// Says what and where. Does not quote values.
    fn from(error: Error) -> Self {
        let line = error
            .line()
            .map(|line| format!(" (line {line})"))
            .unwrap_or_default();
        let detail = error
            .detail()
            .map(|detail| format!(": {detail}"))
            .unwrap_or_default();
        Self(format!("{}{detail}{line}", error.kind()))
    }
}

impl TemplateError {
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// What an inserted value becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Insert {
    /// Itself: the place takes any text, and encodes it as a whole afterwards.
    AsIs,
    /// One segment of a path.
    Segment,
}

/// What templates can do: nothing that makes much of little, or loops, or looks around.
fn environment(insert: Insert) -> &'static Environment<'static> {
    static AS_IS: LazyLock<Environment<'static>> = LazyLock::new(|| make_environment(Insert::AsIs));
    static SEGMENT: LazyLock<Environment<'static>> =
        LazyLock::new(|| make_environment(Insert::Segment));
    match insert {
        Insert::AsIs => &AS_IS,
        Insert::Segment => &SEGMENT,
    }
}

fn make_environment(insert: Insert) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(FUEL));
    environment.add_filter("abs", filters::abs);
    environment.add_filter("bool", filters::bool);
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("default", filters::default);
    environment.add_filter("first", filters::first);
    environment.add_filter("float", filters::float);
    environment.add_filter("int", filters::int);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("round", filters::round);
    environment.add_filter("string", filters::string);
    environment.add_filter("title", filters::title);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("upper", filters::upper);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("divisibleby", tests::is_divisibleby);
    environment.add_test("endingwith", tests::is_endingwith);
    environment.add_test("even", tests::is_even);
    environment.add_test("none", tests::is_none);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("startingwith", tests::is_startingwith);
    environment.add_test("undefined", tests::is_undefined);
    // Every inserted value passes here, whatever the template says of safety or escaping.
    environment.set_formatter(
        move |out: &mut Output<'_>, _: &State<'_, '_>, value: &Value| {
            let text = single(value)?;
            match insert {
                Insert::AsIs => out.write_str(&text).map_err(Error::from),
                Insert::Segment if text.is_empty() => Err(refuse("a value in the path is empty")),
                Insert::Segment => write(out, utf8_percent_encode(&text, SEGMENT)),
            }
        },
    );
    environment
}

/// What a template may not hold, whatever it would mean there: tags other than a choice, and many
/// multiplications, which can repeat text.
fn check_language(mistakes: &mut Mistakes, path: &str, source: &str) {
    if source.chars().count() > LENGTH {
        mistakes.add(
            path,
            format_args!("has to have at most {LENGTH} characters"),
        );
    }
    for tag in source.split("{%").skip(1) {
        let tag = tag.trim_start_matches(['-', '+']).trim_start();
        let word = tag
            .split(|c: char| !c.is_ascii_alphanumeric())
            .next()
            .unwrap_or_default();
        if !TAGS.contains(&word) {
            mistakes.add(path, format_args!("takes no tags but {}", TAGS.join(", ")));
        }
    }
    if source.matches('*').count() > MULTIPLICATIONS {
        mistakes.add(
            path,
            format_args!("takes at most {MULTIPLICATIONS} multiplications"),
        );
    }
}

/// Whether a source speaks of the form at all: taken for reading it, however it does.
fn speaks_of_form(source: &str) -> bool {
    source
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == "form")
}

fn write(out: &mut Output<'_>, text: impl fmt::Display) -> Result<(), Error> {
    write!(out, "{text}").map_err(Error::from)
}

fn refuse(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

/// A single value as text; nothing where there is none.
fn single(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(String::new()),
        ValueKind::String | ValueKind::Number | ValueKind::Bool => Ok(value.to_string()),
        _ => Err(refuse("only a single value can be inserted")),
    }
}

/// Text with values in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    source: String,
    reads_form: bool,
}

impl Template {
    /// Checks a template and tries it once.
    pub fn check(
        mistakes: &mut Mistakes,
        path: &str,
        source: &str,
        names: &Names,
        insert: Insert,
    ) -> Self {
        let template = Self {
            source: source.to_owned(),
            reads_form: speaks_of_form(source),
        };
        if !names.try_them {
            return template;
        }
        check_language(mistakes, path, source);
        match environment(insert).template_from_str(source) {
            Ok(compiled) => {
                check_names(mistakes, path, compiled.undeclared_variables(true), names);
                let mut strict = environment(insert).clone();
                strict.set_undefined_behavior(UndefinedBehavior::Strict);
                if let Err(error) = strict.render_str(source, &names.sample().0) {
                    mistakes.add(path, TemplateError::from(error));
                }
            }
            Err(error) => mistakes.add(path, TemplateError::from(error)),
        }
        template
    }

    /// Whether something that a submitter wrote gets into it.
    #[must_use]
    pub fn reads_form(&self) -> bool {
        self.reads_form
    }

    /// The text with its values.
    ///
    /// # Errors
    /// When a value can't stand where it would.
    pub fn render(&self, insert: Insert, input: &Input) -> Result<String, TemplateError> {
        Ok(environment(insert).render_str(&self.source, &input.0)?)
    }

    /// As a JSON value: of a template that is one expression and nothing else the value itself, so
    /// that a number stays one; else a string.
    ///
    /// # Errors
    /// When a value is not a single one.
    pub fn value(&self, input: &Input) -> Result<serde_json::Value, TemplateError> {
        let Some(expression) = self.expression() else {
            return Ok(self.render(Insert::AsIs, input)?.into());
        };
        let environment = environment(Insert::AsIs);
        let value = environment.compile_expression(expression)?.eval(&input.0)?;
        single(&value)?;
        if value.is_undefined() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::to_value(&value).map_err(|error| TemplateError::new(error.to_string()))
    }

    fn expression(&self) -> Option<&str> {
        let inner = self.source.trim().strip_prefix("{{")?.strip_suffix("}}")?;
        let inner = inner
            .trim_start_matches(['-', '+'])
            .trim_end_matches(['-', '+']);
        (!inner.contains("{{")
            && !inner.contains("}}")
            && !inner.contains("{%")
            && !inner.contains("{#"))
        .then_some(inner)
    }
}

/// A condition: true or false for the values of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    source: String,
    reads_form: bool,
}

impl Condition {
    /// Checks an expression and tries it once.
    pub fn check(mistakes: &mut Mistakes, path: &str, source: &str, names: &Names) -> Self {
        let condition = Self {
            source: source.to_owned(),
            reads_form: speaks_of_form(source),
        };
        if !names.try_them {
            return condition;
        }
        check_language(mistakes, path, source);
        match environment(Insert::AsIs).compile_expression(source) {
            Ok(compiled) => {
                check_names(mistakes, path, compiled.undeclared_variables(true), names);
                let mut strict = environment(Insert::AsIs).clone();
                strict.set_undefined_behavior(UndefinedBehavior::Strict);
                let tried = strict
                    .compile_expression(source)
                    .and_then(|tried| tried.eval(&names.sample().0));
                if let Err(error) = tried {
                    mistakes.add(path, TemplateError::from(error));
                }
            }
            Err(error) => mistakes.add(path, TemplateError::from(error)),
        }
        condition
    }

    /// Whether something that a submitter wrote decides it.
    #[must_use]
    pub fn reads_form(&self) -> bool {
        self.reads_form
    }

    /// # Errors
    /// When the values can't be compared.
    pub fn holds(&self, input: &Input) -> Result<bool, TemplateError> {
        let environment = environment(Insert::AsIs);
        Ok(environment
            .compile_expression(&self.source)?
            .eval(&input.0)?
            .is_true())
    }
}

/// Says which of the used names nobody knows.
fn check_names(
    mistakes: &mut Mistakes,
    path: &str,
    used: impl IntoIterator<Item = String>,
    names: &Names,
) {
    let mut used: Vec<String> = used.into_iter().filter(|name| !names.knows(name)).collect();
    used.sort_unstable();
    for name in used {
        mistakes
            .add(path, format_args!("there is no {name:?}; there are form.<key of a field> (form['a-b'] where a key is no name), run.id and run.received_at"));
    }
}
