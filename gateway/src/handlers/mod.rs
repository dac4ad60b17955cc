//! One file for each route: from a request to its response.

pub mod form_read;
pub mod form_submit;
pub mod incoming_webhook;
