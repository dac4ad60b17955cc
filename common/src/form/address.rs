//! E-mail addresses as browsers send them.

use std::borrow::Cow;

use url::Host;

/// An e-mail address as a browser's field for addresses has it: without the spaces around it, and
/// with its domain in ASCII (UTS 46). Source: HTML, "E-mail state". What is no address stays.
#[must_use]
pub fn ascii_address(text: &str) -> Cow<'_, str> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let domain = text
        .rsplit_once('@')
        .filter(|(_, domain)| !domain.is_ascii());
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
            ("a@b@\u{e4}", "a@b@xn--4ca"),
            ("a@\u{e4} b", "a@\u{e4} b"),
            ("\u{e4}", "\u{e4}"),
        ] {
            assert_eq!(ascii_address(given), expected);
        }
    }
}
