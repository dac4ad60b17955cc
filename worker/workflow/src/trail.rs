//! What untrusted text a run has met on its way to an action: through what it was steered there,
//! and what got into the requests whose answers are used. No detour loses a mark.

use std::collections::BTreeMap;

use crate::{
    actions::{Action, Step},
    taint::{Steered, Steering, Taint},
};

/// The way of a run, or of all runs, to an action.
#[derive(Debug, Clone, Default)]
pub struct Trail<'a> {
    /// What chose the branches that it is in.
    steered: Steered,
    /// What could have ended the run before: everything that comes later is steered by it.
    outcome: Steered,
    /// The taint of what was sent, by action.
    sent: BTreeMap<&'a str, Taint>,
}

impl<'a> Trail<'a> {
    /// How untrusted text reaches the action.
    #[must_use]
    pub fn taint(&self, action: &Action) -> Taint {
        let used = self.used(action);
        Taint {
            steered: used.steered.and(self.steered).and(self.outcome),
            ..used
        }
    }

    /// The same, of what the action uses alone, wherever it is.
    fn used(&self, action: &Action) -> Taint {
        let references = &action.references;
        let mut used = Taint {
            data: references.form || references.failure,
            account: references.has_answers() || references.failure,
            steered: Steered::NONE,
        };
        for (id, sent) in &self.sent {
            if references.has_answer_of(id) {
                // What was sent can come back in the answer; what a model said is the model's.
                used.data |= sent.data;
                used.steered = used.steered.and(sent.steered);
            }
        }
        used
    }

    /// The way into a branch of the action.
    #[must_use]
    pub fn below(&self, action: &'a Action) -> Self {
        let mut below = self.clone();
        below.note_answer(action);
        below.steered = below.steered.and(self.choice(action));
        below
    }

    /// The way behind the action, once it has succeeded. What its branches meet is joined to it.
    pub fn pass(&mut self, action: &'a Action) {
        let taint = self.taint(action);
        let (is_agent, choice) = (
            matches!(action.step, Step::Delegate(_)),
            self.choice(action),
        );
        if taint.is_any() || is_agent {
            self.outcome = self.outcome.and(taint.steered).with(Steering::Outcome);
        }
        if is_agent {
            self.outcome = self.outcome.with(Steering::AiAgent);
        }
        // The other branch could have ended the run; so can a model that says neither yes nor no.
        if action.branches.has_any() || action.kind.asks_a_model() {
            self.outcome = self.outcome.and(choice);
        }
        self.note_answer(action);
    }

    /// This, and what was met in a branch.
    pub fn join(&mut self, branch: Self) {
        self.outcome = self.outcome.and(branch.outcome);
        self.sent.extend(branch.sent);
    }

    /// The way on after the run has failed: that it has was an outcome.
    #[must_use]
    pub fn after_failure(mut self) -> Self {
        self.outcome = self.outcome.with(Steering::Outcome);
        for sent in self.sent.values() {
            self.steered = self.steered.and(sent.steered);
        }
        self
    }

    /// Through what untrusted text chooses the branch of an action. Whoever asks what a model
    /// said, or whether something was done that a model had decided, is steered by the model.
    fn choice(&self, action: &Action) -> Steered {
        let used = self.used(action);
        let steering = action.kind.steering.filter(|_| used.is_any());
        steering.map_or(Steered::NONE, |steering| used.steered.with(steering))
    }

    /// The action was answered, or may have been.
    fn note_answer(&mut self, action: &'a Action) {
        let taint = match &action.step {
            Step::Send(_) => self.taint(action),
            Step::Delegate(_) => self.taint(action).of_tool_call(),
            Step::Choose(_) | Step::Wait(_) => return,
        };
        // What a model says of untrusted text, it can be talked into.
        let taint = match action.kind.asks_a_model() && taint.is_any() {
            true => Taint {
                steered: taint.steered.with(Steering::AiCondition),
                ..taint
            },
            false => taint,
        };
        self.sent.insert(&action.id, taint);
    }
}
