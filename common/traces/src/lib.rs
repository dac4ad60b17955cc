//! Traces: the path of a request through all processes. Without a configured collector they are
//! off, and no span is created or propagated.
//!
//! A trace begins at the gateway: a trace that the caller names is only linked. From there on each
//! step belongs to the trace of the entry it works on, so that a sampled request is traced to its
//! end. A step over a batch belongs to the trace of the first sampled entry, and is linked to all
//! sampled ones.

mod context;
mod export;
mod span;

pub use self::{
    context::{TRACEPARENT, begin_unsampled, is_sampled},
    export::{Traces, start},
    span::{Span, batch, child, is_on, linked},
};
pub use opentelemetry::trace::SpanKind;
