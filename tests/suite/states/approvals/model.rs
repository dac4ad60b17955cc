//! The model of a question: who may answer it, what an answer lets happen, and when it is asked
//! anew.

use letterbox_common::states::{ActionState, ActiveState, ApprovalState, MemberRole, RunState};

/// The first one is the user as whom the run acts. The others differ in their roles only.
pub const PEOPLE: usize = 3;
pub const ROLES: [Option<MemberRole>; PEOPLE] = [
    Some(MemberRole::Owner),
    Some(MemberRole::Editor),
    Some(MemberRole::Editor),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Anyone who may approves.
    Asks,
    /// Somebody else than the user as whom the run acts.
    AsksAnother,
    Allows,
}

/// A question, as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    pub state: ApprovalState,
    /// It can't be answered any more.
    pub is_over: bool,
    pub by: Option<usize>,
    /// How often it was asked under a new id before.
    pub number: usize,
}

/// All that the tables say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    pub run: RunState,
    /// None when the run is over; whether it is due.
    pub active: Option<(ActiveState, bool)>,
    pub action: Option<ActionState>,
    pub begun: i32,
    pub question: Option<Question>,
    /// It is listed for people to answer.
    pub is_listed: bool,
}

/// What a worker has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub is_cancelled: bool,
    pub version: i32,
    pub begun: i32,
    /// Expired also if nobody has answered in time.
    pub question: Option<ApprovalState>,
    /// Who has approved may not any more.
    pub has_lapsed: bool,
}

/// What follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    LetGo,
    Begin,
    Ask,
    Deny,
}

/// What the last event was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Taken(Option<Seen>),
    /// Whether it took effect.
    Done(bool),
    Ordered(&'static str),
}

#[derive(Debug, Clone)]
pub struct Model {
    pub rows: Rows,
    is_cancelled: bool,
    pub policy: Policy,
    pub version: i32,
    pub roles: [Option<MemberRole>; PEOPLE],
    /// What the worker that has the run has read, by which policy.
    pub seen: Option<(Seen, Policy)>,
    /// Its turn lasts.
    is_held: bool,
    pub told: Told,
}

impl Model {
    pub fn new() -> Self {
        Self {
            rows: Rows {
                run: RunState::Queued,
                active: Some((ActiveState::Ready, true)),
                action: None,
                begun: 0,
                question: None,
                is_listed: false,
            },
            is_cancelled: false,
            policy: Policy::Asks,
            version: 1,
            roles: ROLES,
            seen: None,
            is_held: false,
            told: Told::Nothing,
        }
    }

    /// What a worker does that has read this.
    pub fn step(seen: Seen, policy: Policy) -> Step {
        use ApprovalState::{Approved, Denied, Expired};
        match (policy, seen.question) {
            _ if seen.is_cancelled => Step::LetGo,
            // A person's no outlives a policy that does not ask.
            (_, Some(Denied)) => Step::Deny,
            (Policy::Allows, _) => Step::Begin,
            (_, Some(Approved)) if !seen.has_lapsed => Step::Begin,
            (_, Some(Expired)) => Step::Deny,
            _ => Step::Ask,
        }
    }

    pub fn may_answer(&self, person: usize) -> bool {
        let may = matches!(
            self.roles[person],
            Some(MemberRole::Owner | MemberRole::Editor)
        );
        may && (self.policy != Policy::AsksAnother || person != 0)
    }

    pub fn is_open(&self) -> bool {
        let question = self.rows.question;
        question.is_some_and(|one| one.state == ApprovalState::Pending && !one.is_over)
    }

    fn is_approved(&self) -> bool {
        let question = self.rows.question;
        let approved = question.filter(|one| one.state == ApprovalState::Approved);
        let by = approved.and_then(|one| one.by);
        by.is_some_and(|by| self.may_answer(by))
    }

    fn close(&mut self, state: ApprovalState) {
        if let Some(question) = &mut self.rows.question
            && question.state == ApprovalState::Pending
        {
            question.state = state;
        }
    }

    pub fn take(&mut self) -> Option<Seen> {
        self.rows.active.filter(|(_, is_due)| *is_due)?;
        self.rows.active = Some((ActiveState::Taken, false));
        let question = self.rows.question;
        let is_approved = question.is_some_and(|one| one.state == ApprovalState::Approved);
        let as_seen = |one: Question| match one.state {
            ApprovalState::Pending if one.is_over => ApprovalState::Expired,
            state => state,
        };
        let seen = Seen {
            is_cancelled: self.is_cancelled,
            version: self.version,
            begun: self.rows.begun,
            question: question.map(as_seen),
            has_lapsed: is_approved && !self.is_approved(),
        };
        (self.seen, self.is_held) = (Some((seen, self.policy)), true);
        Some(seen)
    }

    pub fn act(&mut self) -> bool {
        let Some((seen, policy)) = self.seen.take() else {
            return false;
        };
        if !std::mem::take(&mut self.is_held) {
            return false;
        }
        match Self::step(seen, policy) {
            Step::Begin => {
                let begins = self.begin(seen, policy);
                if !begins {
                    self.let_go();
                }
                return begins;
            }
            Step::LetGo => self.let_go(),
            Step::Ask => self.ask(),
            Step::Deny => {
                self.rows.action = Some(ActionState::Denied);
                self.end(RunState::Denied);
            }
        }
        true
    }

    /// An attempt begins, and is answered with 'not now'.
    fn begin(&mut self, seen: Seen, policy: Policy) -> bool {
        let question = self.rows.question.map(|one| one.state);
        let may = match policy {
            Policy::Allows => question != Some(ApprovalState::Denied),
            _ => self.is_approved(),
        };
        if self.is_cancelled || seen.version != self.version || !may {
            return false;
        }
        self.close(ApprovalState::Withdrawn);
        if self.rows.run == RunState::WaitingApproval {
            self.rows.run = RunState::Running;
        }
        self.rows.begun += 1;
        self.rows.action = Some(ActionState::Retrying);
        self.rows.active = Some((ActiveState::Scheduled, false));
        true
    }

    fn ask(&mut self) {
        let has_lapsed = !self.is_approved();
        let fresh = |number| Question {
            state: ApprovalState::Pending,
            is_over: false,
            by: None,
            number,
        };
        match &mut self.rows.question {
            None => self.rows.question = Some(fresh(0)),
            Some(one) => match one.state {
                ApprovalState::Withdrawn => *one = fresh(one.number + 1),
                ApprovalState::Approved if has_lapsed => *one = fresh(one.number + 1),
                _ => {}
            },
        }
        self.rows.run = RunState::WaitingApproval;
        self.rows.action = Some(ActionState::WaitingApproval);
        let is_asked = self.rows.question.map(|one| one.state) == Some(ApprovalState::Pending);
        // It was answered meanwhile: the next turn sees it.
        self.rows.active = match is_asked {
            true => Some((ActiveState::Scheduled, false)),
            false => Some((ActiveState::Ready, true)),
        };
        if self.is_cancelled {
            self.end(RunState::Cancelled);
        }
    }

    fn let_go(&mut self) {
        self.rows.active = Some((ActiveState::Ready, true));
        if self.is_cancelled {
            self.end(RunState::Cancelled);
        }
    }

    fn end(&mut self, state: RunState) {
        self.close(ApprovalState::Expired);
        (self.rows.run, self.rows.active) = (state, None);
        (self.is_cancelled, self.is_held) = (false, false);
        if let Some(ActionState::Retrying | ActionState::WaitingApproval) = self.rows.action {
            self.rows.action = Some(ActionState::Cancelled);
        }
    }

    pub fn answer(&mut self, by: usize, yes: bool) -> bool {
        let is_asked = self.is_open() && self.rows.run == RunState::WaitingApproval;
        if !is_asked || !self.may_answer(by) {
            return false;
        }
        if let Some(question) = &mut self.rows.question {
            question.by = Some(by);
            question.state = match yes {
                true => ApprovalState::Approved,
                false => ApprovalState::Denied,
            };
        }
        if let Some((ActiveState::Scheduled, _)) = self.rows.active {
            self.rows.active = Some((ActiveState::Ready, true));
        }
        true
    }

    pub fn cancel(&mut self) -> &'static str {
        match self.rows.active {
            None => "over",
            Some((ActiveState::Taken, false)) => {
                self.is_cancelled = true;
                "requested"
            }
            Some(_) => {
                self.end(RunState::Cancelled);
                "cancelled"
            }
        }
    }

    pub fn retry(&mut self) -> &'static str {
        use ApprovalState::{Denied, Expired};
        if !matches!(self.rows.run, RunState::Denied | RunState::Cancelled) {
            return "not_ended";
        }
        self.rows.run = RunState::Queued;
        self.rows.active = Some((ActiveState::Ready, true));
        if self.rows.action.is_some() {
            self.rows.action = Some(ActionState::Retrying);
            // An approval covers one key, and what was sent gets a new one.
            let has_new_key = self.rows.begun > 0;
            if let Some(one) = &mut self.rows.question
                && (has_new_key || matches!(one.state, Denied | Expired))
            {
                one.state = ApprovalState::Withdrawn;
            }
        }
        "queued"
    }
}
