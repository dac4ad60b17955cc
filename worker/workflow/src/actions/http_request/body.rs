//! A JSON body whose strings are templates.

use serde_json::Value;

use crate::{
    diagnostics::Diagnostics,
    template::{Escape, References, RenderError, Renderer, Template, Variables},
};

const MAX_DEPTH: usize = 20;

/// A JSON value with templates for strings.
#[derive(Debug)]
pub(super) enum Body {
    Template(Template),
    Fixed(Value),
    List(Vec<Body>),
    Object(Vec<(String, Body)>),
}

impl Body {
    pub(super) fn parse(
        diagnostics: &mut Diagnostics,
        value: &Value,
        path: &str,
        depth: usize,
    ) -> Self {
        if depth > MAX_DEPTH {
            diagnostics.add_too_deep(path, MAX_DEPTH);
            return Self::Fixed(Value::Null);
        }
        match value {
            Value::String(source) => Self::Template(Template::new(source)),
            Value::Array(values) => {
                let values = values.iter().enumerate();
                let parsed = values.map(|(index, value)| {
                    Self::parse(diagnostics, value, &format!("{path}[{index}]"), depth + 1)
                });
                Self::List(parsed.collect())
            }
            Value::Object(members) => {
                let parsed = members.iter().map(|(name, value)| {
                    let path = format!("{path}.{name}");
                    (
                        name.clone(),
                        Self::parse(diagnostics, value, &path, depth + 1),
                    )
                });
                Self::Object(parsed.collect())
            }
            other => Self::Fixed(other.clone()),
        }
    }

    pub(super) fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
        match self {
            Self::Fixed(_) => {}
            Self::Template(template) => {
                template.check(diagnostics, path, variables, Escape::None);
            }
            Self::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    value.check(diagnostics, &format!("{path}[{index}]"), variables);
                }
            }
            Self::Object(members) => {
                for (name, value) in members {
                    diagnostics.check_fixed_name(path, name);
                    value.check(diagnostics, &format!("{path}.{name}"), variables);
                }
            }
        }
    }

    pub(super) fn references(&self) -> References {
        let all = |parts: &mut dyn Iterator<Item = &Self>| {
            let parts = parts.map(Self::references);
            parts.fold(References::default(), References::and)
        };
        match self {
            Self::Template(template) => template.references.clone(),
            Self::Fixed(_) => References::default(),
            Self::List(values) => all(&mut values.iter()),
            Self::Object(members) => all(&mut members.iter().map(|(_, value)| value)),
        }
    }

    /// Renders the body as JSON text.
    pub(super) fn render(&self, renderer: &Renderer<'_>) -> Result<String, RenderError> {
        let joined = |parts: Result<Vec<String>, RenderError>| parts.map(|parts| parts.join(","));
        Ok(match self {
            Self::Template(template) => template.json(renderer)?,
            Self::Fixed(value) => value.to_string(),
            Self::List(values) => {
                let rendered = values.iter().map(|value| value.render(renderer));
                format!("[{}]", joined(rendered.collect())?)
            }
            Self::Object(members) => {
                let rendered = members.iter().map(|(name, value)| {
                    let name = Value::from(name.as_str());
                    Ok(format!("{name}:{}", value.render(renderer)?))
                });
                format!("{{{}}}", joined(rendered.collect())?)
            }
        })
    }
}
