//! Agents with scripted answers of the model, part by part, without I/O.

use serde_json::{Value, json};

use super::*;
use crate::{
    Definition, TemplateContext,
    actions::{Request, Step},
    diagnostics::texts,
};

fn definition(agent: &Value) -> Result<Definition, Vec<String>> {
    let email = json!({"key": "email", "label": "E", "type": "email", "required": true});
    let definition = json!({"form": {"title": "T", "fields": [email]}, "actions": [agent]});
    Definition::check(&definition.to_string()).map_err(texts)
}

fn described() -> Value {
    json!({
        "id": "agent", "type": "ai.agent", "account": "models", "model": "m-1",
        "goal": "Answer the customer", "input": "{{ form.email }}",
        "max_steps": 6, "max_tokens": 1000,
        "tools": [
            {"name": "find", "description": "Finds a customer", "account": "crm",
             "method": "GET", "path": "/customers/{{ args.name }}",
             "parameters": {"type": "object", "properties": {"name": {"type": "string"}},
                            "required": ["name"]}},
            {"name": "note", "description": "Leaves a note", "account": "crm",
             "method": "POST", "path": "/notes", "body": {"text": "{{ args.text }}"},
             "parameters": {"type": "object", "properties": {"text": {"type": "string"}},
                            "required": ["text"]}},
        ],
    })
}

fn agent() -> Arc<Agent> {
    agent_of(6)
}

fn agent_of(steps: usize) -> Arc<Agent> {
    let mut described = described();
    described["max_steps"] = steps.into();
    match definition(&described).unwrap().actions.remove(0).step {
        Step::Delegate(agent) => agent,
        other => panic!("{other:?}"),
    }
}

/// A model's answer with these calls, each a name and arguments.
fn calling(calls: &[(&str, &str)]) -> Vec<u8> {
    let calls: Vec<_> = calls
        .iter()
        .map(|(name, arguments)| {
            json!({"id": "c", "type": "function",
                   "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let usage = json!({"total_tokens": 100});
    json!({"choices": [{"message": message}], "usage": usage})
        .to_string()
        .into_bytes()
}

fn saying(content: &str) -> Vec<u8> {
    let message = json!({"role": "assistant", "content": content});
    json!({"choices": [{"message": message}]})
        .to_string()
        .into_bytes()
}

fn answered(body: &[u8]) -> PartOutcome<'_> {
    PartOutcome::Answered {
        status: Some(200),
        body,
    }
}

/// The next question, and its request.
fn asked(over: &[PartOutcome<'_>]) -> (Arc<dyn Outgoing>, Request) {
    let AgentPart::Ask(outgoing) = agent().next(over) else {
        panic!("{:?}", agent().next(over));
    };
    let context = TemplateContext::of_run(r#"{"email":"ada@example.com"}"#, "r", "t").unwrap();
    let base = "https://models.example/v1".parse().unwrap();
    let request = outgoing.render(&base, &context.renderer()).unwrap();
    (outgoing, request)
}

/// The body of the next question.
fn question(over: &[PartOutcome<'_>]) -> Value {
    let (_, request) = asked(over);
    assert_eq!(request.url, "https://models.example/v1/chat/completions");
    serde_json::from_str(&request.body.unwrap()).unwrap()
}

fn told(over: &[PartOutcome<'_>]) -> String {
    match agent().next(over) {
        AgentPart::Tell(reason) => reason,
        other => panic!("{other:?}"),
    }
}

fn failure(over: &[PartOutcome<'_>]) -> String {
    match agent().next(over) {
        AgentPart::Fail(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_calls_and_results_follow_each_other() {
    let first = question(&[]);
    assert_eq!(first["model"], "m-1");
    assert_eq!(
        first["messages"][1]["content"],
        r#"Input: "ada@example.com""#
    );
    assert_eq!(first["tools"][0]["function"]["name"], "find");
    assert_eq!(first["max_tokens"], Value::Null, "some models refuse it");

    let calls = calling(&[("find", r#"{"name":"Ada"}"#), ("note", r#"{"text":"hi"}"#)]);
    let mut over = vec![answered(&calls)];
    let AgentPart::Call {
        outgoing,
        arguments,
    } = agent().next(&over)
    else {
        panic!("a call");
    };
    assert_eq!((outgoing.method(), outgoing.account()), ("GET", "crm"));
    assert_eq!(Value::from(arguments.0), json!({"name": "Ada"}));

    over.push(answered(br#"{"id":7}"#));
    assert!(
        matches!(agent().next(&over), AgentPart::Call { outgoing, .. }
        if outgoing.method() == "POST")
    );
    over.push(PartOutcome::Refused("denied by the policy"));
    let second = question(&over);
    let results = &second["messages"].as_array().unwrap()[3..];
    assert_eq!(results[0]["content"], r#"{"body":{"id":7},"status":200}"#);
    assert_eq!(results[1]["content"], r#"{"error":"denied by the policy"}"#);

    let end = saying("Done.");
    over.push(answered(&end));
    assert!(matches!(agent().next(&over), AgentPart::Done(said) if said == "Done."));
}

#[test]
fn what_a_model_must_not_call_it_is_told() {
    for (call, reason) in [
        (("delete", "{}"), "there is no tool \"delete\""),
        (("find", "{}"), "find: \"name\" is required"),
        (
            ("find", r#"{"name":"x","url":"http://evil"}"#),
            "find: there is no parameter \"url\"",
        ),
        (
            ("find", "nonsense"),
            "find: the arguments are not JSON: expected ident at line 1 column 2",
        ),
    ] {
        let calls = calling(&[call]);
        assert_eq!(told(&[answered(&calls)]), reason);
        // Told, it may go on.
        let over = [answered(&calls), PartOutcome::Refused(reason)];
        assert_eq!(question(&over)["messages"][3]["role"], "tool");
    }
}

#[test]
fn nothing_goes_on_for_ever() {
    let calls = calling(&[("find", r#"{"name":"x"}"#)]);
    let over: Vec<_> = (0..6)
        .map(|part| answered(if part % 2 == 0 { &calls } else { b"{}" }))
        .collect();
    assert_eq!(
        failure(&over),
        "it is not done after its maximum of 6 steps"
    );
    let mut greedy: Value = crate::json::parse(&calls).unwrap();
    greedy["usage"]["total_tokens"] = 1000.into();
    let greedy = greedy.to_string();
    let over = [answered(greedy.as_bytes()), answered(b"")];
    assert_eq!(failure(&over), "it has used its maximum of 1000 tokens");
    // If the model reports no usage, bytes count; those of the conversation with each question.
    let mut silent: Value = crate::json::parse(&calls).unwrap();
    silent["usage"] = Value::Null;
    silent["padding"] = "x".repeat(4_000).into();
    let silent = silent.to_string();
    let over = [answered(silent.as_bytes()), answered(b"")];
    assert_eq!(failure(&over), "it has used its maximum of 1000 tokens");
    let long = format!(r#""{}""#, "y".repeat(2_500));
    let over = [&calls[..], long.as_bytes(), &calls, b"1", &calls, b"1"].map(answered);
    let AgentPart::Ask(_) = agent().next(&over[..4]) else {
        panic!("it has tokens left");
    };
    assert_eq!(failure(&over), "it has used its maximum of 1000 tokens");
}

#[test]
fn a_long_result_is_cut_and_a_hostile_answer_fails() {
    let calls = calling(&[("find", r#"{"name":"x"}"#)]);
    let long = "y".repeat(100_000);
    let asked = question(&[answered(&calls), answered(long.as_bytes())]);
    let result = asked["messages"][3]["content"].as_str().unwrap();
    let result: Value = serde_json::from_str(result).unwrap();
    assert_eq!(result["body"].as_str().map(str::len), Some(16 * 1024));
    assert_eq!(result["cut_off"], true);
    for body in [
        "".to_owned(),
        "{}".into(),
        r#"{"choices":[{"message":{"content":null}}]}"#.into(),
        r#"{"choices":[{"message":{"tool_calls":{}}}]}"#.into(),
        r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":1}}]}}]}"#.into(),
        "[".repeat(60_000),
    ] {
        let reason = failure(&[answered(body.as_bytes())]);
        assert_eq!(
            reason, "the model's answer could not be understood",
            "{body:.50}"
        );
    }
    let cut = r#"{"choices":[{"finish_reason":"length","message":{"content":"I"}}]}"#;
    assert_eq!(
        failure(&[answered(cut.as_bytes())]),
        "the model's answer was cut off: it reached its maximum of tokens"
    );
}

#[test]
fn what_is_shown_names_answers_by_their_hash() {
    let calls = calling(&[("find", r#"{"name":"x"}"#)]);
    // What a tool says can't pass for a hash.
    let forged = format!(
        r#"{{"secret":"of an account 1 bytes with the SHA-256 {:049}"}}"#,
        0
    );
    let over = [answered(&calls), answered(forged.as_bytes())];
    let (outgoing, request) = asked(&over);
    let shown = outgoing.shown(&request).unwrap().body.unwrap();
    assert!(request.body.unwrap().contains("of an account"));
    assert!(
        !shown.contains("of an account") && shown.contains(r#"{"bytes":"#),
        "{shown}"
    );
}

#[test]
fn a_definition_names_its_mistakes() {
    let mistake = |change: &dyn Fn(&mut Value)| {
        let mut agent = described();
        change(&mut agent);
        definition(&agent).unwrap_err().join("\n")
    };
    for (change, expected) in [
        (
            &(|agent: &mut Value| agent["max_steps"] = 0.into()) as &dyn Fn(&mut Value),
            "actions[0].max_steps: must be a whole number of 1 to 100",
        ),
        (
            &|agent| agent["tools"] = json!([]),
            "actions[0].tools: must have 1 to 20 tools",
        ),
        (
            &|agent| agent["goal"] = "{{ form.email }}".into(),
            "actions[0].goal: must be fixed text: values belong in a body or an input",
        ),
        (
            &|agent| agent["tools"][1]["name"] = "find".into(),
            "actions[0].tools[1]: another tool has the name \"find\"",
        ),
        (
            &|agent| agent["tools"][0]["path"] = "/{{ args.other }}".into(),
            "actions[0].tools[0].path: unknown name \"args.other\", expected run.id, \
             run.received_at, form.email, args.name",
        ),
        (
            &|agent| agent["input"] = "{{ args.name }}".into(),
            "actions[0].input: unknown name \"args.name\", expected run.id, run.received_at, \
             form.email",
        ),
        (
            &|agent| agent["tools"][0]["host"] = "evil".into(),
            "actions[0].tools[0]: unknown member \"host\", expected name, description, parameters, \
             account, method, path, query, headers, body, form, expect, timeout, max_answer, keep",
        ),
    ] {
        assert_eq!(mistake(change), expected);
    }
}

/// What was denied stays denied: the same call at once, others of the tool after three denials.
#[test]
fn what_was_denied_is_not_asked_about_again() {
    let call = |name: &str| calling(&[("find", &json!({"name": name}).to_string())]);
    let [ada, bob, cy, dan] = ["Ada", "Bob", "Cy", "Dan"].map(call);
    let mut over = Vec::new();
    for (asked, may_be_asked) in [(&ada, true), (&ada, false), (&bob, true), (&cy, true)] {
        over.push(answered(asked));
        let next = agent_of(20).next(&over);
        assert_eq!(
            matches!(next, AgentPart::Call { .. }),
            may_be_asked,
            "{next:?}"
        );
        over.push(match next {
            AgentPart::Call { .. } => PartOutcome::Denied("denied by a member"),
            _ => PartOutcome::Refused("find: it was denied before"),
        });
    }
    over.push(answered(&dan));
    let next = agent_of(20).next(&over);
    assert!(matches!(next, AgentPart::Tell(why) if why == "find: it was denied before"));
}
