//! W3C trace context: `00-<32 hex>-<16 hex>-<2 hex>`, which identifies a span and says whether its
//! trace is sampled.

use opentelemetry::{
    SpanId, TraceFlags, TraceId,
    trace::{SpanContext, TraceState},
};

/// The name of the header in requests and of the member in messages.
pub const TRACEPARENT: &str = "traceparent";

/// Generates the context of a trace that is not sampled.
#[must_use]
pub fn begin_unsampled() -> String {
    let (trace, span) = (fastrand::u128(1..), fastrand::u64(1..));
    format!("00-{trace:032x}-{span:016x}-00")
}

/// Whether a text is the context of a sampled trace.
#[must_use]
pub fn is_sampled(text: &str) -> bool {
    parse(text).is_some_and(|context| context.is_sampled())
}

pub(crate) fn parse(text: &str) -> Option<SpanContext> {
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let ["00", trace, span, flags] = parts[..] else {
        return None;
    };
    let lengths = [(trace, 32), (span, 16), (flags, 2)];
    if lengths
        .iter()
        .any(|(text, length)| text.len() != *length || !is_hex(text))
    {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

pub(crate) fn format(context: &SpanContext) -> String {
    let (trace, span) = (context.trace_id(), context.span_id());
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
        assert!(
            parse(&unsampled).is_some() && !is_sampled(&unsampled),
            "{unsampled}"
        );
        for bad in [
            "",
            "00-0-0-0",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(parse(bad).is_none() && !is_sampled(bad), "{bad}");
        }
    }
}
