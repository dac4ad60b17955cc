//! Templates and expressions in actions: text such as `{{ form.name }}`, and `form.seats > 10`.
//!
//! Submitted text is only ever a value: it is inserted, never parsed as a template, and the place
//! where it is inserted decides how it is escaped. Names are checked when a definition is deployed,
//! so every name that a template uses exists in every run.

mod context;
#[cfg(test)]
mod corpus;
mod environment;
mod insertions;
mod language;
mod references;
mod renderer;
mod syntax;
mod table;

use std::collections::HashSet;

use minijinja::{Error, Value};

use crate::diagnostics::{Diagnostics, Fields};

pub use self::{
    context::TemplateContext, language::SHORT_VALUE, references::References, renderer::Renderer,
    table::Labels,
};
pub(crate) use self::{
    context::{Variables, dotted},
    environment::Escape,
    references::{compared_statuses, compares_unasked},
};
use self::{
    environment::{environment, strict},
    insertions::{as_typed, scalar_text},
    syntax::Syntax,
};

/// The version of the language, which a release says it was checked by. It is another when a line
/// of the golden corpus (`corpus.rs`) gives something else than before: then releases of the former
/// version need an engine that still gives that.
pub const LANGUAGE: i16 = 2;
/// Maximum characters of a template or an expression.
pub(crate) const MAX_LENGTH: usize = 10_000;

/// Why a template can't be rendered with these values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(String);

impl RenderError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<Error> for RenderError {
    /// Reports the problem and its line, without quoting values.
    fn from(error: Error) -> Self {
        let line = error.line().map(|line| format!(" (line {line})"));
        let line = line.unwrap_or_default();
        let detail = error.detail().map(|detail| format!(": {detail}"));
        let detail = detail.unwrap_or_default();
        Self(format!("{}{detail}{line}", error.kind()))
    }
}

/// Text with insertions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) source: String,
    /// The source with plain insertions as they were submitted.
    typed: String,
    /// The values that it refers to.
    pub(crate) references: References,
}

impl Template {
    pub(crate) fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        // A source that is too long is refused by `check` and not parsed.
        let syntax = Some(&source).filter(|source| source.len() <= 4 * MAX_LENGTH);
        let (typed, references) = match syntax.map(|source| Syntax::of_template(source)) {
            Some(Ok(syntax)) => (as_typed(&source, &syntax), References::of(&syntax)),
            _ => (source.clone(), References::any()),
        };
        Self {
            source,
            typed,
            references,
        }
    }

    /// The member of this name.
    pub(crate) fn parse(fields: &mut Fields<'_, '_>, name: &str) -> Self {
        Self::new(fields.text(name, MAX_LENGTH))
    }

    /// Checks language and names, and renders it once with sample values. Returns `false` if it has
    /// a problem.
    pub(crate) fn check(
        &self,
        diagnostics: &mut Diagnostics,
        path: &str,
        variables: &Variables,
        escape: Escape,
    ) -> bool {
        let before = diagnostics.len();
        if self.source.contains("{#") {
            diagnostics.add(path, "must not contain comments");
        }
        let source = Source {
            text: &self.source,
            parse: Syntax::of_template,
            references: &self.references,
        };
        source.check(
            diagnostics,
            path,
            variables,
            || {
                environment(escape)
                    .template_from_str(&self.source)
                    .map(|it| it.undeclared_variables(true))
            },
            |sample| strict(escape).render_str(&self.source, sample).map(drop),
        );
        diagnostics.len() == before
    }

    /// Renders the template as text, unless a value can't be inserted in its place, or the request
    /// exceeds its limits.
    pub(crate) fn render(
        &self,
        escape: Escape,
        renderer: &Renderer<'_>,
    ) -> Result<String, RenderError> {
        renderer.render(environment(escape), &self.typed, &self.references)
    }

    /// Renders the template as JSON text. A template that is a single expression and nothing else
    /// yields the value itself, so that a number stays a number, and a field's number keeps its
    /// digits; any other template yields a string. Lists and objects can't be inserted.
    pub(crate) fn json(&self, renderer: &Renderer<'_>) -> Result<String, RenderError> {
        let Some(expression) = self.expression() else {
            let text = self.render(Escape::None, renderer)?;
            return Ok(serde_json::Value::from(text).to_string());
        };
        let environment = environment(Escape::None);
        let values = renderer.values(&self.references)?;
        let evaluate = |expression: &str| {
            let compiled = environment.compile_expression(expression)?;
            let value = compiled.eval(&values);
            value.map_err(|error| renderer.explain(error, &self.references))
        };
        let mut value = evaluate(expression)?;
        let typed = as_typed(expression, &Syntax::of_expression(expression)?);
        if typed != expression {
            let typed = evaluate(&typed)?;
            if let (true, Some(digits)) = (value.is_number(), typed.as_str()) {
                renderer.spend(digits.len())?;
                return Ok(digits.to_owned());
            }
            value = typed;
        }
        renderer.spend(scalar_text(&value)?.len())?;
        if value.is_undefined() {
            return Ok("null".to_owned());
        }
        serde_json::to_string(&value).map_err(|error| RenderError::new(error.to_string()))
    }

    fn expression(&self) -> Option<&str> {
        let inner = self.source.strip_prefix("{{")?.strip_suffix("}}")?;
        let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
        let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner);
        let others = ["{{", "}}", "{%", "{#"];
        // In `{{ form.n }}}` the last brace is text after the expression.
        let is_more = others.iter().any(|mark| inner.contains(mark)) || inner.ends_with('}');
        (!is_more).then_some(inner)
    }
}

/// An expression that is true or false for the values of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub(crate) source: String,
    /// The values that it refers to.
    pub(crate) references: References,
}

impl Condition {
    pub(crate) fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        let syntax = Some(&source).filter(|source| source.len() <= 4 * MAX_LENGTH);
        let references = match syntax.map(|source| Syntax::of_expression(source)) {
            Some(Ok(syntax)) => References::of(&syntax),
            _ => References::any(),
        };
        Self { source, references }
    }

    /// Checks language and names, and evaluates it once with sample values.
    pub(crate) fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        let compiled = || environment(Escape::None).compile_expression(&self.source);
        let source = Source {
            text: &self.source,
            parse: Syntax::of_expression,
            references: &self.references,
        };
        source.check(
            diagnostics,
            path,
            variables,
            || compiled().map(|it| it.undeclared_variables(true)),
            |sample| {
                let strict = strict(Escape::None);
                let tried = strict.compile_expression(&self.source)?;
                tried.eval(sample).map(drop)
            },
        );
    }

    /// Whether it is true. Fails if the values can't be compared, or the evaluation takes too long.
    pub fn holds(&self, context: &TemplateContext) -> Result<bool, RenderError> {
        let renderer = context.renderer();
        // The engine panics at some of what this refuses.
        Syntax::of_expression(&self.source)?;
        let compiled = environment(Escape::None).compile_expression(&self.source)?;
        let value = compiled.eval(renderer.values(&self.references)?);
        let value = value.map_err(|error| renderer.explain(error, &self.references))?;
        renderer.spend(0)?;
        Ok(value.is_true())
    }
}

struct Source<'s> {
    text: &'s str,
    parse: fn(&'s str) -> Result<Syntax<'s>, Error>,
    references: &'s References,
}

impl Source<'_> {
    /// Checks length, language and names, and tries the source with sample values. A refused source
    /// is not compiled.
    fn check(
        self,
        diagnostics: &mut Diagnostics,
        path: &str,
        variables: &Variables,
        names: impl FnOnce() -> Result<HashSet<String>, Error>,
        try_with: impl FnOnce(&Value) -> Result<(), Error>,
    ) {
        let before = diagnostics.len();
        if self.text.chars().count() > MAX_LENGTH {
            let problem = format_args!("must have at most {MAX_LENGTH} characters");
            return diagnostics.add(path, problem);
        }
        let allowed = (self.parse)(self.text)
            .map(|syntax| language::check(diagnostics, path, &syntax, variables));
        let used = match allowed {
            Ok(true) => names(),
            refused => refused.map(|_| HashSet::new()),
        };
        match used {
            Ok(names) => check_names(diagnostics, path, names, variables),
            Err(error) => return diagnostics.add(path, RenderError::from(error)),
        }
        check_answers(diagnostics, path, self.references, variables);
        // Answers of accounts have no sample values, so a source that uses them can't be tried.
        if diagnostics.len() == before
            && !self.references.has_answers()
            && let Err(error) = try_with(&variables.sample().value())
        {
            diagnostics.add(path, RenderError::from(error));
        }
    }
}

/// Reports used names that don't exist.
fn check_names(
    diagnostics: &mut Diagnostics,
    path: &str,
    used: impl IntoIterator<Item = String>,
    variables: &Variables,
) {
    let unknown = used.into_iter().filter(|name| !variables.contains(name));
    let mut unknown: Vec<_> = unknown.collect();
    unknown.sort_unstable();
    let expected = variables.names();
    for name in unknown {
        diagnostics.add(
            path,
            format_args!("unknown name {name:?}, expected {expected}"),
        );
    }
}

/// Reports used answers that don't exist.
fn check_answers(
    diagnostics: &mut Diagnostics,
    path: &str,
    references: &References,
    variables: &Variables,
) {
    let answers = references.answers.iter();
    for name in answers.filter(|name| !variables.has_answer(name)) {
        let expected = variables.names();
        let problem = match &name.id {
            None => format!("actions must be followed by an id, expected {expected}"),
            Some(id) => {
                let member = name.member.as_ref().map(|member| format!(".{member}"));
                let name = format!("actions.{id}{}", member.unwrap_or_default());
                format!("unknown name {name:?}, expected {expected}")
            }
        };
        diagnostics.add(path, problem);
    }
}

#[cfg(test)]
mod tests {
    use letterbox_common::form::FieldType;

    use super::*;
    use crate::diagnostics::texts;

    fn problems(source: &str) -> Vec<String> {
        let variables = Variables::of_fields(&[("n", FieldType::Number)]);
        let mut diagnostics = Diagnostics::default();
        Template::new(source).check(&mut diagnostics, "it", &variables, Escape::None);
        texts(diagnostics.into_list())
    }

    /// Compiling a long chain would overflow the stack.
    #[test]
    fn an_expression_is_not_nested_without_end() {
        for (first, more, last) in [
            ("form.n", " - 1", ""),
            ("form.n", "|abs", ""),
            ("form.n", " and 1", ""),
            ("", "(", "form.n"),
            ("", "not ", "form.n"),
            ("", "-", "form.n"),
            ("", "1 if ", "form.n"),
        ] {
            let many = more.repeat(9_900 / more.len());
            let source = format!("{{{{{first}{many}{last}}}}}");
            assert!(!problems(&source).is_empty(), "{more}");
        }
        let choices = "{% elif 1 %}".repeat(830);
        let source = format!("{{% if 1 %}}{choices}{{% endif %}}");
        assert_eq!(problems(&source), [""; 0]);
    }

    /// The engine evaluates constant expressions when it compiles them.
    #[test]
    fn what_is_refused_is_not_compiled() {
        let refused = "2 in ([1] * 1000000000000000)";
        assert!(!problems(&format!("{{{{ {refused} }}}}")).is_empty());
        let mut diagnostics = Diagnostics::default();
        Condition::new(refused).check(&mut diagnostics, "it", &Variables::default());
        assert!(!diagnostics.is_empty());
        let long = "not ".repeat(60_000) + "form.n";
        assert!(!problems(&format!("{{{{ {long} }}}}")).is_empty());
    }

    /// The engine's lexer panics at what follows the braces.
    #[test]
    fn an_expression_does_not_end_in_braces() {
        let context = TemplateContext::of_run("{}", "run", "now").unwrap();
        for source in ["form.n }} x", "form.n }}", "form.n -}}{{ 1", "}}}"] {
            let condition = Condition::new(source);
            let mut diagnostics = Diagnostics::default();
            condition.check(&mut diagnostics, "it", &Variables::default());
            let problem = "syntax error: unexpected `}}` in an expression";
            assert_eq!(texts(diagnostics.into_list()), [format!("it: {problem}")]);
            assert_eq!(condition.holds(&context), Err(RenderError::new(problem)));
        }
    }

    #[test]
    fn a_brace_after_an_expression_is_text() {
        let context = TemplateContext::of_run(r#"{"n": 1.50}"#, "run", "now").unwrap();
        for (source, json) in [
            ("{{ form.n }}", "1.50"),
            ("{{ form.n }}}", "\"1.50}\""),
            ("{{- form.n -}}}", "\"1.50}\""),
            ("{{ form.n }}}}", "\"1.50}}\""),
            ("{{ '}' }}", "\"}\""),
        ] {
            assert_eq!(problems(source), [""; 0], "{source}");
            let given = Template::new(source).json(&context.renderer());
            assert_eq!(given.as_deref(), Ok(json), "{source}");
        }
    }

    /// A submitter may choose the divisor.
    #[test]
    fn nothing_is_divisible_by_zero() {
        let condition = Condition::new("6 is divisibleby(form.n)");
        for (n, expected) in [
            ("0", false),
            ("4", false),
            ("3", true),
            ("-1", true),
            ("1.5", true),
        ] {
            let form = format!("{{\"n\": {n}}}");
            let context = TemplateContext::of_run(&form, "run", "now").unwrap();
            assert_eq!(condition.holds(&context), Ok(expected), "{n}");
        }
    }

    #[test]
    fn nothing_hides_behind_a_comment() {
        for hidden in ["1 in ([2] * form.n)", "([1] * form.n) | last"] {
            for source in [
                format!("{{# {{{{ ' #}}{{{{ {hidden} }}}}{{# ' }}}} #}}"),
                format!("{{# {{% \" #}}{{{{ {hidden} }}}}{{# \" %}} #}}"),
                format!("{{# ' #}}{{{{ {hidden} }}}}"),
            ] {
                assert!(!problems(&source).is_empty(), "{source}");
            }
        }
        assert_eq!(problems("{# x #}"), ["it: must not contain comments"]);
    }
}
