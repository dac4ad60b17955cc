//! A run as a story that fits on a screen: how it stands and why, what was submitted, and what was
//! done of it, by whose leave. `--json` tells everything.

use letterbox_common::states::{ActionState, ApprovalState};
use letterbox_operator::{ActionApproval, RunAction, RunDetail, Submission, words};
use serde_json::Value;

use crate::times::{age, between, since, to_second};

/// Characters of one value or text.
const MAX_WORD: usize = 120;
/// Values of a submission.
const MAX_VALUES: usize = 8;
/// Actions that are told in full; of more, each has one line.
const MAX_FULL: usize = 8;
/// Actions at the beginning, and at the end, of a very long run.
const MAX_EACH_END: usize = 50;

/// The story of a run.
pub(crate) fn story(run: &RunDetail) -> String {
    let row = &run.row;
    let mut lines = vec![format!("{} {}", row.run_id, row.state)];
    let why = row.failure.clone();
    let why = why.or_else(|| row.refused_reason.map(|reason| reason.to_string()));
    lines.extend(why.map(|why| format!("  {}", long(&why, 3 * MAX_WORD))));
    lines.push(String::new());
    let workflow = word(&run.workflow_name);
    let owner = word(&run.owner_name);
    let number = run.release_number;
    lines.push(format!(
        "workflow  {workflow}, release {number}, as {owner}"
    ));
    let end = match row.finished_at {
        Some(end) => format!("over after {}", age(between(row.received_at, end))),
        None => format!("{} ago", since(row.received_at)),
    };
    lines.push(format!("received  {}; {end}", to_second(row.received_at)));
    if run.is_held {
        let by = "no action begins until 'letterbox workspace release'";
        lines.push(format!("held      {by}"));
    }
    if let Some(what) = run.waits() {
        lines.push(format!("waits     {}", word(&what)));
    }
    let request = run.request_id.as_deref();
    lines.extend(request.map(|id| format!("request   {}", word(id))));
    lines.extend(run.trace_id.iter().map(|id| format!("trace     {id}")));
    lines.push(String::new());
    lines.push("submitted by a stranger".to_owned());
    let values = submitted(run.input.as_ref());
    lines.extend(values.iter().take(MAX_VALUES).map(|line| word(line)));
    if values.len() > MAX_VALUES {
        lines.push(format!("  and {} more", values.len() - MAX_VALUES));
    }
    if run.changed_repeats > 0 {
        let count = run.changed_repeats;
        lines.push(format!(
            "  {count} times again with other values, which changed nothing"
        ));
    }
    lines.push(String::new());
    match run.actions.is_empty() && run.row.finished_at.is_none() {
        true => lines.push("nothing is done yet".to_owned()),
        false => lines.extend(actions(&run.actions)),
    }
    lines.join("\n")
}

/// The actions of a run: one line each where there are many, but all of those that a person was
/// asked about.
fn actions(actions: &[RunAction]) -> Vec<String> {
    if actions.is_empty() {
        return vec!["nothing was done".to_owned()];
    }
    let count = actions.len();
    let mut lines = Vec::new();
    let mut left_out = 0;
    for (place, one) in actions.iter().enumerate() {
        let is_at_end = place < MAX_EACH_END || place + MAX_EACH_END >= count;
        let is_special = one.approval.is_some();
        if !is_at_end && !is_special {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            lines.push(format!("… {left_out} more, which --json shows …"));
            left_out = 0;
        }
        let is_last = place + 1 == count;
        let full = count <= MAX_FULL || is_special || is_last;
        let most = if full { usize::MAX } else { 1 };
        lines.extend(action(one).into_iter().take(most));
    }
    lines
}

/// An action: what became of it, what it sent, and why it was allowed.
fn action(action: &RunAction) -> Vec<String> {
    let mut line = format!("{:<9} {}", state(action), word(&action.action_id));
    if action.action_type != "http.request" {
        line += &format!(" ({})", action.action_type);
    }
    if let Some(request) = words::request(action.request.as_ref()) {
        line += &format!("  {}", word(&request));
    }
    let status = action.response_status;
    line += &status.map_or_else(String::new, |status| format!(" -> {status}"));
    let branch = action.branch;
    line += &branch.map_or_else(String::new, |branch| format!(" -> {branch}"));
    if action.attempts > 1 {
        line += &format!(", attempt {}", action.attempts);
    }
    let took = action.duration_milliseconds;
    line += &took.map_or_else(String::new, |took| {
        format!(", {:.1} s", took as f64 / 1000.0)
    });

    let mut lines = vec![line];
    let answer = action.approval.as_ref().map(answer).unwrap_or_default();
    lines.extend(words::permission(action, &answer).map(|why| format!("  {why}")));
    let error = action.error.as_deref();
    lines.extend(error.map(|error| format!("  {}", word(error))));
    if let Some(answer) = &action.failed_with {
        let media_type = answer.media_type.as_deref().map(word).unwrap_or_default();
        lines.push(format!("  answer: {media_type} {}", word(&answer.body)));
    }
    if let (ActionState::Retrying, Some(at)) = (action.state, action.retry_at) {
        lines.push(format!("  again at {}", to_second(at)));
    }
    lines
}

fn state(action: &RunAction) -> &'static str {
    match action.state {
        ActionState::Succeeded => "done",
        // Its agent went on.
        ActionState::Failed if action.is_told => "refused",
        ActionState::WaitingApproval => "asked",
        state => state.as_str(),
    }
}

fn answer(approval: &ActionApproval) -> String {
    let name = approval.decided_by_name.as_deref().map(word);
    let name = name.unwrap_or_else(|| "a deleted user".to_owned());
    let at = approval.decided_at.map(to_second).unwrap_or_default();
    let why = approval.reason.as_deref().map(word);
    let why = why.map(|why| format!(", because: {why}"));
    let why = why.unwrap_or_default();
    match approval.state {
        ApprovalState::Approved => format!(": approved by {name}, {at}{why}"),
        ApprovalState::Denied => format!(": denied by {name}, {at}{why}"),
        ApprovalState::Expired => ": not answered in time".to_owned(),
        ApprovalState::Withdrawn => String::new(),
        ApprovalState::Pending => {
            let until = to_second(approval.expires_at);
            format!(
                ": until {until}, letterbox approval show {}",
                approval.approval_id
            )
        }
    }
}

/// All of a request, a line for each member: what is approved is seen in whole.
pub(crate) fn whole_request(shown: Option<&Value>) -> Vec<String> {
    if !matches!(shown, Some(Value::Object(_))) {
        return vec!["  (forgotten)".to_owned()];
    }
    let first = words::request(shown).map(|request| format!("  {request}"));
    let others = words::members_of_request(shown).into_iter();
    let others = others.map(|(name, text)| format!("  {}: {}", indented(&name), indented(&text)));
    first.into_iter().chain(others).collect()
}

/// A text of several lines: the further ones stand where no line of ours begins.
pub(crate) fn indented(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// The submission, each value in whole.
pub(crate) fn submitted(input: Option<&Submission>) -> Vec<String> {
    let Some(values) = input.and_then(Submission::members) else {
        return vec!["  (not kept)".to_owned()];
    };
    let lines = values.iter();
    let lines = lines.map(|(key, value)| format!("  {}: {}", indented(key), indented(value)));
    lines.collect()
}

/// A text as a part of a line.
pub(crate) fn word(text: &str) -> String {
    long(text, MAX_WORD)
}

/// As [`word`], of so many characters.
pub(crate) fn long(text: &str, most: usize) -> String {
    let text = text.replace('\n', " ");
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_submitted_forges_no_line() {
        let text = "x\n\nwould be sent\n  GET https://harmless.example";
        let input = serde_json::json!({"message": text, text: 1, format!("{text} again"): text});
        let request = serde_json::json!({"method": "POST", "url": "https://x", "body": text,
            text: text, format!("{text} again"): 1});
        let input = Submission::stored(Some(input.to_string().as_bytes()));
        for lines in [submitted(input.as_ref()), whole_request(Some(&request))] {
            let shown = lines.join("\n");
            let outside = |line: &&str| !line.starts_with("    ");
            assert_eq!(
                shown.lines().filter(outside).count(),
                lines.len(),
                "{shown}"
            );
        }
    }
}
