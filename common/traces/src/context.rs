//! W3C trace context: `00-<32 hex>-<16 hex>-<2 hex>`, which identifies a span and says whether its
//! trace is sampled.

use std::collections::HashMap;

use opentelemetry::{
    Context,
    propagation::TextMapPropagator,
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;

/// The name of the header in requests and of the member in messages.
pub const TRACEPARENT: &str = "traceparent";

/// Generates the context of a trace that is not sampled.
pub fn begin_unsampled() -> String {
    let trace = fastrand::u128(1..);
    let span = fastrand::u64(1..);
    format!("00-{trace:032x}-{span:016x}-00")
}

/// Whether a text is the context of a sampled trace.
pub fn is_sampled(text: &str) -> bool {
    parse(text).is_some_and(|context| context.is_sampled())
}

pub(crate) fn parse(text: &str) -> Option<SpanContext> {
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), text.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier);
    let context = context.span().span_context().clone();
    // It is stored as it was written, and nothing else can be.
    (format(&context) == text).then_some(context)
}

pub(crate) fn format(context: &SpanContext) -> String {
    let trace = context.trace_id();
    let span = context.span_id();
    format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(parse(good).as_ref().map(format).as_deref(), Some(good));
        assert!(is_sampled(good));
        let unsampled = begin_unsampled();
        assert!(parse(&unsampled).is_some(), "{unsampled}");
        assert!(!is_sampled(&unsampled), "{unsampled}");
        for bad in [
            "",
            "00-0-0-0",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert!(parse(bad).is_none() && !is_sampled(bad), "{bad}");
        }
    }
}
