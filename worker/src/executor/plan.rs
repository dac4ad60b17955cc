//! Where a run is: which of its actions comes next, and what untrusted text steered it there. Pure:
//! it depends on the release and the records only.

use letterbox_common::states::ActionState;
use letterbox_workflow::{
    Taint, Trail,
    actions::{Action, Arguments},
    release::Release,
};

use super::store::{ActionRecord, ActionUpdate};

/// The next action of a run.
#[derive(Debug, Clone)]
pub(super) struct Next<'a> {
    pub(super) action: &'a Action,
    pub(super) taint: Taint,
    /// The agent whose question or call it is.
    pub(super) part_of: Option<&'a str>,
    /// What its model has given to a tool.
    pub(super) arguments: Option<Arguments>,
}

impl<'a> Next<'a> {
    /// An update that moves the action into this state and says nothing else of it.
    pub(super) fn update<'u>(&self, state: ActionState) -> ActionUpdate<'u>
    where
        'a: 'u,
    {
        ActionUpdate {
            action: self.action,
            part_of: self.part_of,
            taint: self.taint,
            state,
            decided: None,
            begins: None,
            was_asked: false,
            ended: None,
            branch: None,
            status: None,
            error: None,
            answer: None,
            is_told: false,
        }
    }

    /// Whether its failure is for its agent to deal with, and not the run's.
    pub(super) fn is_tool_call(&self) -> bool {
        self.arguments.is_some()
    }
}

/// The first action, in order, that is not done, through the branches that conditions have chosen.
/// None when all are done. Of a run that is `failing`: of the actions that follow a failure.
pub(super) fn next<'a, 'r>(
    release: &'a Release,
    record_of: &dyn Fn(&str) -> Option<&'r ActionRecord>,
    failing: bool,
) -> Option<Next<'a>> {
    let mut trail = Trail::default();
    let next = descend(&release.actions, record_of, &mut trail);
    match failing {
        false => next,
        true => descend(&release.on_failure, record_of, &mut trail.after_failure()),
    }
}

fn descend<'a, 'r>(
    actions: &'a [Action],
    record_of: &dyn Fn(&str) -> Option<&'r ActionRecord>,
    trail: &mut Trail<'a>,
) -> Option<Next<'a>> {
    for action in actions {
        let Some(record) = record_of(&action.id).filter(|record| record.is_done) else {
            let taint = trail.taint(action);
            // What follows a failure may use what it was answered.
            trail.note_answer(action);
            return Some(Next {
                action,
                taint,
                part_of: None,
                arguments: None,
            });
        };
        if let Some(branch) = record.branch {
            let mut below = trail.below(action);
            let next = descend(action.branches.of(branch), record_of, &mut below);
            trail.join(below);
            if next.is_some() {
                return next;
            }
        }
        trail.pass(action);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use letterbox_workflow::{
        Definition,
        Steering::{AiCondition, Condition, Outcome},
        actions::Branch,
    };
    use serde_json::json;

    use super::*;

    fn release() -> Release {
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
        let definition = Definition::check(&definition.to_string()).unwrap();
        Release::load(definition.actions_json(), None).unwrap()
    }

    #[test]
    fn a_run_goes_through_the_branches_it_has_chosen() {
        let release = release();
        let mut records = HashMap::new();
        let mut walked = Vec::new();
        while let Some(next) = next(&release, &|id| records.get(id), false) {
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
        let release = release();
        let id_after = |done: &[(&str, ActionRecord)]| {
            let done = done
                .iter()
                .map(|(id, record)| ((*id).to_owned(), record.clone()));
            let done: HashMap<_, _> = done.collect();
            next(&release, &|id| done.get(id), false).map(|next| next.action.id.clone())
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
