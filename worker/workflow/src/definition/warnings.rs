//! Warnings about valid but probably unintended parts of a definition.

use letterbox_common::form::{FieldType, Form};

use crate::actions::{Action, Branch, MAX_STORED, Step};

const COMPARISONS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

/// Returns one sentence for each comparison of a value that a submission may leave out.
pub(super) fn of_conditions(form: &Form, actions: &[Action]) -> Vec<String> {
    let optional: Vec<_> = form
        .fields
        .iter()
        .filter(|field| !field.required && field.kind != FieldType::Checkbox)
        .map(|field| field.key.as_str())
        .collect();
    let mut warnings = Vec::new();
    walk(actions, &optional, &mut warnings);
    warnings
}

/// What one insertion into a request may bring: the most that a submission or an answer has.
const MAX_INSERTED: usize = 64 << 10;
/// What one action may store: its request, and its answer.
const MAX_OF_ACTION: usize = (1 << 20) + (64 << 10);

/// Warns if runs could store more than a run may. An estimate: each insertion as large as it can
/// be, each action at its bound if there are loops.
pub(super) fn of_size<'t>(
    actions: &[Action],
    texts: impl Iterator<Item = &'t String> + Clone,
) -> Option<String> {
    let requests = requests(actions);
    let has_loops = texts.clone().any(|text| text.contains("{%"));
    let inserted = texts.map(|text| text.len() + text.matches("{{").count() * MAX_INSERTED);
    let at_most = requests * MAX_OF_ACTION;
    let stored = match has_loops {
        true => at_most,
        false => at_most.min(inserted.sum::<usize>() + requests * MAX_INSERTED),
    };
    let megabytes = MAX_STORED >> 20;
    (stored > MAX_STORED).then(|| {
        format!(
            "a run could store more than {megabytes} MiB, with which it would fail: it sends up to \
             {requests} requests"
        )
    })
}

/// The most requests that a run may send.
fn requests(actions: &[Action]) -> usize {
    let of = |action: &Action| match &action.step {
        Step::Choose(_) | Step::Wait(_) => 0,
        Step::Send(_) => 1,
        Step::Delegate(agent) => agent.max_requests(),
    };
    let branches = |action: &Action| {
        let branches = Branch::ALL.iter();
        let of_branch = branches.map(|branch| requests(action.branches.of(*branch)));
        of_branch.max().unwrap_or(0)
    };
    actions.iter().map(|one| of(one) + branches(one)).sum()
}

fn walk(actions: &[Action], optional: &[&str], warnings: &mut Vec<String>) {
    for action in actions {
        if let Step::Choose(condition) = &action.step {
            let compared = optional
                .iter()
                .filter(|key| compares_unasked(condition.source(), key));
            warnings.extend(compared.map(|key| {
                let value = written(key);
                format!(
                    "the condition {:?} compares {value}, which a submission may leave out: begin \
                     it with '{value} is defined and'",
                    action.id
                )
            }));
        }
        for branch in Branch::ALL {
            walk(action.branches.of(*branch), optional, warnings);
        }
    }
}

/// The name of a form value in an expression.
fn written(key: &str) -> String {
    let is_word = key
        .chars()
        .all(|one| one.is_ascii_alphanumeric() || one == '_');
    if is_word {
        format!("form.{key}")
    } else {
        format!("form['{key}']")
    }
}

/// Whether an expression compares a value without testing that it is present.
fn compares_unasked(expression: &str, key: &str) -> bool {
    let ways = [
        format!("form.{key}"),
        format!("form['{key}']"),
        format!("form[\"{key}\"]"),
    ];
    ways.iter().any(|value| compares(expression, value))
}

fn compares(expression: &str, value: &str) -> bool {
    let words = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    let uses = words.match_indices(value).filter_map(|(at, _)| {
        let (before, after) = (&words[..at], &words[at + value.len()..]);
        let part_of_name = |one: char| one.is_alphanumeric() || one == '_' || one == '.';
        let is_whole = !before.ends_with(part_of_name) && !after.starts_with(part_of_name);
        is_whole.then_some((before.trim_end(), after.trim_start()))
    });
    let uses: Vec<_> = uses.collect();
    let asks = |after: &str| {
        ["is ", "and ", "or "]
            .iter()
            .any(|word| after.starts_with(word))
    };
    let compares = |before: &str, after: &str| {
        let mut comparisons = COMPARISONS.iter();
        comparisons.any(|sign| before.ends_with(sign) || after.starts_with(sign))
    };
    !uses.iter().any(|(_, after)| asks(after))
        && uses.iter().any(|(before, after)| compares(before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

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
