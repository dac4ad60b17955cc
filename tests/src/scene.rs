//! Runs that act: a form whose owner's account `crm` is a peer, and what became of its run.

use letterbox_common::ids::{ApprovalId, WorkspaceId};
use letterbox_operator::{ApprovalRow, RunDetail, RunFilter, RunRow};
use serde_json::{Value, json};

use crate::{Form, Peer, Process, Received, Reply, World, definition_with};

/// Ends every lease, and every time that a run waits for.
pub const EXPIRE: &str = "UPDATE active_runs SET due_at = clock_timestamp()";

/// Where a model is asked.
pub const CHAT: &str = "/chat/completions";

/// An action that posts to `/ID` of the account `crm`.
pub fn post(id: &str) -> Value {
    json!({
        "id": id, "type": "http.request", "account": "crm", "method": "POST",
        "path": format!("/{id}"),
        "body": {"name": "{{ form.name }}", "run": "{{ run.id }}"},
    })
}

/// An action that calls the account `crm`.
pub fn call(id: &str, method: &str, path: &str) -> Value {
    call_with(id, method, path, json!({}))
}

/// The same, with further members.
pub fn call_with(id: &str, method: &str, path: &str, members: Value) -> Value {
    let mut action = json!({"id": id, "type": "http.request", "account": "crm"});
    (action["method"], action["path"]) = (method.into(), path.into());
    for (name, value) in members.as_object().unwrap() {
        action[name] = value.clone();
    }
    action
}

/// Asks a model about the message; `yes` leads to /steered, `no` to /other.
pub fn asking() -> Value {
    json!([{
        "id": "ask", "type": "ai.condition", "account": "crm", "model": "m-1",
        "question": "Is it urgent?", "input": "{{ form.message }}",
        "then": [post("steered")], "else": [post("other")],
    }])
}

/// A peer whose model gives this answer, and which takes everything else.
pub fn script(answer: &'static str) -> impl Fn(&Received, usize) -> Reply + Send + Sync + 'static {
    move |request, _| match request.target.as_str() {
        CHAT => Reply::chat(answer),
        _ => Reply::Status(200),
    }
}

impl World {
    /// A form whose workflow has these actions, and whose owner's account `crm` is at `base_url`.
    pub async fn acting_form(&self, gateway: &Process, base_url: &str, actions: Value) -> Form {
        let plain = self.form(gateway).await;
        let (workspace, owner) = (plain.workspace, plain.owner);
        self.connect(workspace, owner, "crm", base_url).await;
        let definition = definition_with(actions);
        self.form_of(gateway, workspace, owner, &definition).await
    }

    /// A form whose run posts to `/send` of a peer.
    pub async fn sending_form(&self, gateway: &Process, peer: &Peer) -> Form {
        let actions = json!([post("send")]);
        self.acting_form(gateway, &peer.url, actions).await
    }

    /// Sets a workspace's policy; its version.
    pub async fn set_policy(&self, workspace: WorkspaceId, policy: Value) -> i32 {
        assert_eq!(crate::problems_of_policy(&policy), [""; 0]);
        let operator = self.operator().await;
        let setting = operator.set_policy(workspace, &policy.to_string()).await;
        setting.unwrap().version
    }

    /// Sets a policy that decides the same about everything.
    pub async fn decide(&self, workspace: WorkspaceId, decision: &str) {
        let policy = json!({"rules": [], "default": decision});
        self.set_policy(workspace, policy).await;
    }

    /// What waits for an answer in a workspace, oldest first.
    pub async fn waiting(&self, workspace: WorkspaceId) -> Vec<ApprovalRow> {
        let operator = self.operator().await;
        let waiting = operator.waiting_approvals(Some(workspace), 100).await;
        let mut waiting: Vec<_> = waiting.unwrap().into_iter().map(|one| one.row).collect();
        waiting.sort_by_key(|one| one.created_at);
        waiting
    }

    /// Asserts why the newest run of a form has failed.
    pub async fn assert_failed(&self, form: &Form, why: &str) {
        let failure = self.run_of(form).await.row.failure.unwrap();
        assert!(failure.contains(why), "{failure}");
    }

    /// Submits once, and waits until so many runs are in a state.
    pub async fn submit_until(&self, form: &Form, key: &str, state: &str, runs: i64) {
        form.assert_accepts(key).await;
        self.await_state(state, runs).await;
    }

    /// The newest run of a form.
    pub async fn run_of(&self, form: &Form) -> RunDetail {
        let operator = self.operator().await;
        operator
            .run(self.runs_of(form).await[0].run_id)
            .await
            .unwrap()
    }

    /// The newest runs of a form.
    pub async fn runs_of(&self, form: &Form) -> Vec<RunRow> {
        let of_form = RunFilter {
            workflow: Some(form.workflow),
            ..RunFilter::default()
        };
        let operator = self.operator().await;
        let runs = operator.runs(form.workspace, &of_form, None, 10).await;
        runs.unwrap()
    }
}

/// A form that acts, with the processes that make it act.
pub struct Scene {
    pub world: World,
    pub gateway: Process,
    pub worker: Process,
    pub form: Form,
}

impl Scene {
    pub async fn new(peer: &Peer, actions: Value) -> Self {
        let world = World::new().await;
        let (gateway, worker) = (world.gateway().await, world.worker().await);
        let form = world.acting_form(&gateway, &peer.url, actions).await;
        Self {
            world,
            gateway,
            worker,
            form,
        }
    }

    /// One that posts to a peer which takes everything.
    pub async fn posting(id: &str) -> (Peer, Self) {
        let peer = Peer::start(|_, _| Reply::Status(200)).await;
        let scene = Self::new(&peer, json!([post(id)])).await;
        (peer, scene)
    }

    /// One whose runs do nothing but end.
    pub async fn recording() -> Self {
        let (world, gateway, worker, form) = World::with_recorded_form().await;
        Self {
            world,
            gateway,
            worker,
            form,
        }
    }

    /// Submits once, and waits until so many runs are in a state.
    pub async fn submit_until(&self, key: &str, state: &str, runs: i64) {
        self.world.submit_until(&self.form, key, state, runs).await;
    }

    pub async fn the_run(&self) -> RunDetail {
        self.world.run_of(&self.form).await
    }

    /// The only approval that is waited for.
    pub async fn the_approval(&self) -> ApprovalRow {
        self.world.await_state("waiting_approval", 1).await;
        let mut waiting = self.world.waiting(self.form.workspace).await;
        assert_eq!(waiting.len(), 1);
        waiting.remove(0)
    }

    /// Submits once: the question about it.
    pub async fn submit_asked(&self, key: &str) -> ApprovalRow {
        self.form.assert_accepts(key).await;
        self.the_approval().await
    }

    /// Has a person asked about everything, and submits once: the question.
    pub async fn ask(&self) -> ApprovalRow {
        self.decide("approve").await;
        self.submit_asked("k").await
    }

    /// Sets a policy that decides the same about everything.
    pub async fn decide(&self, decision: &str) {
        self.world.decide(self.form.workspace, decision).await;
    }

    /// Sets a policy of one rule, which allows everything else.
    pub async fn set_rule(&self, when: Value, decision: &str) {
        let rule = json!({"when": when, "decision": decision});
        self.set_policy(json!({"rules": [rule], "default": "allow"}))
            .await;
    }

    /// Sets a policy that allows everything, what agents do as well.
    pub async fn allow_agents(&self) {
        let agents = json!({"steered_by": "ai.agent"});
        self.set_rule(agents, "allow").await;
    }

    /// The owner approves.
    pub async fn approve(&self, question: ApprovalId) {
        self.world.approve(question, self.form.owner).await;
    }

    /// The owner denies.
    pub async fn deny(&self, question: ApprovalId) {
        self.world.deny(question, self.form.owner).await;
    }

    /// Asserts why the run has failed.
    pub async fn assert_failed(&self, why: &str) {
        self.world.assert_failed(&self.form, why).await;
    }

    /// Sets the workspace's policy; its version.
    pub async fn set_policy(&self, policy: Value) -> i32 {
        self.world.set_policy(self.form.workspace, policy).await
    }
}
