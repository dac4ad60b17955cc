//! Previews a release for a policy before any run: every action that sends a request, with the most
//! taint that it can have.

use crate::{
    actions::{Action, Step, TOOL_CALL},
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
        let mut add = |kind, account, method, taint| {
            found.push(SendingAction {
                id: &action.id,
                kind,
                account,
                method,
                taint,
            });
        };
        let kind = action.kind.name;
        match &action.step {
            Step::Send(outgoing) => add(kind, outgoing.account(), outgoing.method(), taint),
            Step::Delegate(agent) => {
                add(kind, agent.account(), "POST", taint.of_question(false));
                for tool in agent.tools() {
                    let account = tool.account();
                    let method = tool.method();
                    add(TOOL_CALL.name, account, method, taint.of_tool_call());
                }
            }
            Step::Choose(_) | Step::Wait(_) | Step::Fail(_) => {}
        }
        let below = trail.below(action);
        trail.pass(action);
        // A run takes only one branch: neither sees what happened in the other.
        for branch in &action.branches.0 {
            trail.join(walk(branch, &below, found));
        }
    }
    trail
}
