//! Target of the desk: the token by which an issuer lets people in.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use letterbox_desk::fuzzing::{Expected, Keys};
use serde_json::Value;

use super::text;

const ISSUER: &str = "https://issuer.example.com";
const CLIENT: &str = "desk";
const NONCE: &str = "nonce";

/// Nobody is let in by a token that is not signed. Apart from the signature, somebody is only by
/// one of this issuer, for this desk, this sign-in and this moment, as the person whom it names;
/// with an address only if it was verified. An input is a token, or the claims of one.
pub(super) fn id_token(input: &[u8]) {
    let encoded = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
    let token = match text(input) {
        Some(text) if !text.starts_with('{') => text.to_owned(),
        _ => {
            let head = encoded(br#"{"alg":"RS256"}"#);
            format!("{head}.{}.{}", encoded(input), encoded(b"no signature"))
        }
    };
    let now = Timestamp::now().as_second() as f64;
    let expected = Expected {
        issuer: ISSUER,
        client: CLIENT,
        nonce: NONCE,
        now,
    };
    assert!(expected.vouched(&token, &Keys::default()).is_err());
    let Some(claims) = token.split('.').nth(1) else {
        return;
    };
    let Ok(person) = expected.vouched_by(claims) else {
        return;
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims);
    // What nobody reads may be a number that no double holds.
    let Ok(claims) = serde_json::from_slice::<Value>(&claims.unwrap()) else {
        return;
    };
    let audience = &claims["aud"];
    let audience = audience
        .as_array()
        .map_or(std::slice::from_ref(audience), Vec::as_slice);
    assert!(audience.iter().all(|one| one == CLIENT) && !audience.is_empty());
    assert!(claims["iss"] == ISSUER && claims["nonce"] == NONCE);
    assert!(claims["exp"].as_f64().is_some_and(|end| end > now));
    assert_eq!(
        (claims["sub"].as_str(), &*person.issuer),
        (Some(&*person.subject), ISSUER)
    );
    let is_verified = claims["email_verified"] == true;
    let email = claims["email"].as_str();
    assert_eq!(person.email.as_deref(), email.filter(|_| is_verified));
}
