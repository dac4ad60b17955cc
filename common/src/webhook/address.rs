//! The address of a webhook: `<workspace id>.<webhook id>`, the last segment of its URL.

use std::{fmt, str::FromStr};

use crate::ids::{InvalidId, WebhookId, WorkspaceId};

/// The address of one webhook of one workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WebhookAddress {
    /// The first part: the workspace that the webhook belongs to.
    pub workspace: WorkspaceId,
    /// The second part: the webhook in that workspace.
    pub webhook: WebhookId,
}

impl WebhookAddress {
    /// Generates an address that no webhook has.
    pub fn generate() -> Self {
        Self {
            workspace: WorkspaceId::generate(),
            webhook: WebhookId::generate(),
        }
    }
}

impl FromStr for WebhookAddress {
    type Err = InvalidId;

    fn from_str(token: &str) -> Result<Self, InvalidId> {
        let (workspace, webhook) = token.split_once('.').ok_or(InvalidId)?;
        Ok(Self {
            workspace: workspace.parse()?,
            webhook: webhook.parse()?,
        })
    }
}

impl fmt::Display for WebhookAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.workspace, self.webhook)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_parses_prints_the_same(token in "[0-9a-fA-F.-]{0,80}|\\PC{0,80}") {
            if let Ok(address) = token.parse::<WebhookAddress>() {
                prop_assert_eq!(address.to_string(), token);
            }
        }

        #[test]
        fn what_is_printed_parses_and_nothing_near_it_does(extra in "\\PC", at in 0_usize..=73) {
            let address = WebhookAddress::generate();
            let token = address.to_string();
            prop_assert_eq!(token.parse::<WebhookAddress>(), Ok(address));
            let mut longer = token.clone();
            longer.insert_str(at, &extra);
            prop_assert!(longer.parse::<WebhookAddress>().is_err());
            let mut shorter = token;
            shorter.remove(at.min(72));
            prop_assert!(shorter.parse::<WebhookAddress>().is_err());
        }
    }
}
