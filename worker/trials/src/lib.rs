//! What tries a Letterbox, or any intake: it sends and receives, and counts what came of what was
//! sent. The command line reads files, asks the operator and prints; the rest of these commands is
//! here.

mod error;
mod http;
mod ledger;
mod model;
mod prove;
mod receive;
mod send;

pub use self::{
    error::TrialError,
    http::{client, describe},
    ledger::Counts,
    prove::{Ledger, ProveCommand, prove},
    receive::receive,
    send::{SendCommand, Signer, Signing, WEBHOOK_SECRET, explain, send_form, send_webhook},
};
