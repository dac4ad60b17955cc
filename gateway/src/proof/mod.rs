//! The spam defence of forms against programs that fill them in: a proof of work, an invisible
//! field that people leave empty, and a minimum time.
//!
//! Reading a form with a spam defence returns a challenge: the time of reading, the required work
//! and the minimum time to fill in the form, with a MAC that binds them to the link. All gateways
//! know its key. A submission gives the challenge and a nonce; the SHA-256 of challenge,
//! idempotency key and nonce must begin with the required zero bits: one key, one proof, one run.
//! The token itself says whether a proof is needed, so it is checked without asking the database.

mod pressure;

use jiff::Timestamp;
use letterbox_common::{form::TokenHash, sealing::KeyRing, webhook::Signature};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use self::pressure::Pressures;
use crate::metrics;

/// Maximum age of a challenge, in seconds.
const LONGEST: u64 = 24 * 3_600;
/// Maximum bytes of a nonce.
const MAX_NONCE: usize = 20;
/// The purpose of the MACs of challenges, so that no other MAC passes for one.
const PURPOSE: &str = "letterbox form challenge";

/// A challenge, `seconds.bits.least_seconds.mac`: the time when it was made, in seconds since 1970,
/// the number of required zero bits, and the number of seconds that must have passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Challenge(pub(crate) String);

/// Why the proof of a submission is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unproven {
    #[error("proof must be an object with challenge and nonce: this form needs a proof of work")]
    Missing,
    #[error("proof.challenge is not of this form, or older than a day: read the form again")]
    Challenge,
    #[error("proof.nonce does not solve the challenge")]
    Nonce,
    #[error("proof: submitted too soon after reading the form")]
    TooSoon,
    #[error("proof.trap must be empty")]
    Trap,
}

impl Unproven {
    fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Challenge => "challenge",
            Self::Nonce => "nonce",
            Self::TooSoon => "too_soon",
            Self::Trap => "trap",
        }
    }
}

/// Makes challenges and checks proofs.
pub(crate) struct Proofs {
    keys: KeyRing,
    bits: u32,
    pressures: Pressures,
}

/// The member `proof` of a submission.
#[derive(Deserialize)]
struct Proof {
    challenge: String,
    nonce: String,
    #[serde(default)]
    trap: String,
}

impl Proofs {
    /// `bits` is the number of zero bits that a form requires while no proof of it is refused.
    pub(crate) fn new(keys: KeyRing, bits: u32) -> Self {
        Self {
            keys,
            bits,
            pressures: Pressures::default(),
        }
    }

    /// Creates a challenge for a form that is read now, if it wants a proof.
    pub(crate) fn challenge(&self, token: TokenHash, least: Option<i16>) -> Option<Challenge> {
        let least_seconds = least?;
        let seconds = Timestamp::now().as_second();
        let bits = self.bits + self.pressures.bits(token);
        let said = format!("{seconds}.{bits}.{least_seconds}");
        let parts = [&token.as_bytes()[..], said.as_bytes()];
        let mac = self.keys.sign(PURPOSE, &parts);
        Some(Challenge(format!("{said}.{mac}")))
    }

    /// Checks the member `proof` of a submission against its idempotency key.
    pub(crate) fn check(
        &self,
        token: TokenHash,
        key: &str,
        proof: Option<&RawValue>,
    ) -> Result<(), Unproven> {
        let given = proof.and_then(|proof| serde_json::from_str(proof.get()).ok());
        let checked = given.ok_or(Unproven::Missing);
        let checked = checked.and_then(|given| self.judge(token, key, &given));
        checked.inspect_err(|unproven| {
            metrics::UNPROVEN.add([unproven.reason()], 1);
            // Without a valid challenge of a form a sender must not be able to raise the work.
            match unproven {
                Unproven::Missing | Unproven::Challenge => {}
                Unproven::Nonce | Unproven::TooSoon | Unproven::Trap => self.pressures.note(token),
            }
        })
    }

    fn judge(&self, token: TokenHash, key: &str, given: &Proof) -> Result<(), Unproven> {
        let parts = given.challenge.rsplit_once('.');
        let (said, mac) = parts.ok_or(Unproven::Challenge)?;
        let mac = Signature::parse(mac.as_bytes()).map_err(|_| Unproven::Challenge)?;
        let parts = [&token.as_bytes()[..], said.as_bytes()];
        if !self.keys.has_signed(&mac, PURPOSE, &parts) {
            return Err(Unproven::Challenge);
        }
        // The MAC shows that a gateway made it, so these are numbers.
        let mut numbers = said.split('.').map(|number| number.parse::<u64>());
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
        let made = next();
        let bits = next();
        let least_seconds = next();
        let now = Timestamp::now().as_second().unsigned_abs();
        let passed = now.saturating_sub(made);
        if passed > LONGEST {
            return Err(Unproven::Challenge);
        }
        // Digits only, so that no part of a key can move into the nonce and a proof fits one key.
        let is_number = given.nonce.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number
            || given.nonce.len() > MAX_NONCE
            || zero_bits(&given.challenge, key, &given.nonce) < bits
        {
            return Err(Unproven::Nonce);
        }
        if passed < least_seconds {
            return Err(Unproven::TooSoon);
        }
        if !given.trap.is_empty() {
            return Err(Unproven::Trap);
        }
        Ok(())
    }
}

/// The number of zero bits at the beginning of the hash.
fn zero_bits(challenge: &str, key: &str, nonce: &str) -> u64 {
    let hash = Sha256::digest(format!("{challenge}.{key}.{nonce}"));
    let whole = hash.iter().take_while(|byte| **byte == 0).count();
    let partial = hash.get(whole).map_or(0, |byte| byte.leading_zeros());
    whole as u64 * 8 + u64::from(partial)
}

#[cfg(test)]
mod tests;
