//! What the desk makes of an issuer's token: a door for the fuzz targets in `tests/fuzz`, which
//! need no issuer.

use letterbox_operator::Vouched;
use openidconnect::{
    IssuerUrl,
    core::{CoreIdToken, CoreIdTokenVerifier},
};

use crate::oidc;

/// Whom a token lets in, if it holds.
#[must_use]
pub fn vouched(
    issuer: &IssuerUrl,
    token: &CoreIdToken,
    verifier: &CoreIdTokenVerifier<'_>,
    nonce: &str,
) -> Option<Vouched> {
    oidc::vouched(issuer, token, verifier, nonce).ok()
}
