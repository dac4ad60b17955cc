//! One type per id, so that the id of a workspace can't be passed as that of a webhook.
//!
//! Ids of rarely created things are random (UUIDv4) and reveal nothing. Ids of deliveries and
//! submissions are UUIDv7: they sort by time of creation, which keeps the tables that store them
//! dense.

use std::fmt;

use postgres_types::{FromSql, ToSql};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id must be a UUID of 36 characters, in lower case and with hyphens")]
pub struct InvalidId;

/// Parses the canonical form only (lower case, with hyphens), so that each id has one spelling.
fn parse_canonical(text: &str) -> Result<Uuid, InvalidId> {
    let id = Uuid::try_parse(text).map_err(|_| InvalidId)?;
    let canonical = text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase());
    canonical.then_some(id).ok_or(InvalidId)
}

macro_rules! id {
    ($(#[$about:meta])* $name:ident, $make:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSql,
            FromSql)]
        #[serde(transparent)]
        #[postgres(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Generates an id.
            pub fn generate() -> Self {
                Self(Uuid::$make())
            }

            /// The 16 bytes of the UUID.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse_canonical(text).map(Self)
            }
        }
    };
}

id!(/** A tenant; `orgId` in a webhook URL. */ WorkspaceId, new_v4);
id!(/** A person. */ UserId, new_v4);
id!(/** A webhook. */ WebhookId, new_v4);
id!(/** A workflow, over all its releases. */ WorkflowId, new_v4);
id!(/** A release of a workflow. */ ReleaseId, new_v4);
id!(/** A form link; reveals nothing about its token. */ FormLinkId, new_v4);
id!(/** A connected account, which a user's workflows may call. */ AccountId, new_v4);
id!(/** An approval: a question whether a request may be sent. */ ApprovalId, new_v4);
id!(/** A delivery, the message that carries it and the signal it becomes. */ DeliveryId, now_v7);
id!(/** A form submission, the message that carries it and the run that it starts. */ RunId,
    now_v7);

impl RunId {
    /// The smallest id of a run that was received `milliseconds` after the start of 1970, or later.
    pub fn earliest_at(milliseconds: u64) -> Self {
        // A UUIDv7 begins with 48 bits of time.
        Self(Uuid::from_u128(u128::from(milliseconds) << 80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_parses() {
        let id = WebhookId::generate();
        assert_eq!(id.to_string().parse(), Ok(id));
        let upper = id.to_string().to_uppercase();
        let simple = id.to_string().replace('-', "");
        let braced = format!("{{{id}}}");
        let urn = format!("urn:uuid:{id}");
        for other in [upper.as_str(), &simple, &braced, &urn, "", "x"] {
            // An id without a letter is the same in both cases.
            let same = other == id.to_string();
            assert_eq!(other.parse::<WebhookId>().is_ok(), same, "{other}");
        }
    }

    #[test]
    fn delivery_ids_sort_by_time() {
        let first = DeliveryId::generate();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(first < DeliveryId::generate());
        let seconds = |seconds| {
            let time = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds);
            let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
            RunId::earliest_at(since.as_millis() as u64)
        };
        let run = RunId::generate();
        assert!(RunId::earliest_at(0) < seconds(0) && seconds(0) <= run && run < seconds(5));
    }
}
