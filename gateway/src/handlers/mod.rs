//! One file for each route: from a request to its response.

pub(crate) mod form_page;
pub(crate) mod form_read;
pub(crate) mod form_submit;
pub(crate) mod incoming_webhook;
