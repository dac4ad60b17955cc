//! Amounts of money, exact: parsed from a number's digits, never through a binary float.

use std::fmt;

/// Largest amount, in ten-thousandths: 1,000,000,000,000.
const MAX: u64 = 1_000_000_000_000 * 10_000;
const PLACES: i64 = 4;
/// Digits of [`MAX`] before its decimal point.
const WHOLE_DIGITS: i64 = 13;

/// An amount between 0 and 1,000,000,000,000 with at most four decimal places, and its currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) value: AmountValue,
    /// Three capital ASCII letters.
    pub(super) currency: String,
}

/// The number of an amount, in ten-thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AmountValue(u64);

/// The JSON number is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueError {
    OutOfRange,
    TooManyPlaces,
}

impl AmountValue {
    /// Parses the text of a JSON number. Only its value matters: `1.50000` and `15e-1` have one
    /// decimal place.
    pub(super) fn parse(number: &str) -> Result<Self, ValueError> {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (negative, whole) = whole
            .strip_prefix('-')
            .map_or((false, whole), |whole| (true, whole));

        let written: String = [whole, fraction].concat();
        let significant = written.trim_start_matches('0');
        let digits = significant.trim_end_matches('0');
        if digits.is_empty() {
            return Ok(Self(0));
        }
        if negative {
            return Err(ValueError::OutOfRange);
        }
        // The value is `digits` times ten to this power. Lengths are bounded by that of the body,
        // so only the exponent can overflow.
        let dropped_zeros = (significant.len() - digits.len()) as i64;
        let power = parse_exponent(exponent)
            .saturating_sub(fraction.len() as i64)
            .saturating_add(dropped_zeros);
        if (digits.len() as i64).saturating_add(power) > WHOLE_DIGITS {
            return Err(ValueError::OutOfRange);
        }
        if power < -PLACES {
            return Err(ValueError::TooManyPlaces);
        }
        let scale = 10_u64.pow((power + PLACES) as u32);
        let value = digits
            .parse::<u64>()
            .ok()
            .and_then(|digits| digits.checked_mul(scale));
        value
            .filter(|value| *value <= MAX)
            .map(Self)
            .ok_or(ValueError::OutOfRange)
    }
}

/// Parses an exponent of any length. Saturates: a value that large is out of range anyway.
fn parse_exponent(text: &str) -> i64 {
    const HUGE: i64 = 1 << 40;
    let saturated = if text.starts_with('-') { -HUGE } else { HUGE };
    text.strip_prefix('+')
        .unwrap_or(text)
        .parse::<i64>()
        .map_or(saturated, |exponent| exponent.clamp(-HUGE, HUGE))
}

impl fmt::Display for AmountValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / 10_000;
        let part = self.0 % 10_000;
        if part == 0 {
            return write!(f, "{whole}");
        }
        let part = format!("{part:04}");
        write!(f, "{whole}.{}", part.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(number: &str) -> Result<String, ValueError> {
        AmountValue::parse(number).map(|value| value.to_string())
    }

    #[test]
    fn values_are_exact() {
        let zeros = format!("0.{}e60001", "0".repeat(60_000));
        let long = format!("1{}e-60000", "0".repeat(60_000));
        let cases = [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0e5", "0"),
            ("0e99999999999999999999", "0"),
            ("0e-99999999999999999999", "0"),
            ("0.1", "0.1"),
            ("0.0001", "0.0001"),
            ("1e-4", "0.0001"),
            ("10E-5", "0.0001"),
            ("1.50000", "1.5"),
            ("15e-1", "1.5"),
            ("1e3", "1000"),
            ("1E+3", "1000"),
            ("0.00001e1", "0.0001"),
            ("1e12", "1000000000000"),
            ("1000000000000.0000", "1000000000000"),
            ("999999999999.9999", "999999999999.9999"),
            ("9999999999999999e-4", "999999999999.9999"),
            (&zeros, "0"),
            (&long, "1"),
        ];
        for (number, value) in cases {
            assert_eq!(
                parse(number).as_deref(),
                Ok(value),
                "{}",
                &number[..number.len().min(40)]
            );
        }
    }

    #[test]
    fn values_beyond_the_bounds_are_refused() {
        for number in [
            "-1",
            "-0.0001",
            "-1e-400",
            "1000000000000.0001",
            "1000000000001",
            "1e13",
            "1e400",
            "1e99999999999999999999",
        ] {
            assert_eq!(parse(number), Err(ValueError::OutOfRange), "{number}");
        }
        for number in [
            "0.00001",
            "1.23456",
            "1e-5",
            "1e-400",
            "1e-99999999999999999999",
            "999999999999.99991",
        ] {
            assert_eq!(parse(number), Err(ValueError::TooManyPlaces), "{number}");
        }
    }

    proptest! {
        #[test]
        fn every_amount_round_trips(ten_thousandths in 0..=MAX, shift in 0_usize..6) {
            let text = AmountValue(ten_thousandths).to_string();
            prop_assert_eq!(AmountValue::parse(&text), Ok(AmountValue(ten_thousandths)));
            // The same value in another notation.
            let scaled = format!("{ten_thousandths}{}e-{}", "0".repeat(shift), 4 + shift);
            prop_assert_eq!(AmountValue::parse(&scaled), Ok(AmountValue(ten_thousandths)));
        }

        #[test]
        fn no_number_panics(
            number in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,25})?",
        ) {
            if let (Ok(value), Ok(float)) = (AmountValue::parse(&number), number.parse::<f64>()) {
                let close = value.to_string().parse::<f64>().unwrap();
                prop_assert!(
                    (close - float).abs() <= float.abs() * 1e-12,
                    "{number} became {value}"
                );
            }
        }
    }
}
