//! The intake of requests: the checks in the order of the contract, then acceptance.

mod content_type;
pub(crate) mod form;
pub(crate) mod webhook;
