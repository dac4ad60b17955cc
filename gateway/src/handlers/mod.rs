//! The handlers, one file for each route.

pub(crate) mod form_page;
pub(crate) mod form_read;
pub(crate) mod form_submit;
pub(crate) mod incoming_webhook;
