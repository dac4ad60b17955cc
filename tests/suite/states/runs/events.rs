//! What can happen to a run, and in which order.

use letterbox_common::states::{ActionState, RunState};
use proptest::{prelude::*, sample::select, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;

use super::super::worker::Account;
use super::model::{Model, NEEDS, Need, QUEUED, Rows, Seen, Told};

/// What can happen.
#[derive(Debug, Clone)]
pub enum Event {
    /// The message with the submission comes again.
    Arrive,
    /// One worker looks for due runs, or two do at once.
    Take {
        by_two: bool,
    },
    /// The worker of a turn reads the record.
    Load(usize),
    /// It begins an attempt, or begins it again because it has not seen the commit.
    Begin(usize),
    /// It writes what its account has said about its attempt.
    Write(usize, Account),
    /// It renews its lease.
    Keep(usize),
    /// It lets go of the run.
    LetGo(usize),
    /// It ends the run: by what it has read.
    End(usize),
    /// The lease, or the time of a retry, ends.
    Expire,
    Cancel,
    Retry,
    /// Changes whether something holds without which no attempt begins.
    Toggle(Need),
    ChangePolicy,
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::new()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Event> {
        let mut all = vec![
            (1, Just(Event::Arrive).boxed()),
            (8, Just(Event::Take { by_two: false }).boxed()),
            (2, Just(Event::Take { by_two: true }).boxed()),
            (4, Just(Event::Expire).boxed()),
            (1, Just(Event::Cancel).boxed()),
            (2, Just(Event::Retry).boxed()),
            (1, Just(Event::ChangePolicy).boxed()),
        ];
        // What does not hold is soon put right.
        let missing = (0..3).filter(|one| !state.needs[*one]).collect::<Vec<_>>();
        let (weight, which) = match missing.is_empty() {
            true => (1, vec![0, 1, 2]),
            false => (5, missing),
        };
        let toggle = select(which).prop_map(|one| Event::Toggle(NEEDS[one]));
        all.push((weight, toggle.boxed()));
        let turns = state.turns.len();
        if turns > 0 {
            // The last turns: zombies have some.
            let turn = || turns.saturating_sub(3)..turns;
            let account = select(Account::ALL.to_vec());
            let write = (turn(), account).prop_map(|(turn, account)| Event::Write(turn, account));
            all.extend([
                (9, turn().prop_map(Event::Load).boxed()),
                (12, turn().prop_map(Event::Begin).boxed()),
                (8, write.boxed()),
                (1, turn().prop_map(Event::Keep).boxed()),
                (2, turn().prop_map(Event::LetGo).boxed()),
                (1, turn().prop_map(Event::End).boxed()),
            ]);
        }
        Union::new_weighted(all).boxed()
    }

    fn preconditions(state: &Self, event: &Event) -> bool {
        let turn = |turn: &usize| state.turns.get(*turn);
        let seen = |one: &usize| turn(one).and_then(|turn| turn.seen);
        match event {
            Event::Load(one) | Event::Keep(one) | Event::LetGo(one) => turn(one).is_some(),
            // Nobody begins what they know to be over.
            Event::Begin(one) => seen(one).is_some_and(|seen| {
                !matches!(
                    seen.state,
                    Some(ActionState::Succeeded | ActionState::Failed)
                )
            }),
            Event::End(one) => seen(one).is_some(),
            Event::Write(one, Account::Unseen) => seen(one).is_some(),
            Event::Write(one, _) => turn(one).is_some_and(|turn| turn.attempt.is_some()),
            _ => true,
        }
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        state.told = state.told(event);
        state
    }
}

impl Model {
    pub fn new() -> Self {
        Self {
            rows: Rows {
                run: RunState::Queued,
                active: Some(QUEUED),
                action: None,
            },
            turns: Vec::new(),
            keys: 0,
            has_started: false,
            policy: 0,
            needs: [true; 3],
            told: Told::Nothing,
        }
    }

    fn told(&mut self, event: &Event) -> Told {
        match event {
            Event::Arrive => {}
            Event::Take { .. } => return Told::Taken(self.take()),
            Event::Load(turn) => {
                let action = self.rows.action;
                let seen = Seen {
                    state: action.map(|one| one.state),
                    begun: action.map_or(0, |one| one.begun),
                    answered: action.map_or(0, |one| one.answered),
                    policy: self.policy,
                    needs: self.needs,
                };
                self.turns[*turn].seen = Some(seen);
                return Told::Seen(seen);
            }
            Event::Begin(turn) => return Told::Begun(self.begin(*turn)),
            Event::Write(turn, account) => return Told::Written(self.write(*turn, *account)),
            Event::Keep(turn) => {
                if let Some(active) = self.held(*turn) {
                    if active.idle > 1 || active.is_due {
                        (active.idle, active.is_due) = (0, false);
                    }
                    // Whatever is written, a run is cancelled with it if that was ordered.
                    if active.is_cancelled {
                        self.end(RunState::Cancelled);
                    }
                }
            }
            Event::LetGo(turn) => return Told::Written(self.leave(*turn, None)),
            Event::End(turn) => {
                let end = self.turns[*turn].seen.map(Self::end_by);
                if let (Some(_), Some(end)) = (self.held(*turn), end) {
                    self.end(end);
                }
            }
            Event::Expire => {
                self.rows
                    .active
                    .iter_mut()
                    .for_each(|one| one.is_due = true);
            }
            Event::Cancel => return Told::Ordered(self.cancel()),
            Event::Retry => return Told::Ordered(self.retry()),
            Event::Toggle(need) => self.needs[*need as usize] ^= true,
            Event::ChangePolicy => self.policy += 1,
        }
        Told::Nothing
    }
}
