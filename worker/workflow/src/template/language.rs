//! What templates and expressions may be made of. Nothing that makes much of little, or that loops:
//! so what a template costs is bounded by its length, whatever a submitter writes.

use letterbox_common::form::FieldType;

use super::{MAX_LENGTH, Variables};
use crate::diagnostics::Diagnostics;

/// Tags that templates may use.
const TAGS: [&str; 4] = ["if", "elif", "else", "endif"];
/// How often `~` and `+` may stand in one template: each can copy all texts before it.
const MAX_JOINS: usize = 100;
/// Words that may stand beside a multiplication, other than number fields.
const NUMERIC_WORDS: [&str; 20] = [
    "abs",
    "and",
    "divisibleby",
    "elif",
    "else",
    "endif",
    "even",
    "false",
    "float",
    "if",
    "in",
    "int",
    "is",
    "none",
    "not",
    "odd",
    "or",
    "round",
    "true",
    "form",
];

/// Refuses what a template must not contain, whatever it would mean there.
pub(super) fn check_template(
    diagnostics: &mut Diagnostics,
    path: &str,
    source: &str,
    variables: &Variables,
) {
    check_length(diagnostics, path, source);
    for tag in source.split("{%").skip(1) {
        let tag = tag.trim_start_matches(['-', '+']).trim_start();
        let word = words(tag).next().unwrap_or_default();
        if !TAGS.contains(&word) {
            diagnostics.add(
                path,
                format_args!("must use no tags but {}", TAGS.join(", ")),
            );
        }
    }
    check_code(diagnostics, path, &code_of(source), variables);
}

/// The same for an expression, which is code as a whole.
pub(super) fn check_expression(
    diagnostics: &mut Diagnostics,
    path: &str,
    source: &str,
    variables: &Variables,
) {
    check_length(diagnostics, path, source);
    let mut code = String::new();
    blank_strings(source, &mut code, &[]);
    check_code(diagnostics, path, &[code], variables);
}

fn check_length(diagnostics: &mut Diagnostics, path: &str, source: &str) {
    if source.chars().count() > MAX_LENGTH {
        diagnostics.add(
            path,
            format_args!("must have at most {MAX_LENGTH} characters"),
        );
    }
}

fn check_code(diagnostics: &mut Diagnostics, path: &str, code: &[String], variables: &Variables) {
    let joins: usize = code
        .iter()
        .map(|code| code.matches(['~', '+']).count())
        .sum();
    if joins > MAX_JOINS {
        diagnostics.add(
            path,
            format_args!("must have at most {MAX_JOINS} of ~ and +"),
        );
    }
    for code in code {
        if has_literal_collection(code) {
            diagnostics.add(path, "must not contain lists or objects");
        }
        if code.contains('*') && !is_numeric(code, variables) {
            diagnostics.add(
                path,
                "may multiply number fields and digits only, in an expression of nothing else",
            );
        }
    }
}

/// Whether a list, a tuple or an object is written out. `form['a-b']` is none.
fn has_literal_collection(code: &str) -> bool {
    let mut before = ' ';
    let mut calls = Vec::new();
    for character in code.chars() {
        let follows_value =
            before.is_alphanumeric() || matches!(before, '_' | ')' | ']' | '"' | '\'');
        match character {
            '{' => return true,
            '[' if !follows_value => return true,
            '[' => calls.push(false),
            '(' => calls.push(follows_value),
            ')' | ']' => {
                calls.pop();
            }
            // Between the arguments of a filter or a test, and nowhere else.
            ',' if calls.last() != Some(&true) => return true,
            _ => {}
        }
        if !character.is_whitespace() {
            before = character;
        }
    }
    false
}

/// Whether nothing but numbers can come up.
fn is_numeric(code: &str, variables: &Variables) -> bool {
    if code.contains(['"', '\'', '[', ',', '~']) {
        return false;
    }
    let mut previous = "";
    words(code).all(|word| {
        let is_field = previous == "form" && variables.kind_of(word) == Some(FieldType::Number);
        let is_number = word.starts_with(|first: char| first.is_ascii_digit());
        let is_known = is_field || is_number || NUMERIC_WORDS.contains(&word);
        previous = word;
        is_known
    })
}

/// Names, keywords and numbers.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// What stands between `{{` and `}}` and between `{%` and `%}`, its strings emptied.
fn code_of(source: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = source;
    while let Some(begin) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let mut part = String::new();
        rest = blank_strings(&rest[begin + 2..], &mut part, &["}}", "%}"]);
        parts.push(part);
    }
    parts
}

/// Copies code up to one of `ends`, without what its strings hold. Gives what follows.
fn blank_strings<'s>(code: &'s str, into: &mut String, ends: &[&str]) -> &'s str {
    let mut rest = code;
    while let Some(character) = rest.chars().next() {
        if let Some(end) = ends.iter().find(|end| rest.starts_with(**end)) {
            return &rest[end.len()..];
        }
        into.push(character);
        rest = &rest[character.len_utf8()..];
        if matches!(character, '"' | '\'') {
            rest = after_string(rest, character);
            into.push(character);
        }
    }
    rest
}

/// Length of the code at the beginning of `text`, up to `}}` or `%}` outside of its strings.
pub(super) fn end_of_code(text: &str) -> usize {
    let mut code = String::new();
    let rest = blank_strings(text, &mut code, &["}}", "%}"]);
    let ended = text.len() - rest.len();
    let code = &text[..ended];
    let without_end = code.strip_suffix("}}").or_else(|| code.strip_suffix("%}"));
    without_end.unwrap_or(code).len()
}

/// What follows the closing quote.
pub(super) fn after_string(text: &str, quote: char) -> &str {
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return &text[index + character.len_utf8()..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let form = r#"{"title":"t","fields":[
            {"key":"n","label":"n","type":"number","required":true},
            {"key":"t","label":"t","type":"text","required":true}]}"#;
        Variables::of(&serde_json::from_str(form).unwrap())
    }

    fn is_refused(source: &str) -> bool {
        let mut diagnostics = Diagnostics::default();
        check_expression(&mut diagnostics, "it", source, &variables());
        let refused = !diagnostics.is_empty();
        let mut diagnostics = Diagnostics::default();
        let template = format!("* [a, b] + {{{{ {source} }}}}");
        check_template(&mut diagnostics, "it", &template, &variables());
        assert_eq!(!diagnostics.is_empty(), refused, "{source}");
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
            "form.n * (form.t | default(1))",
        ] {
            assert!(is_refused(source), "{source}");
        }
        assert!(is_refused(&"form.t ~ ".repeat(101)));
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
            "form.t | default('x', true) == 'x'",
        ] {
            assert!(!is_refused(source), "{source}");
        }
    }
}
