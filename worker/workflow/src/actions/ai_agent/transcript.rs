//! The finished part of the conversation between an agent and its model.

use serde_json::{Value, json};

use crate::{
    actions::chat::{Answer, NOT_UNDERSTOOD},
    json::parse,
};

/// Maximum bytes of a tool's answer that are passed to the model.
const MAX_RESULT: usize = 16 * 1024;
/// A token counts for each of so many bytes of a question and its answer, if the model reports
/// less.
const BYTES_PER_TOKEN: u64 = 4;

/// How a part of an agent ended.
#[derive(Debug, Clone, Copy)]
pub enum PartOutcome<'o> {
    /// An answer arrived.
    Answered {
        /// HTTP status.
        status: Option<u16>,
        /// The part of the body that arrived.
        body: &'o [u8],
    },
    /// There is no answer, for this reason, which the model is told.
    Refused(&'o str),
    /// The policy or a person denied it, in these words, which the model is told.
    Denied(&'o str),
}

/// The messages of a conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Transcript {
    pub(super) messages: Vec<Value>,
    /// Bytes of the messages.
    bytes: u64,
    pub(super) tokens: u64,
}

/// A tool call that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCall {
    id: String,
    pub(super) name: String,
    /// JSON text.
    pub(super) arguments: String,
}

/// An answer of a model.
pub(super) struct ModelAnswer {
    content: String,
    calls: Vec<ToolCall>,
    /// What the model says that question and answer took.
    tokens: u64,
}

impl ModelAnswer {
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let not_understood = || NOT_UNDERSTOOD.to_owned();
        let answer = Answer::parse(body)?;
        if let Some(hindrance) = answer.hindrance() {
            return Err(hindrance.to_owned());
        }
        let content = answer.text();
        let calls = match &answer.message()["tool_calls"] {
            Value::Null => Vec::new(),
            Value::Array(calls) => {
                let calls = calls.iter().enumerate().map(tool_call);
                calls.collect::<Option<_>>().ok_or_else(not_understood)?
            }
            _ => return Err(not_understood()),
        };
        if calls.is_empty() && content.is_none() {
            return Err(not_understood());
        }
        Ok(Self {
            content: content.unwrap_or_default(),
            calls,
            tokens: answer.tokens,
        })
    }
}

fn tool_call((index, call): (usize, &Value)) -> Option<ToolCall> {
    let function = call.get("function")?;
    let id = call.get("id").and_then(Value::as_str);
    Some(ToolCall {
        id: id.map_or_else(|| format!("call_{index}"), str::to_owned),
        name: function.get("name")?.as_str()?.to_owned(),
        arguments: match function.get("arguments") {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            // Some models return the object itself instead of its JSON text.
            Some(other) => other.to_string(),
        },
    })
}

impl Transcript {
    /// Adds an answer of the model; returns the tool calls that it asks for.
    pub(super) fn add_answer(
        &mut self,
        outcome: &PartOutcome<'_>,
    ) -> Result<Vec<ToolCall>, String> {
        let PartOutcome::Answered { body, .. } = outcome else {
            return Err(NOT_UNDERSTOOD.to_owned());
        };
        let answer = ModelAnswer::parse(body)?;
        // The word of the model alone does not bound an agent.
        let least = (self.bytes + body.len() as u64) / BYTES_PER_TOKEN;
        self.tokens = self.tokens.saturating_add(answer.tokens.max(least));
        let mut message = json!({"role": "assistant", "content": answer.content});
        if !answer.calls.is_empty() {
            let calls = answer.calls.iter().map(|call| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            });
            message["tool_calls"] = calls.collect();
        }
        self.push(message);
        Ok(answer.calls)
    }

    pub(super) fn add_result(&mut self, call: &ToolCall, outcome: &PartOutcome<'_>) {
        let result = match outcome {
            PartOutcome::Refused(reason) | PartOutcome::Denied(reason) => json!({"error": reason}),
            PartOutcome::Answered { status, body } => {
                let (body, is_cut) = match body.get(..MAX_RESULT) {
                    Some(beginning) if body.len() > MAX_RESULT => (beginning, true),
                    _ => (*body, false),
                };
                let text = || Value::from(String::from_utf8_lossy(body));
                let body = parse(body).unwrap_or_else(text);
                let mut result = json!({"status": status, "body": body});
                if is_cut {
                    result["cut_off"] = true.into();
                }
                result
            }
        };
        let content = result.to_string();
        self.push(json!({"role": "tool", "tool_call_id": call.id, "content": content}));
    }

    fn push(&mut self, message: Value) {
        self.bytes += message.to_string().len() as u64;
        self.messages.push(message);
    }

    /// The content of the last message.
    pub(super) fn last_words(&self) -> String {
        let content = self
            .messages
            .last()
            .and_then(|last| last["content"].as_str());
        content.unwrap_or_default().to_owned()
    }
}
