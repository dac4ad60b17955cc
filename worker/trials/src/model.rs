//! A scripted model for `letterbox receive`, so that an agent can be tried without one: it calls
//! each of its tools once, in their order, and then says that it is done. Asked without tools it
//! answers no.

use serde_json::{Map, Value, json};

/// The answer to a request to `/chat/completions`.
pub(crate) fn answer(request: &[u8]) -> String {
    let request: Value = std::str::from_utf8(request)
        .ok()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let messages = request["messages"].as_array();
    let results = messages.map_or(0, |messages| {
        let results = messages.iter().filter(|one| one["role"] == "tool");
        results.count()
    });
    let tools = request["tools"].as_array();
    let message = match tools.and_then(|tools| tools.get(results)) {
        Some(tool) => call(&tool["function"]),
        None if tools.is_some() => {
            let content = format!("Done, with {results} calls.");
            json!({"role": "assistant", "content": content})
        }
        None => json!({"role": "assistant", "content": "no"}),
    };
    json!({"choices": [{"message": message}], "usage": {"total_tokens": 50}}).to_string()
}

/// A call with something for each argument that is required.
fn call(tool: &Value) -> Value {
    let parameters = &tool["parameters"];
    let required = parameters["required"].as_array();
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    let arguments: Map<String, Value> = names
        .map(|name| {
            let property = &parameters["properties"][name];
            let value = match (property["enum"].get(0), property["type"].as_str()) {
                (Some(choice), _) => choice.clone(),
                (None, Some("boolean")) => true.into(),
                (None, Some("number" | "integer")) => 1.into(),
                _ => format!("a {name} from the scripted model").into(),
            };
            (name.to_owned(), value)
        })
        .collect();
    let arguments = Value::from(arguments).to_string();
    json!({"role": "assistant", "content": null, "tool_calls": [{
        "id": "call", "type": "function",
        "function": {"name": tool["name"], "arguments": arguments},
    }]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tool_is_called_once() {
        let tool = |name: &str| {
            json!({"type": "function", "function": {"name": name, "parameters": {
                "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
            }}})
        };
        let mut messages = vec![json!({"role": "user", "content": "x"})];
        let mut called = Vec::new();
        loop {
            let request = json!({"messages": messages, "tools": [tool("a"), tool("b")]});
            let answer: Value =
                serde_json::from_str(&answer(request.to_string().as_bytes())).unwrap();
            let message = &answer["choices"][0]["message"];
            let Some(call) = message["tool_calls"].get(0) else {
                assert_eq!(message["content"], "Done, with 2 calls.");
                break;
            };
            called.push(call["function"]["name"].clone());
            messages.push(json!({"role": "tool", "content": "y"}));
        }
        assert_eq!(called, ["a", "b"]);
        assert!(answer(b"\xff").contains("\"no\""));
    }
}
