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
    steered: Steered,
    /// An action has succeeded that untrusted text could have made fail, and with it all that comes
    /// later.
    outcome: bool,
    /// The taint of what was sent, by action.
    sent: BTreeMap<&'a str, Taint>,
}

impl<'a> Trail<'a> {
    /// How untrusted text reaches the action.
    #[must_use]
    pub fn taint(&self, action: &Action) -> Taint {
        let references = &action.references;
        let answers = self
            .sent
            .iter()
            .filter(|(id, _)| references.has_answer_of(id));
        let mut taint = Taint {
            data: references.form,
            account: references.has_answers(),
            steered: match self.outcome {
                true => self.steered.with(Steering::Outcome),
                false => self.steered,
            },
        };
        for (_, sent) in answers {
            // What was sent can come back in the answer.
            taint.data |= sent.data;
        }
        taint
    }

    /// The way into a branch of the action.
    #[must_use]
    pub fn below(&self, action: &'a Action) -> Self {
        let mut below = self.clone();
        below.note_answer(action);
        let references = &action.references;
        let is_untrusted = references.form || references.has_answers();
        // Who asks a model's answer, or whether something was done that a model had decided, is
        // steered by the model.
        for (id, sent) in &self.sent {
            if action.kind.steering.is_some() && references.has_answer_of(id) {
                below.steered = below.steered.and(sent.steered);
            }
        }
        if let Some(steering) = action.kind.steering.filter(|_| is_untrusted) {
            below.steered = below.steered.with(steering);
        }
        below
    }

    /// The way behind the action, once it has succeeded. What its branches meet is joined to it.
    pub fn pass(&mut self, action: &'a Action) {
        self.outcome |= self.taint(action).is_any() || matches!(action.step, Step::Delegate(_));
        self.note_answer(action);
    }

    /// This, and what was met in a branch.
    pub fn join(&mut self, branch: Self) {
        self.outcome |= branch.outcome;
        self.sent.extend(branch.sent);
    }

    /// The way on after the run has failed: that it has was an outcome.
    #[must_use]
    pub fn after_failure(mut self) -> Self {
        self.outcome = true;
        for sent in self.sent.values() {
            self.steered = self.steered.and(sent.steered);
        }
        self
    }

    /// The action was answered, or may have been.
    pub fn note_answer(&mut self, action: &'a Action) {
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
