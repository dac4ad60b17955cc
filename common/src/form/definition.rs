//! The definition of a form: what its owner deploys and what the public reads. Both are the same
//! JSON.

use serde::{Deserialize, Serialize};

/// A form, as `GET /public/workflow-forms/forms` answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Shown after a submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation_message: Option<String>,
    pub fields: Vec<Field>,
}

/// One field of a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// Name of the value in a submission's payload.
    pub key: String,
    pub label: String,
    #[serde(rename = "type")]
    pub kind: FieldType,
    pub required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    Text,
    Textarea,
    Number,
    Email,
    Checkbox,
}

impl FieldType {
    pub const ALL: [(&'static str, Self); 5] = [
        ("text", Self::Text),
        ("textarea", Self::Textarea),
        ("number", Self::Number),
        ("email", Self::Email),
        ("checkbox", Self::Checkbox),
    ];
}
