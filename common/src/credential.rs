//! The credential of an account as it is sealed: the value of its header and, on the lines below
//! that, the certificate with which Letterbox shows who it is. A value has no line break.

use crate::secret::Secret;

/// What is sealed of a header's value and a client's certificate with its key, in PEM.
pub fn with_certificate(value: &Secret, pem: &Secret) -> Secret {
    Secret::new([value.expose(), b"\n", pem.expose()].concat())
}

/// The value, and the certificate if there is one.
pub fn parts(opened: &Secret) -> (Secret, Option<Secret>) {
    let mut parts = opened.expose().splitn(2, |byte| *byte == b'\n');
    let mut next = || parts.next().map(|part| Secret::new(part.to_vec()));
    (next().unwrap_or_else(|| Secret::new(Vec::new())), next())
}
