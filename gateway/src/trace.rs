//! What names a request in messages: its id, and W3C trace context: a sender's `traceparent` is
//! passed on; without one, a trace begins here.

use hyper::header::HeaderMap;
use jiff::Timestamp;
use letterbox_broker::Receipt;

use crate::request_id;

/// When and in what context a request was received, for what is accepted of it.
pub(crate) fn receipt(headers: &HeaderMap, received_at: Timestamp) -> Receipt {
    Receipt {
        received_at,
        traceparent: traceparent(headers),
        request_id: request_id::of(headers),
    }
}

/// The value for the message's `traceparent` header: the sender's if it is well-formed, else a new
/// one.
fn traceparent(headers: &HeaderMap) -> String {
    let mut given = headers.get_all("traceparent").iter();
    match (
        given.next().and_then(|value| value.to_str().ok()),
        given.next(),
    ) {
        (Some(value), None) if is_well_formed(value) => value.to_owned(),
        _ => begin(),
    }
}

fn begin() -> String {
    let (trace, span) = (fastrand::u128(1..), fastrand::u64(1..));
    format!("00-{trace:032x}-{span:016x}-01")
}

/// Version 00: `00-<32 hex>-<16 hex>-<2 hex>`, ids not zero.
fn is_well_formed(value: &str) -> bool {
    let parts: Vec<&str> = value.split('-').collect();
    let hex = |text: &str, length: usize| {
        text.len() == length
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |text: &str| text.bytes().all(|b| b == b'0');
    matches!(parts[..], ["00", trace, span, flags]
        if hex(trace, 32) && hex(span, 16) && hex(flags, 2) && !zero(trace) && !zero(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_well_formed_traceparent_is_kept_and_any_other_replaced() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let bad = [
            "",
            "00-0-0-0",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        ];
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", value.parse().unwrap());
            traceparent(&headers)
        };
        assert_eq!(with(good), good);
        for value in bad {
            assert!(
                is_well_formed(&with(value)) && with(value) != value,
                "{value}"
            );
        }
        assert!(is_well_formed(&traceparent(&HeaderMap::new())));
    }
}
