//! Ceilings: workers note what webhooks and forms of two workspaces have stored, also at once, days
//! pass, and after each event a gateway asks which webhooks are full. The model adds up.

use letterbox_database::Role;
use letterbox_tests::World;
use proptest::{collection::vec, prelude::*, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;
use std::collections::BTreeMap;
use tokio_postgres::{Client, types::ToSql};
use uuid::Uuid;

const WORKSPACES: usize = 2;
const WEBHOOKS: usize = 2;
const MAX_PER_WEBHOOK: i64 = 100;
const MAX_PER_WORKSPACE: i64 = 150;

/// Bytes of a workspace: of one of its webhooks, or of its forms.
type Stored = (usize, Option<usize>, i64);

/// What can happen.
#[derive(Debug, Clone)]
enum Event {
    /// A worker notes what was stored, or two do at once.
    Note(Vec<Stored>),
    NoteAtOnce(Vec<Stored>, Vec<Stored>),
    NextDay,
    Sweep,
}

#[derive(Debug, Clone, Default)]
struct Model {
    webhooks: [[i64; WEBHOOKS]; WORKSPACES],
    workspaces: [i64; WORKSPACES],
}

impl Model {
    fn note(&mut self, stored: &[Stored]) {
        for (workspace, webhook, bytes) in stored {
            self.workspaces[*workspace] += bytes;
            if let Some(webhook) = webhook {
                self.webhooks[*workspace][*webhook] += bytes;
            }
        }
    }

    fn is_full(&self, workspace: usize, webhook: usize) -> bool {
        self.webhooks[workspace][webhook] >= MAX_PER_WEBHOOK
            || self.workspaces[workspace] >= MAX_PER_WORKSPACE
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Event> {
        let webhook = prop::option::weighted(0.7, 0..WEBHOOKS);
        let stored = vec((0..WORKSPACES, webhook, 1..40_i64), 1..=3);
        let at_once = (stored.clone(), stored.clone());
        let at_once = at_once.prop_map(|(one, other)| Event::NoteAtOnce(one, other));
        Union::new_weighted(vec![
            (4, stored.prop_map(Event::Note).boxed()),
            (2, at_once.boxed()),
            (1, Just(Event::NextDay).boxed()),
            (1, Just(Event::Sweep).boxed()),
        ])
        .boxed()
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        match event {
            Event::Note(stored) => state.note(stored),
            Event::NoteAtOnce(one, other) => {
                state.note(one);
                state.note(other);
            }
            Event::NextDay => state = Self::default(),
            Event::Sweep => {}
        }
        state
    }
}

/// The same on a database.
struct Real {
    workspaces: [Uuid; WORKSPACES],
    webhooks: [[Uuid; WEBHOOKS]; WORKSPACES],
    days: i32,
}

struct Stage {
    world: World,
    workers: [Client; 2],
    gateway: Client,
}

impl Real {
    async fn note(&self, worker: &Client, stored: &[Stored]) {
        // By workspace and webhook, as workers have them.
        let mut counts = BTreeMap::new();
        for (workspace, webhook, bytes) in stored {
            let webhook = webhook.map(|webhook| self.webhooks[*workspace][webhook]);
            let workspace = self.workspaces[*workspace];
            *counts.entry((workspace, None)).or_insert(0_i64) += bytes;
            if webhook.is_some() {
                *counts.entry((workspace, webhook)).or_insert(0) += bytes;
            }
        }
        let (keys, bytes): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
        let (workspaces, webhooks): (Vec<Uuid>, Vec<Option<Uuid>>) = keys.into_iter().unzip();
        let note = super::of_worker("note_stored_bytes").sql;
        let stored = [&workspaces as &(dyn ToSql + Sync), &webhooks, &bytes];
        worker.execute(note, &stored).await.unwrap();
    }

    /// Which webhooks are full, each workspace after the other.
    async fn ask(&self, gateway: &Client) -> Vec<bool> {
        let webhooks: Vec<Uuid> = self.webhooks.iter().flatten().copied().collect();
        let workspaces = self.workspaces.iter();
        let workspaces: Vec<Uuid> = workspaces.flat_map(|one| [*one; WEBHOOKS]).collect();
        let ask = super::of_gateway("find_full_webhooks").sql;
        let most = [MAX_PER_WEBHOOK, MAX_PER_WORKSPACE];
        let question = [
            &workspaces as &(dyn ToSql + Sync),
            &webhooks,
            &most[0],
            &most[1],
        ];
        let full = gateway.query(ask, &question).await.unwrap();
        full.iter().map(|row| row.get("is_full")).collect()
    }
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        let worker = async || world.session(Role::Worker).await;
        let workers = [worker().await, worker().await];
        let gateway = world.session(Role::Gateway).await;
        Stage {
            world,
            workers,
            gateway,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        let operator = stage.world.operator().await;
        let mut workspaces = [Uuid::nil(); WORKSPACES];
        for workspace in &mut workspaces {
            let (made, _) = super::workspace(&operator).await;
            *workspace = Uuid::from_bytes(*made.as_bytes());
        }
        Self {
            workspaces,
            webhooks: std::array::from_fn(|_| std::array::from_fn(|_| Uuid::new_v4())),
            days: 0,
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        let [one, other] = &stage.workers;
        match event {
            Event::Note(stored) => self.note(one, &stored).await,
            Event::NoteAtOnce(first, second) => {
                tokio::join!(self.note(one, &first), self.note(other, &second));
            }
            Event::NextDay => {
                // Another day for each, so that none meets what is there.
                self.days += 1;
                let past = "UPDATE stored_bytes SET day = day - $1::integer
                    WHERE workspace_id = ANY ($2) AND day = (now() AT TIME ZONE 'UTC')::date";
                let workspaces = self.workspaces.to_vec();
                let database = &stage.world.database;
                let passed = database.execute(past, &[&self.days, &workspaces]).await;
                passed.unwrap();
            }
            Event::Sweep => {
                let sweep = super::of_worker("sweep_stored_bytes").sql;
                one.execute(sweep, &[]).await.unwrap();
            }
        }
        let all = (0..WORKSPACES).flat_map(|one| (0..WEBHOOKS).map(move |other| (one, other)));
        let expected: Vec<bool> = all.map(|(one, other)| model.is_full(one, other)).collect();
        assert_eq!(self.ask(&stage.gateway).await, expected, "{model:?}");
    }
}

#[test]
fn what_is_full_is_what_the_model_adds_up_to() {
    super::check::<Real>(40);
}
