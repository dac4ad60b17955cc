//! The defence of a form against programs that fill it in: a proof of work, a field that nobody
//! sees and so nobody fills in, and the time that a person needs.
//!
//! Whoever reads a form that is defended gets a challenge: when it was read, how much work is
//! wanted, and how long filling it in takes at least, with a MAC that binds them to the link. All
//! gateways know its key. A submission says its challenge and a nonce; the work is a SHA-256 over
//! challenge, idempotency key and nonce that begins with so many zero bits: one key, one proof, one
//! run. It is checked before anything is asked of the database, because the token itself says
//! whether a proof is wanted.

mod pressure;

use jiff::Timestamp;
use letterbox_common::{form::TokenHash, sealing::KeyRing, webhook::Signature};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use self::pressure::Pressure;
use crate::metrics;

/// How long a form may be filled in.
const LONGEST: u64 = 24 * 3_600;
/// Longest nonce, in bytes.
const MAX_NONCE: usize = 20;
/// What MACs of challenges are for: no MAC of anything else is one.
const PURPOSE: &str = "letterbox form challenge";

/// What has to be proven: `seconds.bits.least_seconds.mac`. The first is when it was made, in
/// seconds since 1970, the second how many zero bits are wanted, the third how many seconds must
/// have passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Challenge(pub(crate) String);

/// Why a submission is not believed to come from a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unproven {
    #[error("proof must be an object with challenge and nonce: this form wants a proof of work")]
    Missing,
    #[error("proof.challenge is not of this form, or older than a day: read the form again")]
    Challenge,
    #[error("proof.nonce does not solve the challenge")]
    Nonce,
    #[error("proof: the submission came sooner than anybody fills in the form")]
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
    pressure: Pressure,
}

/// The member `proof` of a submission.
#[derive(Deserialize)]
struct Given {
    challenge: String,
    nonce: String,
    #[serde(default)]
    trap: String,
}

impl Proofs {
    /// `bits` are wanted while nothing is refused.
    pub(crate) fn new(keys: KeyRing, bits: u32) -> Self {
        Self {
            keys,
            bits,
            pressure: Pressure::default(),
        }
    }

    /// The challenge for somebody who reads a form now.
    pub(crate) fn challenge(&self, token: TokenHash, least_seconds: i16) -> Challenge {
        let (seconds, bits) = (
            Timestamp::now().as_second(),
            self.bits + self.pressure.bits(),
        );
        let said = format!("{seconds}.{bits}.{least_seconds}");
        let parts = [&token.as_bytes()[..], said.as_bytes()];
        let mac = self.keys.sign(PURPOSE, &parts);
        Challenge(format!("{said}.{mac}"))
    }

    /// Checks the proof of a submission: its member `proof`, and its idempotency key.
    ///
    /// # Errors
    /// See [`Unproven`].
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
            // Whoever has no challenge of a form raises the work for nobody.
            if matches!(
                unproven,
                Unproven::Nonce | Unproven::TooSoon | Unproven::Trap
            ) {
                self.pressure.note();
            }
        })
    }

    fn judge(&self, token: TokenHash, key: &str, given: &Given) -> Result<(), Unproven> {
        let (said, mac) = given
            .challenge
            .rsplit_once('.')
            .ok_or(Unproven::Challenge)?;
        let mac = Signature::parse(mac.as_bytes()).map_err(|_| Unproven::Challenge)?;
        let parts = [&token.as_bytes()[..], said.as_bytes()];
        if !self.keys.has_signed(&mac, PURPOSE, &parts) {
            return Err(Unproven::Challenge);
        }
        // Made here, so in this form.
        let mut numbers = said
            .split('.')
            .map(|number| number.parse::<u64>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let (made, bits, least_seconds) = (next(), next(), next());
        let now = Timestamp::now().as_second().unsigned_abs();
        let passed = now.saturating_sub(made);
        if passed > LONGEST {
            return Err(Unproven::Challenge);
        }
        // Digits only: nothing of the key can stand in it, so that a proof is good for one key.
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
        match given.trap.is_empty() {
            true => Ok(()),
            false => Err(Unproven::Trap),
        }
    }
}

/// How many zero bits the hash of a nonce begins with.
fn zero_bits(challenge: &str, key: &str, nonce: &str) -> u64 {
    let hash = Sha256::digest(format!("{challenge}.{key}.{nonce}"));
    let whole = hash.iter().take_while(|byte| **byte == 0).count();
    let partial = hash.get(whole).map_or(0, |byte| byte.leading_zeros());
    whole as u64 * 8 + u64::from(partial)
}

#[cfg(test)]
mod tests;
