//! How the desk reads an issuer's token: an entry point for the fuzz targets in `tests/fuzz`, which
//! need no issuer.

use letterbox_operator::Vouched;
use openidconnect::{
    IssuerUrl,
    core::{CoreIdToken, CoreIdTokenVerifier},
};

use crate::oidc;

/// The person that a valid token identifies.
#[must_use]
pub fn vouched(
    issuer: &IssuerUrl,
    token: &CoreIdToken,
    verifier: &CoreIdTokenVerifier<'_>,
    nonce: &str,
) -> Option<Vouched> {
    oidc::vouched(issuer, token, verifier, nonce).ok()
}
