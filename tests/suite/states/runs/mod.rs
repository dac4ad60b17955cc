//! Runs: workers take turns, lose them, come back as zombies, begin attempts and write answers late
//! or twice, while people cancel, hold and retry. Each is told what the model says, and the rows
//! are the model's: an attempt begins for the turn that lasts, under one key, and its answer counts
//! once.
//!
//! A worker is known by its turn: one that has crashed is a turn for which nothing happens after.

mod events;
mod model;

use letterbox_common::states::{ActionState, ActiveState, MemberRole, RunState};
use letterbox_operator::Operator;
use letterbox_tests::{EXPIRE, World};
use std::collections::HashMap;
use uuid::Uuid;

use self::events::Event;
use self::model::{Action, Active, Model, Need, Rows, Seen, Told};
use super::worker::{Account, Decided, Run, Taken, Worker};
use letterbox_worker::executor::transition::End;
use letterbox_workflow::Decision;
use proptest_state_machine::ReferenceStateMachine;

/// The same on a database.
struct Real {
    run: Run,
    turns: Vec<i64>,
    /// The attempt of each turn.
    attempts: HashMap<usize, i32>,
    keys: Vec<Uuid>,
}

struct Stage {
    world: World,
    operator: Operator,
    workers: [Worker; 2],
}

const ROWS: &str = "
SELECT r.state AS run, a.state, a.due_at <= clock_timestamp() AS is_due, a.turn, a.idle_turns,
       a.is_cancelled, x.state AS action, x.begun, x.answered, x.unanswered, x.attempts,
       x.error IS NOT NULL AS is_explained, x.idempotency_key
FROM runs r LEFT JOIN active_runs a USING (workspace_id, run_id)
LEFT JOIN run_actions x USING (workspace_id, run_id) WHERE r.run_id = $1";

impl Real {
    async fn rows(&mut self, stage: &Stage) -> Rows {
        let row = stage.world.database.query_one(ROWS, &[&self.run.run]).await;
        let row = row.unwrap();
        let turn = |token| self.turns.iter().position(|turn| *turn == token).unwrap();
        let state: Option<ActiveState> = row.get("state");
        let active = state.map(|state| Active {
            state,
            is_due: row.get("is_due"),
            turn: row.get::<_, Option<i64>>("turn").map(turn),
            idle: row.get("idle_turns"),
            is_cancelled: row.get("is_cancelled"),
        });
        let state: Option<ActionState> = row.get("action");
        let action = state.map(|state| Action {
            state,
            begun: row.get("begun"),
            answered: row.get("answered"),
            unanswered: row.get("unanswered"),
            attempts: row.get("attempts"),
            is_explained: row.get("is_explained"),
            key: place(&mut self.keys, row.get("idempotency_key")),
        });
        Rows {
            run: row.get("run"),
            active,
            action,
        }
    }

    async fn take(&mut self, stage: &Stage, by_two: bool) -> Option<Taken> {
        let [one, other] = &stage.workers;
        let taken = match by_two {
            true => tokio::join!(one.take(&self.run), other.take(&self.run)),
            false => (one.take(&self.run).await, None),
        };
        assert!(taken.0.is_none() || taken.1.is_none(), "two have it");
        let (turn, taken) = taken.0.or(taken.1)?;
        self.turns.push(turn);
        Some(taken)
    }

    async fn load(&self, worker: &Worker) -> Seen {
        let (facts, record) = worker.load(&self.run).await;
        let record = record.unwrap_or_default();
        let now = facts.circumstances;
        Seen {
            state: record.state,
            begun: record.begun,
            answered: record.answered,
            policy: now.policy_version,
            needs: [
                !now.is_held,
                now.owner_may_run,
                now.account.is_some_and(|one| !one.waits),
            ],
        }
    }

    async fn begin_attempt(&mut self, worker: &Worker, turn: usize, seen: Seen) -> Option<usize> {
        let by = Decided {
            decision: Decision::Allow,
            policy: seen.policy,
            was_asked: false,
            begun: seen.begun,
            answered: seen.answered,
        };
        let key = worker.begin(&self.run, self.turns[turn], &by).await?;
        self.attempts.insert(turn, seen.begun + 1);
        Some(place(&mut self.keys, key))
    }

    async fn toggle(&self, stage: &Stage, need: Need, holds: bool) {
        let (workspace, operator) = (self.run.workspace, &stage.operator);
        match (need, holds) {
            (Need::Workspace, false) => assert!(operator.hold(Some(workspace)).await.unwrap()),
            (Need::Workspace, true) => assert!(operator.release(Some(workspace)).await.unwrap()),
            (Need::Right, _) => {
                let roles = [MemberRole::Viewer, MemberRole::Runner];
                let role = roles[usize::from(holds)];
                let setting = operator.set_member(workspace, self.run.owner, role, false);
                setting.await.unwrap();
            }
            (Need::Account, _) => {
                let waits = "UPDATE connected_accounts SET waits_for = $2 WHERE account_id = $1";
                let waits_for = (!holds).then_some("owner");
                let (database, account) = (&stage.world.database, &self.run.account);
                let changed = database.execute(waits, &[account, &waits_for]).await;
                assert_eq!(changed.unwrap(), 1);
            }
        }
    }
}

/// The place of something, in the order in which all came up first.
fn place(known: &mut Vec<Uuid>, one: Uuid) -> usize {
    let place = known.iter().position(|known| *known == one);
    place.unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    })
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        Stage {
            operator: world.operator().await,
            workers: [Worker::new(&world).await, Worker::new(&world).await],
            world,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        let run = Run::new(&stage.world, &stage.operator).await;
        assert!(stage.workers[0].record(&run).await);
        Self {
            run,
            turns: Vec::new(),
            attempts: HashMap::new(),
            keys: Vec::new(),
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        let worker = &stage.workers[0];
        let mut told = Told::Nothing;
        match event {
            Event::Arrive => assert!(!worker.record(&self.run).await, "one run"),
            Event::Take { by_two } => told = Told::Taken(self.take(stage, by_two).await),
            Event::Load(_) => told = Told::Seen(self.load(worker).await),
            Event::Begin(turn) => {
                let seen = model.turns[turn].seen.unwrap();
                told = Told::Begun(self.begin_attempt(worker, turn, seen).await);
            }
            Event::Write(turn, said) => {
                let seen = model.turns[turn].seen.map_or(0, |seen| seen.begun);
                let attempt = self.attempts.get(&turn).copied().unwrap_or(seen + 1);
                let writing = worker.write(&self.run, self.turns[turn], attempt, said);
                told = Told::Written(writing.await);
            }
            Event::Keep(turn) => worker.keep(&self.run, self.turns[turn]).await,
            Event::LetGo(turn) => {
                told = Told::Written(worker.let_go(&self.run, self.turns[turn]).await);
            }
            Event::End(turn) => {
                let end = match Model::end_by(model.turns[turn].seen.unwrap()) {
                    RunState::Succeeded => End::Succeeded,
                    state => End::Failed(state.to_string()),
                };
                worker.end(&self.run, self.turns[turn], end).await;
            }
            Event::Expire => {
                let expire = format!("{EXPIRE} WHERE run_id = '{}'", self.run.run);
                stage.world.change(&expire).await;
            }
            Event::Cancel => told = Told::Ordered(self.run.cancel(&stage.operator).await),
            Event::Retry => told = Told::Ordered(self.run.retry(&stage.operator).await),
            Event::Toggle(need) => self.toggle(stage, need, model.needs[need as usize]).await,
            Event::ChangePolicy => {
                let policy = r#"{"rules": [], "default": "allow"}"#;
                let setting = stage.operator.set_policy(self.run.workspace, policy);
                assert_eq!(setting.await.unwrap().version, model.policy);
            }
        }
        assert_eq!(told, model.told);
        assert_eq!(self.rows(stage).await, model.rows);
    }
}

/// Few random orders come as far as this.
#[tokio::test]
async fn a_withdrawn_attempt_leaves_what_the_one_before_has_failed_with() {
    let stage = <Real as super::Real>::stage(World::new().await).await;
    let mut real = <Real as super::Real>::begin(&stage).await;
    let mut model = Model::new();
    let turn = |turn, said| {
        let take = Event::Take { by_two: false };
        let (load, begin) = (Event::Load(turn), Event::Begin(turn));
        [take, load, begin, Event::Write(turn, said), Event::Expire]
    };
    let events = [turn(0, Account::Busy), turn(1, Account::Unasked)];
    for event in events.into_iter().flatten() {
        model = Model::apply(model, &event);
        super::Real::apply(&mut real, &stage, &model, event).await;
    }
    assert!(model.rows.action.unwrap().is_explained);
}

/// Who does not know whether its attempt has begun means the attempt of another turn.
#[tokio::test]
async fn what_was_not_seen_to_begin_is_withdrawn_for_its_turn() {
    let stage = <Real as super::Real>::stage(World::new().await).await;
    let mut real = <Real as super::Real>::begin(&stage).await;
    let mut model = Model::new();
    let take = Event::Take { by_two: false };
    let unseen = |turn| Event::Write(turn, Account::Unseen);
    let lost = [take.clone(), Event::Load(0), Event::Expire];
    let other = [take, Event::Load(1), Event::Begin(1), unseen(0)];
    for event in lost.into_iter().chain(other) {
        model = Model::apply(model, &event);
        super::Real::apply(&mut real, &stage, &model, event).await;
    }
    assert_eq!(model.rows.action.unwrap().unanswered, 1, "it may be sent");
    let event = unseen(1);
    model = Model::apply(model, &event);
    super::Real::apply(&mut real, &stage, &model, event).await;
    assert_eq!(model.rows.action.unwrap().unanswered, 0);
}

#[test]
fn every_answer_and_row_is_the_models() {
    super::check::<Real>(60);
}
