//! Taint: how untrusted text, from a submitter or an account's answer, influences an action.

use letterbox_common::text_enum;

text_enum! {
    /// How untrusted text reaches an action.
    pub enum Untrusted {
        /// Text from a submitter is part of the request
        Data = "data",
        /// Text from an account's answer is part of the request
        Account = "account",
        /// One of them had a part in the decision to run the action
        Control = "control",
        /// One of them says who receives the request
        Recipient = "recipient",
    }
}

text_enum! {
    /// How untrusted text had a part in the decision to run an action.
    pub enum Steering {
        /// A plain comparison
        Condition = "condition",
        /// A model's answer, which the text can manipulate
        AiCondition = "ai.condition",
        /// A model that chooses the calls and their arguments
        AiAgent = "ai.agent",
        /// An earlier action that the text could have made end otherwise
        Outcome = "outcome",
    }
}

/// The set of all steerings by which untrusted text led a run to one action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steered([bool; Steering::ALL.len()]);

impl Steered {
    /// The empty set.
    pub const NONE: Self = Self([false; Steering::ALL.len()]);

    /// Returns the set with `steering` added.
    #[must_use]
    pub fn with(mut self, steering: Steering) -> Self {
        self.0[steering as usize] = true;
        self
    }

    /// Returns the union with `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let kinds = other.kinds().into_iter();
        kinds.fold(self, Self::with)
    }

    /// Whether the set contains `steering`.
    pub fn contains(self, steering: Steering) -> bool {
        self.0[steering as usize]
    }

    /// The members of the set.
    pub fn kinds(self) -> Vec<Steering> {
        let all = Steering::ALL.iter().copied();
        all.filter(|steering| self.contains(*steering)).collect()
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }
}

/// How untrusted text reaches one action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taint {
    /// Whether text from a submitter is part of the request.
    pub data: bool,
    /// Whether text from an account's answer is part of the request.
    pub account: bool,
    /// Whether one of them says who receives the request.
    pub recipient: bool,
    /// How untrusted text steered the run to the action.
    pub steered: Steered,
}

impl Taint {
    /// The ways in which untrusted text reaches the action.
    pub fn kinds(self) -> Vec<Untrusted> {
        let data = self.data.then_some(Untrusted::Data);
        let account = self.account.then_some(Untrusted::Account);
        let control = (!self.steered.is_empty()).then_some(Untrusted::Control);
        let recipient = self.recipient.then_some(Untrusted::Recipient);
        let kinds = [data, account, control, recipient];
        kinds.into_iter().flatten().collect()
    }

    /// The taint of a question to the model of an agent that has this taint.
    #[must_use]
    pub fn of_question(self, is_first: bool) -> Self {
        if is_first {
            return self;
        }
        // A later question exists because of earlier answers, and contains them.
        Self {
            account: true,
            steered: self.steered.with(Steering::AiAgent),
            ..self
        }
    }

    /// The taint of a tool call, chosen and filled in by the model of an agent that has this taint.
    #[must_use]
    pub fn of_tool_call(self) -> Self {
        Self {
            data: true,
            account: true,
            recipient: false,
            steered: self.steered.with(Steering::AiAgent),
        }
    }

    /// Whether untrusted text reaches the action at all.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}
