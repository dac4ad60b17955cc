//! What happens to a request that reached its route: the checks in the contract's order, then its
//! acceptance.

mod content_type;
pub(crate) mod form;
pub(crate) mod webhook;
