//! What a run can do, one file an action. Checked whole when a definition is deployed; pure:
//! nothing here sends anything.

pub mod ai_condition;
pub mod condition;
pub mod http_request;
mod template;

use std::collections::HashSet;

use serde_json::{Map, Value};
use url::Url;

use self::{
    ai_condition::AiCondition,
    http_request::{HttpRequest, Request},
};
use crate::definition::Mistakes;

pub use self::{
    condition::Branch,
    template::{Input, Names, TemplateError},
};

const MOST_ACTIONS: usize = 100;
const DEEPEST: usize = 10;
const ID: usize = 100;
const ACCOUNT: usize = 100;

/// One action of a release.
#[derive(Debug, Clone)]
pub struct Action {
    /// Unique in its release.
    pub id: String,
    pub kind: Kind,
}

/// What an action does.
#[derive(Debug, Clone)]
pub enum Kind {
    HttpRequest(HttpRequest),
    Condition(template::Condition, Branches),
    AiCondition(AiCondition, Branches),
}

/// What follows a condition.
#[derive(Debug, Clone)]
pub struct Branches {
    then: Vec<Action>,
    otherwise: Vec<Action>,
}

impl Branches {
    #[must_use]
    pub fn of(&self, branch: Branch) -> &[Action] {
        match branch {
            Branch::Then => &self.then,
            Branch::Else => &self.otherwise,
        }
    }
}

impl Kind {
    /// The type, as definitions and policies name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::HttpRequest(_) => "http.request",
            Self::Condition(..) => "condition",
            Self::AiCondition(..) => "ai.condition",
        }
    }

    /// The account that it calls, if it calls one.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        match self {
            Self::HttpRequest(request) => Some(&request.account),
            Self::AiCondition(ai, _) => Some(&ai.account),
            Self::Condition(..) => None,
        }
    }

    /// Whether something that a submitter wrote gets into it.
    #[must_use]
    pub fn reads_form(&self) -> bool {
        match self {
            Self::HttpRequest(request) => request.reads_form(),
            Self::AiCondition(ai, _) => ai.reads_form(),
            Self::Condition(condition, _) => condition.reads_form(),
        }
    }

    /// What it sends for the values of a run, to an account at `base_url`.
    ///
    /// # Errors
    /// When a value can't stand where it would, or it sends nothing.
    pub fn render(&self, base_url: &Url, input: &Input) -> Result<Request, TemplateError> {
        match self {
            Self::HttpRequest(request) => request.render(base_url, input),
            Self::AiCondition(ai, _) => ai.render(base_url, input),
            Self::Condition(..) => Err(TemplateError::new("a condition sends nothing")),
        }
    }

    fn branches(&self) -> Option<&Branches> {
        match self {
            Self::HttpRequest(_) => None,
            Self::Condition(_, branches) | Self::AiCondition(_, branches) => Some(branches),
        }
    }
}

/// Checks `actions`, a list.
pub fn check(mistakes: &mut Mistakes, value: Option<&Value>, names: &Names) -> Vec<Action> {
    let mut checking = Checking {
        names,
        ids: HashSet::new(),
    };
    let actions = checking.list(mistakes, value, "actions", 1);
    if checking.ids.len() > MOST_ACTIONS {
        mistakes.add("actions", format_args!("are more than {MOST_ACTIONS}"));
    }
    actions
}

/// The names of all accounts that actions use, at any depth.
#[must_use]
pub fn accounts(actions: &[Action]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for Action { kind, .. } in actions {
        found.extend(kind.account());
        let branches = kind
            .branches()
            .map(|branches| [&branches.then, &branches.otherwise]);
        found.extend(
            branches
                .into_iter()
                .flatten()
                .flat_map(|list| accounts(list)),
        );
    }
    found.sort_unstable();
    found.dedup();
    found
}

struct Checking<'n> {
    names: &'n Names,
    ids: HashSet<String>,
}

impl Checking<'_> {
    fn list(
        &mut self,
        mistakes: &mut Mistakes,
        value: Option<&Value>,
        path: &str,
        depth: usize,
    ) -> Vec<Action> {
        let Some(values) = value.and_then(Value::as_array) else {
            mistakes.add(path, "has to be a list");
            return Vec::new();
        };
        if depth > DEEPEST {
            mistakes.add(
                path,
                format_args!("is nested more than {DEEPEST} levels deep"),
            );
            return Vec::new();
        }
        let checked = values.iter().enumerate();
        checked
            .filter_map(|(index, value)| {
                self.action(mistakes, value, &format!("{path}[{index}]"), depth)
            })
            .collect()
    }

    fn action(
        &mut self,
        mistakes: &mut Mistakes,
        value: &Value,
        path: &str,
        depth: usize,
    ) -> Option<Action> {
        let members = value.as_object().or_else(|| {
            mistakes.add(path, "has to be an object");
            None
        })?;
        let id = mistakes.text(members, path, "id", ID);
        for name in ["id", "account"] {
            if members
                .get(name)
                .and_then(Value::as_str)
                .is_some_and(|text| text.contains(char::is_control))
            {
                mistakes.add(&format!("{path}.{name}"), "may not hold control characters");
            }
        }
        if !id.is_empty() && !self.ids.insert(id.clone()) {
            mistakes.add(path, format_args!("another action has the id {id:?}"));
        }
        let types = [("http.request", 0), ("condition", 1), ("ai.condition", 2)];
        let kind = match mistakes.one_of(members.get("type"), &format!("{path}.type"), &types)? {
            0 => Kind::HttpRequest(HttpRequest::check(mistakes, value, path, self.names)?),
            1 => {
                let known = ["id", "type", "if", "then", "else"];
                mistakes.object(value, path, &known);
                let source = mistakes.text(members, path, "if", template::LENGTH);
                let condition = template::Condition::check(
                    mistakes,
                    &format!("{path}.if"),
                    &source,
                    self.names,
                );
                Kind::Condition(condition, self.branches(mistakes, members, path, depth))
            }
            _ => {
                let ai = AiCondition::check(mistakes, value, path, self.names)?;
                Kind::AiCondition(ai, self.branches(mistakes, members, path, depth))
            }
        };
        Some(Action { id, kind })
    }

    fn branches(
        &mut self,
        mistakes: &mut Mistakes,
        members: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Branches {
        let mut branch = |name: &str| match members.get(name) {
            None => Vec::new(),
            given => self.list(mistakes, given, &format!("{path}.{name}"), depth + 1),
        };
        Branches {
            then: branch("then"),
            otherwise: branch("else"),
        }
    }
}
