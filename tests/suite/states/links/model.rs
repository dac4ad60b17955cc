//! The model of a form's links: which of them lives, and what each still takes.

use std::collections::HashSet;

use letterbox_common::states::WorkflowState;
use letterbox_operator::Move;
use proptest::{prelude::*, sample::select, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;

pub const GATEWAYS: usize = 2;
pub const KEYS: usize = 5;

/// What can happen.
#[derive(Debug, Clone)]
pub enum Event {
    /// A link is made; it closes after so many answers.
    Make(Option<i32>),
    End {
        by_sql: bool,
    },
    Deploy,
    Move(Move),
    /// Plain SQL moves the workflow to the state in which it is.
    MoveBySql,
    SetRight(Right),
    /// The time comes at which links close.
    Close,
    Read(usize, usize),
    /// Somebody submits through a link under a key, at one gateway.
    Submit(usize, usize, usize),
    /// The same at both at once.
    SubmitAtOnce(usize, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Runs,
    Views,
    IsDeactivated,
    HasLeft,
}

#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub is_alive: bool,
    pub is_closed: bool,
    /// How many answers it still takes.
    pub places: Option<i32>,
}

impl Link {
    fn is_open(&self) -> bool {
        self.is_alive && !self.is_closed && self.places != Some(0)
    }
}

#[derive(Debug, Clone)]
pub struct Model {
    pub workflow: WorkflowState,
    pub right: Right,
    pub links: Vec<Link>,
    pub recorded: HashSet<usize>,
    /// Whether the last event was done, or found an open form.
    pub is_done: bool,
}

impl Model {
    fn end(&mut self) -> bool {
        let living = self.links.iter_mut().find(|one| one.is_alive);
        living.is_some_and(|one| std::mem::replace(&mut one.is_alive, false))
    }

    fn may_have_link(&self) -> bool {
        self.workflow == WorkflowState::Deployed && self.right == Right::Runs
    }

    fn make(&mut self, places: Option<i32>) -> bool {
        if !self.may_have_link() {
            return false;
        }
        self.end();
        self.links.push(Link {
            is_alive: true,
            is_closed: false,
            places,
        });
        true
    }

    /// Every move ends the link, also one to where the workflow is.
    fn move_to(&mut self, from: &[WorkflowState], to: WorkflowState) -> bool {
        if !from.contains(&self.workflow) {
            return false;
        }
        self.end();
        self.workflow = to;
        true
    }

    fn submit(&mut self, link: usize, key: usize) -> bool {
        let link = &mut self.links[link];
        // What was accepted is accepted again while the link lives, even if that is closed.
        let is_repeat = link.is_alive && self.recorded.contains(&key);
        if !is_repeat && link.is_open() {
            link.places.iter_mut().for_each(|places| *places -= 1);
            return self.recorded.insert(key);
        }
        is_repeat
    }

    fn done(&mut self, event: &Event) -> bool {
        use WorkflowState::{Deleted, Deployed, Draft, Paused};
        match event {
            Event::Make(places) => self.make(*places),
            Event::End { .. } => self.end(),
            Event::Deploy => self.move_to(&[Draft, Deployed, Paused], Deployed),
            Event::Move(Move::Pause) => self.move_to(&[Deployed], Paused),
            Event::Move(Move::Activate) => self.move_to(&[Deployed, Paused], Deployed),
            Event::Move(Move::Draft) => self.move_to(&[Deployed, Paused], Draft),
            Event::Move(Move::Delete) => self.move_to(&[Draft, Deployed, Paused], Deleted),
            Event::MoveBySql => self.move_to(&[Draft, Deployed, Paused], self.workflow),
            Event::SetRight(right) => {
                self.right = *right;
                if *right != Right::Runs {
                    self.end();
                }
                true
            }
            Event::Close => {
                self.links.iter_mut().for_each(|one| one.is_closed = true);
                true
            }
            Event::Read(link, _) => self.links[*link].is_open(),
            Event::Submit(link, key, _) | Event::SubmitAtOnce(link, key) => {
                self.submit(*link, *key)
            }
        }
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        let model = Self {
            workflow: WorkflowState::Deployed,
            right: Right::Runs,
            links: Vec::new(),
            recorded: HashSet::new(),
            is_done: true,
        };
        Just(model).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Event> {
        // What a link needs comes back soon.
        let weight = |holds: bool| if holds { 1 } else { 6 };
        let moves = vec![Move::Pause, Move::Activate, Move::Draft];
        let rights = vec![Right::Views, Right::IsDeactivated, Right::HasLeft];
        let runs = state.right == Right::Runs;
        let right = match runs {
            true => select(rights).prop_map(Event::SetRight).boxed(),
            false => Just(Event::SetRight(Right::Runs)).boxed(),
        };
        let is_deployed = state.workflow == WorkflowState::Deployed;
        let places = select(vec![None, None, Some(1), Some(2)]);
        let mut all = vec![
            (5, places.prop_map(Event::Make).boxed()),
            (
                1,
                any::<bool>()
                    .prop_map(|by_sql| Event::End { by_sql })
                    .boxed(),
            ),
            (weight(is_deployed), Just(Event::Deploy).boxed()),
            (1, select(moves).prop_map(Event::Move).boxed()),
            (1, Just(Event::MoveBySql).boxed()),
            (weight(runs), right),
            (1, Just(Event::Close).boxed()),
        ];
        let links = state.links.len();
        if links > 3 {
            all.push((1, Just(Event::Move(Move::Delete)).boxed()));
        }
        if links > 0 {
            let link = || links.saturating_sub(3)..links;
            let read = (link(), 0..GATEWAYS).prop_map(|(link, at)| Event::Read(link, at));
            let submit = (link(), 0..KEYS, 0..GATEWAYS);
            let submit = submit.prop_map(|(link, key, at)| Event::Submit(link, key, at));
            let at_once = (link(), 0..KEYS);
            let at_once = at_once.prop_map(|(link, key)| Event::SubmitAtOnce(link, key));
            all.extend([(5, read.boxed()), (8, submit.boxed()), (3, at_once.boxed())]);
        }
        Union::new_weighted(all).boxed()
    }

    fn preconditions(state: &Self, event: &Event) -> bool {
        match event {
            Event::Read(link, _) | Event::Submit(link, ..) | Event::SubmitAtOnce(link, _) => {
                *link < state.links.len()
            }
            Event::SetRight(right) => (*right == Right::Runs) != (state.right == Right::Runs),
            _ => true,
        }
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        state.is_done = state.done(event);
        state
    }
}
