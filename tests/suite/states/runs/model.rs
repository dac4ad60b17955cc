//! The model of a run: its rows, what each worker has read, and what becomes of both.

use letterbox_common::states::{ActionState, ActiveState, RunState};

use super::super::worker::{Account, Taken, Written};

/// What an attempt needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Workspace,
    Right,
    Account,
}

pub const NEEDS: [Need; 3] = [Need::Workspace, Need::Right, Need::Account];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Active {
    pub state: ActiveState,
    pub is_due: bool,
    /// By the order in which turns were given.
    pub turn: Option<usize>,
    pub idle: i32,
    pub is_cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action {
    pub state: ActionState,
    pub begun: i32,
    pub answered: i32,
    pub unanswered: i32,
    pub attempts: i32,
    /// It says what the last attempt that counts has failed with.
    pub is_explained: bool,
    /// By the order in which keys were drawn.
    pub key: usize,
}

/// All that the tables say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    pub run: RunState,
    /// None when it is over.
    pub active: Option<Active>,
    pub action: Option<Action>,
}

/// What a worker has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub state: Option<ActionState>,
    pub begun: i32,
    pub answered: i32,
    pub policy: i32,
    /// In the order of `NEEDS`.
    pub needs: [bool; 3],
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    pub seen: Option<Seen>,
    /// The number of the attempt that it has begun.
    pub attempt: Option<i32>,
}

/// What the last event was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Nothing,
    Taken(Option<Taken>),
    Seen(Seen),
    /// The key to send with.
    Begun(Option<usize>),
    Written(Written),
    Ordered(&'static str),
}

#[derive(Debug, Clone)]
pub struct Model {
    pub rows: Rows,
    pub turns: Vec<Turn>,
    pub keys: usize,
    pub has_started: bool,
    pub policy: i32,
    pub needs: [bool; 3],
    pub told: Told,
}

impl Model {
    pub fn take(&mut self) -> Option<Taken> {
        let active = self.rows.active.as_mut().filter(|one| one.is_due)?;
        *active = Active {
            state: ActiveState::Taken,
            is_due: false,
            turn: Some(self.turns.len()),
            idle: active.idle + 1,
            ..*active
        };
        self.turns.push(Turn::default());
        Some(Taken {
            is_first: !std::mem::replace(&mut self.has_started, true),
            idle: active.idle,
            is_cancelled: active.is_cancelled,
        })
    }

    /// The run, if this turn lasts: nobody else decides about it, whether the lease is over or not.
    pub fn held(&mut self, turn: usize) -> Option<&mut Active> {
        let active = self.rows.active.as_mut();
        active.filter(|one| one.state == ActiveState::Taken && one.turn == Some(turn))
    }

    pub fn begin(&mut self, turn: usize) -> Option<usize> {
        let seen = self.turns[turn].seen?;
        let is_as_seen = match self.rows.action {
            None => true,
            // It may have begun this very attempt already.
            Some(now) => now.answered == seen.answered && now.begun - seen.begun <= 1,
        };
        let is_founded = self.needs == [true; 3] && self.policy == seen.policy && is_as_seen;
        let active = self.held(turn)?;
        if active.is_cancelled || !is_founded {
            return None;
        }
        // The lease is renewed.
        active.is_due = false;
        let begun = seen.begun + 1;
        let action = self.rows.action.get_or_insert_with(|| {
            self.keys += 1;
            Action {
                state: ActionState::Running,
                begun: 0,
                answered: 0,
                unanswered: 0,
                attempts: 0,
                is_explained: false,
                key: self.keys - 1,
            }
        });
        action.state = ActionState::Running;
        action.unanswered += begun - action.begun;
        action.begun = begun;
        self.turns[turn].attempt = Some(begun);
        Some(action.key)
    }

    pub fn write(&mut self, turn: usize, account: Account) -> Written {
        let Turn { seen, attempt } = self.turns[turn];
        let is_unseen = account == Account::Unseen;
        let is_said = !is_unseen || self.held(turn).is_some();
        let number = seen.map_or(0, |seen| seen.begun) + 1;
        let attempt = attempt.or(is_unseen.then_some(number));
        let action = self.rows.action.as_mut();
        // Whoever has the run now: if it is the latest attempt, and has no answer yet.
        let counts =
            |one: &&mut Action| is_said && Some(one.begun) == attempt && one.answered < one.begun;
        let counted = action.filter(counts).map(|action| {
            action.state = account.state();
            action.answered = action.begun;
            if !is_unseen && account != Account::Unasked {
                action.attempts += 1;
                action.is_explained = account != Account::Done;
            }
            action.unanswered = action.unanswered.saturating_sub(account.settled()).max(0);
        });
        let written = self.leave(turn, Some(account));
        if let Some(active) = &mut self.rows.active
            && !written.is_held
            && counted.is_some()
            && active.state == ActiveState::Scheduled
        {
            // Who waits for the time of a retry need not.
            (active.state, active.is_due) = (ActiveState::Ready, true);
        }
        Written {
            is_counted: counted.is_some(),
            ..written
        }
    }

    /// The last step of a turn.
    pub fn leave(&mut self, turn: usize, account: Option<Account>) -> Written {
        let end = account.and_then(Account::end);
        let mut written = Written::default();
        if let Some(active) = self.held(turn) {
            written.is_held = true;
            (active.idle, active.is_due) = (0, account.is_none());
            active.state = match account {
                None => ActiveState::Ready,
                Some(_) => ActiveState::Scheduled,
            };
            written.is_cancelled = active.is_cancelled && end.is_none();
            match end {
                _ if written.is_cancelled => self.end(RunState::Cancelled),
                Some(end) => self.end(end),
                None => {}
            }
        }
        written
    }

    pub fn end(&mut self, state: RunState) {
        (self.rows.run, self.rows.active) = (state, None);
        if let Some(action) = &mut self.rows.action
            && action.state == ActionState::Retrying
            && state != RunState::Succeeded
        {
            action.state = ActionState::Cancelled;
        }
    }

    pub fn cancel(&mut self) -> &'static str {
        match &mut self.rows.active {
            None => "over",
            Some(active) if active.state == ActiveState::Taken && !active.is_due => {
                active.is_cancelled = true;
                "requested"
            }
            Some(_) => {
                self.end(RunState::Cancelled);
                "cancelled"
            }
        }
    }

    pub fn retry(&mut self) -> &'static str {
        if !matches!(self.rows.run, RunState::Failed | RunState::Cancelled) {
            return "not_ended";
        }
        self.rows.run = RunState::Queued;
        self.rows.active = Some(QUEUED);
        // What is neither done nor under way begins anew, whenever its answer came.
        if let Some(action) = &mut self.rows.action
            && !matches!(action.state, ActionState::Succeeded | ActionState::Running)
        {
            (action.state, action.attempts) = (ActionState::Retrying, 0);
            // What may have been done is sent under its key only.
            if action.unanswered == 0 {
                (action.key, self.keys) = (self.keys, self.keys + 1);
            }
        }
        "queued"
    }

    /// How a run ends whose worker has read this.
    pub fn end_by(seen: Seen) -> RunState {
        match seen.state {
            Some(ActionState::Succeeded) => RunState::Succeeded,
            _ => RunState::Failed,
        }
    }
}

pub const QUEUED: Active = Active {
    state: ActiveState::Ready,
    is_due: true,
    turn: None,
    idle: 0,
    is_cancelled: false,
};
