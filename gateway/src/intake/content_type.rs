//! The check of the content type.

use hyper::header::{self, HeaderMap};

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

fn is_json(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return false;
    };
    let media_type = value
        .as_bytes()
        .split(|b| *b == b';')
        .next()
        .unwrap_or_default();
    media_type
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
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
    }
}
