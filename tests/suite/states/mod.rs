//! Models against a real database: what one person, gateway or worker after the other does, in any
//! order that proptest thinks of. A model is plain, and says what each must be told.
//!
//! `LETTERBOX_TEST_STATES` sets how many orders of each model are tried.

mod approvals;
mod ceilings;
mod claims;
mod limits;
mod links;
mod runs;
mod sessions;
mod worker;

use letterbox_common::ids::{UserId, WorkspaceId};
use letterbox_common::states::MemberRole;
use letterbox_database::Statement;
use letterbox_operator::{Operator, OperatorError};
use letterbox_tests::World;
use proptest::test_runner::{Config, TestError, TestRunner};
use proptest_state_machine::ReferenceStateMachine;
use std::sync::atomic::Ordering;
use tokio::runtime::Runtime;
use uuid::Uuid;

/// Orders of each model.
const ORDERS: u32 = 16;
/// Longer than any of this takes: what is under way ends when time is moved in the database.
const LONG: u64 = 600;

type State<M> = <M as ReferenceStateMachine>::State;
type Event<M> = <M as ReferenceStateMachine>::Transition;

/// What a model is compared with.
trait Real: Sized {
    type Model: ReferenceStateMachine;
    /// What all cases share, because it takes long to start.
    type Stage;

    async fn stage(world: World) -> Self::Stage;

    /// Begins a case, in a workspace of its own.
    async fn begin(stage: &Self::Stage) -> Self;

    /// Does what has happened to the model already, and compares what comes of it.
    async fn apply(
        &mut self,
        stage: &Self::Stage,
        model: &State<Self::Model>,
        event: Event<Self::Model>,
    );
}

/// Tries many orders of at most so many events. The shortest one that fails is told.
fn check<R: Real>(events: usize) {
    let runtime = Runtime::new().unwrap();
    let stage = runtime.block_on(async { R::stage(World::new().await).await });
    let orders = std::env::var("LETTERBOX_TEST_STATES").map(|given| given.parse().unwrap());
    let mut runner = TestRunner::new(Config {
        cases: orders.unwrap_or(ORDERS),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let events = R::Model::sequential_strategy(1..=events);
    let tried = runner.run(&events, |(mut model, events, seen)| {
        runtime.block_on(async {
            let mut real = R::begin(&stage).await;
            for event in events {
                // By this, shrinking leaves out at once what comes after the failure.
                seen.iter()
                    .for_each(|seen| _ = seen.fetch_add(1, Ordering::SeqCst));
                model = R::Model::apply(model, &event);
                real.apply(&stage, &model, event).await;
            }
        });
        Ok(())
    });
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(reason, (_, events, _))) => panic!("{reason}\nafter {events:#?}"),
        Err(error) => panic!("{error}"),
    }
}

/// A workspace and its owner.
async fn workspace(operator: &Operator) -> (WorkspaceId, UserId) {
    let workspace = operator.create_workspace("Test", None).await.unwrap();
    let owner = member(operator, workspace.workspace_id, MemberRole::Owner).await;
    (workspace.workspace_id, owner)
}

/// A new user in a workspace.
async fn member(operator: &Operator, workspace: WorkspaceId, role: MemberRole) -> UserId {
    let email = format!("{}@example.com", Uuid::new_v4());
    let user = operator.create_user(&email, "Somebody").await.unwrap();
    let joining = operator.set_member(workspace, user.user_id, role, false);
    joining.await.unwrap();
    user.user_id
}

/// Whether an order was carried out, or refused.
fn done<T>(ordered: Result<T, OperatorError>) -> bool {
    match ordered {
        Ok(_) => true,
        Err(OperatorError::Refused(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A statement of the worker, by its name.
fn of_worker(name: &str) -> &'static Statement {
    let found = letterbox_worker::statements().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("the worker has no statement {name}"))
}

/// A statement of the gateway, by its name.
pub fn of_gateway(name: &str) -> &'static Statement {
    let found = letterbox_gateway::statements().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("the gateway has no statement {name}"))
}
