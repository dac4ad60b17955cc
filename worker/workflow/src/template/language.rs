//! The subset of the template language that definitions may use. It has no loops and nothing that
//! makes a large value from a small one, so the cost of a template is bounded by its length.

use std::collections::BTreeSet;

use letterbox_common::form::FieldType;
use minijinja::{
    machinery::ast::{BinOpKind, CallArg, Expr, Stmt},
    value::ValueKind,
};

use super::{
    Variables,
    environment::misuse,
    syntax::{Syntax, member, parts, variable},
    table::TABLE,
};
use crate::diagnostics::Diagnostics;

/// Maximum number of `~` and `+` in one template: each can copy all texts before it.
const MAX_JOINS: usize = 100;
/// Maximum characters that `trim` takes away: it compares each letter with each of them.
const MAX_TRIMMED: usize = 20;
/// The work of what goes through its values letter by letter, in that of a join.
const BY_LETTER: usize = 10;
/// Bytes of a short value: a longer constant counts as several.
pub const SHORT_VALUE: usize = 64;
/// How many times as long a value is told, at most: escaped, or as a date, `%c` as 24 letters.
const TOLD: usize = 12;
/// Maximum depth of an expression, each operator a level: the engine compiles by recursion.
const MAX_DEPTH: usize = 200;
/// Filters that escape: what is escaped again and again grows and grows.
const ESCAPING_FILTERS: [&str; 3] = ["escape", "json", "urlencode"];
/// Filters whose result is a number or an error.
const NUMERIC_FILTERS: [&str; 4] = ["abs", "float", "int", "round"];

/// Refuses syntax outside the subset, and filters and tests that can't work. Returns `false` if the
/// syntax was refused: the source must not be compiled then, because the engine evaluates constant
/// expressions when it compiles them.
pub(super) fn check(
    diagnostics: &mut Diagnostics,
    path: &str,
    syntax: &Syntax<'_>,
    variables: &Variables,
) -> bool {
    let is_known = |statement: &&Stmt<'_>| {
        matches!(
            statement,
            Stmt::Template(_) | Stmt::EmitRaw(_) | Stmt::EmitExpr(_) | Stmt::IfCond(_)
        )
    };
    let before = diagnostics.len();
    if !syntax.statements().iter().all(is_known) {
        diagnostics.add(path, "must use no tags except if, elif, else, endif");
    }

    let outermost = syntax.expressions().into_iter();
    let mut expressions: Vec<_> = outermost.map(|expression| (expression, 1, false)).collect();
    let mut seen = 0;
    while let Some((expression, depth, is_escaped)) = expressions.get(seen).copied() {
        if depth > MAX_DEPTH {
            diagnostics.add_too_deep(path, MAX_DEPTH);
            return false;
        }
        let escapes = is_filter(expression, &ESCAPING_FILTERS);
        if escapes && is_escaped {
            diagnostics.add(path, "must not escape what is escaped already");
            return false;
        }
        let below = parts(expression).into_iter();
        expressions.extend(below.map(|part| (part, depth + 1, is_escaped || escapes)));
        seen += 1;
    }
    let expressions = || expressions.iter().map(|(expression, ..)| *expression);
    let problems: BTreeSet<_> = expressions()
        .filter_map(|expression| problem(expression, variables))
        .collect();
    for problem in problems {
        diagnostics.add(path, problem);
    }
    if expressions()
        .filter(|expression| is_join(expression))
        .count()
        > MAX_JOINS
    {
        let problem = format_args!("must have at most {MAX_JOINS} of ~ and +");
        diagnostics.add(path, problem);
    }
    check_table(diagnostics, path, syntax, expressions());
    let is_allowed = diagnostics.len() == before;
    for misuse in expressions().filter_map(misuse).collect::<BTreeSet<_>>() {
        diagnostics.add(path, misuse);
    }
    is_allowed
}

fn is_fixed_text(argument: &CallArg<'_>) -> bool {
    match argument {
        CallArg::Pos(Expr::Const(text)) => text.value.as_str().is_some(),
        _ => false,
    }
}

fn is_filter(expression: &Expr<'_>, names: &[&str]) -> bool {
    matches!(expression, Expr::Filter(filter) if names.contains(&filter.name))
}

/// All answers may be inserted once: they can be long.
fn check_table<'e, 's: 'e>(
    diagnostics: &mut Diagnostics,
    path: &str,
    syntax: &'e Syntax<'s>,
    all: impl Iterator<Item = &'e Expr<'s>>,
) {
    let tables = all.filter(|one| is_filter(one, &[TABLE])).count();
    let inserted = syntax.insertions();
    let inserted = inserted.filter(|one| is_filter(one, &[TABLE]) && is_of_form(one));
    if tables > 1 || tables > inserted.count() {
        diagnostics.add(path, "must use table as {{ form | table }} only, and once");
    }
}

/// Whether it is a filter, without arguments, over all answers.
fn is_of_form(expression: &Expr<'_>) -> bool {
    let of = parts(expression);
    of.len() == 1 && variable(of[0], "form").is_some()
}

/// How much work it is to evaluate an expression: bytes that are copied, for each byte of the
/// values that it may use.
pub(super) fn work(expression: &Expr<'_>) -> usize {
    work_below(expression, 0).1
}

/// How many values an expression may come to, and how much work that is. What only compares or
/// chooses copies nothing.
fn work_below(expression: &Expr<'_>, depth: usize) -> (usize, usize) {
    if depth > MAX_DEPTH {
        return (1, usize::MAX);
    }
    let below = parts(expression).into_iter();
    let below = below.map(|part| work_below(part, depth + 1));
    let (values, work) = below.fold((0, 0), |(values, work): (usize, usize), one| {
        (values.saturating_add(one.0), work.saturating_add(one.1))
    });
    let and = |each: usize| work.saturating_add(values.saturating_mul(each));
    let told = values.saturating_mul(TOLD);
    match expression {
        Expr::Var(_) => (1, 0),
        Expr::Const(it) => (
            it.value
                .as_str()
                .map_or(1, |it| it.len().div_ceil(SHORT_VALUE)),
            0,
        ),
        Expr::Filter(filter) => match filter.name {
            "date" => (told, work),
            name if ESCAPING_FILTERS.contains(&name) => (told, and(BY_LETTER)),
            "abs" | "bool" | "default" | "first" | "round" => (values, work),
            "float" | "int" | "length" => (1, and(BY_LETTER)),
            _ => (values, and(BY_LETTER)),
        },
        Expr::Test(test) if test.args.is_empty() => (0, work),
        Expr::Test(_) | Expr::Compare(_) => (0, and(BY_LETTER)),
        Expr::BinOp(it) => match it.op {
            BinOpKind::ScAnd | BinOpKind::ScOr => (values, work),
            BinOpKind::Add | BinOpKind::Concat => (values, and(1)),
            BinOpKind::In => (0, and(BY_LETTER)),
            BinOpKind::Eq
            | BinOpKind::Ne
            | BinOpKind::Lt
            | BinOpKind::Lte
            | BinOpKind::Gt
            | BinOpKind::Gte => (0, and(1)),
            _ => (1, work),
        },
        _ => (values, work),
    }
}

fn is_join(expression: &Expr<'_>) -> bool {
    matches!(expression, Expr::BinOp(it) if matches!(it.op, BinOpKind::Add | BinOpKind::Concat))
}

fn problem(expression: &Expr<'_>, variables: &Variables) -> Option<&'static str> {
    match expression {
        Expr::List(_) | Expr::Map(_) => Some("must not contain lists or objects"),
        Expr::Filter(filter) if filter.name == "date" => {
            let is_fixed = filter.args.iter().all(is_fixed_text);
            (!is_fixed).then_some("must give date a zone and a format in quotes")
        }
        Expr::Filter(filter) if filter.name == "trim" => {
            let is_short = |argument: &CallArg<'_>| match argument {
                CallArg::Pos(Expr::Const(text)) => {
                    text.value.len().is_none_or(|length| length <= MAX_TRIMMED)
                }
                _ => false,
            };
            let is_fixed = filter.args.iter().all(is_short);
            (!is_fixed).then_some("must give trim at most 20 characters, in quotes")
        }
        Expr::Call(_) => Some("must not call functions"),
        // Nested slices multiply their cost: each copies the result of the one inside it.
        Expr::Slice(_) => Some("must not contain slices"),
        Expr::BinOp(it) if matches!(it.op, BinOpKind::Mul | BinOpKind::Pow) => {
            let is_numeric = is_number(&it.left, variables) && is_number(&it.right, variables);
            (!is_numeric).then_some("must multiply only number fields and digits")
        }
        _ => None,
    }
}

/// Whether the value of an expression can only be a number, a boolean or none.
fn is_number(expression: &Expr<'_>, variables: &Variables) -> bool {
    let is_number = |part: &Expr<'_>| is_number(part, variables);
    match expression {
        Expr::Const(constant) => matches!(
            constant.value.kind(),
            ValueKind::Number | ValueKind::Bool | ValueKind::None
        ),
        Expr::GetAttr(_) | Expr::GetItem(_) => member(expression).is_some_and(|(object, name)| {
            let kind = name.and_then(|name| variables.kind_of(name));
            variable(object, "form").is_some() && kind == Some(FieldType::Number)
        }),
        Expr::Compare(_) | Expr::Test(_) => true,
        Expr::Filter(filter) => {
            NUMERIC_FILTERS.contains(&filter.name) && parts(expression).into_iter().all(is_number)
        }
        Expr::BinOp(it) if matches!(it.op, BinOpKind::Concat) => false,
        Expr::BinOp(_) | Expr::UnaryOp(_) | Expr::IfExpr(_) => {
            parts(expression).into_iter().all(is_number)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::texts;

    fn variables() -> Variables {
        Variables::of_fields(&[("n", FieldType::Number), ("t", FieldType::Text)])
    }

    fn is_refused(source: &str) -> bool {
        let is_refused = |syntax: Syntax<'_>| {
            let mut diagnostics = Diagnostics::default();
            check(&mut diagnostics, "it", &syntax, &variables());
            !diagnostics.is_empty()
        };
        let refused = is_refused(Syntax::of_expression(source).unwrap());
        let template = format!("* [a, b] + {{{{ {source} }}}}");
        let alike = is_refused(Syntax::of_template(&template).unwrap());
        assert_eq!(alike, refused, "{source}");
        refused
    }

    #[test]
    fn what_makes_much_of_little_is_refused() {
        for source in [
            "1 in ([2] * form.n)",
            "([1] * form.n) == ([1] * form.n)",
            "([1] * form.n) | last",
            "'a' * 100000000",
            "\"a\" * form.n",
            "form.t * 20000",
            "form.n * form.t",
            "(form.n | string) * 1000",
            "(form.n ~ '') * 1000",
            "form['t'] * 1000",
            "(1, 2)",
            "{'a': 1}",
            "[1]",
            "form.t in ['a', 'b']",
            "run.id * 1000",
            "form.t[1:]",
            "form.t[::-1]",
            "form_as_typed.t[:]",
            "form.n * (form.t | default(1))",
            "form.t | json | json",
            "(form.t | json | upper) | escape",
            "form.t | escape | escape",
            "('x' ~ (form.t | urlencode)) | urlencode",
            "run.received_at | date(form.t, '%Y')",
            "run.received_at | date('UTC', form.t)",
            "form.t | trim(form.t)",
            "form.t | trim('123456789012345678901')",
            "form.t | table",
            "form | table | upper",
            "(form | table) ~ (form | table)",
            "form | table(1)",
        ] {
            assert!(is_refused(source), "{source}");
        }
        assert!(is_refused(&vec!["form.t"; 102].join(" ~ ")));
    }

    /// Each filter goes through all that is joined below it.
    #[test]
    fn what_is_joined_is_more_work_to_filter() {
        let of = |source: &str| work(Syntax::of_expression(source).unwrap().expressions()[0]);
        assert_eq!(
            [of("form.t"), of("'x'"), of("form.t ~ 'x' ~ form.t")],
            [0, 0, 5]
        );
        assert_eq!(of("form.t | trim('x')"), 2 * BY_LETTER);
        let joined = vec!["form.t"; 101].join(" ~ ");
        assert!(of(&joined) < 10_000);
        let filtered = format!("(({joined}) | escape){}", " | title".repeat(180));
        assert!(of(&filtered) > 1_000_000);
        let many = |one: &str, number| of(&vec![one; number].join(" or "));
        assert_eq!(many("form.t in ''", 100), 100 * BY_LETTER);
        assert_eq!(many("form.t == 'XX'", 50), 50 * 2, "a country of fifty");
        assert_eq!(of("form.t | default('-') | default('')"), 0);
        let date = format!("run.id | date('UTC', '{}')", "%c".repeat(32));
        let dates = vec![format!("({date})"); 50].join(" ~ ");
        assert!(of(&format!("({dates}){}", " | title".repeat(100))) > 1_000_000);
        assert_eq!(
            of(&vec!["form.n"; 1_000].join(" - ")),
            usize::MAX,
            "too deep"
        );
    }

    /// Wherever it stands: the sample values need not come to it.
    #[test]
    fn filters_and_tests_that_can_not_work_are_refused() {
        let unpacked = "must not name or unpack arguments";
        for (misused, problem) in [
            ("form.n | nope", "unknown filter: nope"),
            ("form.n | round | nope", "unknown filter: nope"),
            ("form.n is nope", "unknown test: nope"),
            ("form.n | round(1, 2)", "too many arguments: round"),
            ("form.n | default(1, 2, 3)", "too many arguments: default"),
            ("form.n is odd(2)", "too many arguments: odd"),
            ("form.t is startingwith", "missing argument: startingwith"),
            ("form.n | default(value=1)", unpacked),
            ("form.n is odd(*form.n)", unpacked),
        ] {
            let refused = |source: &str| {
                let mut diagnostics = Diagnostics::default();
                let syntax = Syntax::of_template(source).unwrap();
                assert!(check(&mut diagnostics, "it", &syntax, &variables()));
                texts(diagnostics.into_list())
            };
            for source in [
                format!("{{{{ {misused} }}}}"),
                format!("{{{{ 1 if form.n else ({misused}) }}}}"),
                format!("{{% if 1 %}}{{% elif actions.a.body.x[{misused}] %}}{{% endif %}}"),
            ] {
                assert_eq!(refused(&source), [format!("it: {problem}")], "{source}");
            }
        }
        assert!(is_refused("form.n.upper()") && is_refused("range(form.n)"));
    }

    #[test]
    fn what_people_write_is_not() {
        for source in [
            "form.n * 2 > 10",
            "form.n * form.n + 1",
            "(form.n | round) * 2",
            "form['a-b'] == 'x, [y] * {z}'",
            "form.t | default('a, b')",
            "form.n > 1 and form.t == \"it's * [all]\"",
            "form.t ~ ' and ' ~ form.t",
            "form.n is divisibleby(3)",
            "form.n is divisibleby 3",
            "form.t is startingwith('a') or form.t is not none",
            "form.n | round(2) | string | trim('0')",
            "form.t | default('x', true) == 'x'",
            "(form.t | escape) ~ (form.t | json)",
            "run.received_at | date('Europe/Berlin', '%H') | int < 9",
            "form | table",
        ] {
            assert!(!is_refused(source), "{source}");
        }
    }
}
