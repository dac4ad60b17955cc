//! What makes two deliveries one: an equal body, the id that the tool has signed, or a member of
//! the body, for tools whose retries have other bytes.

use std::{fmt, str::FromStr};

use crate::{as_text::serde_as_text, json_object};

/// Maximum length of a pointer, in bytes.
const MAX_POINTER: usize = 200;
/// Maximum characters of a member that is an id.
const MAX_ID: usize = 200;

/// What makes two deliveries one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SameBy {
    /// An equal body.
    #[default]
    Body,
    /// The id that the sender has given and signed.
    Id,
    /// The text or whole number at this JSON pointer (RFC 6901) of the body.
    Member(String),
}

/// The text is none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be body, id or a JSON pointer such as /data/id, of at most 8 names and 200 bytes")]
pub struct InvalidSameBy;

impl SameBy {
    /// The member of a body that is its id: a text of 1 to 200 characters, or a whole number.
    pub fn member(pointer: &str, body: &str) -> Option<String> {
        let found = json_object::at(body, pointer)?;
        let text = match found.as_bytes().first()? {
            b'"' => serde_json::from_str(found).ok()?,
            _ => {
                let digits = found.strip_prefix('-').unwrap_or(found);
                let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
                is_whole.then(|| found.to_owned())?
            }
        };
        (1..=MAX_ID).contains(&text.chars().count()).then_some(text)
    }
}

impl FromStr for SameBy {
    type Err = InvalidSameBy;

    fn from_str(text: &str) -> Result<Self, InvalidSameBy> {
        match text {
            "body" => Ok(Self::Body),
            "id" => Ok(Self::Id),
            pointer if pointer.len() <= MAX_POINTER && json_object::is_pointer(pointer) => {
                Ok(Self::Member(pointer.to_owned()))
            }
            _ => Err(InvalidSameBy),
        }
    }
}

impl fmt::Display for SameBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Body => "body",
            Self::Id => "id",
            Self::Member(pointer) => pointer,
        })
    }
}

serde_as_text!(SameBy);
