//! What can happen to a question, and in which order.

use letterbox_common::states::{ApprovalState, MemberRole};
use proptest::{prelude::*, sample::select, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;

use super::model::{Model, PEOPLE, Policy, Told};

/// What can happen.
#[derive(Debug, Clone)]
pub enum Event {
    /// A worker takes the run, and reads what holds.
    Take,
    /// It does what follows from that: asks, begins an attempt, or denies.
    Act,
    Answer {
        by: usize,
        yes: bool,
    },
    /// The second and the third person approve at once.
    AnswerAtOnce,
    /// Somebody approves what was asked under the former id.
    AnswerFormer(usize),
    /// The time of the question ends, and every lease and pause.
    Expire,
    SetPolicy(Policy),
    /// A member gets another role, or leaves.
    SetRole(usize, Option<MemberRole>),
    Cancel,
    Retry,
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::new()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Event> {
        let answer = (0..PEOPLE, prop::bool::weighted(0.8));
        let answer = answer.prop_map(|(by, yes)| Event::Answer { by, yes });
        let policies = vec![Policy::Asks, Policy::AsksAnother, Policy::Allows];
        let editor = Some(MemberRole::Editor);
        let roles = select(vec![editor, editor, Some(MemberRole::Runner), None]);
        let set_role = (1..PEOPLE, roles).prop_map(|(who, role)| Event::SetRole(who, role));
        let mut all = vec![
            (3, Just(Event::Expire).boxed()),
            (1, select(policies).prop_map(Event::SetPolicy).boxed()),
            (2, set_role.boxed()),
            (1, Just(Event::Cancel).boxed()),
            (2, Just(Event::Retry).boxed()),
            (6, Just(Event::Take).boxed()),
        ];
        if state.seen.is_some() {
            all.push((12, Just(Event::Act).boxed()));
        }
        if let Some(question) = state.rows.question {
            all.push((6, answer.boxed()));
            if question.number > 0 {
                all.push((1, (0..PEOPLE).prop_map(Event::AnswerFormer).boxed()));
            }
            if state.roles[1] == state.roles[2] {
                all.push((2, Just(Event::AnswerAtOnce).boxed()));
            }
        }
        Union::new_weighted(all).boxed()
    }

    fn preconditions(state: &Self, event: &Event) -> bool {
        let question = state.rows.question;
        match event {
            Event::Act => state.seen.is_some(),
            Event::Answer { .. } => question.is_some(),
            Event::AnswerFormer(_) => question.is_some_and(|one| one.number > 0),
            Event::AnswerAtOnce => question.is_some() && state.roles[1] == state.roles[2],
            Event::SetRole(who, role) => state.roles[*who] != *role,
            _ => true,
        }
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        state.told = state.told(event);
        state.rows.is_listed = state.is_open();
        state
    }
}

impl Model {
    fn told(&mut self, event: &Event) -> Told {
        match event {
            Event::Take => return Told::Taken(self.take()),
            Event::Act => return Told::Done(self.act()),
            Event::Answer { by, yes } => return Told::Done(self.answer(*by, *yes)),
            // One of them; who it was is the second person from then on.
            Event::AnswerAtOnce => return Told::Done(self.answer(1, true)),
            Event::AnswerFormer(_) => return Told::Done(false),
            Event::Expire => {
                if let Some(question) = &mut self.rows.question
                    && question.state == ApprovalState::Pending
                {
                    question.is_over = true;
                }
                self.rows.active.iter_mut().for_each(|one| one.1 = true);
            }
            Event::SetPolicy(policy) => (self.policy, self.version) = (*policy, self.version + 1),
            Event::SetRole(who, role) => self.roles[*who] = *role,
            Event::Cancel => return Told::Ordered(self.cancel()),
            Event::Retry => return Told::Ordered(self.retry()),
        }
        Told::Nothing
    }
}
