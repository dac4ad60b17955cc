//! The check of the content type.

use hyper::header::{self, HeaderMap};
use letterbox_common::webhook::only;

use crate::error::Refusal;

/// Refuses a body without the content type of JSON.
///
/// # Errors
/// 400, unless there is exactly one `Content-Type: application/json`, in any case, with any
/// parameters.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), Refusal> {
    if is_json(headers) {
        return Ok(());
    }
    Err(Refusal::invalid_input(
        "The Content-Type must be application/json",
    ))
}

/// Refuses a body without a content type of JSON: as [`require_json`], or one that is based on it,
/// such as `application/cloudevents+json`.
///
/// # Errors
/// 400.
pub(super) fn require_json_of_any_kind(headers: &HeaderMap) -> Result<(), Refusal> {
    let of_kind = |media_type: &[u8]| {
        let kind = media_type.to_ascii_lowercase();
        kind.starts_with(b"application/") && kind.ends_with(b"+json")
    };
    match media_type(headers).is_some_and(of_kind) {
        true => Ok(()),
        false => require_json(headers),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers).is_some_and(|given| given.eq_ignore_ascii_case(b"application/json"))
}

/// The media type, without parameters, if there is one.
fn media_type(headers: &HeaderMap) -> Option<&[u8]> {
    let given = only(headers, header::CONTENT_TYPE)?.as_bytes();
    let media_type = given.split(|b| *b == b';').next()?;
    Some(media_type.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_and_case_do_not_matter() {
        let check = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_TYPE, value.parse().unwrap());
            }
            is_json(&headers)
        };
        for value in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json ;x",
        ] {
            assert!(check(&[value]), "{value}");
        }
        for value in [
            "",
            "text/plain",
            "application/jsonp",
            "application/json,text/plain",
            "application/vnd.api+json",
        ] {
            assert!(!check(&[value]), "{value}");
        }
        assert!(!check(&[]));
        assert!(!check(&["application/json", "application/json"]));
        for (value, is_fine) in [
            ("application/vnd.api+json", true),
            ("Application/CloudEvents+JSON; charset=utf-8", true),
            ("application/json", true),
            ("text/x+json", false),
            ("application/x+jsonp", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value.parse().unwrap())]);
            let checked = require_json_of_any_kind(&headers);
            assert_eq!(checked.is_ok(), is_fine, "{value}");
        }
    }
}
