//! Targets of workflows: definitions, and what models answer.

use std::sync::{Arc, LazyLock};

use letterbox_common::form::Form;
use letterbox_gateway::fuzzing;
use letterbox_tests::{definition_with, problems_of_definition};
use letterbox_workflow::{
    Definition, TemplateContext,
    actions::{Agent, AgentPart, Branch, Conclusion, Outgoing, PartOutcome, Step},
    preview::sending_actions,
    release::{Release, ReleaseTexts},
};
use serde_json::{Value, json};
use url::Url;

use super::text;

/// A definition that is accepted fits its schema, loads as a release, gives a document of its form
/// in which nothing but the form has changed, and is accepted again as it is stored.
pub(super) fn definition(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let definition = match Definition::check(text) {
        Ok(definition) => definition,
        Err(problems) => return assert!(!problems.is_empty()),
    };
    assert_eq!(problems_of_definition(text), [""; 0]);
    let stored = Stored::of(&definition);
    let release = Release::load(&ReleaseTexts {
        form: stored.form.clone(),
        actions: stored.actions.clone(),
        on_failure: stored.on_failure.clone(),
    })
    .unwrap();
    assert_eq!(release.actions.len(), definition.actions.len());
    assert_eq!(release.on_failure.len(), definition.on_failure.len());
    let _ = (sending_actions(&release), definition.warnings());
    let again = Definition::check(&stored.written()).unwrap();
    assert_eq!(Stored::of(&again), stored);
    stored.assert_has_document();
}

/// What a deploy stores of a definition.
#[derive(Debug, PartialEq)]
struct Stored {
    form: String,
    page: Option<String>,
    actions: String,
    on_failure: Option<String>,
}

impl Stored {
    fn of(definition: &Definition) -> Self {
        Self {
            form: definition.form_json(),
            page: definition.page_json(),
            actions: definition.actions_json().to_owned(),
            on_failure: definition.on_failure_json().map(str::to_owned),
        }
    }

    fn written(&self) -> String {
        let (form, actions) = (&self.form, &self.actions);
        let more = [("page", &self.page), ("on_failure", &self.on_failure)];
        let more = more
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.as_ref()?)));
        let more = more.map(|(name, text)| format!(r#","{name}":{text}"#));
        let more = more.collect::<String>();
        format!(r#"{{"form":{form},"actions":{actions}{more}}}"#)
    }

    /// No text of the owner ends an element or an attribute, and the page is told the form.
    fn assert_has_document(&self) {
        static PLAIN: LazyLock<usize> = LazyLock::new(|| {
            let document = fuzzing::document(r#"{"title":"T","fields":[]}"#, None).unwrap();
            document.matches(['<', '"']).count()
        });
        let document = fuzzing::document(&self.form, self.page.as_deref()).unwrap();
        let form: Form = serde_json::from_str(&self.form).unwrap();
        let page: Value = self
            .page
            .as_deref()
            .map_or(Value::Null, |page| page.parse().unwrap());
        // A description and an organization are an element more, each with two attributes.
        let more = [form.description.is_some(), page["organization"].is_string()];
        let more = more.into_iter().filter(|is| *is).count() * 5;
        assert_eq!(document.matches(['<', '"']).count(), *PLAIN + more);
        let (_, told) = document.split_once(" data-told=\"").unwrap();
        let told = told.split('"').next().unwrap();
        let told = told
            .replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&amp;", "&");
        let told: Value = told.parse().unwrap();
        assert_eq!(told["form"], self.form.parse::<Value>().unwrap());
    }
}

static BASE: LazyLock<Url> = LazyLock::new(|| "https://crm.example.com/api".parse().unwrap());
const MAX_STEPS: usize = 8;

/// A question that is answered by yes or no, and an agent.
static MODELS: LazyLock<(Arc<dyn Outgoing>, Arc<Agent>)> = LazyLock::new(|| {
    let tool = json!({"name": "put", "description": "d", "account": "crm", "method": "PUT",
        "path": "/things/{{ args.id }}", "headers": {"x-note": "{{ args.note }}"},
        "body": {"n": "{{ args.n }}", "note": "{{ args.note }}"},
        "parameters": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "string"}, "n": {"type": "number"},
            "note": {"type": "string", "enum": ["good", "bad"]}}}});
    let actions = json!([
        {"id": "asks", "type": "ai.condition", "account": "ai", "model": "m", "question": "Is it?",
            "input": "{{ form.message }}"},
        {"id": "works", "type": "ai.agent", "account": "ai", "model": "m", "goal": "g",
            "input": "{{ form.message }}", "tools": [tool], "max_steps": MAX_STEPS,
            "max_tokens": 100_000},
    ]);
    let definition = Definition::check(&definition_with(actions)).unwrap();
    match &definition.actions[..] {
        [first, second] => match (&first.step, &second.step) {
            (Step::Send(asks), Step::Delegate(works)) => (asks.clone(), works.clone()),
            _ => unreachable!("these kinds are as they are parsed"),
        },
        _ => unreachable!("there are two"),
    }
});

/// Only yes chooses what follows a yes. An agent comes to an end whatever its model and its tools
/// answer, and what it sends goes to its tool, with arguments that the tool allows.
pub(super) fn ai_answer(input: &[u8]) {
    let (asks, agent) = &*MODELS;
    // A byte order mark says nothing.
    let said = text(input).map(|text| text.strip_prefix('\u{feff}').unwrap_or(text));
    let said = said.and_then(|text| text.parse::<Value>().ok());
    let choice = said
        .map(|said| said["choices"][0].clone())
        .unwrap_or_default();
    let content = choice["message"]["content"].to_string().to_lowercase();
    let is_whole = choice["finish_reason"] != "length";
    let says = |words: [&str; 2]| words.iter().any(|word| content.contains(word));
    match asks.conclude(input, true) {
        Conclusion::Chose(Branch::Then) => assert!(says(["yes", "true"])),
        Conclusion::Chose(Branch::Else) => assert!(says(["no", "false"])),
        Conclusion::Failed(_) => {
            let is_plain = ["\"yes\"", "\"no\""].contains(&&*content);
            assert!(!(is_plain && is_whole));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(asks.conclude(input, false), Conclusion::Incomplete);

    let form = r#"{"message": "\"}], {{ form.name }}"}"#;
    let context = TemplateContext::of_run(form, "run", "now").unwrap();
    let answered = PartOutcome::Answered {
        status: Some(200),
        body: input,
    };
    let mut over = Vec::new();
    while over.len() <= MAX_STEPS {
        match agent.next(&over) {
            AgentPart::Ask(question) => {
                let request = question.render(&BASE, &context.renderer()).unwrap();
                assert!(question.shown(&request).is_some());
                over.push(answered);
            }
            AgentPart::Call {
                outgoing,
                arguments,
            } => {
                assert_allowed(&*outgoing, &arguments.with(&context));
                over.push(answered);
            }
            AgentPart::Tell(_) => over.push(PartOutcome::Refused("no")),
            AgentPart::Done(_) | AgentPart::Fail(_) => return,
        }
    }
    panic!("it goes on after {MAX_STEPS} steps");
}

fn assert_allowed(outgoing: &dyn Outgoing, context: &TemplateContext) {
    // An id may be empty, or more than a segment.
    let Ok(request) = outgoing.render(&BASE, &context.renderer()) else {
        return;
    };
    assert!(request.is_below(&BASE) && request.method == "PUT");
    let segments = request
        .url
        .strip_prefix("https://crm.example.com/api/things/");
    assert!(segments.is_some_and(|id| !id.is_empty() && !id.contains(['/', '?', '#'])));
    let body: Value = request.body.unwrap().parse().unwrap();
    assert!(body["n"].is_number() || body["n"].is_null());
    assert!(body["note"] == "good" || body["note"] == "bad" || body["note"].is_null());
}
