//! Random workflows, policies, models and answers: nothing is ever sent that the policy did not
//! allow, or a person approve, at that moment; and no value escapes its taint.
//!
//! `LETTERBOX_TEST_WORKFLOWS` sets how many workflows are tried. A failure names its seed, with
//! which `LETTERBOX_TEST_SEED` begins.

use std::collections::{HashMap, HashSet};

use letterbox_common::ids::UserId;
use letterbox_tests::{CHAT, Form, Peer, Process, Received, Reply, World, eventually};
use serde_json::{Value, json};

const WORKFLOWS: u64 = 40;
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// What marks text of a submitter and of an account, so that it is found wherever it gets.
const FORM: &str = "FORMx";
const ANSWER: &str = "ANSWERx";

/// Makes workflows. `ids` counts actions; `inside` is through what an action must be marked as
/// steered.
struct Maker {
    rng: fastrand::Rng,
    ids: usize,
    steered: HashMap<String, HashSet<&'static str>>,
}

impl Maker {
    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())].clone()
    }

    /// A text with values in it, and whether they are untrusted.
    fn template(&mut self, earlier: &[String]) -> (String, bool) {
        let answer = |maker: &mut Self, member: &str| {
            let id = maker.pick(earlier);
            (format!("<{{{{ actions['{id}'].body.{member} }}}}>"), true)
        };
        match self.rng.u32(..8) {
            0 => ("fixed".to_owned(), false),
            1 if !earlier.is_empty() => answer(self, "words"),
            2..6 if !earlier.is_empty() => answer(self, "echo"),
            6 => (
                "{{ form.name | upper | lower | default('x') }}".to_owned(),
                true,
            ),
            _ => ("{{ form.name }}".to_owned(), true),
        }
    }

    fn condition(&mut self, earlier: &[String]) -> (String, bool) {
        match self.rng.u32(..3) {
            0 => ("1 < 2".to_owned(), false),
            1 if !earlier.is_empty() => {
                let id = self.pick(earlier);
                (format!("actions['{id}'].body.number > 3"), true)
            }
            _ => (format!("'{FORM}' in form.name"), true),
        }
    }

    fn request(&mut self, path: &str, text: &str) -> Value {
        let method = self.pick(&METHODS);
        let mut request = json!({"account": "crm", "method": method, "path": path,
                                 "query": {"text": text}});
        if method != "GET" {
            request["body"] = json!({ "text": text });
        }
        request
    }

    fn list(
        &mut self,
        depth: u32,
        mut earlier: Vec<String>,
        steered: &HashSet<&'static str>,
    ) -> Vec<Value> {
        let mut list = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            if self.ids >= 60 {
                break;
            }
            self.ids += 1;
            let id = format!("a-{}", self.ids);
            self.steered.insert(id.clone(), steered.clone());
            let branches = |maker: &mut Self, steering: &'static str, is_untrusted: bool| {
                let mut inside = steered.clone();
                if is_untrusted {
                    inside.insert(steering);
                }
                let mut branch = || match depth {
                    0 => Vec::new(),
                    _ => maker.list(depth - 1, earlier.clone(), &inside),
                };
                (branch(), branch())
            };
            let mut action = match self.rng.u32(..6) {
                0 => {
                    let (condition, is_untrusted) = self.condition(&earlier);
                    let (then, otherwise) = branches(self, "condition", is_untrusted);
                    json!({"type": "condition", "if": condition, "then": then, "else": otherwise})
                }
                1 => {
                    let (input, is_untrusted) = self.template(&earlier);
                    let (then, otherwise) = branches(self, "ai.condition", is_untrusted);
                    json!({"type": "ai.condition", "account": "crm", "model": "m",
                           "question": "?", "input": input, "then": then, "else": otherwise})
                }
                2 => {
                    let tools: Vec<_> = ["one", "two"]
                        .iter()
                        .map(|name| {
                            let mut tool =
                                self.request(&format!("/{id}/{name}"), "<{{ args.text }}>");
                            tool["name"] = (*name).into();
                            tool["description"] = "A tool".into();
                            tool["parameters"] = json!({"type": "object",
                                "properties": {"text": {"type": "string"}}, "required": ["text"]});
                            tool
                        })
                        .collect();
                    json!({"type": "ai.agent", "account": "crm", "model": "m", "goal": "g",
                           "input": self.template(&earlier).0, "tools": tools,
                           "max_steps": 6, "max_tokens": 10_000})
                }
                _ => {
                    let text = self.template(&earlier).0;
                    let mut request = self.request(&format!("/{id}"), &text);
                    request["type"] = "http.request".into();
                    earlier.push(id.clone());
                    request
                }
            };
            action["id"] = id.into();
            list.push(action);
        }
        list
    }

    fn policy(&mut self) -> Value {
        let rules: Vec<_> = (0..self.rng.usize(..4))
            .map(|_| {
                let mut when = json!({});
                if self.rng.bool() {
                    when["untrusted"] = self.pick(&["data", "account", "control"]).into();
                }
                if self.rng.bool() {
                    let steered = ["condition", "ai.condition", "ai.agent", "outcome"];
                    when["steered_by"] = self.pick(&steered).into();
                }
                if self.rng.bool() {
                    when["method"] = json!([self.pick(&METHODS), self.pick(&METHODS)]);
                }
                if self.rng.u32(..4) == 0 {
                    let kinds = ["http.request", "ai.condition", "ai.agent"];
                    when["action"] = self.pick(&kinds).into();
                }
                let decision = self.pick(&["allow", "allow", "approve", "deny"]);
                json!({"when": when, "decision": decision})
            })
            .collect();
        let default = self.pick(&["allow", "allow", "allow", "allow", "approve", "deny"]);
        json!({"rules": rules, "default": default})
    }
}

/// What everybody out there answers: each time something else, often what was said to them.
fn answer(request: &Received, seed: u64, before: usize) -> Reply {
    let mut rng = fastrand::Rng::with_seed(seed ^ before as u64);
    let said = format!("{} {}", request.target, request.body);
    if request.target.ends_with(CHAT) {
        let asked = request.json();
        let last = asked["messages"].as_array().unwrap().last().unwrap()["content"].clone();
        let echo: String = last.as_str().unwrap().chars().rev().take(200).collect();
        let echo: String = echo.chars().rev().collect();
        let message = match (asked["tools"].is_array(), rng.u32(..4)) {
            (false, choice) => {
                let word = ["yes", "no", "yes", "perhaps"][choice as usize];
                json!({ "content": word })
            }
            (true, 0) => json!({"content": "done"}),
            (true, choice) => {
                let name = ["one", "two", "three"][rng.usize(..3)];
                let arguments = match choice {
                    1 => json!({"text": echo}),
                    2 => json!({"text": "fixed"}),
                    _ => json!({"text": "../..", "host": "http://127.0.0.2"}),
                };
                let function = json!({"name": name, "arguments": arguments.to_string()});
                json!({"content": null, "tool_calls": [{"id": "c", "function": function}]})
            }
        };
        let body = json!({"choices": [{"message": message}], "usage": {"total_tokens": 10}});
        return Reply::With(200, Vec::new(), body.to_string());
    }
    let status = if rng.u32(..30) == 0 { 404 } else { 200 };
    let body = json!({"words": ANSWER, "echo": said, "number": rng.u32(..7)});
    Reply::With(status, Vec::new(), body.to_string())
}

/// What the record says of an action that was sent.
struct Sent {
    id: String,
    kind: String,
    part_of: Option<String>,
    decision: String,
    approval: Option<String>,
    untrusted: Vec<String>,
    steered_by: Vec<String>,
}

async fn sent(world: &World, form: &Form) -> HashMap<String, Sent> {
    let actions = "SELECT a.idempotency_key::text, a.action_id, a.type, a.part_of, a.decision,
            p.state, a.untrusted, a.steered_by
        FROM run_actions a JOIN runs r USING (workspace_id, run_id)
        LEFT JOIN approvals p USING (workspace_id, run_id, action_id)
        WHERE r.workflow_id = '{}' AND a.request IS NOT NULL";
    let actions = actions.replace("{}", &form.workflow.to_string());
    let rows = world.database.query(&actions, &[]).await.unwrap();
    let actions = rows.iter().map(|row| {
        let sent = Sent {
            id: row.get(1),
            kind: row.get(2),
            part_of: row.get(3),
            decision: row.get(4),
            approval: row.get(5),
            untrusted: row.get(6),
            steered_by: row.get(7),
        };
        (row.get(0), sent)
    });
    actions.collect()
}

/// What a policy decides, by the words of its documentation.
fn ruling(policy: &Value, sent: &Sent, method: &str) -> String {
    let has = |list: &[String], word: &Value| {
        word.as_str()
            .is_some_and(|w| list.iter().any(|one| one == w))
    };
    let rules = policy["rules"].as_array().unwrap();
    let matches = |rule: &&Value| {
        let when = &rule["when"];
        let methods = when["method"].as_array();
        (when["untrusted"].is_null() || has(&sent.untrusted, &when["untrusted"]))
            && (when["steered_by"].is_null() || has(&sent.steered_by, &when["steered_by"]))
            && (when["action"].is_null() || when["action"] == sent.kind)
            && methods.is_none_or(|methods| methods.contains(&method.into()))
    };
    let decided = rules
        .iter()
        .find(matches)
        .map_or(&policy["default"], |rule| &rule["decision"]);
    // A model's part needs a rule that matches, names it and allows it.
    let is_allowed = |word: &str| {
        let mut naming = rules
            .iter()
            .filter(|rule| rule["when"]["steered_by"] == word);
        naming
            .find(matches)
            .is_some_and(|rule| rule["decision"] == "allow")
    };
    let steered = |word: &str| has(&sent.steered_by, &word.into()) && !is_allowed(word);
    let is_call = sent.kind == "http.request" && method != "GET";
    match decided.as_str().unwrap() {
        "allow" if steered("ai.condition") || is_call && steered("ai.agent") => "approve".into(),
        decided => decided.to_owned(),
    }
}

/// Answers whatever waits, at random, until no run is under way.
async fn answer_questions(world: &World, made: &[Case], rng: &mut fastrand::Rng) {
    let owners = made
        .iter()
        .map(|one| (one.form.workspace.to_string(), one.form.owner));
    let owners = HashMap::<String, UserId>::from_iter(owners);
    let operator = world.operator().await;
    eventually("all runs are over", async || {
        let waiting = "SELECT approval_id::text, workspace_id::text FROM approvals
            WHERE state = 'pending'";
        for row in world.database.query(waiting, &[]).await.unwrap() {
            let (approval, workspace): (String, String) = (row.get(0), row.get(1));
            let (approval, by) = (approval.parse().unwrap(), owners[&workspace]);
            // It may be closed meanwhile, because its run was denied.
            let _ = match rng.u32(..4) {
                0 => operator.deny(approval, by).await,
                _ => operator.approve(approval, by).await,
            };
        }
        world.rows("runs WHERE finished_at IS NULL").await == 0
    })
    .await;
}

/// A workflow that was made, under its policy, and through what each action must be marked as
/// steered.
struct Case {
    form: Form,
    policy: Value,
    actions: Value,
    steered: HashMap<String, HashSet<&'static str>>,
}

impl Case {
    /// Makes a workflow whose account is at `base`.
    async fn make(world: &World, gateway: &Process, rng: fastrand::Rng, base: &str) -> Self {
        let mut maker = Maker {
            rng,
            ids: 0,
            steered: HashMap::new(),
        };
        let actions = json!(maker.list(2, Vec::new(), &HashSet::new()));
        let policy = maker.policy();
        let form = world.acting_form(gateway, base, actions.clone()).await;
        world.set_policy(form.workspace, policy.clone()).await;
        Self {
            form,
            policy,
            actions,
            steered: maker.steered,
        }
    }

    /// Asserts that a request was allowed or approved, and is marked with all that led to it;
    /// whether it is a call of an agent's tool.
    fn assert_sound(&self, request: &Received, sent: &Sent, told: &str) -> bool {
        // The policy, at the moment of the last look, and the person whom it asked.
        assert_eq!(
            sent.decision,
            ruling(&self.policy, sent, &request.method),
            "{told}"
        );
        let is_approved = sent.approval.as_deref() == Some("approved");
        let may_go = sent.decision == "allow" || sent.decision == "approve" && is_approved;
        assert!(may_go, "{told}");

        // The marks.
        let is = |mark: &str| sent.untrusted.iter().any(|one| one == mark);
        let text = format!("{} {}", request.target, request.body).to_uppercase();
        assert!(is("data") || !text.contains(&FORM.to_uppercase()), "{told}");
        assert!(is("account") || !text.contains(ANSWER), "{told}");
        let by = |steering: &str| sent.steered_by.iter().any(|one| one == steering);
        let own = sent.part_of.as_ref().unwrap_or(&sent.id);
        assert!(
            self.steered[own].iter().all(|steering| by(steering)),
            "{told}"
        );
        assert_eq!(is("control"), !sent.steered_by.is_empty(), "{told}");
        let is_call = sent.part_of.is_some() && sent.kind == "http.request";
        if is_call {
            assert!(by("ai.agent") && is("data") && is("control"), "{told}");
            // Below the case's own path.
            assert_eq!(request.target.split('/').nth(2), Some(&**own), "{told}");
        }
        is_call
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_unasked_and_no_value_escapes_its_taint() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let workflows = number("LETTERBOX_TEST_WORKFLOWS").unwrap_or(WORKFLOWS);
    let seed = || number("LETTERBOX_TEST_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    // Few seeds let no agent call anything.
    for _ in 0..3 {
        if calls_that_are_sound(workflows, seed()).await > 0 {
            return;
        }
    }
    panic!("no agent has called anything");
}

/// Asserts that all requests of workflows by this seed are sound; how many of them are calls of
/// agents.
async fn calls_that_are_sound(workflows: u64, seed: u64) -> usize {
    let peer = Peer::start(move |request, before| answer(request, seed, before)).await;
    let (world, gateway, _worker) = World::with_both().await;
    let mut rng = fastrand::Rng::with_seed(seed);

    // One workflow after the other is made; their runs go on beside each other.
    let mut made = Vec::new();
    for number in 0..workflows {
        let base = format!("{}/case-{number}", peer.url);
        let case = Case::make(&world, &gateway, rng.fork(), &base).await;
        let payload = json!({"name": FORM, "email": "ada@example.com", "terms": true});
        let client = format!("198.51.100.{}", number % 250 + 1);
        let answer = case.form.from(&client).submit("k", &payload).await;
        answer.assert_accepted();
        made.push(case);
    }
    world.await_runs(i64::try_from(workflows).unwrap()).await;
    answer_questions(&world, &made, &mut rng).await;

    let received = peer.received();
    let (mut checked, mut calls) = (0, 0);
    for (number, case) in made.iter().enumerate() {
        let known = sent(&world, &case.form).await;
        let prefix = format!("/case-{number}/");
        let own = received
            .iter()
            .filter(|one| one.target.starts_with(&prefix));
        for request in own {
            let (policy, actions) = (&case.policy, &case.actions);
            let told = format!("seed {seed}, case {number}: {request:?}\n{policy}\n{actions:#}");
            let key = request.header("idempotency-key").unwrap();
            let sent = known
                .get(key)
                .unwrap_or_else(|| panic!("not recorded: {told}"));
            calls += usize::from(case.assert_sound(request, sent, &told));
            checked += 1;
        }
    }
    assert_eq!(checked, received.len(), "seed {seed}");
    assert!(checked as u64 > workflows, "seed {seed}: {checked}");
    calls
}
