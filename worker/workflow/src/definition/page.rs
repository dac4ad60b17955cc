//! The appearance of a form's page.

use std::{
    collections::{BTreeMap, HashSet},
    sync::LazyLock,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use letterbox_common::form::{Form, Locale, NoColor, Page};
use serde_json::Value;
use url::{Host, Url};

use crate::{
    diagnostics::{Diagnostics, Fields},
    schemas::DEFINITION_SCHEMA,
};

const MAX_ORGANIZATION: usize = 100;
const MAX_BUTTON: usize = 40;
const MAX_URL: usize = 2_000;
/// Maximum bytes of a decoded logo.
const MAX_LOGO: usize = 32_768;
const MAX_FRAME_ANCESTORS: usize = 10;

/// The picture formats of a logo: the media type, and how a file begins.
const PICTURES: [(&str, &[u8]); 3] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/webp", b"RIFF"),
];

/// The autofill names of the HTML standard, except passwords and means of payment, as the schema
/// lists them.
static AUTOFILL: LazyLock<Vec<String>> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "it is embedded, and tests read it")]
    let schema: Value = DEFINITION_SCHEMA.parse().expect("the schema is JSON");
    let names = &schema["$defs"]["page"]["properties"]["autocomplete"]["additionalProperties"];
    let names = names["enum"].as_array().into_iter().flatten();
    names
        .filter_map(|name| Some(name.as_str()?.to_owned()))
        .collect()
});

/// Checks `page`, which may be missing.
pub(super) fn check(diagnostics: &mut Diagnostics, value: Option<&Value>, form: &Form) -> Page {
    let Some(mut page) = value.and_then(|value| diagnostics.fields(value, "page")) else {
        return Page::default();
    };
    let parsed = Page {
        organization: page.optional_text("organization", MAX_ORGANIZATION),
        logo: parsed(&mut page, "logo", logo),
        color: parsed(&mut page, "color", |text| {
            text.parse().map_err(|error: NoColor| error.to_string())
        }),
        button: page.optional_text("button", MAX_BUTTON),
        privacy_url: parsed(&mut page, "privacy_url", address),
        continue_url: parsed(&mut page, "continue_url", address),
        locale: page.get("locale").and_then(|_| {
            let found = page.one_of("locale", Locale::ALL, |locale| locale.as_str());
            found.copied()
        }),
        frame_ancestors: frame_ancestors(&mut page),
        autocomplete: autocomplete(&mut page, form),
    };
    page.refuse_others();
    parsed
}

/// Parses a member whose text has a format.
fn parsed<T>(
    page: &mut Fields<'_, '_>,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let text = page.get(name)?.as_str().unwrap_or_default();
    parse(text).map_err(|error| page.add(name, error)).ok()
}

/// Checks a picture, given as a data URI.
fn logo(text: &str) -> Result<String, String> {
    let expected = || {
        let types: Vec<_> = PICTURES.iter().map(|(media_type, _)| *media_type).collect();
        let types = types.join(", ");
        format!("must be data:TYPE;base64,… with one of the types {types}")
    };
    let (media_type, data) = text
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .ok_or_else(expected)?;
    let (_, begin) = PICTURES
        .iter()
        .find(|(known, _)| *known == media_type)
        .ok_or_else(expected)?;
    let picture = BASE64_STANDARD.decode(data).map_err(|_| expected())?;
    if picture.len() > MAX_LOGO {
        let bytes = picture.len();
        return Err(format!("must have at most {MAX_LOGO} bytes, not {bytes}"));
    }
    let is_webp = media_type != "image/webp" || picture.get(8..12) == Some(b"WEBP");
    if picture.starts_with(begin) && is_webp {
        Ok(text.to_owned())
    } else {
        Err(format!("is not a picture of the type {media_type}"))
    }
}

/// Checks the address of a page that the form links to.
fn address(text: &str) -> Result<String, String> {
    let expected = || format!("must be an https address of at most {MAX_URL} characters");
    let url = Url::parse(text).map_err(|_| expected())?;
    let is_plain = url.scheme() == "https" && url.username().is_empty() && url.password().is_none();
    if is_plain && url.as_str().len() <= MAX_URL {
        // The normalized form: nothing in it can end an attribute or a header.
        Ok(url.into())
    } else {
        Err(expected())
    }
}

fn frame_ancestors(page: &mut Fields<'_, '_>) -> Vec<String> {
    const NAME: &str = "frame_ancestors";
    let Some(value) = page.get(NAME) else {
        return Vec::new();
    };
    let path = page.place(NAME);
    let origins = page
        .diagnostics
        .list(Some(value), &path)
        .unwrap_or_default();
    if origins.len() > MAX_FRAME_ANCESTORS {
        let problem = format_args!("must have at most {MAX_FRAME_ANCESTORS} origins");
        page.add(NAME, problem);
    }
    let mut found = Vec::new();
    for (index, given) in origins.iter().enumerate() {
        match given.as_str().and_then(origin) {
            Some(origin) => found.push(origin),
            None => {
                let problem = "must be an origin, such as https://www.example.com";
                page.add(&format!("{NAME}[{index}]"), problem);
            }
        }
    }
    found
}

/// Parses the origin of an https site, or of this machine.
fn origin(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_here = match url.host()? {
        // The URL standard permits `*` and `;` in a host, which would change the header.
        Host::Domain(name) if !name.bytes().all(is_plain) => return None,
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    };
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_here);
    let origin = url.origin().ascii_serialization();
    (is_safe && origin == text.trim_end_matches('/')).then_some(origin)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-'
}

fn autocomplete(page: &mut Fields<'_, '_>, form: &Form) -> BTreeMap<String, String> {
    const NAME: &str = "autocomplete";
    let given = page.get(NAME);
    let place = page.place(NAME);
    let mut found = BTreeMap::new();
    let Some(mut names) = given.and_then(|given| page.diagnostics.fields(given, place)) else {
        return found;
    };
    let fields: HashSet<&str> = form.fields.iter().map(|field| field.key.as_str()).collect();
    for key in names.members.keys() {
        if !fields.contains(key.as_str()) {
            names.add(key, "is not a field of the form");
        }
        let word = names.one_of(key, &AUTOFILL, |word| word);
        found.extend(word.map(|word| (key.clone(), word.clone())));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Definition, diagnostics::texts};

    /// A definition with this member.
    fn definition(member: &str, value: &Value) -> Result<Definition, Vec<String>> {
        let field = json!({"key": "a", "label": "L", "type": "text", "required": true});
        let form = json!({"title": "T", "fields": [field]});
        let definition = json!({"form": form, "actions": [], member: value});
        Definition::check(&definition.to_string()).map_err(texts)
    }

    fn picture(media_type: &str, bytes: &[u8]) -> Value {
        let data = BASE64_STANDARD.encode(bytes);
        format!("data:{media_type};base64,{data}").into()
    }

    #[test]
    fn a_page_is_stored_as_it_was_meant() {
        assert_eq!(definition("page", &json!({})).unwrap().page_json(), None);
        let page = json!({
            "organization": "Acme", "logo": picture("image/png", PICTURES[0].1),
            "color": "#2450d3", "button": "Send", "privacy_url": "https://example.com/privacy",
            "continue_url": "https://example.com/?a=b", "locale": "de",
            "frame_ancestors": ["https://www.example.com"], "autocomplete": {"a": "given-name"},
        });
        let stored = definition("page", &page).unwrap().page_json().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&stored).unwrap(), page);
    }

    #[test]
    fn what_can_break_out_of_its_place_is_refused_or_written_otherwise() {
        let large = [PICTURES[0].1, &[0; MAX_LOGO]].concat();
        for (member, value) in [
            ("organization", " ".into()),
            ("organization", "x".repeat(101).into()),
            ("logo", "https://example.com/logo.png".into()),
            ("logo", "data:image/svg+xml;base64,PHN2Zy8+".into()),
            ("logo", "data:image/png;base64,####".into()),
            ("logo", picture("image/png", b"GIF89a")),
            ("logo", picture("image/webp", b"RIFF0000WAVE")),
            ("logo", picture("image/png", &large)),
            ("color", "blue".into()),
            ("color", 1.into()),
            ("button", "x".repeat(41).into()),
            ("privacy_url", "http://example.com".into()),
            ("privacy_url", "javascript:alert(1)".into()),
            ("privacy_url", "https://u:p@example.com".into()),
            ("continue_url", "/thanks".into()),
            ("locale", "xx".into()),
            ("frame_ancestors", json!("https://example.com")),
            ("frame_ancestors", json!(["*"])),
            ("frame_ancestors", json!(["https://*.example.com"])),
            ("frame_ancestors", json!(["https://example.com/path"])),
            (
                "frame_ancestors",
                json!(["https://a.example.com; script-src *"]),
            ),
            ("frame_ancestors", json!(["http://example.com"])),
            ("frame_ancestors", json!(vec!["https://example.com"; 11])),
            ("autocomplete", json!({"b": "name"})),
            ("autocomplete", json!({"a": "cc-number"})),
            ("more", 1.into()),
        ] {
            let problems = definition("page", &json!({member: value.clone()})).unwrap_err();
            let text = problems.join("\n");
            assert_eq!(problems.len(), 1, "{member} {value}: {text}");
            assert!(text.starts_with("page"), "{text}");
        }
        let page =
            definition("page", &json!({"privacy_url": "https://example.com/\"><a"})).unwrap();
        let stored = page.page_json().unwrap();
        assert!(!stored.contains("><"), "{stored}");
    }

    #[test]
    fn a_defence_has_a_least_time() {
        let of = |defence: Value| {
            let definition = definition("spam_defence", &defence);
            definition.map(|definition| definition.least_seconds)
        };
        assert_eq!(definition("page", &json!({})).unwrap().least_seconds, None);
        assert_eq!(of(json!({})).unwrap(), Some(2));
        assert_eq!(of(json!({"least_seconds": 60})).unwrap(), Some(60));
        for wrong in [json!(true), json!({"least_seconds": 61}), json!({"x": 1})] {
            assert_eq!(of(wrong.clone()).unwrap_err().len(), 1, "{wrong}");
        }
    }
}
