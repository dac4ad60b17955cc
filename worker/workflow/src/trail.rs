//! The trail of a run to an action: how untrusted text steered it there, and the taint of the
//! requests whose answers are used. Taint is never lost on the way.

use std::collections::BTreeMap;

use crate::{
    actions::{Action, Step},
    taint::{Steered, Steering, Taint},
};

/// The trail of one run, or of all possible runs, to an action.
#[derive(Debug, Clone, Default)]
pub struct Trail<'a> {
    /// Steerings that chose the branches taken.
    steered: Steered,
    /// Steerings that could have ended the run earlier, so that they steer everything later.
    outcome: Steered,
    /// The taint of each request sent, by action.
    sent: BTreeMap<&'a str, Taint>,
}

impl<'a> Trail<'a> {
    /// The taint of the action.
    pub fn taint(&self, action: &Action) -> Taint {
        let used = self.used(action);
        Taint {
            steered: used.steered.and(self.steered).and(self.outcome),
            ..used
        }
    }

    /// The taint of the values that the action uses, wherever it stands.
    fn used(&self, action: &Action) -> Taint {
        let references = &action.references;
        let mut used = Taint {
            data: references.form || references.failure,
            account: references.has_answers() || references.failure,
            recipient: match &action.step {
                Step::Send(outgoing) => outgoing.recipients().is_untrusted(),
                _ => false,
            },
            steered: Steered::NONE,
        };
        for (id, sent) in &self.sent {
            if references.has_answer_of(id) {
                // An answer can echo what was sent, so it has the taint of its request.
                used.data |= sent.data;
                used.steered = used.steered.and(sent.steered);
            }
        }
        used
    }

    /// The trail into a branch of the action.
    pub fn below(&self, action: &'a Action) -> Self {
        let mut below = self.clone();
        below.note_answer(action);
        below.steered = below.steered.and(self.choice(action));
        below
    }

    /// Extends the trail past the action, which has succeeded. Its branches are joined afterwards.
    pub fn pass(&mut self, action: &'a Action) {
        let taint = self.taint(action);
        let choice = self.choice(action);
        let is_agent = matches!(action.step, Step::Delegate(_));
        // Untrusted text could have made it fail, and then nothing later would run.
        if taint.is_any() || is_agent {
            self.outcome = self.outcome.and(taint.steered).with(Steering::Outcome);
        }
        if is_agent {
            self.outcome = self.outcome.with(Steering::AiAgent);
        }
        // The other branch could have ended the run, and so could a model that answers neither.
        if action.branches.has_any() || action.kind.asks_a_model() {
            self.outcome = self.outcome.and(choice);
        }
        self.note_answer(action);
    }

    /// Adds what was met in a branch.
    pub fn join(&mut self, branch: Self) {
        self.outcome = self.outcome.and(branch.outcome);
        self.sent.extend(branch.sent);
    }

    /// The trail after the run has failed. The failure itself is an outcome.
    #[must_use]
    pub fn after_failure(mut self) -> Self {
        self.outcome = self.outcome.with(Steering::Outcome);
        // Any of the requests may have failed, by whatever steered it.
        for sent in self.sent.values() {
            self.steered = self.steered.and(sent.steered);
        }
        self
    }

    /// How untrusted text chooses the branch of an action. A condition over a model's answer, or
    /// over the result of an action that a model chose, is steered by the model, too.
    fn choice(&self, action: &Action) -> Steered {
        let used = self.used(action);
        let steering = action.kind.steering.filter(|_| used.is_any());
        steering.map_or(Steered::NONE, |steering| used.steered.with(steering))
    }

    /// Records the taint of an action that was answered, or may have been.
    fn note_answer(&mut self, action: &'a Action) {
        let mut taint = match &action.step {
            Step::Send(_) => self.taint(action),
            Step::Delegate(_) => self.taint(action).of_tool_call(),
            Step::Choose(_) | Step::Wait(_) | Step::Fail(_) => return,
        };
        // Untrusted text can manipulate the answer of a model that reads it.
        if action.kind.asks_a_model() && taint.is_any() {
            taint.steered = taint.steered.with(Steering::AiCondition);
        }
        self.sent.insert(&action.id, taint);
    }
}
