//! The definition of an agent: its model, its goal and its tools.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json};

use super::parameters::ToolParameters;
use crate::{
    actions::{Step, chat::Model, http_request, outgoing::Outgoing},
    diagnostics::{Diagnostics, Fields},
    template::{Escape, References, Template, Variables},
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
    pub(super) model: Model,
    pub(super) goal: String,
    pub(super) input: Template,
    pub(super) tools: Vec<Tool>,
    /// The most requests that it may send.
    pub(crate) max_steps: usize,
    pub(super) max_tokens: u64,
}

/// A tool that the model may call.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    description: String,
    pub(super) parameters: ToolParameters,
    pub(super) outgoing: Arc<dyn Outgoing>,
}

pub(super) fn parse(fields: &mut Fields<'_, '_>) -> Option<Step> {
    let model = Model::parse(fields);
    let goal = fields.text("goal", MAX_GOAL);
    let input = Template::parse(fields, "input");
    let tools = tools(fields);
    let max_steps = fields.number("max_steps", MAX_STEPS);
    let max_tokens = fields.number("max_tokens", MAX_TOKENS);
    Some(Step::Delegate(Arc::new(Agent {
        model,
        goal,
        input,
        tools,
        max_steps: usize::try_from(max_steps?).ok()?,
        max_tokens: max_tokens?,
    })))
}

fn tools(agent: &mut Fields<'_, '_>) -> Vec<Tool> {
    let given = agent.get("tools");
    let place = agent.place("tools");
    let Some(values) = agent.diagnostics.list(given, &place) else {
        return Vec::new();
    };
    if !(1..=MAX_TOOLS).contains(&values.len()) {
        agent.add("tools", format_args!("must have 1 to {MAX_TOOLS} tools"));
    }
    let mut names = HashSet::new();
    let tools = values.iter().enumerate().filter_map(|(index, value)| {
        let mut fields = agent
            .diagnostics
            .fields(value, format!("{place}[{index}]"))?;
        let tool = tool(&mut fields)?;
        if !names.insert(tool.name.clone()) {
            let problem = format_args!("another tool has the name {:?}", tool.name);
            fields.diagnostics.add(&fields.path, problem);
        }
        Some(tool)
    });
    tools.collect()
}

fn tool(fields: &mut Fields<'_, '_>) -> Option<Tool> {
    let name = fields.text("name", MAX_TOOL_NAME);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.chars().all(is_name) {
        fields.add("name", "must consist of letters, digits, _ and -");
    }
    let description = fields.text("description", MAX_DESCRIPTION);
    let given = fields.get("parameters");
    let place = fields.place("parameters");
    let parameters = ToolParameters::parse(fields.diagnostics, given, &place);
    let outgoing = http_request::parse(fields);
    fields.refuse_others();
    Some(Tool {
        name,
        description,
        parameters,
        outgoing: outgoing?,
    })
}

impl Agent {
    /// The account of its model.
    pub fn account(&self) -> &str {
        &self.model.account
    }

    /// The requests of the tools that the model may call.
    pub fn tools(&self) -> impl Iterator<Item = &dyn Outgoing> {
        self.tools.iter().map(|tool| &*tool.outgoing)
    }

    pub(in crate::actions) fn references(&self) -> References {
        let tools = self.tools.iter().map(|tool| tool.outgoing.references());
        tools.fold(self.input.references.clone(), References::and)
    }

    pub(in crate::actions) fn check(
        &self,
        diagnostics: &mut Diagnostics,
        path: &str,
        variables: &Variables,
    ) {
        diagnostics.check_fixed(&format!("{path}.goal"), &self.goal);
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
                "parameters": tool.parameters.schema,
            }})
        });
        tools.collect()
    }
}
