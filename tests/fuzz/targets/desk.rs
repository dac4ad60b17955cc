//! Target of the desk: the token by which an issuer lets people in.

use std::sync::LazyLock;

use base64::{
    Engine, alphabet,
    engine::general_purpose::{GeneralPurpose, NO_PAD},
    prelude::BASE64_URL_SAFE_NO_PAD,
};
use jiff::Timestamp;
use letterbox_desk::fuzzing::vouched;
use openidconnect::{
    ClientId, ClientSecret, IssuerUrl,
    core::{CoreIdToken, CoreIdTokenVerifier, CoreJsonWebKeySet},
};
use serde_json::Value;

use super::text;

const ISSUER: &str = "https://issuer.example.com";
const CLIENT: &str = "desk";
const NONCE: &str = "nonce";

static VERIFIER: LazyLock<CoreIdTokenVerifier<'static>> = LazyLock::new(|| {
    CoreIdTokenVerifier::new_confidential_client(
        ClientId::new(CLIENT.to_owned()),
        ClientSecret::new("secret".to_owned()),
        IssuerUrl::new(ISSUER.to_owned()).unwrap(),
        CoreJsonWebKeySet::new(Vec::new()),
    )
});

/// Base64 whose last symbol may have bits that belong to no byte. What is signed is its text.
const AS_THE_LIBRARY: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);

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
    let Ok(token) = token.parse::<CoreIdToken>() else {
        return;
    };
    let issuer = IssuerUrl::new(ISSUER.to_owned()).unwrap();
    assert!(vouched(&issuer, &token, &VERIFIER, NONCE).is_none());
    let unsigned = VERIFIER.clone().insecure_disable_signature_check();
    let Some(person) = vouched(&issuer, &token, &unsigned, NONCE) else {
        return;
    };
    let token = token.to_string();
    let claims = AS_THE_LIBRARY.decode(token.split('.').nth(1).unwrap());
    let claims: Value = serde_json::from_slice(&claims.unwrap()).unwrap();
    let now = Timestamp::now().as_second() as f64;
    let audience = &claims["aud"];
    let audience = audience
        .as_array()
        .map_or(std::slice::from_ref(audience), Vec::as_slice);
    assert!(audience.iter().any(|one| one == CLIENT));
    assert!(claims["iss"] == ISSUER && claims["nonce"] == NONCE);
    assert!(claims["exp"].as_f64().is_some_and(|end| end > now - 1.0));
    // To the library, `email#` is the email in no language.
    let of_person = |name: &str| {
        let claim = claims.get(name);
        claim.or_else(|| claims.get(format!("{name}#"))).cloned()
    };
    let of_person = |name: &str| of_person(name).unwrap_or_default();
    assert_eq!(
        (of_person("sub").as_str(), &*person.issuer),
        (Some(&*person.subject), ISSUER)
    );
    let is_verified = of_person("email_verified") == true;
    let email = of_person("email");
    assert_eq!(
        person.email.as_deref(),
        email.as_str().filter(|_| is_verified)
    );
}
