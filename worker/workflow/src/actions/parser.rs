//! Parses lists of actions; adds problems to the diagnostics.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Action, Branch, Branches, KINDS, Parse, Step};
use crate::{diagnostics::Diagnostics, template::References};

const MAX_ACTIONS: usize = 100;
const MAX_DEPTH: usize = 10;
const MAX_ID: usize = 100;

/// Parses the lists of actions of one release, each with its path. Ids are unique over all lists.
pub(crate) fn parse<const N: usize>(
    diagnostics: &mut Diagnostics,
    lists: [(&str, Option<&Value>); N],
) -> [Vec<Action>; N] {
    let mut parser = Parser {
        diagnostics,
        ids: HashSet::new(),
    };
    let parsed = lists.map(|(path, value)| parser.list(value, path, 1));
    let number = parser.ids.len();
    parser.check_ids(&parsed);
    if number > MAX_ACTIONS {
        diagnostics.add(
            "actions",
            format_args!("must have at most {MAX_ACTIONS} actions"),
        );
    }
    parsed
}

struct Parser<'d> {
    diagnostics: &'d mut Diagnostics,
    ids: HashSet<String>,
}

impl Parser<'_> {
    /// Refuses ids of the form `agent/1` beside an agent, whose parts are recorded under such ids.
    fn check_ids(&mut self, lists: &[Vec<Action>]) {
        let is_part = |id: &str| {
            let part = id.rsplit_once('/');
            part.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
        };
        let has_agent = lists.iter().any(|actions| has_agent(actions));
        let mut parts: Vec<_> = self.ids.iter().filter(|id| is_part(id)).cloned().collect();
        parts.sort_unstable();
        for id in parts.iter().filter(|_| has_agent) {
            let problem = format_args!("the id {id:?} is reserved for a part of an agent");
            self.diagnostics.add("actions", problem);
        }
    }

    fn list(&mut self, value: Option<&Value>, path: &str, depth: usize) -> Vec<Action> {
        let Some(values) = self.diagnostics.list(value, path) else {
            return Vec::new();
        };
        if depth > MAX_DEPTH {
            self.diagnostics.add_too_deep(path, MAX_DEPTH);
            return Vec::new();
        }
        let values = values.iter().enumerate();
        values
            .filter_map(|(index, value)| self.action(value, path, index, depth))
            .collect()
    }

    fn action(&mut self, value: &Value, list: &str, index: usize, depth: usize) -> Option<Action> {
        let path = &format!("{list}[{index}]");
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
            Parse::Delegate(parse) => Step::Delegate(parse(self.diagnostics, members, path)?),
            Parse::Wait(parse) => Step::Wait(parse(self.diagnostics, members, path)),
        };
        let references = match &step {
            Step::Choose(condition) => condition.references().clone(),
            Step::Send(outgoing) => outgoing.references(),
            Step::Delegate(agent) => agent.references(),
            Step::Wait(_) => References::default(),
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
            references,
            index,
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

fn has_agent(actions: &[Action]) -> bool {
    actions.iter().any(|action| {
        let mut branches = Branch::ALL.iter().map(|branch| action.branches.of(*branch));
        matches!(action.step, Step::Delegate(_)) || branches.any(has_agent)
    })
}
