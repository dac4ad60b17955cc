//! What the headers of a request tell, rightly signed or not.

use super::*;
use crate::webhook::{
    SIGNATURE_HEADER,
    scheme::tests::{headers, rules},
};

#[test]
fn an_old_time_is_told_from_a_malformed_header() {
    let rules = rules("stripe");
    let signature = "0".repeat(64);
    for (value, fault) in [
        (format!("t=1000,v1={signature}"), DeliveryFault::Digest),
        (format!("t=1,v1={signature}"), DeliveryFault::Time),
        (format!("t=9999,v1={signature}"), DeliveryFault::Time),
        (format!("t=soon,v1={signature}"), DeliveryFault::Scheme),
        (format!("v1={signature}"), DeliveryFault::Scheme),
        ("t=1".to_owned(), DeliveryFault::Scheme),
    ] {
        let mut headers = Headers::new();
        headers.insert("stripe-signature", value.parse().unwrap());
        assert_eq!(rules.complaint(&headers, 1_000), fault, "{value}");
    }
}

#[test]
fn an_owner_is_told_what_is_wrong_with_a_signature() {
    let own = rules("letterbox");
    let digits = "a".repeat(64);
    let others = "g".repeat(64);
    for (values, fault) in [
        (vec![], DeliveryFault::Missing),
        (vec![digits.clone(); 2], DeliveryFault::Repeated),
        (vec![digits.clone()], DeliveryFault::Digest),
        (vec![digits.to_uppercase()], DeliveryFault::UpperCase),
        (vec![others], DeliveryFault::NotHex),
        (vec![format!("sha256={digits}")], DeliveryFault::Prefix),
        (vec![digits[1..].to_owned()], DeliveryFault::Length),
        // As base64 ends.
        (vec!["YQ==".to_owned()], DeliveryFault::Length),
    ] {
        let given: Vec<_> = values
            .iter()
            .map(|value| (SIGNATURE_HEADER, value.as_str()))
            .collect();
        assert_eq!(own.complaint(&headers(&given), 0), fault, "{values:?}");
    }
    // Where the signature is written otherwise, nothing is guessed about it.
    let given = [("x-hub-signature-256", digits.as_str())];
    let complaint = rules("github").complaint(&headers(&given), 0);
    assert_eq!(complaint, DeliveryFault::Scheme);
}

#[test]
fn the_id_of_a_message_is_that_of_its_header() {
    let standard = rules("standard-webhooks");
    let given = headers(&[("webhook-id", "msg_1")]);
    assert_eq!(standard.id(&given), Some("msg_1"));
    assert_eq!(standard.id(&headers(&[])), None);
    assert_eq!(rules("github").id(&given), None);
}
