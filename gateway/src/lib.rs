//! The gateway: the two doors of Letterbox. It does the cheap checks, claims, publishes with
//! confirm, answers, and knows nothing of what becomes of what it took.
//!
//! A request goes `listener` → `router` → `handlers` → `intake`, which reads top to bottom;
//! everything else is what intake stands on.

mod answer;
pub mod batcher;
mod body;
pub mod claims;
mod client_address;
pub mod config;
mod cors;
mod error;
mod form_page;
mod forms;
mod handlers;
mod intake;
mod json;
mod listener;
mod rate_limits;
mod router;
mod server;
mod trace;
mod validation;
mod webhook_secrets;

use claims::{ClaimKey, DeliveryKey, SubmissionKey};

pub use server::{Sockets, run};

/// Every statement that looks something up by its key, for the tests that hold them against the
/// schema.
pub const LOOKUPS: [&str; 8] = [
    DeliveryKey::STATEMENTS.claim_new,
    DeliveryKey::STATEMENTS.claim_known,
    DeliveryKey::STATEMENTS.end_claims,
    SubmissionKey::STATEMENTS.claim_new,
    SubmissionKey::STATEMENTS.claim_known,
    SubmissionKey::STATEMENTS.end_claims,
    webhook_secrets::FIND_SECRETS,
    forms::FIND_FORMS,
];

/// The gateway's other statements.
pub const RATE_LIMIT_STATEMENTS: [&str; 3] = [
    rate_limits::TAKE_HITS,
    rate_limits::GIVE_BACK,
    rate_limits::SWEEP,
];
