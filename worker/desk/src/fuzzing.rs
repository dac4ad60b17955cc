//! How the desk reads an issuer's token: an entry point for the fuzz targets in `tests/fuzz`, which
//! need no issuer.

pub use crate::id_token::{Expected, Keys};
