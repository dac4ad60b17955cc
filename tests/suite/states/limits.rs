//! Rate limits: gateways ask for several requests at a time, also at once, time passes, clocks are
//! set back, and what is stale is swept. The model counts: no request passes beyond a limit, and
//! none is refused while there is room at its client and its token.
//!
//! The limits are smaller than those of the gateways, which name them with each question.

use letterbox_common::form::TokenHash;
use letterbox_database::Role;
use letterbox_operator::Operator;
use letterbox_tests::{DEFINITION, World};
use proptest::{collection::vec, prelude::*, strategy::Union};
use proptest_state_machine::ReferenceStateMachine;
use std::collections::BTreeSet;
use tokio_postgres::{Client, Row, types::ToSql};
use uuid::Uuid;

const GATEWAYS: usize = 2;
const CLIENTS: usize = 2;
const TOKENS: usize = 2;
const MAX_PER_CLIENT: usize = 6;
const MAX_PER_TOKEN: usize = 4;
/// Seconds that a hit counts, and those of one step of time, which are more than a case takes.
const WINDOW: i64 = 60;
const STEP: i64 = 10;
/// How far clocks are set back.
const BACK: i64 = 3_600;

/// One request: its client, and its token, or none if that is dead: then only the client counts.
type Request = (usize, Option<usize>);

/// What can happen.
#[derive(Debug, Clone)]
enum Event {
    /// A gateway asks for these, in order.
    Ask(usize, Vec<Request>),
    /// Each gateway asks for so many of these, at once.
    AskAtOnce(Request, [usize; GATEWAYS]),
    /// Steps of time.
    Pass(i64),
    /// The clock of the database is set back.
    SetBack,
    Sweep,
}

/// How old the hits of a subject are in seconds, the oldest first; less than 0 if they are from
/// before the clock was set back.
#[derive(Debug, Clone, Default)]
struct Hits(Vec<i64>);

impl Hits {
    fn live(&self) -> Vec<i64> {
        let ages = self.0.iter().map(|age| (*age).max(0));
        ages.filter(|age| *age < WINDOW).collect()
    }

    /// When there is room again, if there is none.
    fn next_in(&self, most: usize) -> Option<i64> {
        let live = self.live();
        let last = live.len().checked_sub(most)?;
        Some(WINDOW - live[last])
    }

    fn add(&mut self) {
        self.0 = self.live();
        self.0.push(0);
    }
}

/// In how many seconds client and token would let a request pass that they do not.
type Answer = (Option<i64>, Option<i64>);

#[derive(Debug, Clone, Default)]
struct Model {
    clients: [Hits; CLIENTS],
    tokens: [Hits; TOKENS],
    told: Vec<Answer>,
}

impl Model {
    fn ask(&mut self, (client, token): Request) -> Answer {
        let client = &mut self.clients[client];
        let token = token.map(|token| &mut self.tokens[token]);
        let by_token = token
            .as_ref()
            .and_then(|token| token.next_in(MAX_PER_TOKEN));
        let answer = (client.next_in(MAX_PER_CLIENT), by_token);
        // What one of them refuses counts at neither.
        if answer == (None, None) {
            client.add();
            token.into_iter().for_each(Hits::add);
        }
        answer
    }

    fn all(&mut self) -> impl Iterator<Item = &mut i64> {
        let all = self.clients.iter_mut().chain(&mut self.tokens);
        all.flat_map(|one| &mut one.0)
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Event;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Event> {
        let request = || (0..CLIENTS, prop::option::weighted(0.8, 0..TOKENS));
        let ask = (0..GATEWAYS, vec(request(), 1..=5));
        let ask = ask.prop_map(|(gateway, requests)| Event::Ask(gateway, requests));
        let many = [1..=4_usize, 1..=4];
        let at_once = (request(), many).prop_map(|(one, many)| Event::AskAtOnce(one, many));
        Union::new_weighted(vec![
            (8, ask.boxed()),
            (3, at_once.boxed()),
            (4, (1..=3_i64).prop_map(Event::Pass).boxed()),
            (1, Just(Event::SetBack).boxed()),
            (1, Just(Event::Sweep).boxed()),
        ])
        .boxed()
    }

    fn apply(mut state: Self, event: &Event) -> Self {
        state.told = match event {
            Event::Ask(_, requests) => requests.iter().map(|one| state.ask(*one)).collect(),
            Event::AskAtOnce(one, many) => {
                let many = many.iter().sum();
                (0..many).map(|_| state.ask(*one)).collect()
            }
            Event::Pass(steps) => {
                state.all().for_each(|age| *age += steps * STEP);
                Vec::new()
            }
            Event::SetBack => {
                state.all().for_each(|age| *age -= BACK);
                Vec::new()
            }
            // What is swept does not come back when the clock is set back.
            Event::Sweep => {
                let all = state.clients.iter_mut().chain(&mut state.tokens);
                all.filter(|one| one.0.last().is_some_and(|age| *age >= WINDOW))
                    .for_each(|one| one.0.clear());
                Vec::new()
            }
        };
        state
    }
}

/// The same on a database.
struct Real {
    clients: Vec<Vec<u8>>,
}

struct Stage {
    world: World,
    gateways: Vec<Client>,
    tokens: Vec<TokenHash>,
}

impl Real {
    /// Asks for requests; what client and token say to each.
    async fn ask(&self, stage: &Stage, gateway: usize, requests: &[Request]) -> Vec<Row> {
        let client = |one: &Request| self.clients[one.0].clone();
        let hash = |one: &Request| match one.1 {
            Some(token) => *stage.tokens[token].as_bytes(),
            None => *TokenHash::of_text("dead").as_bytes(),
        };
        let token = |one: &Request| [b"t", hash(one).as_slice()].concat();
        let (per_client, per_token) = (MAX_PER_CLIENT as i32, MAX_PER_TOKEN as i32);
        let keys = requests
            .iter()
            .flat_map(|one| [(client(one), per_client), (token(one), per_token)]);
        // Sorted, as gateways have them.
        let keys: BTreeSet<(Vec<u8>, i32)> = keys.collect();
        let (keys, most): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
        let place = |key: Vec<u8>| keys.binary_search(&key).unwrap() as i32 + 1;
        let clients: Vec<i32> = requests.iter().map(|one| place(client(one))).collect();
        let tokens: Vec<i32> = requests.iter().map(|one| place(token(one))).collect();
        let hashes: Vec<Vec<u8>> = requests.iter().map(|one| hash(one).to_vec()).collect();
        let closed_too = vec![false; requests.len()];
        let gateway = &stage.gateways[gateway];
        let question = [
            &keys as &(dyn ToSql + Sync),
            &most,
            &clients,
            &tokens,
            &hashes,
            &closed_too,
        ];
        let admit = super::of_gateway("admit").sql;
        let admitted = gateway.query(admit, &question).await.unwrap();
        for (row, (_, token)) in admitted.iter().zip(requests) {
            assert_eq!(row.get::<_, bool>("is_open"), token.is_some());
        }
        admitted
    }

    async fn change(&self, stage: &Stage, seconds: i64) {
        let moved = "UPDATE rate_limits SET hits = ARRAY(
            SELECT hit + $1 * interval '1 second' FROM unnest(hits) AS hit ORDER BY hit)";
        let database = &stage.world.database;
        database.execute(moved, &[&(seconds as f64)]).await.unwrap();
    }
}

/// Whether a wait is as long as the model says, but for the time that this case takes.
fn is_as(told: Option<f64>, expected: Option<i64>) -> bool {
    match (told, expected) {
        (Some(told), Some(expected)) => {
            let expected = expected as f64;
            told <= expected && told > expected - STEP as f64
        }
        (told, expected) => told.is_none() && expected.is_none(),
    }
}

fn answer(row: &Row) -> (Option<f64>, Option<f64>) {
    (row.get("client_next_in"), row.get("token_next_in"))
}

async fn live_token(operator: &Operator) -> TokenHash {
    let (workspace, owner) = super::workspace(operator).await;
    let workflow = operator.create_workflow(workspace, owner, "Contact", DEFINITION);
    let workflow = workflow.await.unwrap().workflow_id;
    let deploying = operator.deploy_with(workflow, None, Some(Default::default()));
    let (_, link) = deploying.await.unwrap();
    TokenHash::of_text(link.unwrap().token.expose())
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        let operator = world.operator().await;
        let (mut gateways, mut tokens) = (Vec::new(), Vec::new());
        for _ in 0..GATEWAYS {
            gateways.push(world.session(Role::Gateway).await);
        }
        for _ in 0..TOKENS {
            tokens.push(live_token(&operator).await);
        }
        Stage {
            world,
            gateways,
            tokens,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        stage.world.change("DELETE FROM rate_limits").await;
        let client = |_| [b"c", Uuid::new_v4().as_bytes().as_slice()].concat();
        Self {
            clients: (0..CLIENTS).map(client).collect(),
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        match event {
            Event::Ask(gateway, requests) => {
                let told = self.ask(stage, gateway, &requests).await;
                assert_eq!(told.len(), model.told.len());
                for (told, expected) in told.iter().map(answer).zip(&model.told) {
                    let is_as = is_as(told.0, expected.0) && is_as(told.1, expected.1);
                    assert!(is_as, "{told:?} instead of {expected:?}: {model:?}");
                }
            }
            Event::AskAtOnce(one, many) => {
                let [first, second] = many.map(|many| vec![one; many]);
                let told = tokio::join!(self.ask(stage, 0, &first), self.ask(stage, 1, &second));
                let told = told.0.iter().chain(&told.1).map(answer);
                let passed = told.filter(|one| *one == (None, None));
                let expected = model.told.iter().filter(|one| **one == (None, None));
                assert_eq!(passed.count(), expected.count(), "{model:?}");
            }
            Event::Pass(steps) => self.change(stage, -steps * STEP).await,
            Event::SetBack => self.change(stage, BACK).await,
            Event::Sweep => {
                let sweep = super::of_gateway("sweep_rate_limits").sql;
                let sweeping = stage.gateways[0].execute(sweep, &[&1_000_i64]);
                sweeping.await.unwrap();
            }
        }
    }
}

#[test]
fn every_request_is_counted_as_the_model_does() {
    super::check::<Real>(40);
}
