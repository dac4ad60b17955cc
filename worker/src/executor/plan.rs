//! Where a run stands: which of its actions comes next, and what untrusted text steered it there.
//! Pure: of the release and the record, nothing else.

use std::collections::HashMap;

use super::store::Record;
use crate::{
    actions::{Action, Kind},
    policy::Steering,
};

/// The next action of a run.
#[derive(Debug, Clone, Copy)]
pub struct Next<'a> {
    pub action: &'a Action,
    pub control: Option<Steering>,
}

/// The first action, in order, that is not done; through the branches that conditions have chosen.
/// None when all are done.
#[must_use]
pub fn next<'a>(actions: &'a [Action], records: &HashMap<String, Record>) -> Option<Next<'a>> {
    below(actions, records, None)
}

fn below<'a>(
    actions: &'a [Action],
    records: &HashMap<String, Record>,
    control: Option<Steering>,
) -> Option<Next<'a>> {
    for action in actions {
        let Some(record) = records.get(&action.id).filter(|record| record.is_done) else {
            return Some(Next { action, control });
        };
        let (branches, steering) = match &action.kind {
            Kind::HttpRequest(_) => continue,
            Kind::Condition(condition, branches) => (
                branches,
                condition.reads_form().then_some(Steering::Condition),
            ),
            Kind::AiCondition(ai, branches) => {
                (branches, ai.reads_form().then_some(Steering::AiCondition))
            }
        };
        // The stronger one stays: what a model decided is not made harmless by a plain condition
        // below it.
        let chosen = record
            .branch
            .map(|branch| branches.of(branch))
            .unwrap_or_default();
        if let Some(next) = below(chosen, records, control.max(steering)) {
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{actions::Branch, definition::Definition};

    fn definition() -> Definition {
        let request = |id: &str| serde_json::json!({"id": id, "type": "http.request", "account": "a", "method": "POST", "path": "/"});
        let text = serde_json::json!({
            "form": {"title": "T", "fields": [{"key": "seats", "label": "L", "type": "number", "required": true}]},
            "actions": [
                request("first"),
                {"id": "ai", "type": "ai.condition", "account": "a", "model": "m", "question": "?", "input": "{{ form.seats }}",
                 "then": [{"id": "many", "type": "condition", "if": "form.seats > 10", "then": [request("deep")], "else": []}],
                 "else": [request("other")]},
                {"id": "fixed", "type": "condition", "if": "1 > 0", "then": [request("unsteered")]},
                request("last"),
            ],
        });
        Definition::check(&text.to_string()).unwrap()
    }

    #[test]
    fn a_run_goes_through_the_branches_it_has_chosen() {
        let definition = definition();
        let mut records = HashMap::new();
        let mut walked = Vec::new();
        while let Some(next) = next(&definition.actions, &records) {
            walked.push((next.action.id.clone(), next.control.map(Steering::as_str)));
            let record = Record {
                is_done: true,
                branch: Some(Branch::Then),
                ..Record::default()
            };
            records.insert(next.action.id.clone(), record);
        }
        let expected = [
            ("first", None),
            ("ai", None),
            ("many", Some("ai.condition")),
            ("deep", Some("ai.condition")),
            ("fixed", None),
            ("unsteered", None),
            ("last", None),
        ];
        assert_eq!(
            walked,
            expected.map(|(id, control)| (id.to_owned(), control))
        );

        let done = |branch| Record {
            is_done: true,
            branch,
            ..Record::default()
        };
        let records = HashMap::from([
            ("first".to_owned(), done(None)),
            ("ai".to_owned(), done(Some(Branch::Else))),
        ]);
        assert_eq!(
            next(&definition.actions, &records).unwrap().action.id,
            "other"
        );
        let begun = HashMap::from([("first".to_owned(), Record::default())]);
        assert_eq!(
            next(&definition.actions, &begun).unwrap().action.id,
            "first",
            "begun is not done"
        );
    }
}
