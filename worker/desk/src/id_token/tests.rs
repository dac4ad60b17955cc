//! Tokens as an attacker, or an issuer that errs, would write them: nobody is let in by them.

use std::process::Command;

use base64::prelude::BASE64_STANDARD;
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::{self, PublicKeyComponents},
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256},
};
use serde_json::json;

use super::*;

const NOW: f64 = 1_800_000_000.0;
const EXPECTED: Expected<'_> = Expected {
    issuer: "https://issuer.example",
    client: "desk",
    nonce: "a-nonce",
    now: NOW,
};

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of an issuer, which signs.
enum Signer {
    Rsa(rsa::KeyPair),
    Ec(EcdsaKeyPair),
}

impl Signer {
    fn rsa() -> Self {
        let bits = "rsa_keygen_bits:2048";
        let made = Command::new("openssl")
            .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", bits])
            .output()
            .expect("openssl is installed");
        let pem = String::from_utf8(made.stdout).unwrap();
        let lines = pem.lines().filter(|line| !line.starts_with("-----"));
        let key = BASE64_STANDARD.decode(lines.collect::<String>());
        Self::Rsa(rsa::KeyPair::from_pkcs8(&key.unwrap()).unwrap())
    }

    fn ec() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).unwrap())
    }

    fn public(&self, kid: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                json!({
                    "kty": "RSA", "kid": kid, "use": "sig",
                    "n": encoded(n),
                    "e": encoded(e),
                })
            }
            Self::Ec(key) => {
                let point = key.public_key().as_ref();
                let (x, y) = (encoded(&point[1..33]), encoded(&point[33..]));
                json!({ "kty": "EC", "kid": kid, "crv": "P-256", "x": x, "y": y })
            }
        }
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        let message = [header, claims]
            .map(|part| encoded(part.to_string()))
            .join(".");
        let signature = match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let random = SystemRandom::new();
                key.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    message.as_bytes(),
                    &mut signature,
                )
                .unwrap();
                signature
            }
            Self::Ec(key) => {
                let signed = key.sign(&SystemRandom::new(), message.as_bytes());
                signed.unwrap().as_ref().to_vec()
            }
        };
        format!("{message}.{}", encoded(signature))
    }
}

fn keys(keys: &[Value]) -> Keys {
    serde_json::from_value(json!({ "keys": keys })).unwrap()
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example", "aud": "desk", "sub": "ada", "nonce": "a-nonce",
        "exp": NOW + 1.0, "iat": NOW, "email": "ada@example.com", "email_verified": true,
    })
}

#[test]
fn whom_a_key_of_the_issuer_has_signed_for_is_let_in() {
    for (signer, alg) in [(Signer::rsa(), "RS256"), (Signer::ec(), "ES256")] {
        // A key of which nothing is known is no obstacle.
        let known = keys(&[json!({ "kty": "OKP", "kid": "b" }), signer.public("a")]);
        for header in [
            json!({ "alg": alg, "kid": "a", "typ": "JWT" }),
            json!({ "alg": alg }),
        ] {
            let token = signer.token(&header, &claims());
            let vouched = EXPECTED.vouched(&token, &known).unwrap();
            assert_eq!(vouched.subject, "ada");
            assert_eq!(vouched.email.as_deref(), Some("ada@example.com"));
            // Each character of it is signed.
            for place in [0, token.len() / 2, token.len() - 5] {
                let mut other = token.clone().into_bytes();
                other[place] = if other[place] == b'A' { b'B' } else { b'A' };
                let other = String::from_utf8(other).unwrap();
                assert!(EXPECTED.vouched(&other, &known).is_err(), "{place}");
            }
        }
    }
}

#[test]
fn no_header_chooses_what_is_checked() {
    let (rsa, ec) = (Signer::rsa(), Signer::ec());
    let known = keys(&[rsa.public("rsa"), ec.public("ec")]);
    let header = |alg: &str, kid: &str| json!({ "alg": alg, "kid": kid });
    let mut refused = vec![
        (
            "another key's id",
            rsa.token(&header("RS256", "ec"), &claims()),
        ),
        (
            "an unknown id",
            rsa.token(&header("RS256", "new"), &claims()),
        ),
        (
            "RSA for a curve",
            rsa.token(&header("ES256", "ec"), &claims()),
        ),
        (
            "a curve for RSA",
            ec.token(&header("RS256", "rsa"), &claims()),
        ),
        (
            "another key",
            Signer::ec().token(&header("ES256", "ec"), &claims()),
        ),
    ];
    for alg in ["none", "None", "HS256", "RS384", "PS256", "EdDSA", ""] {
        refused.push((alg, rsa.token(&header(alg, "rsa"), &claims())));
    }
    for more in [
        json!({ "alg": "RS256", "kid": "rsa", "crit": ["exp"] }),
        json!({ "alg": "RS256", "kid": "rsa", "crit": null }),
        json!(["RS256", "rsa", null, null, null]),
        json!({ "alg": "RS256", "kid": "rsa", "cty": "JWT" }),
        json!({ "alg": "RS256", "kid": "rsa", "typ": "at+jwt" }),
    ] {
        refused.push(("more", rsa.token(&more, &claims())));
    }
    // Signed by whoever knows the public key, if that were taken for a secret.
    let message = [header("HS256", "rsa"), claims()].map(|part| encoded(part.to_string()));
    let message = message.join(".");
    let public = rsa.public("rsa")["n"].as_str().unwrap().to_owned();
    let secret = hmac::Key::new(hmac::HMAC_SHA256, public.as_bytes());
    let signature = encoded(hmac::sign(&secret, message.as_bytes()));
    refused.push(("a secret", format!("{message}.{signature}")));
    refused.push(("no signature", format!("{message}.")));
    let plain = encoded(header("RS256", "rsa").to_string());
    let twice = encoded(r#"{"alg": "none", "alg": "RS256", "kid": "rsa"}"#);
    let signed = rsa.token(&header("RS256", "rsa"), &claims());
    refused.push(("an algorithm twice", signed.replacen(&plain, &twice, 1)));
    let mut long = claims();
    long["more"] = "x".repeat(MAX_TOKEN).into();
    refused.push(("too long", rsa.token(&header("RS256", "rsa"), &long)));
    refused.push(("padded", signed.clone() + "="));
    refused.push(("four parts", format!("{signed}.{message}")));
    refused.push(("no token", "a.b".to_owned()));
    for (why, token) in refused {
        assert!(EXPECTED.vouched(&token, &known).is_err(), "{why}");
    }
}

#[test]
fn one_key_is_meant_and_is_for_that() {
    let (signer, other) = (Signer::ec(), Signer::ec());
    let with = |name: &str, value: &str| {
        let mut key = signer.public("a");
        key[name] = value.into();
        key
    };
    // The same point, divided elsewhere.
    let part = |name: &str| signer.public("a")[name].as_str().unwrap().to_owned();
    let [x, y] = ["x", "y"].map(|name| decoded(&part(name)).unwrap());
    let mut uneven = with("x", &encoded(&x[..31]));
    uneven["y"] = encoded([&x[31..], &y].concat()).into();
    let mut encrypting = signer.public("a");
    encrypting["key_ops"] = json!(["encrypt"]);
    let token = signer.token(&json!({ "alg": "ES256", "kid": "a" }), &claims());
    let nameless = signer.token(&json!({ "alg": "ES256" }), &claims());
    for (why, known, token) in [
        ("none", vec![], &token),
        (
            "duplicate",
            vec![signer.public("a"), other.public("a")],
            &token,
        ),
        (
            "which?",
            vec![signer.public("a"), other.public("b")],
            &nameless,
        ),
        ("to encrypt", vec![with("use", "enc")], &token),
        ("another algorithm", vec![with("alg", "ES384")], &token),
        ("another curve", vec![with("crv", "P-384")], &token),
        ("another type", vec![with("kty", "RSA")], &token),
        ("no point", vec![with("x", "AAAA")], &token),
        ("an uneven point", vec![uneven], &token),
        ("other operations", vec![encrypting], &token),
    ] {
        assert!(EXPECTED.vouched(token, &keys(&known)).is_err(), "{why}");
    }
    let both = keys(&[other.public("b"), with("alg", "ES256")]);
    assert!(EXPECTED.vouched(&token, &both).is_ok());
}

#[test]
fn only_what_is_published_now_counts() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let signed = |by: &Signer, kid| by.token(&json!({ "alg": "ES256", "kid": kid }), &claims());
    let (by_old, by_new) = (signed(&old, "1"), signed(&new, "2"));
    for (published, holds) in [
        (vec![old.public("1")], [true, false]),
        (vec![old.public("1"), new.public("2")], [true, true]),
        (vec![new.public("2")], [false, true]),
        (vec![new.public("1"), old.public("2")], [false, false]),
    ] {
        let published = keys(&published);
        let is_valid = |token: &String| EXPECTED.vouched(token, &published).is_ok();
        assert_eq!([&by_old, &by_new].map(is_valid), holds);
    }
}

#[test]
fn claims_are_for_this_desk_this_sign_in_and_this_moment() {
    let (nothing, now) = (Value::Null, NOW);
    for (name, value, holds) in [
        ("iss", json!("https://issuer.example/"), false),
        ("iss", nothing.clone(), false),
        ("aud", json!("another"), false),
        ("aud", json!([]), false),
        ("aud", json!(["desk"]), true),
        ("aud", json!(["desk", "another"]), false),
        ("aud", nothing.clone(), false),
        ("azp", json!("desk"), true),
        ("azp", json!("another"), false),
        ("nonce", json!("another"), false),
        ("nonce", nothing.clone(), false),
        ("exp", json!(now), false),
        ("exp", json!(now - 1.0), false),
        ("exp", nothing.clone(), false),
        ("exp", json!("soon"), false),
        ("iat", json!(now + 290.0), true),
        ("iat", json!(now + 310.0), false),
        ("iat", nothing.clone(), false),
        ("nbf", json!(now + 290.0), true),
        ("nbf", json!(now + 310.0), false),
        ("sub", nothing, false),
        ("sub", json!(""), false),
        ("sub", json!("x".repeat(256)), false),
        ("sub", json!("a\0"), false),
        ("sub", json!("x".repeat(255)), true),
    ] {
        let mut claims = claims();
        claims[name] = value.clone();
        let found = EXPECTED.vouched_by(&encoded(claims.to_string()));
        assert_eq!(found.is_ok(), holds, "{name}: {value}");
    }
    let twice = r#"{"iss": "https://issuer.example", "#.to_owned() + &claims().to_string()[1..];
    assert!(
        EXPECTED.vouched_by(&encoded(twice)).is_err(),
        "a claim twice"
    );
    for (name, value) in [
        ("email_verified", json!(false)),
        ("email_verified", Value::Null),
        ("email", json!("a\0@example.com")),
    ] {
        let mut claims = claims();
        claims[name] = value;
        let vouched = EXPECTED.vouched_by(&encoded(claims.to_string())).unwrap();
        assert_eq!(vouched.email, None);
    }
}
