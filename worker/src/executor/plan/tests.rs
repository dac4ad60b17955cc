//! The way of a run through its actions.

mod steering;

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
    Release::parse(definition.actions_json(), None).unwrap()
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
        // A submitter could have made the run end before, and so could the model.
        ("fixed", vec![Condition, AiCondition, Outcome]),
        ("unsteered", vec![Condition, AiCondition, Outcome]),
        ("last", vec![Condition, AiCondition, Outcome]),
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
    let done = ActionRecord::done(None);
    let other = ActionRecord::done(Some(Branch::Else));
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
