//! What `letterbox schema` prints, held against what the suite deploys.

use std::sync::OnceLock;

use jsonschema::Validator;
use letterbox_operator::{DEFINITION_SCHEMA, DOCUMENT_SCHEMA, POLICY_SCHEMA};
use serde_json::Value;

/// What is wrong with a value by a schema.
fn problems(schema: &'static str, known: &OnceLock<Validator>, value: &Value) -> Vec<String> {
    let made = || {
        let schema: Value = serde_json::from_str(schema).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    };
    let found = known.get_or_init(made).iter_errors(value);
    found
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// What is wrong with a definition by its schema.
pub fn problems_of_definition(text: &str) -> Vec<String> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    let value = serde_json::from_str(text).unwrap();
    problems(DEFINITION_SCHEMA, &VALIDATOR, &value)
}

/// What is wrong with a policy by its schema.
pub fn problems_of_policy(policy: &Value) -> Vec<String> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    problems(POLICY_SCHEMA, &VALIDATOR, policy)
}

/// What is wrong with documents by their schema.
pub fn problems_of_documents(documents: &Value) -> Vec<String> {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    problems(DOCUMENT_SCHEMA, &VALIDATOR, documents)
}
