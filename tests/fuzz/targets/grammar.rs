//! JSON by the grammar of RFC 8259 and nothing else: what a parser is held against. By recursion,
//! because inputs are short.

/// Whether a text is one JSON value.
pub(super) fn is_json(text: &[u8]) -> bool {
    value(text).is_some_and(<[u8]>::is_empty)
}

/// What follows a value and the space around it.
fn value(text: &[u8]) -> Option<&[u8]> {
    let text = space(text);
    let rest = match text.first()? {
        b'"' => string(text)?,
        b'[' => items(&text[1..], b']', value)?,
        b'{' => items(&text[1..], b'}', member)?,
        b'-' | b'0'..=b'9' => number(text)?,
        _ => {
            let mut words = ["null", "true", "false"].into_iter();
            words.find_map(|word| text.strip_prefix(word.as_bytes()))?
        }
    };
    Some(space(rest))
}

/// What follows the end of a list or an object.
fn items(text: &[u8], end: u8, item: fn(&[u8]) -> Option<&[u8]>) -> Option<&[u8]> {
    let mut rest = space(text);
    if let Some(rest) = rest.strip_prefix(&[end]) {
        return Some(rest);
    }
    loop {
        rest = item(rest)?;
        match rest.strip_prefix(b",") {
            Some(more) => rest = more,
            None => return rest.strip_prefix(&[end]),
        }
    }
}

fn member(text: &[u8]) -> Option<&[u8]> {
    let rest = space(string(space(text))?);
    value(rest.strip_prefix(b":")?)
}

fn string(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'u', digits @ ..] => {
                let (digits, rest) = digits.split_at_checked(4)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(rest)?
            }
            [b'\\', rest @ ..] if rest.first().is_some_and(|one| b"\"\\/bfnrt".contains(one)) => {
                &rest[1..]
            }
            [b'\\' | ..0x20, ..] | [] => return None,
            [_, rest @ ..] => rest,
        }
    }
}

fn number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let mut rest = match text.strip_prefix(b"0") {
        Some(rest) => rest,
        None => digits(text)?,
    };
    if let Some(fraction) = rest.strip_prefix(b".") {
        rest = digits(fraction)?;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let sign = |sign: &u8| b"+-".contains(sign);
        let signed = exponent.first().is_some_and(sign);
        rest = digits(&exponent[usize::from(signed)..])?;
    }
    Some(rest)
}

/// What follows one digit or more.
fn digits(text: &[u8]) -> Option<&[u8]> {
    let rest = skip(text, |one| one.is_ascii_digit());
    (rest.len() < text.len()).then_some(rest)
}

fn space(text: &[u8]) -> &[u8] {
    skip(text, |one| b" \t\n\r".contains(one))
}

fn skip(text: &[u8], is_skipped: impl Fn(&u8) -> bool) -> &[u8] {
    let end = text.iter().position(|one| !is_skipped(one));
    &text[end.unwrap_or(text.len())..]
}
