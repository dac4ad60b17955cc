//! The rules of proofs.

use serde_json::json;

use super::*;

const KEYS: &str = "a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const ROTATED: &str = "b:1f0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f,\
    a:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn proofs(keys: &str) -> Proofs {
    Proofs::new(keys.parse().unwrap(), 8)
}

fn token(text: &str) -> TokenHash {
    TokenHash::of_text(text)
}

fn nonce(challenge: &Challenge, key: &str) -> String {
    let mut nonces = (0..).map(|nonce: u32| nonce.to_string());
    nonces
        .find(|nonce| zero_bits(&challenge.0, key, nonce) >= 8)
        .unwrap()
}

fn check(
    proofs: &Proofs,
    token: TokenHash,
    key: &str,
    proof: &serde_json::Value,
) -> Result<(), Unproven> {
    let proof = serde_json::value::to_raw_value(proof).unwrap();
    proofs.check(token, key, Some(&proof))
}

#[test]
fn a_proof_is_of_one_form_and_one_key() {
    let proofs = proofs(KEYS);
    let challenge = proofs.challenge(token("a"), Some(0)).unwrap();
    let solved = nonce(&challenge, "k");
    let proof = json!({"challenge": challenge, "nonce": solved});
    assert_eq!(check(&proofs, token("a"), "k", &proof), Ok(()));
    let other = check(&proofs, token("b"), "k", &proof);
    assert_eq!(other, Err(Unproven::Challenge), "of another form");
    // By chance it solves one in 256 others.
    let others = (0..20).map(|n| check(&proofs, token("a"), &format!("other {n}"), &proof));
    let refused = others.filter(|one| *one == Err(Unproven::Nonce));
    assert!(refused.count() > 10, "of another key");
    // Of a key that is not the first any more.
    let rotated = self::proofs(ROTATED);
    assert_eq!(check(&rotated, token("a"), "k", &proof), Ok(()));
}

#[test]
fn what_is_no_proof_is_refused() {
    let proofs = proofs(KEYS);
    let challenge = proofs.challenge(token("a"), Some(0)).unwrap();
    let solved = nonce(&challenge, "k");
    let easier = challenge.0.replace(".8.0.", ".0.0.");
    assert_ne!(easier, challenge.0);
    let good = json!({"challenge": challenge, "nonce": solved});
    let with = |name: &str, value: serde_json::Value| {
        let mut proof = good.clone();
        proof[name] = value;
        proof
    };
    assert_eq!(proofs.check(token("a"), "k", None), Err(Unproven::Missing));
    for (proof, expected) in [
        (json!(null), Unproven::Missing),
        (json!("x"), Unproven::Missing),
        (json!({"challenge": challenge}), Unproven::Missing),
        (with("challenge", "".into()), Unproven::Challenge),
        (with("challenge", "1.2.3.4".into()), Unproven::Challenge),
        (with("challenge", easier.into()), Unproven::Challenge),
        (with("nonce", "0".repeat(21).into()), Unproven::Nonce),
        (with("trap", "https://spam.example".into()), Unproven::Trap),
    ] {
        let checked = check(&proofs, token("a"), "k", &proof);
        assert_eq!(checked, Err(expected), "{proof}");
    }
    let wrong = (0..20).map(|n| with("nonce", n.to_string().into()));
    let refused = wrong.filter(|proof| check(&proofs, token("a"), "k", proof).is_err());
    assert!(refused.count() > 10);
    // The key `k.a` with a nonce is hashed like the key `k` with `a.` before the nonce.
    let shared = nonce(&challenge, "k.a");
    let proof = with("nonce", shared.clone().into());
    assert_eq!(check(&proofs, token("a"), "k.a", &proof), Ok(()));
    let moved = with("nonce", format!("a.{shared}").into());
    let checked = check(&proofs, token("a"), "k", &moved);
    assert_eq!(checked, Err(Unproven::Nonce));
}

#[test]
fn nobody_is_faster_than_a_person() {
    let proofs = proofs(KEYS);
    let challenge = proofs.challenge(token("a"), Some(60)).unwrap();
    let proof = json!({"challenge": challenge, "nonce": nonce(&challenge, "k")});
    let checked = check(&proofs, token("a"), "k", &proof);
    assert_eq!(checked, Err(Unproven::TooSoon));
}
