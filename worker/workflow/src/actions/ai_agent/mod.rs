//! `ai.agent`: a model works towards a goal with the tools of the definition, one call at a time.
//!
//! An agent is a sequence of parts, each recorded as an action of its own: a question to the model,
//! the calls that it answers with, the next question. The next part depends only on the finished
//! ones, so a worker that takes over the run continues where it was. The model only chooses a tool
//! and its arguments; the request is rendered by the tool's templates, goes to the tool's account,
//! and is subject to the policy.

mod definition;
mod parameters;
mod question;
mod transcript;

use std::sync::Arc;

pub use self::{definition::Agent, parameters::Arguments, transcript::PartOutcome};
use self::{
    definition::parse,
    question::Question,
    transcript::{ToolCall, Transcript},
};
use super::{ActionKind, outgoing::Outgoing};

/// Denied calls of one tool after which its further calls are denied, too.
const MAX_DENIED: usize = 3;

pub(super) const KIND: ActionKind = ActionKind {
    name: "ai.agent",
    steering: None,
    sends: true,
    parse,
};

/// The next part of an agent.
#[derive(Debug)]
pub enum AgentPart {
    /// Ask the model.
    Ask(Arc<dyn Outgoing>),
    /// Call a tool.
    Call {
        /// The request, with templates that use the arguments.
        outgoing: Arc<dyn Outgoing>,
        /// The arguments from the model.
        arguments: Arguments,
    },
    /// Send nothing and tell the model that its call is invalid, for this reason.
    Tell(String),
    /// The agent is done; this is the model's last message.
    Done(String),
    /// The agent has failed, for this reason.
    Fail(String),
}

impl Agent {
    /// Returns the next part, after the finished parts in their order.
    pub fn next(self: &Arc<Self>, over: &[PartOutcome<'_>]) -> AgentPart {
        let mut transcript = Transcript::default();
        let mut outcomes = over.iter();
        let mut denied: Vec<ToolCall> = Vec::new();
        // Replays the record: each answer of the model is followed by the results of its calls.
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
                    if matches!(outcome, PartOutcome::Denied(_)) {
                        denied.push(call.clone());
                    }
                    false
                }
                None => true,
            });
            if let Some(call) = open {
                break match stays_denied(&call, &denied) {
                    true => AgentPart::Tell(format!("{}: it was denied before", call.name)),
                    false => self.call(&call.name, &call.arguments),
                };
            }
        };
        match next {
            AgentPart::Fail(reason) => AgentPart::Fail(reason),
            _ if over.len() >= self.max_steps => {
                let steps = self.max_steps;
                AgentPart::Fail(format!("it is not done after its maximum of {steps} steps"))
            }
            next => next,
        }
    }

    fn ask(self: &Arc<Self>, transcript: Transcript) -> AgentPart {
        let tokens = self.max_tokens;
        if transcript.tokens >= tokens {
            return AgentPart::Fail(format!("it has used its maximum of {tokens} tokens"));
        }
        match Question::new(self.clone(), transcript) {
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
}

/// Whether a call needs not be decided about any more: the same was denied, or many calls of the
/// same tool. Otherwise a model could ask people again as often as it may take steps.
fn stays_denied(call: &ToolCall, denied: &[ToolCall]) -> bool {
    let mut of_tool = denied.iter().filter(|other| other.name == call.name);
    of_tool
        .clone()
        .any(|other| other.arguments == call.arguments)
        || of_tool.nth(MAX_DENIED - 1).is_some()
}

#[cfg(test)]
mod tests;
