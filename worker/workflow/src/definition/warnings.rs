//! Warnings about valid but probably unintended parts of a definition.

use letterbox_common::form::{FieldType, Form};

use crate::{
    actions::{Action, MAX_ANSWER, MAX_STORED, Step, all},
    template::{compared_statuses, compares_unasked, dotted},
};

/// Returns one sentence for each comparison of a value that a submission may leave out.
pub(super) fn of_conditions(form: &Form, actions: &[Action]) -> Vec<String> {
    let fields = form.fields.iter();
    let optional = fields.filter(|field| !field.required && field.kind != FieldType::Checkbox);
    let optional: Vec<_> = optional.map(|field| field.key.as_str()).collect();
    let mut warnings = Vec::new();
    for action in all(actions) {
        let Step::Choose(condition) = &action.step else {
            continue;
        };
        for key in optional
            .iter()
            .filter(|key| compares_unasked(&condition.source, key))
        {
            let value = dotted("form", key);
            warnings.push(format!(
                "the condition {:?} compares {value}, which a submission may leave out: begin it \
                 with '{value} is defined and'",
                action.id
            ));
        }
    }
    warnings
}

/// Returns one sentence for each comparison with a status that ends the run before it is made.
pub(super) fn of_statuses(actions: &[Action]) -> Vec<String> {
    let all = all(actions);
    let outgoing = |id: &str| {
        let action = all.iter().find(|action| action.id == id)?;
        match &action.step {
            Step::Send(outgoing) => Some(outgoing),
            _ => None,
        }
    };
    let mut warnings = Vec::new();
    for action in &all {
        let Step::Choose(condition) = &action.step else {
            continue;
        };
        for (id, status) in compared_statuses(&condition.source) {
            let is_answer = |status| outgoing(&id).is_none_or(|one| one.is_answer(status));
            if u16::try_from(status).is_ok_and(is_answer) {
                continue;
            }
            warnings.push(format!(
                "the condition {:?} compares the status of {id:?} with {status}, which it never \
                 has there: a status other than 2xx fails the action, unless its member 'expect' \
                 names it",
                action.id
            ));
        }
    }
    warnings
}

/// The most that a request may have.
const MAX_REQUEST: usize = 1 << 20;

/// Warns if runs could store more than a run may. An estimate: each insertion as large as it can
/// be, each action at its bound if there are loops.
pub(super) fn of_size<'t>(
    actions: &[Action],
    texts: impl Iterator<Item = &'t String> + Clone,
) -> Option<String> {
    let requests = most(actions, |requests, _| requests);
    let answers = most(actions, |requests, answer| requests * answer);
    // What one insertion may bring: the most that a submission or an answer has.
    let longest = all(actions).into_iter().map(|one| sent(one).1).max();
    let longest = longest.unwrap_or_default().max(MAX_ANSWER);
    let has_loops = texts.clone().any(|text| text.contains("{%"));
    let inserted = texts.map(|text| text.len() + text.matches("{{").count() * longest);
    let at_most = requests * MAX_REQUEST;
    let stored = answers
        + match has_loops {
            true => at_most,
            false => at_most.min(inserted.sum()),
        };
    let megabytes = MAX_STORED >> 20;
    (stored > MAX_STORED).then(|| {
        format!(
            "a run could store more than {megabytes} MiB, with which it would fail: it sends up to \
             {requests} requests"
        )
    })
}

/// The most requests that an action may send, and the most bytes that each may be answered.
fn sent(action: &Action) -> (usize, usize) {
    match &action.step {
        Step::Choose(_) | Step::Wait(_) | Step::Fail(_) => (0, 0),
        Step::Send(outgoing) => (1, outgoing.reading().max),
        Step::Delegate(agent) => (agent.max_steps, MAX_ANSWER),
    }
}

/// The most of something that a run may come to, by what each of its actions does.
fn most(actions: &[Action], of: fn(usize, usize) -> usize) -> usize {
    let branches = |action: &Action| {
        let branches = action.branches.0.iter();
        branches.map(|branch| most(branch, of)).max().unwrap_or(0)
    };
    let own = |action: &Action| {
        let (requests, answer) = sent(action);
        of(requests, answer)
    };
    actions.iter().map(|one| own(one) + branches(one)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_compared_can_come() {
        let release = |expect: &str, condition: &str| {
            let actions = format!(
                r#"[{{"id":"find","type":"http.request","account":"a","method":"GET","path":"/"
                    {expect}}},{{"id":"if","type":"condition","if":"{condition}"}}]"#
            );
            crate::release::Release::parse(&actions, None).unwrap()
        };
        let warnings =
            |expect: &str, condition: &str| of_statuses(&release(expect, condition).actions).len();
        let expect = r#","expect":[404]"#;
        assert_eq!(warnings("", "actions.find.status == 404"), 1);
        assert_eq!(warnings("", "404 == actions['find'].status or form.a"), 1);
        assert_eq!(warnings(expect, "actions.find.status == 404"), 0);
        assert_eq!(warnings(expect, "actions.find.status == 410"), 1);
        assert_eq!(warnings("", "actions.find.status == 201"), 0);
        assert_eq!(warnings("", "actions.find.body.status == 404"), 0);
    }

    #[test]
    fn what_is_compared_is_asked_for() {
        for trap in [
            "form.seats > 10",
            "10<form.seats",
            "form.seats == 10 or form.seatsx is defined",
            "not (form.seats >= 1)",
            "form['seats'] > 1",
            "form[\"seats\"] > 1",
        ] {
            assert!(compares_unasked(trap, "seats"), "{trap}");
        }
        for fine in [
            "form.seats is defined and form.seats > 10",
            "form.seats and form.seats > 10",
            "form.seats | default(0) > 10",
            "form.seatsx > 10",
            "xform.seats > 10",
            "form.seats is defined",
        ] {
            assert!(!compares_unasked(fine, "seats"), "{fine}");
        }
    }
}
