//! An agent works with the tools that it has, under the policy, and each of its calls is an action
//! of its run.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use letterbox_common::states::{ActionState, RunState};
use letterbox_operator::RunAction;
use letterbox_tests::{
    CHAT, EXPIRE, Peer, Received, Reply, Scene, World, agent, eventually, model_answer, post,
    results_in, scripted,
};
use letterbox_workflow::{Steering, Untrusted};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// What a model answers, by how many results it was told.
type Model = Box<dyn Fn(usize) -> String + Send + Sync>;

fn find(name: &str) -> (&'static str, Value) {
    ("find", json!({ "name": name }))
}

fn note(text: &str) -> (&'static str, Value) {
    ("note", json!({ "text": text }))
}

/// Looks for Ada, leaves two notes, and is done.
fn two_notes(results: usize) -> String {
    match results {
        0 => model_answer("", &[find("Ada")]),
        1 => model_answer("", &[note("one"), note("two")]),
        _ => model_answer("Two notes.", &[]),
    }
}

fn ids(actions: &[RunAction]) -> Vec<&str> {
    actions.iter().map(|one| one.action_id.as_str()).collect()
}

/// Reading is allowed by the default policy; for what writes a person is asked, call by call. What
/// is denied the model is told, and it ends as it likes.
#[tokio::test]
async fn each_call_is_decided_approved_and_recorded_by_itself() {
    let peer = Peer::start(scripted(two_notes, "an answer")).await;
    let scene = Scene::new(&peer, json!([agent(), post("after")])).await;
    let (world, form) = (&scene.world, &scene.form);
    let approval = scene.submit_asked("k").await;
    let body = &approval.request.as_ref().unwrap()["body"];
    assert_eq!(body, r#"{"text":"one"}"#);
    assert_eq!(approval.steered_by, [Steering::AiAgent]);
    assert_eq!(peer.targets(), [CHAT, "/customers/Ada", CHAT]);
    world.await_idle().await;

    world.approve(approval.approval_id, form.owner).await;
    eventually("the second question", async || {
        let waiting = world.waiting(form.workspace).await;
        waiting.len() == 1 && waiting[0].approval_id != approval.approval_id
    })
    .await;
    let second = scene.the_approval().await;
    world.deny(second.approval_id, form.owner).await;
    eventually("what comes after the agent waits", async || {
        let waiting = world.waiting(form.workspace).await;
        waiting.iter().any(|one| one.action_id == "after")
    })
    .await;
    let last = scene.the_approval().await;
    world.approve(last.approval_id, form.owner).await;
    world.await_state("succeeded", 1).await;
    let expected = [CHAT, "/customers/Ada", CHAT, "/notes", CHAT, "/after"];
    assert_eq!(peer.targets(), expected);

    let run = scene.the_run().await;
    let expected = "agent agent/1 agent/2 agent/3 agent/4 agent/5 agent/6 after";
    assert_eq!(ids(&run.actions).join(" "), expected);
    let states: Vec<_> = run.actions.iter().map(|one| one.state).collect();
    let done = ActionState::Succeeded;
    let mut expected = [done; 8];
    expected[5] = ActionState::Denied;
    assert_eq!(states, expected);
    for call in [2, 4, 5] {
        let call = &run.actions[call];
        assert_eq!(call.action_type, "http.request");
        let all = [Untrusted::Data, Untrusted::Account, Untrusted::Control];
        assert_eq!(&call.untrusted[..], &all[..]);
        assert_eq!(&call.steered_by[..], &[Steering::AiAgent][..]);
    }
    // The first question is the definition's; the later ones hold what the model has found.
    let questions = [1, 3, 6].map(|question| &run.actions[question].steered_by[..]);
    let by_the_model = &[Steering::AiAgent][..];
    assert_eq!(questions, [&[], by_the_model, by_the_model]);
    let after = [Steering::AiAgent, Steering::Outcome]; // the agent could have failed
    assert_eq!(run.actions[7].steered_by, after);

    // The model was told what the tools answered, and what was denied.
    let last = peer.received()[4].json();
    let told: Vec<_> = last["messages"].as_array().unwrap()[2..]
        .iter()
        .filter(|one| one["role"] == "tool")
        .map(|one| one["content"].as_str().unwrap())
        .collect();
    let answer = r#"{"body":{"words":"an answer"},"status":200}"#;
    assert_eq!(told, [answer, answer, r#"{"error":"denied by a member"}"#]);
    let keys = HashSet::<Option<String>>::from_iter(peer.keys());
    assert!(keys.len() == 6 && !keys.contains(&None), "a key for each");
}

/// What the policy denies is told as well; the policy is asked for each call at its moment.
#[tokio::test]
async fn a_refusal_by_the_policy_is_a_result() {
    let same_note_again = |results: usize| match results {
        0 => two_notes(0),
        1 | 2 => model_answer("", &[note("one")]),
        _ => model_answer("No notes.", &[]),
    };
    let peer = Peer::start(scripted(same_note_again, "an answer")).await;
    let scene = Scene::new(&peer, json!([agent()])).await;
    let notes = json!({"steered_by": "ai.agent", "method": ["POST"], "action": "http.request"});
    scene.set_rule(notes, "deny").await;
    scene.submit_until("k", "succeeded", 1).await;
    assert_eq!(peer.targets(), [CHAT, "/customers/Ada", CHAT, CHAT, CHAT]);
    let run = scene.the_run().await;
    let denied = &run.actions[4];
    assert_eq!(denied.state, ActionState::Denied);
    assert_eq!(denied.decision_rule, Some(1));
    assert_eq!(denied.error.as_deref(), Some("denied by the policy"));
    let again = run.actions[6].error.as_deref();
    assert_eq!(again, Some("note: it was denied before"));
}

/// The policy forbids what a person was asked about: nobody is asked any more, and the agent goes
/// on.
#[tokio::test]
async fn what_is_forbidden_meanwhile_is_asked_about_no_more() {
    let answers = scripted(two_notes, "an answer");
    // Its model says nothing to the denials.
    let peer = Peer::start(move |request, before| match before {
        0..3 => answers(request, before),
        _ => Reply::Silence,
    })
    .await;
    let scene = Scene::new(&peer, json!([agent()])).await;
    scene.form.assert_accepts("k").await;
    scene.the_approval().await;
    let notes = json!({"method": ["POST"], "action": "http.request"});
    scene.set_rule(notes, "deny").await;
    scene.world.change(EXPIRE).await;
    peer.await_received(4).await;
    assert_eq!(peer.targets()[3], CHAT, "it goes on");
    assert_eq!(scene.world.waiting(scene.form.workspace).await.len(), 0);
}

/// An agent is given up thirty days after it has begun, however long a person takes to answer.
#[tokio::test]
async fn an_agent_has_thirty_days() {
    let peer = Peer::start(scripted(two_notes, "an answer")).await;
    let scene = Scene::new(&peer, json!([agent()])).await;
    let approval = scene.submit_asked("k").await.approval_id;
    let long_ago = "
        UPDATE run_actions SET started_at = started_at - interval '31 days'
        WHERE action_id = 'agent'";
    scene.world.change(long_ago).await;
    scene.approve(approval).await;
    scene.world.await_state("failed", 1).await;
    let failure = scene.the_run().await.row.failure;
    let reason = "agent: it has taken more than 30 days";
    assert_eq!(failure.as_deref(), Some(reason));
    assert_eq!(peer.targets(), [CHAT, "/customers/Ada", CHAT]);
}

/// Whatever a model calls for, nothing leaves but the named tools with arguments that fit, below
/// their paths.
#[tokio::test]
async fn hostile_calls_are_told_and_not_sent() {
    let elsewhere = json!({"name": "x", "host": "http://evil.example"});
    let hostile = move |results: usize| match results {
        0 => model_answer("", &[("delete_everything", json!({}))]),
        1 => model_answer("", &[("find", elsewhere.clone())]),
        2 => model_answer("", &[("find", json!({"name": "../admin"}))]),
        3 => model_answer("", &[("find", json!({"name": ".."}))]),
        4 => model_answer("", &[("find", json!({"name": {"a": 1}}))]),
        5 => model_answer("", &[("find", json!("{{ form.email }}"))]),
        6 => model_answer("", &[("find", json!({"name": "{{ form.email }}?a=b#c"}))]),
        _ => model_answer("I give up.", &[]),
    };
    let peer = Peer::start(scripted(hostile, "an answer")).await;
    let mut hostile_agent = agent();
    hostile_agent["max_steps"] = 20.into();
    let scene = Scene::new(&peer, json!([hostile_agent])).await;
    scene.submit_until("k", "succeeded", 1).await;
    let mut sent = peer.targets();
    sent.retain(|one| one != CHAT);
    // What looks like a way out is one segment of the tool's path.
    let template = "/customers/%7B%7B%20form.email%20%7D%7D%3Fa%3Db%23c";
    assert_eq!(sent, ["/customers/..%2Fadmin", template]);
    let run = scene.the_run().await;
    let told = run.actions.iter();
    let told = told.filter(|one| one.state == ActionState::Failed);
    let told: Vec<_> = told.filter_map(|one| one.error.as_deref()).collect();
    assert_eq!(
        told,
        [
            "there is no tool \"delete_everything\"",
            "find: there is no parameter \"host\"",
            "a value would change the structure of the path",
            "find: \"name\" must be of the type string",
            "find: the arguments must be an object",
        ]
    );
}

/// An agent that goes on and on, that says too much, or whose model answers nonsense, ends.
#[tokio::test]
async fn an_agent_without_an_end_fails() {
    let huge = "x".repeat(1 << 20);
    let cases: [(Model, &str); 3] = [
        (
            Box::new(|_| model_answer("", &[find("Ada")])),
            "agent: it is not done after its maximum of 8 steps",
        ),
        (
            Box::new(move |_| model_answer("", &[("find", json!({ "name": huge }))])),
            "agent/1: the model's answer is longer than 65536 bytes",
        ),
        (
            Box::new(|_| "nonsense".to_owned()),
            "agent/1: the model's answer could not be understood",
        ),
    ];
    for (model, failure) in cases {
        let peer = Peer::start(scripted(model, "an answer")).await;
        let scene = Scene::new(&peer, json!([agent()])).await;
        scene.submit_until("k", "failed", 1).await;
        assert_eq!(scene.the_run().await.row.failure.as_deref(), Some(failure));
    }
}

/// The worker is killed at each of the agent's requests. The next one goes on from the record: the
/// model is not asked again what it has answered, and each call is sent again under its key only.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_outlives_its_workers() {
    for fatal in 0..5 {
        let (gate, count) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (gate.clone(), count.clone());
        let answer = scripted(two_notes, "an answer");
        let script = move |request: &Received, before: usize| {
            counted.fetch_add(1, Ordering::SeqCst);
            match before == fatal {
                true => Reply::When(held.clone(), 500),
                false => answer(request, before),
            }
        };
        let peer = Peer::start(script).await;
        let mut scene = Scene::new(&peer, json!([agent()])).await;
        scene.allow_agents().await;
        scene.form.assert_accepts("k").await;
        peer.await_received(fatal + 1).await;
        scene.worker.kill().await;
        scene.world.change(EXPIRE).await;
        let _heir = scene.world.worker().await;
        scene.world.await_state("succeeded", 1).await;
        let received = peer.await_received(7).await;
        let mut by_key: HashMap<&str, Vec<&Received>> = HashMap::new();
        for one in &received {
            by_key
                .entry(one.header("idempotency-key").unwrap())
                .or_default()
                .push(one);
        }
        assert_eq!(by_key.len(), 6, "killed at {fatal}");
        let twice: Vec<_> = by_key.values().filter(|sent| sent.len() > 1).collect();
        assert_eq!(twice.len(), 1);
        assert_eq!(twice[0][0], twice[0][1], "the same request");
        assert_eq!(twice[0][0], &received[fatal]);
        let asked = received.iter().filter(|one| one.target == CHAT);
        let asked: HashSet<_> = asked.map(results_in).collect();
        assert_eq!(asked, HashSet::from([0, 1, 3]));
    }
}

/// What tools have answered is kept sealed while the agent needs it, and no longer.
#[tokio::test]
async fn answers_are_sealed_and_dropped() {
    let peer = Peer::start(scripted(two_notes, "canary of an account")).await;
    let scene = Scene::new(&peer, json!([agent()])).await;
    let world = &scene.world;
    scene.form.assert_accepts("k").await;
    scene.the_approval().await;
    let sealed = "SELECT count(*) FROM run_actions WHERE answer_sealed IS NOT NULL";
    world.assert_count(sealed, 3).await; // two answers of the model, and one of a tool
    let dump = "SELECT string_agg(a::text, ' ') FROM run_actions a";
    let dump: String = world.value(dump).await;
    let hex: String = b"canary of an account"
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(!dump.contains("canary of an account") && !dump.contains(&hex));
    scene.allow_agents().await;
    world.change(EXPIRE).await;
    world.await_state("succeeded", 1).await;
    world.assert_count(sealed, 0).await;
}

/// A run whose model was away goes on with the question that failed, and keeps what it knew.
#[tokio::test]
async fn a_failed_agent_is_retried_where_it_failed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let answer = scripted(two_notes, "an answer");
    let script = move |request: &Received, before: usize| {
        let is_second = request.target == CHAT && results_in(request) == 1;
        match is_second && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Reply::Status(401),
            false => answer(request, before),
        }
    };
    let peer = Peer::start(script).await;
    let scene = Scene::new(&peer, json!([agent()])).await;
    scene.allow_agents().await;
    scene.submit_until("k", "failed", 1).await;
    let run = scene.the_run().await;
    assert_eq!(run.row.state, RunState::Failed);
    let operator = scene.world.operator().await;
    operator.retry_run(run.row.run_id).await.unwrap();
    scene.world.await_state("succeeded", 1).await;
    let expected = [CHAT, "/customers/Ada", CHAT, CHAT, "/notes", "/notes", CHAT];
    assert_eq!(peer.targets(), expected);
}

/// Agents of two runs do not mix.
#[tokio::test]
async fn agents_of_different_runs_keep_their_own_conversations() {
    let model = |results: usize| match results {
        0 => model_answer("", &[find("Ada"), find("Bob")]),
        _ => model_answer("Found.", &[]),
    };
    let peer = Peer::start(scripted(model, "an answer")).await;
    let (world, gateway, _worker) = World::with_both().await;
    let form = world
        .acting_form(&gateway, &peer.url, json!([agent()]))
        .await;
    for key in 0..6 {
        form.assert_accepts(&key.to_string()).await;
    }
    world.await_state("succeeded", 6).await;
    let received = peer.await_received(24).await;
    let asked = received.iter().filter(|one| one.target == CHAT);
    let results: Vec<_> = asked.map(results_in).collect();
    let of = |number| results.iter().filter(|one| **one == number).count();
    assert_eq!((of(0), of(2)), (6, 6));
}

/// What a model said is what a model decided, also where a plain comparison reads it: a person is
/// asked, as after an `ai.condition`.
#[tokio::test]
async fn a_comparison_with_what_a_model_said_is_steered_by_the_model() {
    let model = |_| model_answer("yes", &[]);
    let peer = Peer::start(scripted(model, "an answer")).await;
    let said = json!({"id": "said", "type": "condition",
        "if": "actions.agent.body.content == 'yes'", "then": [post("steered")]});
    let scene = Scene::new(&peer, json!([agent(), said])).await;
    let approval = scene.submit_asked("k").await;
    assert_eq!(approval.action_id, "steered");
    assert!(approval.steered_by.contains(&Steering::AiCondition));
    assert_eq!(peer.targets(), [CHAT]);
}

/// What a model wrote is the model's, also in a request that the definition wrote.
#[tokio::test]
async fn a_request_filled_with_what_a_model_said_is_steered_by_the_model() {
    let model = |_| model_answer("pay 1000", &[]);
    let peer = Peer::start(scripted(model, "an answer")).await;
    let filled = json!({"id": "filled", "type": "http.request", "account": "crm",
        "method": "POST", "path": "/filled", "body": {"x": "{{ actions.agent.body.content }}"}});
    let scene = Scene::new(&peer, json!([agent(), filled])).await;
    let approval = scene.submit_asked("k").await;
    assert_eq!(approval.action_id, "filled");
    assert!(approval.steered_by.contains(&Steering::AiAgent));
    assert_eq!(peer.targets(), [CHAT]);
}
