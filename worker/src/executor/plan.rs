//! Where a run is: which of its actions comes next, and what untrusted text steered it there. Pure:
//! it depends on the release and the records only.

use std::collections::HashMap;

use letterbox_common::states::ActionState;
use letterbox_workflow::{Steered, Taint, actions::Action};

use super::store::{ActionRecord, ActionUpdate};

/// The next action of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next<'a> {
    pub(super) action: &'a Action,
    pub(super) taint: Taint,
}

impl<'a> Next<'a> {
    /// An update that moves the action into this state and says nothing else of it.
    pub(super) fn update<'u>(&self, state: ActionState) -> ActionUpdate<'u>
    where
        'a: 'u,
    {
        ActionUpdate {
            action: self.action,
            taint: self.taint,
            state,
            decided: None,
            begins_attempt: false,
            ended: None,
            branch: None,
            status: None,
            error: None,
        }
    }
}

/// The first action, in order, that is not done, through the branches that conditions have chosen.
/// None when all are done.
pub(super) fn next<'a>(
    actions: &'a [Action],
    records: &HashMap<String, ActionRecord>,
) -> Option<Next<'a>> {
    descend(actions, records, Steered::NONE, &mut false)
}

/// `outcome`: an action has succeeded that untrusted text could have made fail, and with it all
/// that comes later.
fn descend<'a>(
    actions: &'a [Action],
    records: &HashMap<String, ActionRecord>,
    steered: Steered,
    outcome: &mut bool,
) -> Option<Next<'a>> {
    for action in actions {
        let taint = action.taint(steered, *outcome);
        let Some(record) = records.get(&action.id).filter(|record| record.is_done) else {
            return Some(Next { action, taint });
        };
        if let Some(branch) = record.branch {
            let steered = action.steers(steered);
            let next = descend(action.branches.of(branch), records, steered, outcome);
            if next.is_some() {
                return next;
            }
        }
        *outcome |= taint.is_any();
    }
    None
}

#[cfg(test)]
mod tests {
    use letterbox_workflow::{
        Definition,
        Steering::{AiCondition, Condition, Outcome},
        actions::Branch,
    };
    use serde_json::json;

    use super::*;

    fn definition() -> Definition {
        let request = |id: &str| {
            json!({"id": id, "type": "http.request", "account": "a",
            "method": "POST", "path": "/"})
        };
        let inner = json!({"id": "many", "type": "condition", "if": "form.seats > 10",
                           "then": [request("deep")], "else": []});
        let ai = json!({"id": "ai", "type": "ai.condition", "account": "a", "model": "m",
                        "question": "?", "input": "{{ form.seats }}",
                        "then": [inner], "else": [request("other")]});
        let fixed = json!({"id": "fixed", "type": "condition", "if": "1 > 0",
                           "then": [request("unsteered")]});
        let seats = json!({"key": "seats", "label": "L", "type": "number", "required": true});
        let definition = json!({
            "form": {"title": "T", "fields": [seats]},
            "actions": [request("first"), ai, fixed, request("last")],
        });
        Definition::check(&definition.to_string()).unwrap()
    }

    #[test]
    fn a_run_goes_through_the_branches_it_has_chosen() {
        let definition = definition();
        let mut records = HashMap::new();
        let mut walked = Vec::new();
        while let Some(next) = next(&definition.actions, &records) {
            walked.push((next.action.id.clone(), next.taint.steered.kinds()));
            let record = ActionRecord::done(Some(Branch::Then));
            records.insert(next.action.id.clone(), record);
        }
        let expected = [
            ("first", vec![]),
            ("ai", vec![]),
            ("many", vec![AiCondition]),
            ("deep", vec![Condition, AiCondition]),
            // A submitter could have made the run end before.
            ("fixed", vec![Outcome]),
            ("unsteered", vec![Outcome]),
            ("last", vec![Outcome]),
        ];
        assert_eq!(
            walked,
            expected.map(|(id, steered)| (id.to_owned(), steered))
        );
    }

    #[test]
    fn the_first_action_that_is_not_done_is_next() {
        let actions = definition().actions;
        let id_after = |done: &[(&str, ActionRecord)]| {
            let done = done
                .iter()
                .map(|(id, record)| ((*id).to_owned(), record.clone()));
            next(&actions, &done.collect()).map(|next| next.action.id.clone())
        };
        let (done, other) = (
            ActionRecord::done(None),
            ActionRecord::done(Some(Branch::Else)),
        );
        assert_eq!(
            id_after(&[("first", done), ("ai", other)]).as_deref(),
            Some("other")
        );
        let begun = [("first", ActionRecord::default())];
        assert_eq!(
            id_after(&begun).as_deref(),
            Some("first"),
            "begun is not done"
        );
    }
}
