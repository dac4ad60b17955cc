//! Templates and expressions in actions: text with `{{ form.name }}` in it, and `form.seats > 10`.
//!
//! What a submitter wrote is only ever a value: it is inserted, never parsed as a template, and the
//! place where it is inserted decides how it is escaped. Names are checked when a definition is
//! deployed, so a template that uses a name finds it in every run.

mod context;
mod environment;
mod insertions;
mod language;
mod references;
mod renderer;

use minijinja::{Error, UndefinedBehavior};

use crate::diagnostics::Diagnostics;

pub use self::{context::TemplateContext, references::References, renderer::Renderer};
pub(crate) use self::{context::Variables, environment::Escape};
use self::{
    environment::{environment, scalar_text},
    insertions::{as_typed, expression_as_typed},
    language::{check_expression, check_template},
};

/// Maximum characters of a template or an expression.
pub(crate) const MAX_LENGTH: usize = 10_000;

/// Why a template has no result for these values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(String);

impl RenderError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<Error> for RenderError {
    /// Says what is wrong and where. Does not quote values.
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

/// Text with values in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    source: String,
    references: References,
}

impl Template {
    pub(crate) fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        Self {
            references: References::of_template(&source),
            source,
        }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// What gets into it.
    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    /// Checks language and names, and renders it once with sample values.
    pub(crate) fn check(
        &self,
        diagnostics: &mut Diagnostics,
        path: &str,
        variables: &Variables,
        escape: Escape,
    ) {
        let before = diagnostics.len();
        check_template(diagnostics, path, &self.source, variables);
        match environment(escape).template_from_str(&self.source) {
            Ok(compiled) => {
                let used = compiled.undeclared_variables(true);
                check_names(diagnostics, path, used, variables);
                check_answers(diagnostics, path, &self.references, variables);
                let mut strict = environment(escape).clone();
                strict.set_undefined_behavior(UndefinedBehavior::Strict);
                // Tried where nothing is wrong yet; what accounts answer can't be guessed.
                let sample = variables.sample();
                if diagnostics.len() == before
                    && !self.references.has_answers()
                    && let Err(error) = strict.render_str(&self.source, sample.value())
                {
                    diagnostics.add(path, RenderError::from(error));
                }
            }
            Err(error) => diagnostics.add(path, RenderError::from(error)),
        }
    }

    /// The text with its values.
    ///
    /// # Errors
    /// When a value can't be inserted where it would be, or the request becomes too much.
    pub(crate) fn render(
        &self,
        escape: Escape,
        renderer: &Renderer<'_>,
    ) -> Result<String, RenderError> {
        renderer.render(environment(escape), &as_typed(&self.source))
    }

    /// As JSON text. A template that is one expression and nothing else gives the value itself, so
    /// that a number stays a number, a field's digit for digit; any other gives a string.
    ///
    /// # Errors
    /// When a value is a list or an object, or the request becomes too much.
    pub(crate) fn json(&self, renderer: &Renderer<'_>) -> Result<String, RenderError> {
        let Some(expression) = self.expression() else {
            let text = self.render(Escape::None, renderer)?;
            return Ok(serde_json::Value::from(text).to_string());
        };
        let environment = environment(Escape::None);
        let evaluate = |expression: &str| {
            let compiled = environment.compile_expression(expression)?;
            compiled.eval(renderer.context.value())
        };
        let mut value = evaluate(expression)?;
        if let Some(typed) = expression_as_typed(expression) {
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
        let inner = self.source.trim().strip_prefix("{{")?.strip_suffix("}}")?;
        let inner = inner
            .trim_start_matches(['-', '+'])
            .trim_end_matches(['-', '+']);
        let others = ["{{", "}}", "{%", "{#"];
        (!others.iter().any(|mark| inner.contains(mark))).then_some(inner)
    }
}

/// An expression that is true or false for the values of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    source: String,
    references: References,
}

impl Condition {
    pub(crate) fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        Self {
            references: References::of_expression(&source),
            source,
        }
    }

    /// The expression.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// What decides it.
    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    /// Checks language and names, and evaluates it once with sample values.
    pub(crate) fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        let before = diagnostics.len();
        check_expression(diagnostics, path, &self.source, variables);
        match environment(Escape::None).compile_expression(&self.source) {
            Ok(compiled) => {
                let used = compiled.undeclared_variables(true);
                check_names(diagnostics, path, used, variables);
                check_answers(diagnostics, path, &self.references, variables);
                let mut strict = environment(Escape::None).clone();
                strict.set_undefined_behavior(UndefinedBehavior::Strict);
                let (tried, sample) = (strict.compile_expression(&self.source), variables.sample());
                if diagnostics.len() == before
                    && !self.references.has_answers()
                    && let Err(error) = tried.and_then(|tried| tried.eval(sample.value()))
                {
                    diagnostics.add(path, RenderError::from(error));
                }
            }
            Err(error) => diagnostics.add(path, RenderError::from(error)),
        }
    }

    /// Whether it is true.
    ///
    /// # Errors
    /// When the values can't be compared.
    pub fn holds(&self, context: &TemplateContext) -> Result<bool, RenderError> {
        let environment = environment(Escape::None);
        Ok(environment
            .compile_expression(&self.source)?
            .eval(context.value())?
            .is_true())
    }
}

/// Says which of the used names do not exist.
fn check_names(
    diagnostics: &mut Diagnostics,
    path: &str,
    used: impl IntoIterator<Item = String>,
    variables: &Variables,
) {
    let mut unknown: Vec<_> = used
        .into_iter()
        .filter(|name| !variables.contains(name))
        .collect();
    unknown.sort_unstable();
    for name in unknown {
        diagnostics.add(
            path,
            format_args!("unknown name {name:?}, expected {}", variables.names()),
        );
    }
}

/// Says which of the used answers do not exist.
fn check_answers(
    diagnostics: &mut Diagnostics,
    path: &str,
    references: &References,
    variables: &Variables,
) {
    for name in references
        .answers()
        .filter(|name| !variables.has_answer(name))
    {
        let expected = variables.names();
        match &name.id {
            None => {
                let problem =
                    format_args!("actions must be followed by an id, expected {expected}");
                diagnostics.add(path, problem);
            }
            Some(id) => {
                let member = name.member.as_ref().map(|member| format!(".{member}"));
                let name = format!("actions.{id}{}", member.unwrap_or_default());
                let problem = format_args!("unknown name {name:?}, expected {expected}");
                diagnostics.add(path, problem);
            }
        }
    }
}
