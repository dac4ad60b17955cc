//! Traces: what became of one request, across processes. Off unless a collector is named; then
//! nothing is made, and nothing is passed on.
//!
//! A trace begins at the gateway, whatever a caller says: its own trace is linked. From there on
//! each step belongs to the trace of what it works on, so that what is sampled at the beginning is
//! seen to its end. A step over a batch belongs to the trace of the first entry that is sampled,
//! and is linked to all of them.

mod context;
mod export;
mod span;

pub use self::{
    context::{TRACEPARENT, begin_unsampled, is_sampled},
    export::{Traces, start},
    span::{Kind, Span, batch, child, is_on, linked},
};
