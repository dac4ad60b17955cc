//! Where a run is: which of its actions comes next, and what untrusted text steered it there. Pure:
//! it depends on the release and the records only.

use letterbox_workflow::{
    Taint, Trail,
    actions::{Action, Arguments},
    release::Release,
};

use super::{record::ActionRecord, transition::ActionKey};

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

impl Next<'_> {
    /// Which action is written about, of which this is the record.
    pub(super) fn key(&self, record: &ActionRecord) -> ActionKey {
        ActionKey {
            id: self.action.id.clone(),
            kind: self.action.kind.name,
            part_of: self.part_of.map(str::to_owned),
            taint: self.taint,
            begun: record.begun,
            answered: record.answered,
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
            // What follows a failure may use what it was answered, and is steered by it.
            trail.pass(action);
            return Some(Next {
                action,
                taint,
                part_of: None,
                arguments: None,
            });
        };
        let mut below = trail.below(action);
        trail.pass(action);
        if let Some(branch) = record.branch {
            let next = descend(action.branches.of(branch), record_of, &mut below);
            trail.join(below);
            if next.is_some() {
                return next;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
