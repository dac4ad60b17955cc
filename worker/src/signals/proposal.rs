//! The proposal contract: which bodies become native signals, and which rule another body breaks
//! first.
//!
//! Pure. A body is native when it is an object and every rule holds; the rules are checked in the
//! order of the contract's table. Anything else is a generic signal with the first broken rule;
//! nothing is refused here.

use letterbox_common::{json_object, states::SignalKind};
use serde_json::value::RawValue;

use super::amount::{Amount, AmountValue, ValueError};

const NATIVE_KINDS: [SignalKind; 3] = [
    SignalKind::ProposalCreated,
    SignalKind::ProposalWon,
    SignalKind::ClientCreated,
];

/// The members of a native signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Native {
    pub kind: SignalKind,
    pub entity: String,
    pub source_tool: String,
    pub amount: Option<Amount>,
    pub event_id: Option<String>,
}

/// A body as a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mapped {
    Native(Native),
    /// The first rule that failed; never quotes the body.
    Generic(&'static str),
}

pub(super) fn map(body: &[u8]) -> Mapped {
    native(body).map_or_else(Mapped::Generic, Mapped::Native)
}

fn native(body: &[u8]) -> Result<Native, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8")?;
    let wanted = ["type", "entity", "sourceTool", "amount", "eventId"];
    let [kind, entity, source_tool, amount, event_id] =
        json_object::find(text, wanted).ok_or("the body is not an object")?;

    let kind = parse_kind(kind)?;
    let entity = entity.ok_or("entity is missing")?;
    let entity = string(entity, 200).ok_or("entity is not a string of 1 to 200 characters")?;
    if entity.trim().is_empty() {
        return Err("entity is blank");
    }
    let source_tool = source_tool.ok_or("sourceTool is missing")?;
    let source_tool =
        string(source_tool, 100).ok_or("sourceTool is not a string of 1 to 100 characters")?;
    let amount = match (kind, amount) {
        (SignalKind::ProposalCreated | SignalKind::ProposalWon, None) => {
            return Err("amount is missing");
        }
        (_, amount) => amount.map(parse_amount).transpose()?,
    };
    let event_id = event_id
        .map(|id| string(id, 200).ok_or("eventId is not a string of 1 to 200 characters"))
        .transpose()?;
    Ok(Native {
        kind,
        entity,
        source_tool,
        amount,
        event_id,
    })
}

fn parse_kind(member: Option<&RawValue>) -> Result<SignalKind, &'static str> {
    let kind = member.ok_or("type is missing")?;
    let kind: Option<String> = serde_json::from_str(kind.get()).ok();
    NATIVE_KINDS
        .into_iter()
        .find(|known| kind.as_deref() == Some(known.as_str()))
        .ok_or("type is not proposal.created, proposal.won or client.created")
}

/// A string of 1 to `max` Unicode scalar values.
fn string(member: &RawValue, max: usize) -> Option<String> {
    let text: String = serde_json::from_str(member.get()).ok()?;
    (1..=max).contains(&text.chars().count()).then_some(text)
}

fn parse_amount(member: &RawValue) -> Result<Amount, &'static str> {
    let [value, currency] =
        json_object::find(member.get(), ["value", "currency"]).ok_or("amount is not an object")?;
    let value = value.ok_or("amount.value is missing")?.get();
    if !value.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return Err("amount.value is not a number");
    }
    let value = AmountValue::parse(value).map_err(|error| match error {
        ValueError::OutOfRange => "amount.value is not between 0 and 1000000000000",
        ValueError::TooManyPlaces => "amount.value has more than 4 decimal places",
    })?;
    let currency = currency.ok_or("amount.currency is missing")?;
    let currency = string(currency, 3)
        .filter(|code| code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase()))
        .ok_or("amount.currency is not three capital letters")?;
    Ok(Amount { value, currency })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rule(body: &str) -> &'static str {
        match map(body.as_bytes()) {
            Mapped::Generic(rule) => rule,
            Mapped::Native(_) => "native",
        }
    }

    fn with(member: &str) -> String {
        // Of a repeated name the last one counts, so a member at the end replaces the good one.
        format!(
            r#"{{"type":"proposal.won","entity":"E","sourceTool":"T",
            "amount":{{"value":1,"currency":"EUR"}},{member}}}"#
        )
    }

    #[test]
    fn a_native_body_keeps_everything_exactly() {
        let body = r#"{"type":"proposal.won","entity":"Ä\u0000","sourceTool":"crm",
                       "eventId":"e1","x":[[]],
                       "amount":{"value":999999999999.9999,"currency":"EUR","y":1e400}}"#;
        let Mapped::Native(native) = map(body.as_bytes()) else {
            panic!("{}", rule(body))
        };
        assert_eq!(native.kind, SignalKind::ProposalWon);
        assert_eq!(
            (native.entity.as_str(), native.source_tool.as_str()),
            ("Ä\0", "crm")
        );
        assert_eq!(native.event_id.as_deref(), Some("e1"));
        let amount = native.amount.unwrap();
        assert_eq!(amount.value.to_string(), "999999999999.9999");
        assert_eq!(amount.currency, "EUR");
    }

    #[test]
    fn each_rule_on_both_sides_of_its_bound() {
        let text =
            |name: &str, length: usize| with(&format!(r#""{name}":"{}""#, "é".repeat(length)));
        let money = |amount: &str| with(&format!(r#""amount":{amount}"#));
        let value = |value: &str| money(&format!(r#"{{"value":{value},"currency":"EUR"}}"#));
        let currency = |code: &str| money(&format!(r#"{{"value":5,"currency":"{code}"}}"#));
        let begun = |more: &str| format!(r#"{{"type":"client.created"{more}}}"#);
        let complete = r#","entity":"E","sourceTool":"T""#;
        let no_entity = "entity is not a string of 1 to 200 characters";
        let no_tool = "sourceTool is not a string of 1 to 100 characters";
        let no_event = "eventId is not a string of 1 to 200 characters";
        let no_amount = "amount is not an object";
        let out_of_range = "amount.value is not between 0 and 1000000000000";
        let too_exact = "amount.value has more than 4 decimal places";
        let no_currency = "amount.currency is not three capital letters";
        let no_kind = "type is not proposal.created, proposal.won or client.created";
        let no_object = "the body is not an object";
        let cases = [
            (with(r#""x":1"#), "native"),
            (text("entity", 200), "native"),
            (text("entity", 201), no_entity),
            (with(r#""entity":"""#), no_entity),
            (with(r#""entity":7"#), no_entity),
            (with(r#""entity":"\ud800""#), no_entity),
            (with(r#""entity":" \t\u00a0 ""#), "entity is blank"),
            (text("sourceTool", 100), "native"),
            (text("sourceTool", 101), no_tool),
            (with(r#""sourceTool":" ""#), "native"),
            (text("eventId", 200), "native"),
            (text("eventId", 201), no_event),
            (with(r#""eventId":null"#), no_event),
            (money("null"), no_amount),
            (money("5"), no_amount),
            (money(r#"{"currency":"EUR"}"#), "amount.value is missing"),
            (value("\"5\""), "amount.value is not a number"),
            (value("1000000000000"), "native"),
            (value("1000000000000.0001"), out_of_range),
            (value("-0"), "native"),
            (value("-1"), out_of_range),
            (value("1.2345"), "native"),
            (value("1.23456"), too_exact),
            (money(r#"{"value":5}"#), "amount.currency is missing"),
            (currency("eur"), no_currency),
            (currency("EURO"), no_currency),
            (currency("ÄÖÜ"), no_currency),
            (with(r#""type":"proposal.lost""#), no_kind),
            (with(r#""type":["proposal.won"]"#), no_kind),
            ("{}".into(), "type is missing"),
            (begun(""), "entity is missing"),
            (begun(r#","entity":"E""#), "sourceTool is missing"),
            (begun(complete), "native"),
            (begun(&format!("{complete},\"amount\":1")), no_amount),
            (
                begun(complete).replace("client", "proposal"),
                "amount is missing",
            ),
            ("[]".into(), no_object),
            ("null".into(), no_object),
            ("[".repeat(32_000) + &"]".repeat(32_000), no_object),
        ];
        for (body, expected) in cases {
            assert_eq!(rule(&body), expected, "{}", &body[..body.len().min(160)]);
        }
    }

    proptest! {
        #[test]
        fn what_keeps_the_rules_is_native(
            kind in prop::sample::select(vec!["proposal.created", "proposal.won",
                "client.created"]),
            entity in "\\PC{1,200}",
            tool in "(?s).{1,100}",
            event in prop::option::of("(?s).{1,200}"),
            cents in 0_u64..100_000_000_000_000,
            currency in "[A-Z]{3}",
        ) {
            prop_assume!(!entity.trim().is_empty());
            let mut body = json!({"type": kind, "entity": &entity, "sourceTool": &tool});
            body["more"] = json!({"deep": [cents]});
            if let Some(event) = &event {
                body["eventId"] = json!(event);
            }
            let value = format!("{}.{:02}", cents / 100, cents % 100);
            let amount = format!(r#","amount":{{"value":{value},"currency":"{currency}"}}}}"#);
            let mut text = body.to_string();
            text.pop();
            text += &amount;
            let Mapped::Native(native) = map(text.as_bytes()) else {
                panic!("{}: {text}", rule(&text))
            };
            prop_assert_eq!(native.kind.as_str(), kind);
            prop_assert_eq!(native.entity, entity);
            prop_assert_eq!(native.source_tool, tool);
            prop_assert_eq!(native.event_id, event);
            prop_assert_eq!(native.amount.unwrap().currency, currency);
        }

        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = map(&body);
        }

        #[test]
        fn no_object_panics(
            kind in "(proposal.won|client.created|x)",
            entity in prop_oneof![Just("null".to_owned()), "\"[a-z\\\\]{0,9}\"", "[0-9]{1,3}"],
            value in "-?[0-9]{1,20}(\\.[0-9]{1,9})?(e[+-]?[0-9]{1,22})?",
        ) {
            let body = format!(
                r#"{{"type":"{kind}","entity":{entity},"sourceTool":"T",
                     "amount":{{"value":{value},"currency":"EUR"}}}}"#
            );
            let _ = map(body.as_bytes());
        }
    }
}
