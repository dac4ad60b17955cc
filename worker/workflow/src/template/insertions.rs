//! Plain insertions, which are a field and nothing else, such as `{{ form.seats }}`: a number is
//! inserted digit for digit. Every other expression computes with its machine representation. And
//! the text of a single value.

use minijinja::{Error, ErrorKind, Value, machinery::ast::Expr, value::ValueKind};

use super::syntax::{Syntax, member, variable};

/// The name of an object with the values of `form`, numbers as the submitted text. Definitions
/// can't use it.
pub(super) const AS_TYPED: &str = "form_as_typed";

/// Returns the source with its plain insertions taken from [`AS_TYPED`].
pub(super) fn as_typed(source: &str, syntax: &Syntax<'_>) -> String {
    let mut places: Vec<_> = syntax.insertions().filter_map(plain_field).collect();
    places.sort_unstable();
    let mut text = String::with_capacity(source.len());
    let mut copied = 0;
    for place in places {
        text.push_str(&source[copied..place]);
        text.push_str(AS_TYPED);
        copied = place + "form".len();
    }
    text + &source[copied..]
}

/// The position of `form` in an expression that is only a field, optionally with `| string` or
/// `| default(…)`; `None` for any other expression.
fn plain_field(expression: &Expr<'_>) -> Option<usize> {
    let field = match expression {
        Expr::Filter(filter) => match (filter.name, filter.args.len()) {
            ("string", 0) | ("default", 1) => filter.expr.as_ref()?,
            _ => return None,
        },
        _ => expression,
    };
    let (object, name) = member(field)?;
    name?;
    let begin = variable(object, "form")?.start_offset;
    usize::try_from(begin).ok()
}

/// A single value as text; empty for an undefined value.
pub(super) fn scalar_text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(String::new()),
        ValueKind::String | ValueKind::Number | ValueKind::Bool => Ok(value.to_string()),
        _ => Err(refuse("only a single value can be inserted")),
    }
}

/// An error of a value that can't be used so.
pub(super) fn refuse(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_typed(source: &str) -> String {
        match Syntax::of_template(source) {
            Ok(syntax) => super::as_typed(source, &syntax),
            Err(_) => source.to_owned(),
        }
    }

    #[test]
    fn plain_insertions_are_found_and_nothing_else() {
        // T stands for the object, as it is written and as it is read.
        for text in [
            "{{ T.n }}",
            "{{T.n}} and {{- T['a-b'] -}}",
            "{{ T.n | string }}",
            "{{ T.n|default('x }} y') }}",
            "{{ T[\"n\"] }}",
            "{% if form.n > 1 %}{{ T.n }}{% endif %}",
        ] {
            let source = text.replace('T', "form");
            assert_eq!(as_typed(&source), text.replace('T', AS_TYPED), "{source}");
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
