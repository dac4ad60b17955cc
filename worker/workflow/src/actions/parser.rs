//! Parses lists of actions; adds problems to the diagnostics.

use std::collections::HashSet;

use serde_json::Value;

use super::{Action, Branch, Branches, KINDS, LISTS, Step, all};
use crate::{diagnostics::Diagnostics, template::References};

const MAX_ACTIONS: usize = 100;
const MAX_DEPTH: usize = 10;
const MAX_ID: usize = 100;

/// Parses the lists of actions of one release, of which the second one may be missing. Ids are
/// unique over both.
pub(crate) fn parse(
    diagnostics: &mut Diagnostics,
    [actions, on_failure]: [Option<&Value>; 2],
) -> [Vec<Action>; 2] {
    let mut parser = Parser {
        diagnostics,
        ids: HashSet::new(),
    };
    let actions = parser.list(actions, LISTS[0], 1);
    let parsed = [actions, parser.optional_list(on_failure, LISTS[1], 1)];
    parser.check_ids(&parsed);
    if parser.ids.len() > MAX_ACTIONS {
        let problem = format_args!("must have at most {MAX_ACTIONS} actions");
        diagnostics.add(LISTS[0], problem);
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
        let mut all = lists.iter().flat_map(|list| all(list));
        let has_agent = all.any(|action| matches!(action.step, Step::Delegate(_)));
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

    fn optional_list(&mut self, given: Option<&Value>, path: &str, depth: usize) -> Vec<Action> {
        given.map_or_else(Vec::new, |_| self.list(given, path, depth))
    }

    fn action(&mut self, value: &Value, list: &str, index: usize, depth: usize) -> Option<Action> {
        let mut fields = self.diagnostics.fields(value, format!("{list}[{index}]"))?;
        let id = fields.text("id", MAX_ID);
        for name in ["id", "account"] {
            let text = fields.members.get(name).and_then(Value::as_str);
            if text.is_some_and(|text| text.contains(char::is_control)) {
                fields.add(name, "must not contain control characters");
            }
        }
        if !id.is_empty() && !self.ids.insert(id.clone()) {
            let problem = format_args!("another action has the id {id:?}");
            fields.diagnostics.add(&fields.path, problem);
        }
        let kind = fields.one_of("type", &KINDS, |kind| kind.name)?;
        let step = (kind.parse)(&mut fields);
        let branches = [Branch::Then, Branch::Else].map(|branch| {
            let given = kind.steering.and_then(|_| fields.get(branch.as_str()));
            (given, fields.place(branch.as_str()))
        });
        fields.refuse_others();
        let step = step?;
        let references = match &step {
            Step::Choose(condition) => condition.references.clone(),
            Step::Send(outgoing) => outgoing.references(),
            Step::Delegate(agent) => agent.references(),
            Step::Wait(_) | Step::Fail(_) => References::default(),
        };
        let branches = branches.map(|(given, path)| self.optional_list(given, &path, depth + 1));
        Some(Action {
            branches: Branches(branches),
            id,
            kind,
            step,
            references,
            index,
        })
    }
}
