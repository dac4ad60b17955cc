//! Agents and their scripted models.

use serde_json::{Value, json};

use crate::{CHAT, Received, Reply};

/// An agent that may look for a customer, and leave notes.
pub fn agent() -> Value {
    json!({
        "id": "agent", "type": "ai.agent", "account": "crm", "model": "m-1",
        "goal": "Answer the customer", "input": "{{ form.message }}",
        "max_steps": 8, "max_tokens": 10_000,
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

/// What a model answers: with these calls, or where there are none with these words.
pub fn model_answer(words: &str, calls: &[(&str, Value)]) -> String {
    let mut message = json!({"role": "assistant", "content": words});
    if !calls.is_empty() {
        let calls = calls.iter().enumerate().map(|(number, (name, arguments))| {
            json!({"id": format!("call_{number}"), "type": "function",
                   "function": {"name": name, "arguments": arguments.to_string()}})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({"choices": [{"message": message}], "usage": {"total_tokens": 100}}).to_string()
}

/// How many answers of tools a question to a model tells of.
pub fn results_in(question: &Received) -> usize {
    let question = question.json();
    let messages = question["messages"].as_array().unwrap();
    messages.iter().filter(|one| one["role"] == "tool").count()
}

/// A peer whose model answers by how many results it was told, and whose tools answer 200 with
/// these words.
pub fn scripted(
    model: impl Fn(usize) -> String + Send + Sync + 'static,
    tool: &'static str,
) -> impl Fn(&Received, usize) -> Reply + Send + Sync + 'static {
    move |request, _| match request.target.as_str() {
        CHAT => Reply::With(200, Vec::new(), model(results_in(request))),
        _ => Reply::With(200, Vec::new(), json!({ "words": tool }).to_string()),
    }
}
