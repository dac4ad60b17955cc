//! Taint: how text that a submitter wrote, or an account answered, influences an action.

use letterbox_common::text_enum;

text_enum! {
    /// How untrusted text reaches an action.
    pub enum Untrusted {
        /// What a submitter wrote fills the request
        Data = "data",
        /// What an account answered fills the request
        Account = "account",
        /// One of them had a part in deciding that the action runs
        Control = "control",
    }
}

text_enum! {
    /// Through what untrusted text had a part in deciding that an action runs.
    pub enum Steering {
        /// A plain comparison
        Condition = "condition",
        /// A model's answer: it can be talked into one
        AiCondition = "ai.condition",
        /// A model that chooses what is called, and with what
        AiAgent = "ai.agent",
        /// An earlier action did not fail that the text could have made fail
        Outcome = "outcome",
    }
}

/// Everything through which untrusted text steered a run to one action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steered {
    condition: bool,
    ai_condition: bool,
    ai_agent: bool,
    outcome: bool,
}

impl Steered {
    /// Not at all.
    pub const NONE: Self = Self {
        condition: false,
        ai_condition: false,
        ai_agent: false,
        outcome: false,
    };

    /// The same, and this too.
    #[must_use]
    pub fn with(mut self, steering: Steering) -> Self {
        *self.flag(steering) = true;
        self
    }

    /// The same, and all of the other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let kinds = other.kinds().into_iter();
        kinds.fold(self, Self::with)
    }

    /// Whether it is one of them.
    #[must_use]
    pub fn contains(mut self, steering: Steering) -> bool {
        *self.flag(steering)
    }

    /// All of them.
    #[must_use]
    pub fn kinds(self) -> Vec<Steering> {
        let all = Steering::ALL.iter().copied();
        all.filter(|steering| self.contains(*steering)).collect()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    fn flag(&mut self, steering: Steering) -> &mut bool {
        match steering {
            Steering::Condition => &mut self.condition,
            Steering::AiCondition => &mut self.ai_condition,
            Steering::AiAgent => &mut self.ai_agent,
            Steering::Outcome => &mut self.outcome,
        }
    }
}

/// How untrusted text reaches one action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taint {
    /// Whether what a submitter wrote fills the request.
    pub data: bool,
    /// Whether what an account answered fills the request.
    pub account: bool,
    /// What it steered the run here through.
    pub steered: Steered,
}

impl Taint {
    /// The ways in which untrusted text reaches the action.
    #[must_use]
    pub fn kinds(self) -> Vec<Untrusted> {
        let data = self.data.then_some(Untrusted::Data);
        let account = self.account.then_some(Untrusted::Account);
        let control = (!self.steered.is_empty()).then_some(Untrusted::Control);
        data.into_iter().chain(account).chain(control).collect()
    }

    /// The taint of a question that an agent with this one asks its model: of the first, or of one
    /// that follows from answers.
    #[must_use]
    pub fn of_question(self, is_first: bool) -> Self {
        match is_first {
            true => self,
            false => Self {
                account: true,
                steered: self.steered.with(Steering::AiAgent),
                ..self
            },
        }
    }

    /// The taint of a call that the model of an agent with this one has chosen, and filled in.
    #[must_use]
    pub fn of_tool_call(self) -> Self {
        Self {
            data: true,
            account: true,
            steered: self.steered.with(Steering::AiAgent),
        }
    }

    /// Whether it reaches the action at all.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}
