//! The model of sessions: whose they are, how old, and what began them.

use proptest::{prelude::*, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;

pub const USERS: usize = 2;
/// Hours after its beginning, and after its last use, at which a session is over.
pub const MOST: u32 = 7 * 24;
pub const UNUSED: u32 = 12;
/// Hours that pass at once; never is one of the two reached to the hour.
pub const STEP: u32 = 5;
/// Hours for which all sessions are used.
pub const DAYS: u32 = 3 * 24;

/// What can happen.
#[derive(Debug, Clone)]
pub enum Event {
    /// An operator makes a link for a user.
    MakeLink(usize),
    /// Somebody signs in with a link, or two do at once.
    Use { link: usize, by_two: bool },
    /// The time of all links ends.
    ExpireLinks,
    /// Somebody comes with a session, and looks who is in the workspace.
    Look(usize),
    /// Somebody comes with a session, and signs out.
    End(usize),
    /// An operator signs a user out everywhere.
    SignOut(usize),
    /// Time passes in which nobody comes.
    Pass,
    /// Days pass in which everybody comes.
    PassInUse,
    /// A user joins the workspace, or leaves it.
    Move(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Fresh,
    Over,
    Gone,
}

#[derive(Debug, Clone, Copy)]
pub struct Session {
    pub user: usize,
    /// In hours.
    pub age: u32,
    pub unused: u32,
    /// Nobody has ended it, or found it over.
    pub is_stored: bool,
}

impl Session {
    fn lives(&self) -> bool {
        self.is_stored && self.age < MOST && self.unused < UNUSED
    }
}

/// What the last event was answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Nothing,
    /// Whether a session began.
    Begun(bool),
    /// Whose session it is, and whether they see the workspace; none if it is nobody's.
    Seen(Option<(usize, bool)>),
    Ended(bool),
    SignedOut(usize),
}

#[derive(Debug, Clone)]
pub struct Model {
    pub links: Vec<(usize, LinkState)>,
    pub sessions: Vec<Session>,
    pub is_member: [bool; USERS],
    pub told: Told,
}

impl Model {
    fn sign_in(&mut self, link: usize) -> bool {
        let (user, state) = &mut self.links[link];
        let user = *user;
        if std::mem::replace(state, LinkState::Gone) != LinkState::Fresh {
            return false;
        }
        let own = self.sessions.iter_mut().filter(|one| one.user == user);
        own.for_each(|one| one.is_stored = one.lives());
        self.sessions.push(Session {
            user,
            age: 0,
            unused: 0,
            is_stored: true,
        });
        true
    }

    fn look(&mut self, session: usize) -> Option<(usize, bool)> {
        let session = &mut self.sessions[session];
        if !session.lives() {
            return None;
        }
        session.unused = 0;
        Some((session.user, self.is_member[session.user]))
    }

    fn sign_out(&mut self, user: usize) -> usize {
        let links = self.links.iter_mut().filter(|one| one.0 == user);
        links.for_each(|one| one.1 = LinkState::Gone);
        let own = self.sessions.iter_mut();
        let own = own.filter(|one| one.user == user && one.is_stored);
        own.map(|one| one.is_stored = false).count()
    }

    fn told(&mut self, event: &Event) -> Told {
        match event {
            Event::MakeLink(user) => self.links.push((*user, LinkState::Fresh)),
            Event::Use { link, .. } => return Told::Begun(self.sign_in(*link)),
            Event::ExpireLinks => {
                let fresh = self.links.iter_mut();
                let fresh = fresh.filter(|one| one.1 == LinkState::Fresh);
                fresh.for_each(|one| one.1 = LinkState::Over);
            }
            Event::Look(session) => return Told::Seen(self.look(*session)),
            Event::End(session) => {
                let session = &mut self.sessions[*session];
                let lives = session.lives();
                session.is_stored &= !lives;
                return Told::Ended(lives);
            }
            Event::SignOut(user) => return Told::SignedOut(self.sign_out(*user)),
            Event::Pass => self.sessions.iter_mut().for_each(|one| {
                one.age += STEP;
                one.unused += STEP;
            }),
            Event::PassInUse => self.sessions.iter_mut().for_each(|one| one.age += DAYS),
            Event::Move(user) => self.is_member[*user] ^= true,
        }
        Told::Nothing
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        let model = Self {
            links: Vec::new(),
            sessions: Vec::new(),
            is_member: [true; USERS],
            told: Told::Nothing,
        };
        Just(model).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Event> {
        let user = || 0..USERS;
        let mut all = vec![
            (4, user().prop_map(Event::MakeLink).boxed()),
            (1, Just(Event::ExpireLinks).boxed()),
            (3, Just(Event::Pass).boxed()),
            (1, Just(Event::PassInUse).boxed()),
            (1, user().prop_map(Event::SignOut).boxed()),
            (1, user().prop_map(Event::Move).boxed()),
        ];
        let (links, sessions) = (state.links.len(), state.sessions.len());
        if links > 0 {
            let link = links.saturating_sub(3)..links;
            let by = (link, prop::bool::weighted(0.3));
            let by = by.prop_map(|(link, by_two)| Event::Use { link, by_two });
            all.push((8, by.boxed()));
        }
        if sessions > 0 {
            all.extend([
                (10, (0..sessions).prop_map(Event::Look).boxed()),
                (2, (0..sessions).prop_map(Event::End).boxed()),
            ]);
        }
        Union::new_weighted(all).boxed()
    }

    fn preconditions(state: &Self, event: &Event) -> bool {
        match event {
            Event::Use { link, .. } => *link < state.links.len(),
            Event::Look(session) | Event::End(session) => *session < state.sessions.len(),
            _ => true,
        }
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        state.told = state.told(event);
        state
    }
}
