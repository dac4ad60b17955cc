//! The desk: pages for people, each as themselves. What waits for their answer, and what became of
//! the submissions to their forms.
//!
//! A request comes from the server through the router to a room, which asks the operator library in
//! the name of the person and fills a page. The database decides what the person sees and may do;
//! nothing here does. Nothing changes by reading: what changes is posted, from a page of the desk.

mod config;
mod desk;
#[doc(hidden)]
pub mod fuzzing;
mod id_token;
mod oauth;
mod oidc;
mod pages;
mod places;
mod program;
mod request;
mod response;
mod rooms;
mod router;
mod server;
mod session;

use letterbox_common::process::metrics::Metric;

pub use program::main;

/// Every metric that the desk exports.
pub fn all_metrics() -> impl Iterator<Item = &'static Metric> {
    let common = letterbox_common::metrics::ALL.iter();
    common.chain(letterbox_database::metrics::ALL)
}
