//! What gets an account its next token, as it is sealed: whoever hands it in writes it, and a
//! worker reads it.

use serde::{Deserialize, Serialize};

use crate::{json_object::text_of, secret::Secret};

/// A code of OAuth 2.0, until it is exchanged, and then the refresh token.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// The account's owner has just authorized Letterbox.
    Code {
        /// What the authorization server gave the owner's browser.
        code: String,
        /// The PKCE verifier that proves who has asked for it.
        verifier: String,
        /// Where the browser was sent back to.
        redirect_url: String,
    },
    /// It was exchanged.
    RefreshToken(String),
}

impl Grant {
    /// Reads what was sealed; `None` if it is no grant.
    pub fn parse(json: &Secret) -> Option<Self> {
        let json = std::str::from_utf8(json.expose()).ok()?;
        serde_json::from_str(json).ok()
    }

    /// What is sealed: JSON.
    pub fn to_json(&self) -> Secret {
        Secret::new(text_of(self).into_bytes())
    }
}
