//! ID tokens: whom an issuer of OpenID Connect vouches for, if what it says is signed with one of
//! its keys and is meant for this desk, this sign-in and this moment. Only RS256 and ES256 are
//! read, each with keys of its own type: a token chooses nothing else about how it is checked.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use letterbox_operator::Vouched;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use subtle::ConstantTimeEq;

/// How far the clock of the issuer may be ahead of the desk's, in seconds.
const LEEWAY: f64 = 300.0;
/// Maximum bytes of a token.
const MAX_TOKEN: usize = 64 * 1024;

/// A JSON Web Key Set. Keys that can't be read are left out: nothing is verified with them.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Keys {
    #[serde(deserialize_with = "readable")]
    keys: Vec<Key>,
}

fn readable<'de, D: Deserializer<'de>>(keys: D) -> Result<Vec<Key>, D::Error> {
    let keys = Vec::<Value>::deserialize(keys)?.into_iter();
    Ok(keys
        .filter_map(|key| serde_json::from_value(key).ok())
        .collect())
}

#[derive(Debug, Clone, Deserialize)]
struct Key {
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<Purpose>,
    /// The one algorithm that it is for.
    alg: Option<Algorithm>,
    /// What it may be used for.
    key_ops: Option<Vec<String>>,
    #[serde(flatten)]
    public: PublicKey,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Purpose {
    #[serde(rename = "sig")]
    Signature,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kty")]
enum PublicKey {
    #[serde(rename = "RSA")]
    Rsa { n: String, e: String },
    #[serde(rename = "EC")]
    EllipticCurve { crv: Curve, x: String, y: String },
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum Curve {
    #[serde(rename = "P-256")]
    P256,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
enum Algorithm {
    RS256,
    ES256,
}

impl Key {
    fn fits(&self, header: &Header) -> bool {
        let algorithm = match self.public {
            PublicKey::Rsa { .. } => Algorithm::RS256,
            PublicKey::EllipticCurve {
                crv: Curve::P256, ..
            } => Algorithm::ES256,
        };
        header.alg == algorithm
            && matches!(self.purpose, None | Some(Purpose::Signature))
            && self.alg.is_none_or(|alg| alg == algorithm)
            && self.may_verify()
            && (header.kid.is_none() || header.kid == self.kid)
    }

    fn may_verify(&self) -> bool {
        let uses = self.key_ops.as_ref();
        uses.is_none_or(|uses| uses.iter().any(|one| one == "verify"))
    }

    /// Whether this was signed with it.
    fn has_signed(&self, message: &[u8], signature: &[u8]) -> Option<()> {
        let verified = match &self.public {
            PublicKey::Rsa { n, e } => RsaPublicKeyComponents {
                n: decoded(n)?,
                e: decoded(e)?,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            PublicKey::EllipticCurve { x, y, .. } => {
                let (x, y) = (decoded(x)?, decoded(y)?);
                if [x.len(), y.len()] != [32; 2] {
                    return None;
                }
                // An uncompressed point.
                let point = [&[4], &*x, &*y].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
        };
        verified.ok()
    }
}

/// What a token says of its signature.
#[derive(Deserialize)]
struct Header {
    alg: Algorithm,
    kid: Option<String>,
    typ: Option<String>,
    #[serde(default, deserialize_with = "present")]
    cty: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    crit: Option<Value>,
}

/// A member that is there, also if it is null.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl Header {
    /// Whether it is that of a JWT, without an extension that would have to be understood.
    fn is_plain(&self) -> bool {
        let is_jwt = |typ: &str| ["jwt", "application/jwt"].contains(&&*typ.to_lowercase());
        self.typ.as_deref().is_none_or(is_jwt) && self.cty.is_none() && self.crit.is_none()
    }
}

/// What a token says of the person.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: String,
    sub: String,
    email: Option<String>,
    email_verified: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    /// Whether it is this client alone: another one could use the token here.
    fn is(&self, client: &str) -> bool {
        let all = match self {
            Self::One(audience) => std::slice::from_ref(audience),
            Self::Many(audiences) => audiences,
        };
        !all.is_empty() && all.iter().all(|audience| audience == client)
    }
}

/// What must hold of a token.
#[derive(Debug)]
pub struct Expected<'e> {
    /// As the issuer calls itself.
    pub issuer: &'e str,
    /// The desk's name at the issuer.
    pub client: &'e str,
    /// What the sign-in began with.
    pub nonce: &'e str,
    /// Now, in seconds since 1970.
    pub now: f64,
}

impl Expected<'_> {
    /// The person that a token identifies.
    ///
    /// # Errors
    /// With the reason why the token is not valid.
    pub fn vouched(&self, token: &str, keys: &Keys) -> Result<Vouched, &'static str> {
        if token.len() > MAX_TOKEN {
            return Err("too long");
        }
        let (message, signature) = token.rsplit_once('.').ok_or("no token")?;
        let (header, claims) = message.split_once('.').ok_or("no token")?;
        let header: Header = read(header).ok_or("a header that can't be read, or an algorithm")?;
        if !header.is_plain() {
            return Err("a header that asks for more than is done here");
        }
        let mut fitting = keys.keys.iter().filter(|key| key.fits(&header));
        let (Some(key), None) = (fitting.next(), fitting.next()) else {
            return Err("no key, or several");
        };
        let signature = decoded(signature).ok_or("a signature that can't be read")?;
        key.has_signed(message.as_bytes(), &signature)
            .ok_or("another signature")?;
        self.vouched_by(claims)
    }

    /// The person that these claims identify, whoever has signed them.
    ///
    /// # Errors
    /// With the reason why they are not valid.
    pub fn vouched_by(&self, claims: &str) -> Result<Vouched, &'static str> {
        let claims: Claims = read(claims).ok_or("claims that can't be read")?;
        let latest = self.now + LEEWAY;
        let is_nonce = claims.nonce.as_bytes().ct_eq(self.nonce.as_bytes());
        let is_for_another = claims.azp.is_some_and(|party| party != self.client);
        let wrong = [
            (claims.iss != self.issuer, "another issuer"),
            (!claims.aud.is(self.client), "another audience"),
            (is_for_another, "another authorized party"),
            (self.now >= claims.exp, "expired"),
            (claims.iat > latest, "issued in the future"),
            (
                claims.nbf.is_some_and(|from| from > latest),
                "not valid yet",
            ),
            (!bool::from(is_nonce), "another nonce"),
            (!is_subject(&claims.sub), "a subject that can't be kept"),
        ];
        if let Some((_, why)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(why);
        }
        Ok(Vouched {
            issuer: claims.iss,
            subject: claims.sub,
            email: claims
                .email
                .filter(|email| claims.email_verified == Some(true) && !email.contains('\0')),
        })
    }
}

/// As OpenID Connect bounds it.
fn is_subject(text: &str) -> bool {
    (1..=255).contains(&text.chars().count()) && !text.contains('\0')
}

fn decoded(part: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(part).ok()
}

/// A part of a token, which is JSON without two members of one name among those that count.
fn read<T: DeserializeOwned>(part: &str) -> Option<T> {
    let json = String::from_utf8(decoded(part)?).ok()?;
    // A list would be read as members without names.
    let is_object = json.trim_start().starts_with('{');
    is_object
        .then(|| serde_json::from_str(&json).ok())
        .flatten()
}

#[cfg(test)]
mod tests;
