//! The actions of a run, one file for each kind.
//!
//! [`KINDS`] is the registry: the parser, the words of policies, the documentation and the tests
//! are derived from it. To add a kind, write its file and add its line.

mod ai_agent;
mod ai_condition;
mod chat;
mod condition;
mod delay;
mod email_send;
mod fail;
mod http_request;
mod outgoing;
mod parser;
mod reading;
mod trial;

use std::{sync::Arc, time::Duration};

use letterbox_common::{form::Form, text_enum};
use serde_json::Value;

use crate::{
    diagnostics::{Diagnostics, Fields},
    taint::Steering,
    template::{Condition, References, Variables},
};

pub use self::{
    ai_agent::{Agent, AgentPart, Arguments, PartOutcome},
    http_request::RESERVED_HEADERS,
    outgoing::{BodyType, Conclusion, MAX_TIMEOUT, Outgoing, Request, TIMEOUT},
    reading::Reading,
    trial::Trial,
};
pub(crate) use self::{http_request::METHODS, parser::parse};
pub use crate::json::MAX_ANSWER;

const MAX_ACCOUNT: usize = 100;

/// Every kind of action.
pub static KINDS: [ActionKind; 7] = [
    http_request::KIND,
    email_send::KIND,
    condition::KIND,
    ai_condition::KIND,
    ai_agent::KIND,
    delay::KIND,
    fail::KIND,
];

/// The kind of an agent's tool calls.
pub static TOOL_CALL: &ActionKind = &http_request::KIND;
/// The kind that sends e-mail.
pub(crate) static EMAIL: &ActionKind = &email_send::KIND;
/// The kind of an agent's questions to its model.
pub static AGENT: &ActionKind = &ai_agent::KIND;

/// A kind of action.
#[derive(Debug)]
pub struct ActionKind {
    /// Its name in definitions, policies and records.
    pub name: &'static str,
    /// The steering of untrusted text through it; `None` for kinds that choose no branch.
    pub steering: Option<Steering>,
    /// Whether its actions send a request, about which the policy decides, and whose answer later
    /// actions can use.
    pub sends: bool,
    /// Parses an action's own members; adds problems to the diagnostics. Reads all of them,
    /// whatever is wrong with one: what it doesn't read is refused.
    parse: fn(&mut Fields<'_, '_>) -> Option<Step>,
}

impl ActionKind {
    /// Whether a model answers it.
    pub(crate) fn asks_a_model(&self) -> bool {
        [ai_condition::KIND.name, ai_agent::KIND.name].contains(&self.name)
    }
}

/// The names of the kinds that send a request.
pub(crate) fn sending_kinds() -> Vec<&'static str> {
    let sending = KINDS.iter().filter(|kind| kind.sends);
    sending.map(|kind| kind.name).collect()
}

/// One action of a release.
#[derive(Debug, Clone)]
pub struct Action {
    /// Unique in its release.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: &'static ActionKind,
    /// The step that a run takes.
    pub step: Step,
    /// The actions of each branch. Empty for kinds that choose no branch.
    pub branches: Branches,
    /// The values that it uses.
    pub references: References,
    /// Its place in its list, from 0.
    pub index: usize,
}

/// Maximum bytes that the requests and answers of one run may take where they are stored.
pub const MAX_STORED: usize = 16 << 20;

/// The step that a run takes at an action.
#[derive(Debug, Clone)]
pub enum Step {
    /// Chooses a branch by the values of the run. Sends nothing.
    Choose(Condition),
    /// Sends a request; its answer may choose a branch.
    Send(Arc<dyn Outgoing>),
    /// Lets a model decide which requests are sent.
    Delegate(Arc<Agent>),
    /// Waits.
    Wait(Duration),
    /// Fails the run, for this reason.
    Fail(String),
}

text_enum! {
    /// The branch that a run takes after a condition.
    pub enum Branch {
        /// The condition holds
        Then = "then",
        /// The condition does not hold
        Else = "else",
    }
}

impl From<bool> for Branch {
    fn from(holds: bool) -> Self {
        if holds { Self::Then } else { Self::Else }
    }
}

/// The actions that follow a condition, by branch.
#[derive(Debug, Clone, Default)]
pub struct Branches(pub(crate) [Vec<Action>; 2]);

impl Branches {
    /// Whether any branch has actions.
    pub(crate) fn has_any(&self) -> bool {
        self.0.iter().any(|actions| !actions.is_empty())
    }

    /// The actions of one branch.
    pub fn of(&self, branch: Branch) -> &[Action] {
        &self.0[branch as usize]
    }
}

impl Action {
    /// The account that it calls first; `None` for actions that send nothing.
    pub fn account(&self) -> Option<&str> {
        match &self.step {
            Step::Choose(_) | Step::Wait(_) | Step::Fail(_) => None,
            Step::Send(outgoing) => Some(outgoing.account()),
            Step::Delegate(agent) => Some(agent.account()),
        }
    }
}

/// Returns actions at any depth, each before those of its branches.
pub(crate) fn all(actions: &[Action]) -> Vec<&Action> {
    let mut found = Vec::new();
    for action in actions {
        found.push(action);
        found.extend(action.branches.0.iter().flat_map(|branch| all(branch)));
    }
    found
}

/// Returns the names of all accounts that actions use, at any depth, without duplicates, and
/// whether they are called as mail servers.
pub fn accounts_called(actions: &[Action]) -> Vec<(&str, bool)> {
    let mut called: Vec<(&str, bool)> = Vec::new();
    for action in all(actions) {
        let is_mail = matches!(&action.step, Step::Send(outgoing) if outgoing.is_mail());
        called.extend(action.account().map(|name| (name, is_mail)));
        if let Step::Delegate(agent) = &action.step {
            called.extend(agent.tools().map(|tool| (tool.account(), false)));
        }
    }
    called.sort_unstable();
    called.dedup();
    called
}

/// The members of a definition that are lists of actions.
pub(crate) const LISTS: [&str; 2] = ["actions", "on_failure"];

/// Parses and checks the two lists of a release for its form: the actions, and those that follow a
/// failure.
pub(crate) fn parse_and_check(
    diagnostics: &mut Diagnostics,
    form: &Form,
    lists: [Option<&Value>; 2],
) -> [Vec<Action>; 2] {
    let parsed = parse(diagnostics, lists);
    let mut variables = Variables::of(form);
    check(diagnostics, &parsed[0], LISTS[0], &mut variables);
    let mut variables = variables.after_failure();
    check(diagnostics, &parsed[1], LISTS[1], &mut variables);
    parsed
}

/// Checks the templates and conditions of parsed actions. Each action adds its answer to the
/// variables of the following ones.
fn check(diagnostics: &mut Diagnostics, actions: &[Action], path: &str, variables: &mut Variables) {
    for action in actions {
        let path = format!("{path}[{}]", action.index);
        match &action.step {
            Step::Choose(condition) => {
                condition.check(diagnostics, &format!("{path}.if"), variables);
            }
            Step::Send(outgoing) => outgoing.check(diagnostics, &path, variables),
            Step::Delegate(agent) => agent.check(diagnostics, &path, variables),
            Step::Wait(_) | Step::Fail(_) => {}
        }
        if action.kind.sends {
            variables.add_answer(&action.id);
        }
        // A run takes only one branch, so neither can use the answers of the other.
        let before = variables.clone();
        for branch in Branch::ALL {
            let mut inside = before.clone();
            let path = format!("{path}.{branch}");
            check(diagnostics, action.branches.of(*branch), &path, &mut inside);
            variables.add_answers_of(inside);
        }
    }
}
