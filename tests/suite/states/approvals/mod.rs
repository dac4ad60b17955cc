//! Questions: a worker asks, people with and without the right answer once, twice, late or at once,
//! and meanwhile time passes, roles and policies change, and the run is cancelled and retried. Each
//! is told what the model says: nothing is sent but by the approval of one who may, for the
//! question that was shown, by the policy of that moment.

mod events;
mod model;

use letterbox_common::{
    ids::{ApprovalId, UserId},
    states::{ActiveState, ApprovalState, MemberRole},
};
use letterbox_operator::Operator;
use letterbox_tests::World;

use self::events::Event;
use self::model::{Model, PEOPLE, Policy, Question, ROLES, Rows, Seen, Step, Told};
use super::worker::{Account, Decided, LEASE, Run, Worker};
use letterbox_worker::executor::{
    approvals::ApprovalStatus,
    transition::{Change, End, Then},
};
use letterbox_workflow::Decision;

const ROWS: &str = "
SELECT r.state AS run, a.state AS active, a.due_at <= clock_timestamp() AS is_due,
       x.state AS action, x.begun, p.state AS question, p.approval_id, p.decided_by,
       p.expires_at <= clock_timestamp() AS is_over
FROM runs r LEFT JOIN active_runs a USING (workspace_id, run_id)
LEFT JOIN run_actions x USING (workspace_id, run_id)
LEFT JOIN approvals p USING (workspace_id, run_id) WHERE r.run_id = $1";

/// The same on a database.
struct Real {
    run: Run,
    /// Each in a session of their own.
    people: Vec<(UserId, Operator)>,
    /// The ids under which the question was asked.
    ids: Vec<ApprovalId>,
    /// What the worker that has the run has read.
    turn: Option<(i64, Seen, Policy)>,
}

struct Stage {
    world: World,
    operator: Operator,
    worker: Worker,
}

impl Real {
    async fn rows(&mut self, stage: &Stage) -> Rows {
        let row = stage.world.database.query_one(ROWS, &[&self.run.run]).await;
        let row = row.unwrap();
        let active: Option<ActiveState> = row.get("active");
        let state: Option<ApprovalState> = row.get("question");
        let id: Option<ApprovalId> = row.get("approval_id");
        if let Some(id) = id
            && self.ids.last() != Some(&id)
        {
            assert!(!self.ids.contains(&id), "an id comes back");
            self.ids.push(id);
        }
        let by: Option<UserId> = row.get("decided_by");
        let person = |by| {
            self.people
                .iter()
                .position(|(user, _)| *user == by)
                .unwrap()
        };
        let (operator, workspace) = (&stage.operator, Some(self.run.workspace));
        let waiting = operator.waiting_approvals(workspace, 10).await.unwrap();
        Rows {
            run: row.get("run"),
            active: active.map(|active| (active, row.get("is_due"))),
            action: row.get("action"),
            begun: row.get::<_, Option<i32>>("begun").unwrap_or(0),
            question: state.map(|state| Question {
                state,
                is_over: row.get("is_over"),
                by: by.map(person),
                number: self.ids.len() - 1,
            }),
            is_listed: waiting.iter().any(|one| Some(one.row.approval_id) == id),
        }
    }

    async fn take(&mut self, stage: &Stage, policy: Policy) -> Option<Seen> {
        let (turn, taken) = stage.worker.take(&self.run).await?;
        let (facts, record) = stage.worker.load(&self.run).await;
        let approval = record.as_ref().and_then(|record| record.approval);
        let seen = Seen {
            is_cancelled: taken.is_cancelled,
            version: facts.circumstances.policy_version,
            begun: record.as_ref().map_or(0, |record| record.begun),
            question: approval.map(|approval| match approval {
                ApprovalStatus::Pending(_) => ApprovalState::Pending,
                ApprovalStatus::Approved | ApprovalStatus::Lapsed => ApprovalState::Approved,
                ApprovalStatus::Denied => ApprovalState::Denied,
                ApprovalStatus::Expired => ApprovalState::Expired,
                ApprovalStatus::Withdrawn => ApprovalState::Withdrawn,
            }),
            has_lapsed: approval == Some(ApprovalStatus::Lapsed),
        };
        self.turn = Some((turn, seen, policy));
        Some(seen)
    }

    async fn act(&mut self, worker: &Worker) -> bool {
        let (turn, seen, policy) = self.turn.take().unwrap();
        let by = Decided {
            decision: match policy {
                Policy::Allows => Decision::Allow,
                Policy::Asks | Policy::AsksAnother => Decision::Approve,
            },
            policy: seen.version,
            was_asked: seen.question.is_some(),
            begun: seen.begun,
            answered: seen.begun,
        };
        let run = &self.run;
        match Model::step(seen, policy) {
            Step::LetGo => worker.let_go(run, turn).await.is_held,
            Step::Ask => {
                let change = Change::AwaitsApproval(run.decided(&by));
                let then = Then::AwaitApproval(LEASE);
                worker.change(run, turn, &by, change, then).await.is_held
            }
            Step::Deny => {
                let change = Change::Denied(run.failure(None), run.decided(&by));
                let then = Then::End(End::Denied("because".to_owned()));
                worker.change(run, turn, &by, change, then).await.is_held
            }
            Step::Begin => {
                let begins = worker.begin(run, turn, &by).await.is_some();
                if begins {
                    let writing = worker.write(run, turn, seen.begun + 1, Account::Busy);
                    assert!(writing.await.is_counted);
                } else {
                    worker.let_go(run, turn).await;
                }
                begins
            }
        }
    }

    /// Whether an answer to what was asked under an id counts.
    async fn answer(&self, id: ApprovalId, by: usize, yes: bool) -> bool {
        let (user, person) = &self.people[by];
        let answered = match yes {
            true => person.approve(id, *user).await,
            false => person.deny(id, *user).await,
        };
        super::done(answered)
    }

    async fn answer_at_once(&mut self, id: ApprovalId) -> bool {
        let answers = tokio::join!(self.answer(id, 1, true), self.answer(id, 2, true));
        if answers.1 {
            self.people.swap(1, 2);
        }
        assert_ne!(answers, (true, true), "it is answered once");
        answers.0 || answers.1
    }

    async fn set_role(&self, operator: &Operator, who: usize, role: Option<MemberRole>) {
        let (workspace, user) = (self.run.workspace, self.people[who].0);
        let set = match role {
            Some(role) => operator.set_member(workspace, user, role, false).await,
            None => operator.remove_member(workspace, user).await,
        };
        set.unwrap();
    }
}

async fn set_policy(operator: &Operator, run: &Run, policy: Policy) -> i32 {
    let text = match policy {
        Policy::Asks => r#"{"rules": [], "default": "approve"}"#,
        Policy::AsksAnother => r#"{"rules": [], "default": "approve", "approve_by": "another"}"#,
        Policy::Allows => r#"{"rules": [], "default": "allow"}"#,
    };
    let setting = operator.set_policy(run.workspace, text);
    setting.await.unwrap().version
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        Stage {
            operator: world.operator().await,
            worker: Worker::new(&world).await,
            world,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        let run = Run::new(&stage.world, &stage.operator).await;
        assert!(stage.worker.record(&run).await);
        assert_eq!(set_policy(&stage.operator, &run, Policy::Asks).await, 1);
        let mut people = vec![(run.owner, stage.world.person(run.owner).await)];
        for role in ROLES[1..PEOPLE].iter().flatten() {
            let user = super::member(&stage.operator, run.workspace, *role).await;
            people.push((user, stage.world.person(user).await));
        }
        Self {
            run,
            people,
            ids: Vec::new(),
            turn: None,
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        let (operator, id) = (&stage.operator, self.ids.last().copied());
        let told = match event {
            Event::Take => Told::Taken(self.take(stage, model.policy).await),
            Event::Act => Told::Done(self.act(&stage.worker).await),
            Event::Answer { by, yes } => Told::Done(self.answer(id.unwrap(), by, yes).await),
            Event::AnswerAtOnce => Told::Done(self.answer_at_once(id.unwrap()).await),
            Event::AnswerFormer(by) => {
                let former = self.ids[self.ids.len() - 2];
                Told::Done(self.answer(former, by, true).await)
            }
            Event::Expire => {
                let expire = format!(
                    "UPDATE approvals SET expires_at = clock_timestamp() - interval '10 seconds'
                     WHERE run_id = '{id}' AND state = 'pending';
                     UPDATE active_runs SET due_at = clock_timestamp() WHERE run_id = '{id}'",
                    id = self.run.run
                );
                stage.world.change(&expire).await;
                Told::Nothing
            }
            Event::SetPolicy(policy) => {
                let version = set_policy(operator, &self.run, policy).await;
                assert_eq!(version, model.version);
                Told::Nothing
            }
            Event::SetRole(who, role) => {
                self.set_role(operator, who, role).await;
                Told::Nothing
            }
            Event::Cancel => Told::Ordered(self.run.cancel(operator).await),
            Event::Retry => Told::Ordered(self.run.retry(operator).await),
        };
        assert_eq!(told, model.told);
        assert_eq!(self.rows(stage).await, model.rows);
    }
}

#[test]
fn every_answer_and_row_is_the_models() {
    super::check::<Real>(60);
}
