//! E-mail addresses by the rule of the HTML standard, so that browsers and this server agree.
//! Source: HTML, "Valid e-mail address". It is narrower than RFC 5322, which allows comments and
//! quotes, and wider in other respects, as mail systems are.

const LABEL_LENGTH: usize = 63;

/// Why the e-mail field of a browser would not accept the text; `None` if it would.
pub(super) fn problem(text: &str) -> Option<&'static str> {
    match text.split_once('@') {
        None => Some("it has no @"),
        Some((local, _)) if !is_local(local) => {
            Some("before the @ only a-z, A-Z, 0-9 and .!#$%&'*+/=?^_`{|}~- can stand")
        }
        Some((_, domain)) if !domain.split('.').all(is_label) => {
            Some("behind the @ there is no domain")
        }
        Some(_) => None,
    }
}

fn is_local(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&b))
}

fn is_label(text: &str) -> bool {
    (1..=LABEL_LENGTH).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_browsers_have_it() {
        let label = "l".repeat(63);
        let long = format!("a@{label}.{label}");
        let longer = format!("a@{label}l");
        for good in [
            "a@b",
            "a.b+c@d.example",
            "..@x-y.z",
            "!#$%&'*+/=?^_`{|}~-@1.2",
            "A@B.C",
            long.as_str(),
        ] {
            assert!(problem(good).is_none(), "{good}");
        }
        for bad in [
            "",
            "@",
            "a",
            "a@",
            "@b",
            "a@b@c",
            "a b@c",
            "a@b c",
            "a@-b",
            "a@b-",
            "a@b.",
            "a@.b",
            "a@b..c",
            "a@b_c",
            "\"a\"@b",
            "a@[127.0.0.1]",
            "ä@b",
            "a@ä",
            " a@b",
            "a@b\n",
            "a\0@b",
            longer.as_str(),
        ] {
            assert!(problem(bad).is_some(), "{bad:?}");
        }
    }
}
