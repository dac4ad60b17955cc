//! Whatever a run would not have sent, or not like this, had a model answered otherwise, carries
//! that model's mark: shown for random definitions, each run twice with two answers of one model.

use std::collections::{BTreeMap, HashMap};

use letterbox_workflow::{
    Definition, Steering, TemplateContext,
    actions::{Action, Branch, Step},
    preview::sending_actions,
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use super::super::*;

/// What an action of a definition is to be.
#[derive(Debug, Clone)]
enum RandomPlan {
    Call(Index),
    Choose(Index, [Vec<Self>; 2]),
    Ask(Index, [Vec<Self>; 2]),
    Delegate(Index),
}

fn plans() -> impl Strategy<Value = Vec<RandomPlan>> {
    let leaf = || {
        prop_oneof![
            3 => any::<Index>().prop_map(RandomPlan::Call),
            1 => any::<Index>().prop_map(RandomPlan::Delegate),
        ]
    };
    let any_plan = leaf().prop_recursive(3, 16, 3, |inner| {
        let branches = || prop::array::uniform2(prop::collection::vec(inner.clone(), 0..3));
        prop_oneof![
            2 => (any::<Index>(), branches())
                .prop_map(|(by, inside)| RandomPlan::Choose(by, inside)),
            3 => (any::<Index>(), branches()).prop_map(|(by, inside)| RandomPlan::Ask(by, inside)),
            2 => any::<Index>().prop_map(RandomPlan::Call),
        ]
    });
    prop::collection::vec(any_plan, 1..5)
}

/// Writes plans as actions, with ids in a row. What an action uses is picked among what it knows.
#[derive(Default)]
struct Writer {
    ids: usize,
    known: Vec<String>,
    /// It writes what follows a failure.
    after_failure: bool,
}

impl Writer {
    fn actions(&mut self, plans: &[RandomPlan]) -> Vec<Value> {
        plans.iter().map(|plan| self.action(plan)).collect()
    }

    fn action(&mut self, plan: &RandomPlan) -> Value {
        self.ids += 1;
        let id = format!("a{}", self.ids);
        let request = json!({"id": id, "type": "http.request", "account": "a", "method": "POST",
            "path": "/"});
        let (mut action, branches) = match plan {
            RandomPlan::Call(by) => {
                let mut request = request;
                request["body"] = json!({"x": format!("{{{{ {} }}}}", self.value(by))});
                (request, None)
            }
            RandomPlan::Choose(by, inside) => {
                let condition = format!("({} | string | length) is even", self.value(by));
                (
                    json!({"id": id, "type": "condition", "if": condition}),
                    Some(inside),
                )
            }
            RandomPlan::Ask(by, inside) => {
                let input = format!("{{{{ {} }}}}", self.value(by));
                let ask = json!({"id": id, "type": "ai.condition", "account": "a", "model": "m",
                    "question": "?", "input": input});
                (ask, Some(inside))
            }
            RandomPlan::Delegate(by) => {
                let tool = json!({"name": "t", "description": "d", "account": "a", "method": "GET",
                    "path": "/", "parameters": {"type": "object", "properties": {}}});
                let agent = json!({"id": id, "type": "ai.agent", "account": "a", "model": "m",
                    "goal": "g", "input": format!("{{{{ {} }}}}", self.value(by)),
                    "max_steps": 3, "max_tokens": 9, "tools": [tool]});
                (agent, None)
            }
        };
        if !matches!(plan, RandomPlan::Choose(..)) {
            self.known.push(id);
        }
        if let Some(branches) = branches {
            let before = self.known.clone();
            let mut after = self.known.clone();
            for (name, plans) in ["then", "else"].into_iter().zip(branches) {
                self.known.clone_from(&before);
                action[name] = self.actions(plans).into();
                after.extend(self.known.split_off(before.len()));
            }
            self.known = after;
        }
        action
    }

    fn value(&self, by: &Index) -> String {
        let failure = if self.after_failure {
            "run.failure"
        } else {
            "run.id"
        };
        let values = ["form.text", failure].map(str::to_owned).into_iter();
        let answers = self
            .known
            .iter()
            .map(|id| format!("actions['{id}'].body.said"));
        by.get(&values.chain(answers).collect::<Vec<_>>()).clone()
    }
}

/// How what is outside of the program behaves, by action: the same whenever it is asked the same.
#[derive(Debug, Clone)]
struct World {
    /// Which calls fail: those whose number modulo this is 0.
    failing: usize,
    /// What models answer, where not `yes`.
    said: BTreeMap<String, &'static str>,
}

/// What a run has sent: by action, the request and how it was steered.
type SentRequests = BTreeMap<String, (String, Vec<Steering>)>;

fn run(release: &Release, world: &World) -> SentRequests {
    let form = json!({"text": "a submitter's"}).to_string();
    let mut context = TemplateContext::of_run(&form, "run", "now").unwrap();
    let mut records = HashMap::new();
    let mut sent = SentRequests::new();
    let mut failing = false;
    loop {
        let Some(next) = next(release, &|id| records.get(id), failing) else {
            return sent;
        };
        let id = next.action.id.clone();
        let steered = next.taint.steered.kinds();
        let ended = match &next.action.step {
            Step::Choose(condition) => condition
                .holds(&context)
                .map_err(|_| ())
                .map(|holds| (Some(holds.into()), None)),
            Step::Send(outgoing) => {
                let base = "https://account.example".parse().unwrap();
                match outgoing.render(&base, &context.renderer()) {
                    Ok(request) => {
                        let body = request.body.unwrap_or_default();
                        sent.insert(id.clone(), (body.clone(), steered));
                        world.answer(next.action, body)
                    }
                    Err(_) => Err(()),
                }
            }
            // Its first question stands for all that it sends: the others carry its mark anyhow.
            Step::Delegate(_) => {
                sent.insert(id.clone(), (String::new(), steered));
                world.answer(next.action, String::new())
            }
            Step::Wait(_) => Ok((None, None)),
            Step::Fail(_) => Err(()),
        };
        match ended {
            Ok((branch, said)) => {
                if let Some(said) = said {
                    let body = json!({ "said": said }).to_string();
                    context = context.with_answer(&id, Some(200), body.into_bytes().into());
                }
                records.insert(id, ActionRecord::done(branch));
            }
            Err(()) if failing => return sent,
            Err(()) => {
                failing = true;
                context = context.after_failure(&id);
            }
        }
    }
}

type EndedRun = Result<(Option<Branch>, Option<String>), ()>;

impl World {
    fn answer(&self, action: &Action, request: String) -> EndedRun {
        let number: usize = action
            .id
            .trim_start_matches(char::is_alphabetic)
            .parse()
            .unwrap();
        let said = *self.said.get(&action.id).unwrap_or(&"yes");
        match (action.kind.name, said) {
            // A call is answered with what it was sent.
            ("http.request", _) if number.is_multiple_of(self.failing) => Err(()),
            ("http.request", _) => Ok((None, Some(request))),
            (_, "neither") => Err(()),
            ("ai.condition", _) => Ok((Some((said == "yes").into()), Some(said.to_owned()))),
            _ => Ok((None, Some(said.to_owned()))),
        }
    }
}

fn models<'a>(actions: &'a [Action], found: &mut Vec<&'a Action>) {
    for action in actions {
        let is_untrusted = action.references.is_untrusted();
        if action.kind.name == "ai.agent" || action.kind.name == "ai.condition" && is_untrusted {
            found.push(action);
        }
        for branch in Branch::ALL {
            models(action.branches.of(*branch), found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_a_model_decides_carries_its_mark(
        actions in plans(),
        on_failure in plans(),
        failing in 2_usize..7,
        others in prop::collection::vec(prop::sample::select(vec!["yes", "no", "neither"]), 40),
        which in any::<Index>(),
        otherwise in prop::sample::select(vec!["yes", "no", "neither"]),
    ) {
        let mut writer = Writer::default();
        let actions = writer.actions(&actions);
        writer.after_failure = true;
        let on_failure = writer.actions(&on_failure);
        let text = json!({"key": "text", "label": "L", "type": "text", "required": true});
        let definition = json!({"form": {"title": "T", "fields": [text]}, "actions": actions,
            "on_failure": on_failure});
        let definition = Definition::check(&definition.to_string()).unwrap();
        let actions_json = definition.actions_json();
        let on_failure_json = definition.on_failure_json();
        let release = Release::parse(actions_json, on_failure_json).unwrap();

        let said = (1..).map(|number| format!("a{number}")).zip(others);
        let one = World { failing, said: said.collect() };
        let mut asked = Vec::new();
        models(&release.actions, &mut asked);
        models(&release.on_failure, &mut asked);
        prop_assume!(!asked.is_empty());
        let model = *which.get(&asked);
        let mut two = one.clone();
        two.said.insert(model.id.clone(), otherwise);

        let mark = match model.kind.name {
            "ai.agent" => Steering::AiAgent,
            _ => Steering::AiCondition,
        };
        let first = run(&release, &one);
        let second = run(&release, &two);
        let foreseen = sending_actions(&release);
        for (these, those) in [(&first, &second), (&second, &first)] {
            for (id, (request, steered)) in these {
                let foreseen = foreseen.iter().find(|one| one.id == id).unwrap();
                let is_foreseen = |one: &Steering| foreseen.taint.steered.contains(*one);
                prop_assert!(steered.iter().all(is_foreseen), "{:?}: {:?}", foreseen, steered);
                let is_alike = those.get(id).is_some_and(|(other, _)| other == request);
                prop_assert!(
                    is_alike || steered.contains(&mark),
                    "{} is steered by {:?} only: {:?}\n{:?}\n{:#}",
                    id, steered, model.id, one, json!([actions, on_failure]),
                );
            }
        }
    }
}
