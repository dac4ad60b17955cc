//! Insertions that are a field and nothing else, such as `{{ form.seats }}`: there a number is
//! inserted digit for digit. Every other expression computes, with what a computer makes of it.

use super::language::end_of_code;

/// The name of an object that holds what `form` holds, its numbers as the text that was typed. No
/// definition can use it.
pub(super) const AS_TYPED: &str = "form_as_typed";

/// The template with its plain insertions taken from [`AS_TYPED`].
pub(super) fn as_typed(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((begin, open)) = next_mark(rest) {
        let inside = begin + open.len();
        let length = match open {
            "{#" => rest[inside..].find("#}").unwrap_or(rest.len() - inside),
            _ => end_of_code(&rest[inside..]),
        };
        let code = &rest[inside..inside + length];
        text.push_str(&rest[..inside]);
        match expression_as_typed(code).filter(|_| open == "{{") {
            Some(typed) => text.push_str(&typed),
            None => text.push_str(code),
        }
        rest = &rest[inside + length..];
    }
    text + rest
}

/// The first mark of a template, and where it is.
pub(super) fn next_mark(text: &str) -> Option<(usize, &'static str)> {
    let marks = ["{{", "{%", "{#"].into_iter();
    marks
        .filter_map(|mark| Some((text.find(mark)?, mark)))
        .min()
}

/// The expression with its field taken from [`AS_TYPED`]; none unless it is a field and nothing
/// else but, perhaps, `| string` or `| default(…)`.
pub(super) fn expression_as_typed(expression: &str) -> Option<String> {
    let begin = expression.find("form")?;
    let (before, field) = expression.split_at(begin);
    let field = field.strip_prefix("form")?;
    let is_alone = before
        .chars()
        .all(|c| c.is_whitespace() || "-+".contains(c));
    (is_alone && is_member(field)).then(|| format!("{before}{AS_TYPED}{field}"))
}

/// Whether this is `.key` or `['key']`, and what may follow it.
fn is_member(text: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let rest = match text.strip_prefix('.') {
        Some(name) => name.trim_start_matches(is_name),
        None => {
            let quote = text.chars().nth(1).unwrap_or_default();
            let key = text.get(2..).unwrap_or_default();
            let end = key.find(quote).unwrap_or(key.len());
            let is_key = text.starts_with('[')
                && "\"'".contains(quote)
                && !key[..end].contains('\\')
                && key[end..].starts_with(&format!("{quote}]"));
            match is_key {
                true => &key[end + 2..],
                false => return false,
            }
        }
    };
    let rest = rest.trim().trim_end_matches(['-', '+']).trim_end();
    let filter = rest.strip_prefix('|').map(str::trim_start);
    let is_default = |filter: &str| {
        let argument = filter
            .strip_prefix("default(")
            .and_then(|rest| rest.strip_suffix(')'));
        argument.is_some_and(|argument| !argument.contains([',', '(', ')', '|']))
    };
    rest.is_empty() || filter.is_some_and(|filter| filter == "string" || is_default(filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_insertions_are_found_and_nothing_else() {
        for (source, typed) in [
            ("{{ form.n }}", "{{ T.n }}"),
            (
                "{{form.n}} and {{- form['a-b'] -}}",
                "{{T.n}} and {{- T['a-b'] -}}",
            ),
            ("{{ form.n | string }}", "{{ T.n | string }}"),
            (
                "{{ form.n|default('x }} y') }}",
                "{{ T.n|default('x }} y') }}",
            ),
            ("{{ form[\"n\"] }}", "{{ T[\"n\"] }}"),
            (
                "{% if form.n > 1 %}{{ form.n }}{% endif %}",
                "{% if form.n > 1 %}{{ T.n }}{% endif %}",
            ),
        ] {
            assert_eq!(as_typed(source), typed.replace('T', AS_TYPED), "{source}");
        }
        for source in [
            "",
            "form.n",
            "{{ form.n + 1 }}",
            "{{ 1 + form.n }}",
            "{{ form.n.m }}",
            "{{ form.n | round }}",
            "{{ form.n | default(0, true) }}",
            "{{ form.n | string | upper }}",
            "{{ form.n if form.n else 1 }}",
            "{{ form }}",
            "{{ formula.n }}",
            "{{ form['n }}",
            "{# {{ form.n }} #}",
            "{% if '{{ form.n }}' == run.id %}{% endif %}",
            "{{ '{{ form.n }}' }}",
            "{{",
        ] {
            assert_eq!(as_typed(source), source);
        }
    }
}
