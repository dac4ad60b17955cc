//! What a run can do, one file for each kind of action.
//!
//! [`KINDS`] is the registry: the parser, the policy's words, the documentation and the tests come
//! from it. To add a kind, write its file and add its line.

mod ai_condition;
mod condition;
mod http_request;
mod outgoing;

use std::{collections::HashSet, fmt, sync::Arc};

use letterbox_common::text_enum;
use serde_json::{Map, Value};

use crate::{
    diagnostics::Diagnostics,
    taint::Steering,
    template::{Condition, Variables},
};

pub(crate) use self::http_request::METHODS;
pub use self::{
    http_request::RESERVED_HEADERS,
    outgoing::{Conclusion, Outgoing, Request},
};

const MAX_ACTIONS: usize = 100;
const MAX_DEPTH: usize = 10;
const MAX_ID: usize = 100;
const MAX_ACCOUNT: usize = 100;

/// Every kind of action.
pub static KINDS: [ActionKind; 3] = [http_request::KIND, condition::KIND, ai_condition::KIND];

/// A kind of action.
pub struct ActionKind {
    /// As definitions, policies and records name it.
    pub name: &'static str,
    /// What it is called when untrusted text steers a run through it; for kinds that choose a
    /// branch.
    pub steering: Option<Steering>,
    /// Members of a definition, beside those that every action has.
    members: &'static [&'static str],
    parse: Parse,
}

/// How an action of a kind is parsed, and so what it can do.
enum Parse {
    Choose(ParseMembers<Condition>),
    Send(ParseMembers<Option<Arc<dyn Outgoing>>>),
}

/// Parses the members of one action, whose path is given; what is wrong goes to the diagnostics.
type ParseMembers<T> = fn(&mut Diagnostics, &Map<String, Value>, &str) -> T;

impl ActionKind {
    /// Whether its actions send a request, and so pass the policy.
    #[must_use]
    pub fn sends(&self) -> bool {
        matches!(self.parse, Parse::Send(_))
    }
}

impl fmt::Debug for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The kinds of action that send something: those that a policy decides about.
pub(crate) fn sending_kinds() -> Vec<&'static str> {
    KINDS
        .iter()
        .filter(|kind| kind.sends())
        .map(|kind| kind.name)
        .collect()
}

/// One action of a release.
#[derive(Debug, Clone)]
pub struct Action {
    /// Unique in its release.
    pub id: String,
    /// One of [`KINDS`].
    pub kind: &'static ActionKind,
    /// What it does when a run comes to it.
    pub step: Step,
    /// What follows, by the branch that is chosen. Empty for kinds that choose nothing.
    pub branches: Branches,
}

/// What an action does.
#[derive(Debug, Clone)]
pub enum Step {
    /// Chooses a branch by the run's own values. Sends nothing.
    Choose(Condition),
    /// Sends a request; its answer may choose a branch.
    Send(Arc<dyn Outgoing>),
}

text_enum! {
    /// The way that a run goes after a condition.
    pub enum Branch {
        /// The condition holds
        Then = "then",
        /// It does not
        Else = "else",
    }
}

impl From<bool> for Branch {
    fn from(holds: bool) -> Self {
        if holds { Self::Then } else { Self::Else }
    }
}

/// The actions that follow a condition.
#[derive(Debug, Clone, Default)]
pub struct Branches {
    then: Vec<Action>,
    otherwise: Vec<Action>,
}

impl Branches {
    /// The actions of one branch.
    #[must_use]
    pub fn of(&self, branch: Branch) -> &[Action] {
        match branch {
            Branch::Then => &self.then,
            Branch::Else => &self.otherwise,
        }
    }
}

impl Action {
    /// The account that it calls; none for actions that send nothing.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        match &self.step {
            Step::Choose(_) => None,
            Step::Send(outgoing) => Some(outgoing.account()),
        }
    }

    /// Whether text that a submitter wrote gets into it.
    #[must_use]
    pub fn references_form(&self) -> bool {
        match &self.step {
            Step::Choose(condition) => condition.references_form(),
            Step::Send(outgoing) => outgoing.references_form(),
        }
    }
}

/// The names of all accounts that actions use, at any depth, each once.
#[must_use]
pub fn account_names(actions: &[Action]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for action in actions {
        names.extend(action.account());
        for branch in Branch::ALL {
            names.extend(account_names(action.branches.of(*branch)));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Parses `actions`, a list.
pub(crate) fn parse(diagnostics: &mut Diagnostics, value: Option<&Value>) -> Vec<Action> {
    let mut parser = Parser {
        diagnostics,
        ids: HashSet::new(),
    };
    let actions = parser.list(value, "actions", 1);
    if parser.ids.len() > MAX_ACTIONS {
        diagnostics.add(
            "actions",
            format_args!("must be at most {MAX_ACTIONS} actions"),
        );
    }
    actions
}

/// Checks the templates and conditions of parsed actions, which needs the form.
pub(crate) fn check(diagnostics: &mut Diagnostics, actions: &[Action], variables: &Variables) {
    check_list(diagnostics, actions, "actions", variables);
}

fn check_list(
    diagnostics: &mut Diagnostics,
    actions: &[Action],
    path: &str,
    variables: &Variables,
) {
    for (index, action) in actions.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match &action.step {
            Step::Choose(condition) => {
                condition.check(diagnostics, &format!("{path}.if"), variables);
            }
            Step::Send(outgoing) => outgoing.check(diagnostics, &path, variables),
        }
        for branch in Branch::ALL {
            let path = format!("{path}.{branch}");
            check_list(diagnostics, action.branches.of(*branch), &path, variables);
        }
    }
}

struct Parser<'d> {
    diagnostics: &'d mut Diagnostics,
    ids: HashSet<String>,
}

impl Parser<'_> {
    fn list(&mut self, value: Option<&Value>, path: &str, depth: usize) -> Vec<Action> {
        let Some(values) = value.and_then(Value::as_array) else {
            self.diagnostics.add(path, "must be a list");
            return Vec::new();
        };
        if depth > MAX_DEPTH {
            self.diagnostics.add_too_deep(path, MAX_DEPTH);
            return Vec::new();
        }
        let values = values.iter().enumerate();
        values
            .filter_map(|(index, value)| self.action(value, &format!("{path}[{index}]"), depth))
            .collect()
    }

    fn action(&mut self, value: &Value, path: &str, depth: usize) -> Option<Action> {
        let members = self.diagnostics.object(value, path)?;
        let id = self.diagnostics.text(members, path, "id", MAX_ID);
        for name in ["id", "account"] {
            let text = members.get(name).and_then(Value::as_str);
            if text.is_some_and(|text| text.contains(char::is_control)) {
                let path = format!("{path}.{name}");
                self.diagnostics
                    .add(&path, "must not contain control characters");
            }
        }
        if !id.is_empty() && !self.ids.insert(id.clone()) {
            self.diagnostics
                .add(path, format_args!("another action has the id {id:?}"));
        }
        let given = members.get("type");
        let place = format!("{path}.type");
        let kind = self
            .diagnostics
            .one_of(given, &place, &KINDS, |kind| kind.name)?;

        let common: &[&str] = &["id", "type"];
        let following: &[&str] = if kind.steering.is_some() {
            &["then", "else"]
        } else {
            &[]
        };
        self.diagnostics
            .only(members, path, &[common, kind.members, following].concat());
        let step = match kind.parse {
            Parse::Choose(parse) => Step::Choose(parse(self.diagnostics, members, path)),
            Parse::Send(parse) => Step::Send(parse(self.diagnostics, members, path)?),
        };
        let branches = match kind.steering {
            Some(_) => self.branches(members, path, depth),
            None => Branches::default(),
        };
        Some(Action {
            id,
            kind,
            step,
            branches,
        })
    }

    fn branches(&mut self, members: &Map<String, Value>, path: &str, depth: usize) -> Branches {
        let mut branch = |branch: Branch| match members.get(branch.as_str()) {
            None => Vec::new(),
            given => self.list(given, &format!("{path}.{branch}"), depth + 1),
        };
        Branches {
            then: branch(Branch::Then),
            otherwise: branch(Branch::Else),
        }
    }
}
