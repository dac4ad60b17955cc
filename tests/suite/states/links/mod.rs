//! Form links: made, replaced, ended by order and by plain SQL, closed by time and by the number of
//! answers, while the workflow moves and its owner loses the right to run. Meanwhile people read
//! and submit at two gateways, through links of any age. Each is told what the model says.
//!
//! Transactions that overlap are the matter of `form_link_interleavings.rs`.

mod model;

use std::time::Duration;

use jiff::Timestamp;
use letterbox_common::states::MemberRole;
use letterbox_operator::{Closing, Operator};
use letterbox_tests::{DEFINITION, Form, Process, World, payload};

use self::model::{Event, GATEWAYS, Model, Right};
use super::done;

/// All come from here; the limits are forgotten again and again.
const CLIENT: &str = "198.51.100.1";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Nothing else can move the time at which a link closes.
const CLOSE: &str = "
BEGIN;
ALTER TABLE form_links DISABLE TRIGGER USER;
UPDATE form_links SET created_at = created_at - interval '2 days',
    closes_at = closes_at - interval '2 days';
ALTER TABLE form_links ENABLE TRIGGER USER;
COMMIT";

/// The same behind two gateways.
struct Real {
    /// Without a link.
    form: Form,
    links: Vec<Form>,
}

struct Stage {
    world: World,
    operator: Operator,
    gateways: [Process; GATEWAYS],
}

impl Real {
    async fn make(&mut self, operator: &Operator, after_answers: Option<i32>) -> bool {
        let closing = Closing {
            at: Some(Timestamp::now() + DAY),
            after_answers,
        };
        let made = operator.create_form_link(self.form.workflow, closing).await;
        if let Ok(made) = &made {
            self.links.push(self.form.with_token(made.token.expose()));
        }
        done(made)
    }

    /// How many rows a statement has changed; none if it was refused.
    async fn changed(&self, stage: &Stage, change: &str) -> u64 {
        let change = format!("{change} workflow_id = '{}'", self.form.workflow);
        let changed = stage.world.database.execute(&change, &[]).await;
        changed.unwrap_or(0)
    }

    async fn set_right(&self, operator: &Operator, right: Right) {
        let (workspace, owner) = (self.form.workspace, self.form.owner);
        let (role, is_deactivated) = match right {
            Right::Runs => (MemberRole::Runner, false),
            Right::Views => (MemberRole::Viewer, false),
            Right::IsDeactivated => (MemberRole::Runner, true),
            Right::HasLeft => {
                operator.remove_member(workspace, owner).await.unwrap();
                return;
            }
        };
        let setting = operator.set_member(workspace, owner, role, is_deactivated);
        setting.await.unwrap();
    }

    async fn submit(&self, gateway: &Process, link: usize, key: usize) -> bool {
        let form = self.links[link].at(gateway);
        let answer = form.submit(&format!("key {key}"), &payload()).await;
        is_there(answer.status)
    }

    async fn do_it(&mut self, stage: &Stage, event: Event) -> bool {
        let operator = &stage.operator;
        let workflow = self.form.workflow;
        match event {
            Event::Make(places) => self.make(operator, places).await,
            Event::End { by_sql: false } => done(operator.end_form_link(workflow).await),
            Event::End { by_sql: true } => {
                let end = "UPDATE form_links SET ended_at = now() WHERE ended_at IS NULL AND";
                self.changed(stage, end).await == 1
            }
            Event::Deploy => done(operator.deploy(workflow, None).await),
            Event::Move(to) => done(operator.move_workflow(workflow, to).await),
            Event::MoveBySql => {
                let to_itself = "UPDATE workflows SET state = state WHERE";
                self.changed(stage, to_itself).await == 1
            }
            Event::SetRight(right) => {
                self.set_right(operator, right).await;
                true
            }
            Event::Close => {
                stage.world.change(CLOSE).await;
                true
            }
            Event::Read(link, at) => {
                let form = self.links[link].at(&stage.gateways[at]);
                is_there(form.read().await.status)
            }
            Event::Submit(link, key, at) => self.submit(&stage.gateways[at], link, key).await,
            Event::SubmitAtOnce(link, key) => {
                let [one, other] = &stage.gateways;
                let both = (self.submit(one, link, key), self.submit(other, link, key));
                let both = tokio::join!(both.0, both.1);
                assert_eq!(both.0, both.1, "both are told the same");
                both.0
            }
        }
    }
}

fn is_there(status: u16) -> bool {
    assert!(matches!(status, 200 | 404), "{status}");
    status == 200
}

impl super::Real for Real {
    type Model = Model;
    type Stage = Stage;

    async fn stage(world: World) -> Stage {
        Stage {
            operator: world.operator().await,
            gateways: [world.gateway().await, world.gateway().await],
            world,
        }
    }

    async fn begin(stage: &Stage) -> Self {
        let (workspace, owner) = super::workspace(&stage.operator).await;
        let creating = stage
            .operator
            .create_workflow(workspace, owner, "Contact", DEFINITION);
        let workflow = creating.await.unwrap().workflow_id;
        stage.world.redeploy(workflow).await;
        let gateway = stage.gateways[0].public_url();
        let none = "none yet, and never one";
        Self {
            form: Form::new(&gateway, workspace, owner, workflow, none).from(CLIENT),
            links: Vec::new(),
        }
    }

    async fn apply(&mut self, stage: &Stage, model: &Model, event: Event) {
        stage.world.forget_hits().await;
        assert_eq!(self.do_it(stage, event).await, model.is_done, "{model:#?}");

        let living = "SELECT count(*) FROM live_links";
        let recorded = "SELECT count(*) FROM form_submissions";
        let of = |counted| format!("{counted} WHERE workspace_id = '{}'", self.form.workspace);
        let living = stage.world.count(&of(living)).await;
        let expected = model.links.iter().filter(|one| one.is_alive).count();
        assert_eq!(living as usize, expected, "{model:#?}");
        let recorded = stage.world.count(&of(recorded)).await;
        assert_eq!(recorded as usize, model.recorded.len(), "{model:#?}");
    }
}

#[test]
fn every_door_answers_as_the_model_says() {
    super::check::<Real>(40);
}
