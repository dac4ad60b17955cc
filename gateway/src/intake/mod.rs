//! What happens to a request that came to the right door: the checks in the contract's order, then
//! claim, publish, settle.

mod acceptance;
mod content_type;
pub mod form;
pub mod webhook;

pub use acceptance::{Acceptance, Accepted, Parcel};
