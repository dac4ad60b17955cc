//! Authorizing Letterbox at an account's authorization server, by OAuth 2.0 with PKCE: the redirect
//! and the callback. The desk doesn't exchange the code: it stores it sealed, and a worker gets the
//! token.

use letterbox_common::{grant::Grant, ids::AccountId};
use letterbox_operator::GrantStatus;
use oauth2::{
    AuthUrl, ClientId, CsrfToken, PkceCodeChallenge, RedirectUrl, Scope,
    basic::BasicClient,
    url::{ParseError, Url},
};
use subtle::ConstantTimeEq;

use crate::oidc::Begun;

/// The path below which authorization servers send people back, each to its own host: so what one
/// of them gives is never taken for what another gave.
pub(crate) const CALLBACK: &str = "/accounts/callback/";

/// The host of a server that lets Letterbox in, with its port unless that is the usual one.
pub(crate) fn host(grant: &GrantStatus) -> Option<String> {
    let url: Url = grant.authorize_url.as_ref()?.parse().ok()?;
    Some(url.authority().to_owned())
}

/// Where it sends people back.
pub(crate) fn way_back(grant: &GrantStatus, desk: &str) -> Option<String> {
    Some(format!("{desk}{CALLBACK}{}", host(grant)?))
}

/// Begins the authorization of an account; `None` if the account needs none.
pub(crate) fn begin(grant: &GrantStatus, desk: &str) -> Result<Option<Begun>, ParseError> {
    let (Some(authorize_url), Some(back)) = (&grant.authorize_url, way_back(grant, desk)) else {
        return Ok(None);
    };
    let client = BasicClient::new(ClientId::new(grant.client_id.clone()))
        .set_auth_uri(AuthUrl::new(authorize_url.clone())?)
        .set_redirect_uri(RedirectUrl::new(back)?);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let scopes = grant.scope.iter().flat_map(|scope| scope.split(' '));
    let (to, state) = client
        .authorize_url(CsrfToken::new_random)
        .add_scopes(scopes.map(|scope| Scope::new(scope.to_owned())))
        .set_pkce_challenge(challenge)
        .url();
    let account = grant.account_id.to_string();
    let handed_in = grant.handed_in.to_string();
    let kept = [state.secret(), verifier.secret(), &account, &handed_in];
    Ok(Some(Begun {
        to: to.into(),
        kept: kept.map(String::as_str).join("."),
    }))
}

/// The state that the browser kept.
pub(crate) struct KeptAuthorization<'k> {
    pub(crate) account: AccountId,
    /// The number of codes and secrets stored until then.
    pub(crate) handed_in: i64,
    verifier: &'k str,
}

/// The authorization that this browser began; `None` for any other.
pub(crate) fn begun<'k>(
    kept: Option<&'k str>,
    state: Option<&str>,
) -> Option<KeptAuthorization<'k>> {
    let mut kept = kept?.split('.');
    let mut next = || kept.next();
    let begun = next()?;
    let verifier = next()?;
    let account = next()?;
    let handed_in = next()?;
    let is_same = begun.as_bytes().ct_eq(state?.as_bytes());
    let kept = KeptAuthorization {
        account: account.parse().ok()?,
        handed_in: handed_in.parse().ok()?,
        verifier,
    };
    Some(kept).filter(|_| is_same.into())
}

/// What is handed in.
pub(crate) fn code(code: &str, kept: &KeptAuthorization<'_>, way_back: String) -> Grant {
    Grant::Code {
        code: code.to_owned(),
        verifier: kept.verifier.to_owned(),
        redirect_url: way_back,
    }
}
