//! The definition of a form. The owner deploys, and the public reads, the same JSON.

use serde::{Deserialize, Serialize};

use crate::text_enum;

/// A form, as `GET /public/workflow-forms/forms` returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    /// The heading of the form.
    pub title: String,
    /// Shown below the title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Shown after a submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmation_message: Option<String>,
    /// The fields, in the order in which they are shown.
    pub fields: Vec<Field>,
}

/// One field of a form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// Name of the value in a submission's payload.
    pub key: String,
    /// The name of the field, for people.
    pub label: String,
    /// The type of its values, by which they are validated.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Whether a submission must have a value: not blank, and ticked if it is a checkbox.
    pub required: bool,
    /// Shown in the field while it is empty; checkboxes show none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<String>,
    /// What may be answered, of one line of text; anything, if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
}

text_enum! {
    /// The type of a field's values.
    pub enum FieldType {
        /// One line of text
        Text = "text",
        /// Many lines of text
        Textarea = "textarea",
        /// A finite number
        Number = "number",
        /// An e-mail address
        Email = "email",
        /// Yes or no
        Checkbox = "checkbox",
    }
}

impl FieldType {
    /// Maximum length of a value in characters (Unicode scalar values), for types that hold text.
    /// The form page and the validation of submissions both use it.
    pub fn max_length(self) -> Option<usize> {
        match self {
            Self::Text => Some(500),
            Self::Textarea => Some(5_000),
            Self::Email => Some(200),
            Self::Number | Self::Checkbox => None,
        }
    }
}
