//! One file a route: from a request to an answer.

pub mod incoming_webhook;
