//! `ai.agent`: a model works towards a goal with the tools that the definition names, one call
//! after the other.
//!
//! An agent is a sequence of parts, each an action of its own in the record of the run: a question
//! to the model, the calls that it answers with, the next question. What comes next follows from
//! the parts that are over and from nothing else, so whoever takes over a run goes on where it was.
//! The model only chooses among the tools and fills in their arguments; what is sent is rendered by
//! the tool's templates, below the tool's account, and decided by the policy.

mod parameters;
mod transcript;

use std::{collections::HashSet, sync::Arc};

use serde_json::{Map, Value, json};

pub use self::parameters::Arguments;
use self::{
    parameters::Parameters,
    transcript::{Question, Transcript},
};
use super::{
    ActionKind, MAX_ACCOUNT, Parse,
    chat::{self, MAX_MODEL},
    http_request,
    outgoing::Outgoing,
};
use crate::{
    diagnostics::Diagnostics,
    template::{Escape, MAX_LENGTH, References, Template, Variables},
};

pub(super) const KIND: ActionKind = ActionKind {
    name: "ai.agent",
    steering: None,
    members: &[
        "account",
        "model",
        "goal",
        "input",
        "tools",
        "max_steps",
        "max_tokens",
    ],
    parse: Parse::Delegate(parse),
};

const MAX_GOAL: usize = 2_000;
const MAX_TOOLS: usize = 20;
const MAX_TOOL_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1_000;
/// Most parts that an agent may have.
const MAX_STEPS: u64 = 100;
const MAX_TOKENS: u64 = 1_000_000;

/// A model with a goal and tools.
#[derive(Debug)]
pub struct Agent {
    account: String,
    model: String,
    goal: String,
    input: Template,
    tools: Vec<Tool>,
    max_steps: usize,
    max_tokens: u64,
}

/// What a model may call.
#[derive(Debug)]
pub struct Tool {
    name: String,
    description: String,
    parameters: Parameters,
    outgoing: Arc<dyn Outgoing>,
}

impl Tool {
    /// As the model knows it.
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

/// How a part of an agent ended.
#[derive(Debug, Clone, Copy)]
pub enum PartOutcome<'o> {
    /// With an answer.
    Answered {
        /// HTTP status.
        status: Option<u16>,
        /// What arrived of it.
        body: &'o [u8],
    },
    /// Without: for this reason, which the model is told.
    Refused(&'o str),
}

/// What an agent does next.
#[derive(Debug)]
pub enum AgentPart {
    /// It asks its model.
    Ask(Arc<dyn Outgoing>),
    /// It calls a tool.
    Call {
        /// The request, with templates that use the arguments.
        outgoing: Arc<dyn Outgoing>,
        /// What the model has given.
        arguments: Arguments,
    },
    /// The model has called for what can't be done. It is told so, and nothing is sent.
    Tell(String),
    /// It is done, and this is what the model said last.
    Done(String),
    /// It can't go on, for this reason.
    Fail(String),
}

fn parse(
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
        diagnostics.add(path, format_args!("must be 1 to {MAX_TOOLS} tools"));
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
        let problem = "must be letters, digits, _ and -";
        diagnostics.add(&format!("{path}.name"), problem);
    }
    let description = diagnostics.text(members, path, "description", MAX_DESCRIPTION);
    let place = format!("{path}.parameters");
    Some(Tool {
        name,
        description,
        parameters: Parameters::parse(diagnostics, members.get("parameters"), &place),
        outgoing: http_request::parse(diagnostics, members, path)?,
    })
}

impl Agent {
    /// The account of its model.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// What the model may call.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter()
    }

    pub(super) fn references(&self) -> References {
        let tools = self.tools.iter().map(|tool| tool.outgoing.references());
        tools.fold(self.input.references().clone(), References::and)
    }

    pub(super) fn check(&self, diagnostics: &mut Diagnostics, path: &str, variables: &Variables) {
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

    /// What comes next, after the parts that are over, in their order.
    #[must_use]
    pub fn next(self: &Arc<Self>, over: &[PartOutcome<'_>]) -> AgentPart {
        let mut transcript = Transcript::default();
        let mut outcomes = over.iter();
        let next = loop {
            let Some(answer) = outcomes.next() else {
                break self.ask(transcript);
            };
            let calls = match transcript.add_answer(answer) {
                Ok(calls) => calls,
                Err(reason) => break AgentPart::Fail(reason),
            };
            if calls.is_empty() {
                return AgentPart::Done(transcript.last_words());
            }
            let open = calls.into_iter().find(|call| match outcomes.next() {
                Some(outcome) => {
                    transcript.add_result(call, outcome);
                    false
                }
                None => true,
            });
            if let Some(call) = open {
                break self.call(&call.name, &call.arguments);
            }
        };
        match next {
            AgentPart::Fail(reason) => AgentPart::Fail(reason),
            _ if over.len() >= self.max_steps => {
                let steps = self.max_steps;
                AgentPart::Fail(format!(
                    "it is not done after {steps} steps, the most it may take"
                ))
            }
            next => next,
        }
    }

    fn ask(self: &Arc<Self>, transcript: Transcript) -> AgentPart {
        let Some(tokens_left) = self
            .max_tokens
            .checked_sub(transcript.tokens())
            .filter(|n| *n > 0)
        else {
            let tokens = self.max_tokens;
            return AgentPart::Fail(format!(
                "it has used up the {tokens} tokens that it may use"
            ));
        };
        match Question::new(self.clone(), transcript, tokens_left) {
            Ok(question) => AgentPart::Ask(Arc::new(question)),
            Err(reason) => AgentPart::Fail(reason),
        }
    }

    fn call(&self, name: &str, arguments: &str) -> AgentPart {
        let Some(tool) = self.tools.iter().find(|tool| tool.name == name) else {
            let name: String = name.chars().take(100).collect();
            return AgentPart::Tell(format!("there is no tool {name:?}"));
        };
        match tool.parameters.check(arguments) {
            Ok(arguments) => AgentPart::Call {
                outgoing: tool.outgoing.clone(),
                arguments,
            },
            Err(reason) => AgentPart::Tell(format!("{name}: {reason}")),
        }
    }

    /// The tools, as the model is told of them.
    fn tools_json(&self) -> Vec<Value> {
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

#[cfg(test)]
mod tests;
