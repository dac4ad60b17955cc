//! What a policy would say of a release before any run of it: every action that sends, with the
//! most that untrusted text can have to do with it.

use crate::{
    actions::{Action, Branch, Step},
    taint::{Steered, Steering, Taint},
};

/// An action that sends, as a policy sees it, but for the host.
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
    /// The taint that it has at most, over all ways that a run can take.
    pub taint: Taint,
}

/// Every action of a release that sends, in its order, at any depth.
#[must_use]
pub fn sending_actions(actions: &[Action]) -> Vec<SendingAction<'_>> {
    let mut found = Vec::new();
    walk(actions, Steered::NONE, &mut false, &mut found);
    found
}

fn walk<'a>(
    actions: &'a [Action],
    steered: Steered,
    outcome: &mut bool,
    found: &mut Vec<SendingAction<'a>>,
) {
    for action in actions {
        let taint = action.taint(steered, *outcome);
        if let Step::Send(outgoing) = &action.step {
            found.push(SendingAction {
                id: &action.id,
                kind: action.kind.name,
                account: outgoing.account(),
                method: outgoing.method(),
                taint,
            });
        }
        let below = action.steers(steered);
        // A run takes one branch only.
        let before = *outcome;
        for branch in Branch::ALL {
            let mut in_branch = before;
            walk(action.branches.of(*branch), below, &mut in_branch, found);
            *outcome |= in_branch;
        }
        *outcome |= taint.is_any();
    }
}

impl Action {
    /// How untrusted text reaches this action, where it has steered the run here through `steered`,
    /// and `outcome` says whether an action has succeeded that it could have made fail.
    #[must_use]
    pub fn taint(&self, steered: Steered, outcome: bool) -> Taint {
        Taint {
            data: self.references_form(),
            steered: match outcome {
                true => steered.with(Steering::Outcome),
                false => steered,
            },
        }
    }

    /// What has steered a run to the actions that follow in a branch of this one.
    #[must_use]
    pub fn steers(&self, steered: Steered) -> Steered {
        let steering = self.kind.steering.filter(|_| self.references_form());
        steering.map_or(steered, |steering| steered.with(steering))
    }
}
