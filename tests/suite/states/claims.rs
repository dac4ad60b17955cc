//! Claims on a real database against a plain model: several gateways claim, publish, crash and take
//! over in any order that proptest thinks of, and each answer is the one that the model gives.

use std::{collections::HashMap, sync::Arc, time::Duration};

use letterbox_common::{ids::DeliveryId, sealing::KeyRing, webhook::WebhookAddress};
use letterbox_database::{Database, DatabaseSettings, Role};
use letterbox_gateway::{
    claims::{Claims, DeliveryKey, Outcome},
    open_batches::{BatchId, Settlements},
};
use letterbox_operator::{Operator, WebhookSettings};
use letterbox_tests::World;
use proptest::{collection::btree_set, prelude::*};
use proptest_state_machine::ReferenceStateMachine;
use tokio_util::sync::CancellationToken;

const GATEWAYS: usize = 3;
const BODIES: usize = 6;
const LEASE: Duration = Duration::from_secs(super::LONG);

/// What can happen.
#[derive(Debug, Clone)]
enum Event {
    /// A gateway claims bodies into one batch.
    Claim(usize, Vec<usize>),
    /// The broker confirms a batch to the gateway that has published it.
    Confirm(usize),
    /// A gateway writes what it knows to be confirmed.
    Write(usize),
    /// A batch is spilled.
    Spill(usize),
    /// All leases end.
    Expire,
    /// A gateway dies, and another one takes its place.
    Crash(usize),
    /// The webhook is deleted.
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Open { is_over: bool },
    Closed,
}

#[derive(Debug, Clone)]
struct Batch {
    /// The gateway that has it in hand; none after a crash.
    of: Option<usize>,
    is_confirmed: bool,
    row: Row,
}

/// What a claim is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Yours,
    No(Outcome),
}

/// The model: which batch each body was claimed into last, and what became of the batches.
#[derive(Debug, Clone, Default)]
struct Model {
    claimed: [Option<usize>; BODIES],
    batches: Vec<Batch>,
    is_deleted: bool,
    /// The answers to the last claim.
    told: Vec<(usize, Told)>,
}

impl Model {
    fn close_confirmed(&mut self, gateway: usize) {
        let of_gateway = self
            .batches
            .iter_mut()
            .filter(|one| one.of == Some(gateway));
        of_gateway
            .filter(|one| one.is_confirmed)
            .for_each(|one| one.row = Row::Closed);
    }

    fn claim(&mut self, gateway: usize, bodies: &[usize]) {
        self.close_confirmed(gateway);
        let batch = self.batches.len();
        let mut told = Vec::new();
        for body in bodies {
            let row = self.claimed[*body].map(|batch| self.batches[batch].row);
            let answer = match row {
                _ if self.is_deleted => Told::No(Outcome::Gone),
                None | Some(Row::Open { is_over: true }) => Told::Yours,
                Some(Row::Open { is_over: false }) => Told::No(Outcome::InProgress),
                Some(Row::Closed) => Told::No(Outcome::Duplicate),
            };
            if answer == Told::Yours {
                self.claimed[*body] = Some(batch);
            }
            told.push((*body, answer));
        }
        let is_open = told.iter().any(|(_, answer)| *answer == Told::Yours);
        self.batches.push(Batch {
            of: is_open.then_some(gateway),
            is_confirmed: false,
            // A batch into which nothing was claimed has no row.
            row: if is_open {
                Row::Open { is_over: false }
            } else {
                Row::Closed
            },
        });
        self.told = told;
    }

    /// The batches that their gateways have in hand.
    fn in_hand(&self) -> Vec<usize> {
        let all = self.batches.iter().enumerate();
        let in_hand = all.filter(|(_, one)| {
            one.of.is_some() && !one.is_confirmed && matches!(one.row, Row::Open { .. })
        });
        in_hand.map(|(number, _)| number).collect()
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Event> {
        let bodies = btree_set(0..BODIES, 1..=3);
        let claim = (0..GATEWAYS, bodies)
            .prop_map(|(gateway, bodies)| Event::Claim(gateway, bodies.into_iter().collect()));
        let mut all = vec![
            (8, claim.boxed()),
            (2, (0..GATEWAYS).prop_map(Event::Write).boxed()),
            (2, Just(Event::Expire).boxed()),
            (1, (0..GATEWAYS).prop_map(Event::Crash).boxed()),
        ];
        let in_hand = state.in_hand();
        if !in_hand.is_empty() {
            let one = prop::sample::select(in_hand);
            all.push((5, one.clone().prop_map(Event::Confirm).boxed()));
            all.push((2, one.prop_map(Event::Spill).boxed()));
        }
        if state.batches.len() > 8 {
            all.push((1, Just(Event::Delete).boxed()));
        }
        prop::strategy::Union::new_weighted(all).boxed()
    }

    fn preconditions(state: &Self, event: &Event) -> bool {
        match event {
            Event::Confirm(batch) | Event::Spill(batch) => state.in_hand().contains(batch),
            Event::Delete => !state.is_deleted,
            _ => true,
        }
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        match event {
            Event::Claim(gateway, bodies) => state.claim(*gateway, bodies),
            Event::Confirm(batch) => state.batches[*batch].is_confirmed = true,
            Event::Write(gateway) => state.close_confirmed(*gateway),
            Event::Spill(batch) => state.batches[*batch].row = Row::Closed,
            Event::Expire => state.batches.iter_mut().for_each(|one| {
                if let Row::Open { is_over } = &mut one.row {
                    *is_over = true;
                }
            }),
            Event::Crash(gateway) => state.batches.iter_mut().for_each(|one| {
                if one.of == Some(*gateway) {
                    (one.of, one.is_confirmed) = (None, false);
                }
            }),
            Event::Delete => state.is_deleted = true,
        }
        state
    }
}

/// The same on a database.
struct Real {
    address: WebhookAddress,
    gateways: Vec<(Claims, Arc<Settlements>)>,
    batches: Vec<BatchId>,
    /// The first id of each body: every later one is the same.
    ids: HashMap<usize, DeliveryId>,
}

struct Stage {
    world: World,
    database: Database,
    operator: Operator,
}

impl Stage {
    fn gateway(&self) -> (Claims, Arc<Settlements>) {
        let settlements = Arc::<Settlements>::default();
        let claims = Claims::new(self.database.clone(), LEASE, settlements.clone());
        (claims, settlements)
    }
}

impl Real {
    fn key(&self, body: usize) -> DeliveryKey {
        let body = format!("[{body}]");
        DeliveryKey::new(self.address, self.address.webhook, None, body.as_bytes())
    }

    async fn claim(&mut self, gateway: usize, bodies: &[usize]) -> Vec<(usize, Told)> {
        let batch = BatchId::generate();
        self.batches.push(batch);
        let wanted: Vec<_> = bodies.iter().map(|body| (self.key(*body), batch)).collect();
        let answers = self.gateways[gateway].0.claim(&wanted).await.unwrap();
        let mut told = Vec::new();
        for body in bodies {
            let answer = match answers[&self.key(*body)] {
                Ok(id) => {
                    let first = *self.ids.entry(*body).or_insert(id);
                    assert_eq!(first, id, "the id of a body never changes");
                    Told::Yours
                }
                Err(outcome) => Told::No(outcome),
            };
            told.push((*body, answer));
        }
        told
    }
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        let target = world.database_url.parse().unwrap();
        let settings = DatabaseSettings {
            database_pool_size: 2,
        };
        Stage {
            operator: world.operator().await,
            database: Database::new(&target, &settings, Role::Gateway, "test").unwrap(),
            world,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        let (workspace, _) = super::workspace(&stage.operator).await;
        let keys: KeyRing = stage.world.webhook_keys.parse().unwrap();
        let tool = WebhookSettings::of("tool");
        let creating = stage.operator.create_webhook(&keys, workspace, &tool, None);
        Self {
            address: creating.await.unwrap().address,
            gateways: (0..GATEWAYS).map(|_| stage.gateway()).collect(),
            batches: Vec::new(),
            ids: HashMap::new(),
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        let sql = async |statement: &str| {
            let executing = stage.world.database.batch_execute(statement);
            executing.await.unwrap();
        };
        match event {
            Event::Claim(gateway, bodies) => {
                let told = self.claim(gateway, &bodies).await;
                assert_eq!(told, model.told, "{model:#?}");
            }
            Event::Confirm(batch) => {
                let of = model.batches[batch].of.expect("it is in hand");
                self.gateways[of].1.confirm(self.batches[batch]);
            }
            Event::Write(gateway) => {
                let settlements = self.gateways[gateway].1.clone();
                let stop = CancellationToken::new();
                stop.cancel();
                settlements.run(stage.database.clone(), stop).await;
            }
            Event::Spill(batch) => {
                let spilled = format!(
                    "SELECT spill_batches('{{{}}}', '{{webhooks}}', '{{webhook.deliveries}}',
                         '{{{}}}', '{{x}}')",
                    self.batches[batch], self.address.workspace
                );
                sql(&spilled).await;
            }
            Event::Expire => {
                sql("UPDATE open_batches SET lease_until = clock_timestamp()").await;
            }
            Event::Crash(gateway) => self.gateways[gateway] = stage.gateway(),
            Event::Delete => {
                let deleting = stage.operator.delete_webhook(self.address.webhook);
                deleting.await.unwrap();
            }
        }
    }
}

#[test]
fn every_answer_is_the_models() {
    super::check::<Real>(60);
}
