//! One file a route: from a request to an answer.

pub mod form_read;
pub mod form_submit;
pub mod incoming_webhook;
