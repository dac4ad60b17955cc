//! Sessions of the desk and the links that begin them: used once, twice, late or at once, ended by
//! their people, by time and by an operator, while people join and leave. The model says which
//! session is anybody's, and what it sees.

mod model;

use letterbox_common::Token;
use letterbox_common::ids::{UserId, WorkspaceId};
use letterbox_common::states::MemberRole;
use letterbox_database::Database;
use letterbox_operator::{Operator, Orderer};
use letterbox_tests::World;

use self::model::{DAYS, Event, Model, STEP, Told, USERS};

/// The same on a database.
struct Real {
    workspace: WorkspaceId,
    users: Vec<UserId>,
    links: Vec<Token>,
    sessions: Vec<Token>,
}

struct Stage {
    world: World,
    operator: Operator,
    desks: [Database; 2],
}

fn address() -> String {
    "192.0.2.7".to_owned()
}

impl Real {
    async fn sign_in(&mut self, desks: &[Database; 2], link: usize, by_two: bool) -> bool {
        let link = &self.links[link];
        let begin = async |desk: &Database| {
            let begun = Operator::begin_session(desk, link, "192.0.2.7".into()).await;
            begun.unwrap()
        };
        let begun = match by_two {
            true => tokio::join!(begin(&desks[0]), begin(&desks[1])),
            false => (begin(&desks[0]).await, None),
        };
        let begun = [begun.0, begun.1].into_iter().flatten();
        let known = self.sessions.len();
        self.sessions.extend(begun);
        assert!(self.sessions.len() <= known + 1, "a link begins one");
        self.sessions.len() > known
    }

    /// The person whose session it is.
    async fn person(&self, desk: &Database, session: usize) -> Option<Operator> {
        let session = &self.sessions[session];
        let person = Operator::in_session(desk, session, address(), Orderer::default()).await;
        person.unwrap()
    }

    async fn look(&self, desk: &Database, session: usize) -> Option<(usize, bool)> {
        let person = self.person(desk, session).await?;
        let is_user = |user: &UserId| person.person().is_some_and(|one| one.user_id == *user);
        let members = person.members(self.workspace).await;
        let sees = members.is_ok_and(|members| !members.is_empty());
        Some((self.users.iter().position(is_user).unwrap(), sees))
    }

    async fn pass(&self, stage: &Stage, age: u32, unused: u32) {
        let pass = format!(
            "UPDATE sessions SET created_at = created_at - interval '{age} hours',
                 seen_at = seen_at - interval '{unused} hours'"
        );
        stage.world.change(&pass).await;
    }

    async fn move_member(&self, operator: &Operator, user: usize, is_member: bool) {
        let (workspace, user) = (self.workspace, self.users[user]);
        let moved = match is_member {
            true => {
                operator
                    .set_member(workspace, user, MemberRole::Viewer, false)
                    .await
            }
            false => operator.remove_member(workspace, user).await,
        };
        moved.unwrap();
    }
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        Stage {
            operator: world.operator().await,
            desks: [world.desk(), world.desk()],
            world,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        let (workspace, _) = super::workspace(&stage.operator).await;
        let mut users = Vec::new();
        for _ in 0..USERS {
            users.push(super::member(&stage.operator, workspace, MemberRole::Viewer).await);
        }
        Self {
            workspace,
            users,
            links: Vec::new(),
            sessions: Vec::new(),
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        let operator = &stage.operator;
        let mut told = Told::Nothing;
        match event {
            Event::MakeLink(user) => {
                let link = operator.make_sign_in_link(self.users[user]).await;
                self.links.push(link.unwrap().token);
            }
            Event::Use { link, by_two } => {
                told = Told::Begun(self.sign_in(&stage.desks, link, by_two).await);
            }
            Event::ExpireLinks => {
                let expire = "UPDATE sign_in_links SET expires_at = clock_timestamp()";
                stage.world.change(expire).await;
            }
            Event::Look(session) => told = Told::Seen(self.look(&stage.desks[0], session).await),
            Event::End(session) => {
                let person = self.person(&stage.desks[0], session).await;
                told = Told::Ended(person.is_some());
                if let Some(person) = person {
                    person.end_session().await.unwrap();
                }
            }
            Event::SignOut(user) => {
                let ended = operator.sign_out_user(self.users[user]).await;
                told = Told::SignedOut(ended.unwrap().sessions as usize);
            }
            Event::Pass => self.pass(stage, STEP, STEP).await,
            Event::PassInUse => self.pass(stage, DAYS, 0).await,
            Event::Move(user) => {
                self.move_member(operator, user, model.is_member[user])
                    .await;
            }
        }
        assert_eq!(told, model.told, "{model:#?}");
    }
}

#[test]
fn every_session_is_whose_the_model_says() {
    super::check::<Real>(60);
}
