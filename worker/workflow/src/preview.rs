//! Previews a release for a policy before any run: every action that sends a request, with the most
//! taint that it can have.

use crate::{
    actions::{Action, Branch, Step, TOOL_CALL},
    release::Release,
    taint::Taint,
    trail::Trail,
};

/// An action that sends a request, as a policy sees it, except for the host.
#[derive(Debug, Clone, Copy)]
pub struct SendingAction<'a> {
    /// Its id in the release.
    pub id: &'a str,
    /// Its kind, such as `http.request`.
    pub kind: &'a str,
    /// The account that it calls.
    pub account: &'a str,
    /// The method of its request.
    pub method: &'a str,
    /// The most taint that it can have, over all paths that a run can take.
    pub taint: Taint,
}

/// Returns every action of a release that sends a request, at any depth, in order.
#[must_use]
pub fn sending_actions(release: &Release) -> Vec<SendingAction<'_>> {
    let mut found = Vec::new();
    let trail = walk(&release.actions, &Trail::default(), &mut found);
    walk(&release.on_failure, &trail.after_failure(), &mut found);
    found
}

fn walk<'a>(
    actions: &'a [Action],
    trail: &Trail<'a>,
    found: &mut Vec<SendingAction<'a>>,
) -> Trail<'a> {
    let mut trail = trail.clone();
    for action in actions {
        let taint = trail.taint(action);
        match &action.step {
            Step::Send(outgoing) => found.push(SendingAction {
                id: &action.id,
                kind: action.kind.name,
                account: outgoing.account(),
                method: outgoing.method(),
                taint,
            }),
            Step::Delegate(agent) => {
                found.push(SendingAction {
                    id: &action.id,
                    kind: action.kind.name,
                    account: agent.account(),
                    method: "POST",
                    taint: taint.of_question(false),
                });
                found.extend(agent.tools().map(|tool| SendingAction {
                    id: &action.id,
                    kind: TOOL_CALL.name,
                    account: tool.account(),
                    method: tool.method(),
                    taint: taint.of_tool_call(),
                }));
            }
            Step::Choose(_) | Step::Wait(_) => {}
        }
        let below = trail.below(action);
        trail.pass(action);
        // A run takes only one branch: neither sees what happened in the other.
        for branch in Branch::ALL {
            let inside = walk(action.branches.of(*branch), &below, found);
            trail.join(inside);
        }
    }
    trail
}
