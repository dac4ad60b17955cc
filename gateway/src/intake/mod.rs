//! What happens to a request that reached its route: the checks in the contract's order, then
//! claim, publish, settle.

mod acceptance;
mod content_type;
mod delivery;
pub(crate) mod form;
mod submission;
pub(crate) mod webhook;

pub(crate) use self::{
    acceptance::{Acceptance, Accepted, IntakeItem},
    delivery::Delivery,
    submission::Submission,
};
