//! Taint: how text that a submitter wrote influences an action.

use letterbox_common::text_enum;

text_enum! {
    /// How untrusted text reaches an action.
    pub enum Untrusted {
        /// It fills the request
        Data = "data",
        /// A condition over it decided that the action runs
        Control = "control",
    }
}

text_enum! {
    /// The kind of action through which untrusted text steered a run. Ordered by how easily it is
    /// misled: an `ai.condition` can be talked into an answer.
    pub enum Steering {
        /// A plain comparison
        Condition = "condition",
        /// A model's answer
        AiCondition = "ai.condition",
    }
}

/// How untrusted text reaches one action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taint {
    /// Whether it fills the request.
    pub data: bool,
    /// What it steered the run here through, if it did.
    pub control: Option<Steering>,
}

impl Taint {
    /// The ways in which untrusted text reaches the action.
    #[must_use]
    pub fn kinds(self) -> Vec<Untrusted> {
        let data = self.data.then_some(Untrusted::Data);
        let control = self.control.map(|_| Untrusted::Control);
        data.into_iter().chain(control).collect()
    }
}
