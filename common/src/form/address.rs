//! E-mail addresses as browsers send them.

use std::borrow::Cow;

use url::Host;

/// What is longer is no address: converting would take its time.
const MAX_BYTES: usize = 500;

/// An e-mail address as a browser's field for addresses has it: without the spaces around it, and
/// with its domain in ASCII (UTS 46). Source: HTML, "E-mail state". What is no address stays.
pub fn ascii_address(text: &str) -> Cow<'_, str> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let parts = text.split_once('@').filter(|_| text.len() <= MAX_BYTES);
    let is_address = |local: &str| !local.is_empty() && !local.contains(char::is_whitespace);
    let domain = parts.filter(|(local, domain)| is_address(local) && !domain.is_ascii());
    match domain.map(|(local, domain)| (local, Host::parse(domain))) {
        Some((local, Ok(Host::Domain(domain)))) => format!("{local}@{domain}").into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_as_browsers_send_it() {
        for (given, expected) in [
            (" ada@example.com\r\n", "ada@example.com"),
            ("max@M\u{fc}ller.de", "max@xn--mller-kva.de"),
            ("jos\u{e9}@example.com", "jos\u{e9}@example.com"),
            ("a@b@\u{e4}", "a@b@\u{e4}"),
            ("Hello @j\u{fc}rgen", "Hello @j\u{fc}rgen"),
            ("a@\u{e4} b", "a@\u{e4} b"),
            ("\u{e4}", "\u{e4}"),
        ] {
            assert_eq!(ascii_address(given), expected);
        }
    }
}
