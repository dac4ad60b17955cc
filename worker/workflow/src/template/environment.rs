//! The template engine: minijinja with a short list of filters and tests, which can access only the
//! context.

use std::{fmt, sync::LazyLock};

use jiff::Timestamp;
use minijinja::{
    Environment, Error, ErrorKind, HtmlEscape, Output, State, UndefinedBehavior, Value, filters,
    machinery::ast::{CallArg, Expr},
    tests,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    insertions::{refuse, scalar_text},
    table::{TABLE, table},
};

/// Steps that rendering one template may take.
const FUEL: u64 = 50_000;
/// The characters to encode in a path segment: all but the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'~')
    .remove(b'.');

/// How an inserted value is escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    /// Not at all: the whole result is encoded afterwards, as a query value, header or JSON string.
    None,
    /// As one segment of a path.
    PathSegment,
    /// As text within HTML, unless it is HTML that a filter has made.
    Html,
}

/// The environment for one kind of escaping.
pub(super) fn environment(escape: Escape) -> &'static Environment<'static> {
    static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| build(Escape::None));
    static PATH: LazyLock<Environment<'static>> = LazyLock::new(|| build(Escape::PathSegment));
    static HTML: LazyLock<Environment<'static>> = LazyLock::new(|| build(Escape::Html));
    match escape {
        Escape::None => &PLAIN,
        Escape::PathSegment => &PATH,
        Escape::Html => &HTML,
    }
}

/// The same, except that a missing value is an error.
pub(super) fn strict(escape: Escape) -> Environment<'static> {
    let mut strict = environment(escape).clone();
    strict.set_undefined_behavior(UndefinedBehavior::Strict);
    strict
}

fn build(escape: Escape) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(FUEL));
    environment.add_filter("abs", filters::abs);
    environment.add_filter("bool", filters::bool);
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("date", date);
    environment.add_filter("default", filters::default);
    environment.add_filter("escape", move |value: &Value| {
        // Where HTML is expected it is not escaped twice.
        let text = HtmlEscape(&scalar_text(value)?).to_string();
        Ok::<_, Error>(match escape {
            Escape::Html => Value::from_safe_string(text),
            _ => Value::from(text),
        })
    });
    environment.add_filter("first", filters::first);
    environment.add_filter("float", filters::float);
    environment.add_filter("int", filters::int);
    environment.add_filter("json", json);
    environment.add_filter("last", filters::last);
    environment.add_filter("length", filters::length);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("round", filters::round);
    environment.add_filter("string", filters::string);
    environment.add_filter(TABLE, move |state: &State<'_, '_>, _form: &Value| {
        table(state, escape == Escape::Html)
    });
    environment.add_filter("title", filters::title);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("upper", filters::upper);
    environment.add_filter("urlencode", url_encode);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("divisibleby", is_divisible_by);
    environment.add_test("endingwith", tests::is_endingwith);
    environment.add_test("even", tests::is_even);
    environment.add_test("none", tests::is_none);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("startingwith", tests::is_startingwith);
    environment.add_test("undefined", tests::is_undefined);
    // Every inserted value passes through here, so a template can't turn escaping off.
    environment.set_formatter(
        move |out: &mut Output<'_>, _: &State<'_, '_>, value: &Value| {
            let text = scalar_text(value)?;
            match escape {
                Escape::None => out.write_str(&text).map_err(Error::from),
                Escape::PathSegment if text.is_empty() => {
                    Err(refuse("a value in the path is empty"))
                }
                Escape::PathSegment => write(out, utf8_percent_encode(&text, SEGMENT)),
                Escape::Html if value.is_safe() => out.write_str(&text).map_err(Error::from),
                Escape::Html => write(out, HtmlEscape(&text)),
            }
        },
    );
    environment
}

/// Why a filter or a test fails whatever its values are; `None` for any other expression.
pub(super) fn misuse(expression: &Expr<'_>) -> Option<String> {
    let (name, arguments) = match expression {
        Expr::Filter(filter) => (filter.name, &filter.args),
        Expr::Test(test) => (test.name, &test.args),
        _ => return None,
    };
    let is_plain = |argument: &CallArg<'_>| matches!(argument, CallArg::Pos(_));
    if !arguments.iter().all(is_plain) {
        return Some("must not name or unpack arguments".to_owned());
    }
    // Only the environment knows its filters, and only they know what they take. A 1 converts to
    // the type of every argument.
    let ones = vec![Value::from(1); 1 + arguments.len()];
    let state = environment(Escape::None).empty_state();
    let tried = match expression {
        Expr::Filter(_) => state.apply_filter(name, &ones).map(drop),
        _ => state.perform_test(name, &ones).map(drop),
    };
    match tried.err()?.kind() {
        kind @ (ErrorKind::UnknownFilter
        | ErrorKind::UnknownTest
        | ErrorKind::MissingArgument
        | ErrorKind::TooManyArguments) => Some(format!("{kind}: {name}")),
        _ => None,
    }
}

/// A moment as text, as the clocks of a time zone tell it:
/// `run.received_at | date('Europe/Berlin', '%d.%m.%Y')`.
fn date(moment: &str, zone: &str, format: &str) -> Result<String, Error> {
    let moment: Timestamp = moment
        .parse()
        .map_err(|_| refuse("date needs a moment such as run.received_at"))?;
    let there = moment.in_tz(zone);
    let there = there.map_err(|_| refuse("date knows no such time zone: Europe/Berlin is one"))?;
    let told = jiff::fmt::strtime::format(format, &there);
    told.map_err(|_| refuse("date can't use the format: '%d.%m.%Y %H:%M' is one"))
}

/// A value within an address, such as a parameter of its query.
fn url_encode(value: &Value) -> Result<String, Error> {
    Ok(utf8_percent_encode(&scalar_text(value)?, SEGMENT).to_string())
}

fn json(value: &Value) -> Result<String, Error> {
    let text = serde_json::to_string(value);
    text.map_err(|_| refuse("the value has no JSON text"))
}

/// Whether a number is a multiple of another one. `false` for 0, for which the engine's own test
/// panics.
fn is_divisible_by(value: &Value, by: &Value) -> bool {
    let whole = |value: &Value| i128::try_from(value.clone()).ok();
    match (whole(value), whole(by)) {
        (Some(value), Some(by)) => by == -1 || value.checked_rem(by) == Some(0),
        _ => {
            let double = |value: &Value| f64::try_from(value.clone()).ok();
            double(value)
                .zip(double(by))
                .is_some_and(|(value, by)| value % by == 0.0)
        }
    }
}

fn write(out: &mut Output<'_>, text: impl fmt::Display) -> Result<(), Error> {
    write!(out, "{text}").map_err(Error::from)
}
