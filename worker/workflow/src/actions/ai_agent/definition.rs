//! The definition of an agent: its model, its goal and its tools.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::parameters::ToolParameters;
use crate::{
    actions::{
        MAX_ACCOUNT,
        chat::{self, MAX_MODEL},
        http_request,
        outgoing::Outgoing,
    },
    diagnostics::Diagnostics,
    template::{Escape, MAX_LENGTH, References, Template, Variables},
};

const MAX_GOAL: usize = 2_000;
const MAX_TOOLS: usize = 20;
const MAX_TOOL_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_000;
/// Maximum number of parts of an agent.
const MAX_STEPS: u64 = 100;
const MAX_TOKENS: u64 = 1_000_000;

/// A model with a goal and tools.
#[derive(Debug)]
pub struct Agent {
    pub(super) account: String,
    pub(super) model: String,
    pub(super) goal: String,
    pub(super) input: Template,
    pub(super) tools: Vec<Tool>,
    pub(super) max_steps: usize,
    pub(super) max_tokens: u64,
}

/// A tool that the model may call.
#[derive(Debug)]
pub struct Tool {
    pub(super) name: String,
    description: String,
    pub(super) parameters: ToolParameters,
    pub(super) outgoing: Arc<dyn Outgoing>,
}

impl Tool {
    /// The name by which the model calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The account that it calls.
    #[must_use]
    pub fn account(&self) -> &str {
        self.outgoing.account()
    }

    /// The method of its request.
    #[must_use]
    pub fn method(&self) -> &str {
        self.outgoing.method()
    }
}

pub(super) fn parse(
    diagnostics: &mut Diagnostics,
    members: &Map<String, Value>,
    path: &str,
) -> Option<Arc<Agent>> {
    let mut number = |name: &str, max: u64| {
        let given = members.get(name).and_then(Value::as_u64);
        given
            .filter(|number| (1..=max).contains(number))
            .or_else(|| {
                let problem = format_args!("must be a whole number of 1 to {max}");
                diagnostics.add(&format!("{path}.{name}"), problem);
                None
            })
    };
    let (max_steps, max_tokens) = (
        number("max_steps", MAX_STEPS),
        number("max_tokens", MAX_TOKENS),
    );
    let agent = Agent {
        account: diagnostics.text(members, path, "account", MAX_ACCOUNT),
        model: diagnostics.text(members, path, "model", MAX_MODEL),
        goal: diagnostics.text(members, path, "goal", MAX_GOAL),
        input: Template::new(diagnostics.text(members, path, "input", MAX_LENGTH)),
        tools: tools(diagnostics, members.get("tools"), &format!("{path}.tools")),
        max_steps: usize::try_from(max_steps?).ok()?,
        max_tokens: max_tokens?,
    };
    Some(Arc::new(agent))
}

fn tools(diagnostics: &mut Diagnostics, value: Option<&Value>, path: &str) -> Vec<Tool> {
    let Some(values) = diagnostics.list(value, path) else {
        return Vec::new();
    };
    if !(1..=MAX_TOOLS).contains(&values.len()) {
        diagnostics.add(path, format_args!("must have 1 to {MAX_TOOLS} tools"));
    }
    let mut names = HashSet::new();
    let tools = values.iter().enumerate().filter_map(|(index, value)| {
        let path = format!("{path}[{index}]");
        let tool = tool(diagnostics, value, &path)?;
        if !names.insert(tool.name.clone()) {
            let problem = format_args!("another tool has the name {:?}", tool.name);
            diagnostics.add(&path, problem);
        }
        Some(tool)
    });
    tools.collect()
}

fn tool(diagnostics: &mut Diagnostics, value: &Value, path: &str) -> Option<Tool> {
    let members = diagnostics.object(value, path)?;
    let own: &[&str] = &["name", "description", "parameters"];
    diagnostics.only(members, path, &[own, &http_request::MEMBERS].concat());
    let name = diagnostics.text(members, path, "name", MAX_TOOL_NAME);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.chars().all(is_name) {
        let problem = "must consist of letters, digits, _ and -";
        diagnostics.add(&format!("{path}.name"), problem);
    }
    let description = diagnostics.text(members, path, "description", MAX_DESCRIPTION);
    let place = format!("{path}.parameters");
    Some(Tool {
        name,
        description,
        parameters: ToolParameters::parse(diagnostics, members.get("parameters"), &place),
        outgoing: http_request::parse(diagnostics, members, path)?,
    })
}

impl Agent {
    /// The account of its model.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The tools that the model may call.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    /// The most requests that it may send.
    pub(crate) fn max_requests(&self) -> usize {
        self.max_steps
    }

    pub(in crate::actions) fn references(&self) -> References {
        let tools = self.tools.iter().map(|tool| tool.outgoing.references());
        tools.fold(self.input.references().clone(), References::and)
    }

    pub(in crate::actions) fn check(
        &self,
        diagnostics: &mut Diagnostics,
        path: &str,
        variables: &Variables,
    ) {
        chat::check_fixed(diagnostics, &format!("{path}.goal"), &self.goal);
        let place = format!("{path}.input");
        self.input
            .check(diagnostics, &place, variables, Escape::None);
        for (index, tool) in self.tools.iter().enumerate() {
            let variables = variables.with_args(tool.parameters.variables());
            let path = format!("{path}.tools[{index}]");
            tool.outgoing.check(diagnostics, &path, &variables);
        }
    }

    /// The descriptions of the tools for the model.
    pub(super) fn tools_json(&self) -> Vec<Value> {
        let tools = self.tools.iter().map(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.schema(),
            }})
        });
        tools.collect()
    }
}
