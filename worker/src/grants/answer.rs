//! Answers of token servers, read leniently by one rule and told to the `oauth2` crate as RFC 6749
//! wants them: a JSON object or a form with `access_token` is a token, with or without
//! `token_type`, with `expires_in` as a number or as text, whatever its `scope`; anything else is a
//! refusal, which is told in the server's own words.

use oauth2::{HttpResponse, url::form_urlencoded};
use serde_json::{Map, Value, json};

use crate::egress::{self, EgressError};

/// Errors of a server that is temporarily unavailable.
const TROUBLES: [&str; 3] = ["temporarily_unavailable", "server_error", "slow_down"];
/// Errors that concern what was asked for, and not the client.
const OF_GRANT: [&str; 4] = [
    "invalid_grant",
    "invalid_scope",
    "unsupported_grant_type",
    "access_denied",
];
/// Maximum characters of a server's words.
const MAX_WORDS: usize = 200;
pub(super) const NOT_UNDERSTOOD: &str = "its answer can't be understood";

/// Why a token server gave no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("{0}")]
    Egress(#[from] EgressError),
    /// It is in trouble, or something on the way to it.
    #[error("it answered with status {0}")]
    Trouble(u16),
    /// It refuses.
    #[error("it answered with status {status}: {words:?}")]
    Refused {
        status: u16,
        /// What the member `error` calls it, if it is there.
        error: String,
        words: String,
    },
    /// It may be no token server.
    #[error(
        "it answered with status {status} and nothing that a token server says: is its address \
         right?"
    )]
    Other { status: u16 },
}

impl AskError {
    /// Whether another question would end the same way.
    pub(super) fn is_final(&self) -> bool {
        let Self::Refused { status, error, .. } = self else {
            return false;
        };
        // A proxy answers otherwise, or names no error.
        let is_its = [200, 400, 401].contains(status) && !error.is_empty();
        is_its && !TROUBLES.contains(&error.as_str())
    }

    /// Whether it may refuse the client, and not what was asked for.
    pub(super) fn may_be_of_client(&self) -> bool {
        match self {
            Self::Refused { status, error, .. } => {
                let is_of_other = OF_GRANT.iter().chain(&TROUBLES).any(|known| known == error);
                [200, 400, 401].contains(status) && !is_of_other
            }
            Self::Other { status } => [400, 401].contains(status),
            Self::Egress(_) | Self::Trouble(_) => false,
        }
    }
}

/// The answer as RFC 6749 wants it, if it has a token. What it says otherwise is told without the
/// `secrets` that it may quote.
pub(super) fn read(
    answer: &egress::HttpResponse,
    secrets: &[String],
) -> Result<HttpResponse, AskError> {
    let status = answer.status;
    if status == 429 || status >= 500 || !answer.is_complete {
        return Err(AskError::Trouble(status));
    }
    let members = members(&answer.body);
    let token = members.get("access_token").and_then(Value::as_str);
    let token = token.filter(|token| !token.is_empty() && (200..300).contains(&status));
    let Some(token) = token else {
        return Err(refusal(status, &members, secrets));
    };
    let mut read = json!({"access_token": token, "token_type": "bearer"});
    if let Some(lasts) = members.get("expires_in").and_then(seconds) {
        read["expires_in"] = lasts.into();
    }
    if let Some(next) = members.get("refresh_token").filter(|next| next.is_string()) {
        read["refresh_token"] = next.clone();
    }
    Ok(HttpResponse::new(read.to_string().into_bytes()))
}

/// The members of a JSON object or a form; none of what is neither.
fn members(body: &[u8]) -> Map<String, Value> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => members,
        Ok(_) => Map::new(),
        // A page may have anything in its links.
        Err(_) if text.contains('<') => Map::new(),
        Err(_) => {
            let pairs = form_urlencoded::parse(text.as_bytes()).into_owned();
            pairs.map(|(name, value)| (name, value.into())).collect()
        }
    }
}

/// Seconds as a number or as text, with or without a fraction.
fn seconds(value: &Value) -> Option<u64> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    number
        .filter(|seconds: &f64| *seconds >= 0.0)
        .map(|seconds| seconds as u64)
}

/// What an answer without a token says. Servers name and explain an error in different members.
fn refusal(status: u16, members: &Map<String, Value>, secrets: &[String]) -> AskError {
    // Some wrap it: `{"error": {"code": …, "message": …}}`.
    let inner = members.get("error").and_then(Value::as_object);
    let said = |names: &[&str]| {
        let all = names.iter().flat_map(|name| {
            let wrapped = inner.and_then(|inner| inner.get(*name));
            [members.get(*name), wrapped]
        });
        let mut texts = all.flatten().filter_map(Value::as_str);
        texts.find(|text| !text.is_empty()).map(str::to_owned)
    };
    let error = members.get("error").and_then(Value::as_str);
    let code = inner.and_then(|inner| inner.get("code")?.as_str());
    let error = error.or(code).unwrap_or_default().to_owned();
    let name = said(&["error", "code", "status", "type"]);
    let told = said(&["error_description", "message", "detail", "title"]);
    let words: Vec<String> = name.into_iter().chain(told).collect();
    if words.is_empty() {
        return AskError::Other { status };
    }
    let words = egress::hide(words.join(": "), secrets);
    AskError::Refused {
        status,
        error,
        words: words.chars().take(MAX_WORDS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: Vec<u8>) -> Value {
        serde_json::from_str(&String::from_utf8(body).unwrap()).unwrap()
    }

    fn answer(status: u16, body: &str) -> Result<Value, AskError> {
        let answer = egress::HttpResponse::of_words(status, body.to_owned());
        let read = read(&answer, &["s3cret".to_owned(), String::new()]);
        read.map(|answer| parse(answer.into_body()))
    }

    #[test]
    fn tokens_are_read_as_servers_write_them() {
        let plain = json!({"access_token": "t", "token_type": "bearer"});
        let lasting = |seconds: u64| {
            let mut lasting = plain.clone();
            lasting["expires_in"] = seconds.into();
            lasting
        };
        let with = |more: &str| format!(r#"{{"access_token":"t"{more}}}"#);
        let form = "access_token=t&token_type=bearer&expires_in=60";
        for (body, expected) in [
            (with(""), plain.clone()),
            (
                with(r#","token_type":"Bearer","scope":["a","b"]"#),
                plain.clone(),
            ),
            (with(r#","expires_in":"3600""#), lasting(3_600)),
            (with(r#","expires_in":3599.7"#), lasting(3_599)),
            (with(r#","expires_in":-1"#), plain.clone()),
            (
                with(r#","expires_in":"soon","refresh_token":null"#),
                plain.clone(),
            ),
            (format!("\u{feff}{}", with("")), plain.clone()),
            (form.to_owned(), lasting(60)),
        ] {
            assert_eq!(answer(200, &body).unwrap(), expected, "{body}");
        }
        let next = answer(201, r#"{"access_token":"t","refresh_token":"r"}"#).unwrap();
        assert_eq!(next["refresh_token"], "r");
    }

    #[test]
    fn refusals_are_told_in_the_servers_words() {
        let invalid_client = r#"{"error":"invalid_client"}"#;
        let no_server = "is its address right?";
        let bad_code = "bad_verification_code";
        let no_route = r#"{"message":"no Route matched"}"#;
        for (status, body, told, is_final, may_be_of_client) in [
            (
                400,
                r#"{"error":"invalid_grant","error_description":"expired"}"#,
                r#"status 400: "invalid_grant: expired""#,
                true,
                false,
            ),
            (401, invalid_client, "invalid_client", true, true),
            (
                400,
                r#"{"status":"BAD_CLIENT_SECRET","message":"missing\n\u001b[2J"}"#,
                r#""BAD_CLIENT_SECRET: missing\n\u{1b}[2J""#,
                false,
                true,
            ),
            (
                400,
                r#"{"error":{"code":"x","message":"y"}}"#,
                "\"x: y\"",
                true,
                true,
            ),
            (200, invalid_client, "status 200", true, true),
            (200, &format!("error={bad_code}"), bad_code, true, true),
            (400, r#"{"error":"slow_down"}"#, "slow_down", false, false),
            (403, r#"{"message":"Forbidden"}"#, "Forbidden", false, false),
            (404, no_route, "Route", false, false),
            (
                200,
                "<a href='/x?a=1&error=b&access_token=c'>",
                no_server,
                false,
                false,
            ),
            (404, "<html>nope</html>", no_server, false, false),
            (401, "", no_server, false, true),
            (200, "[]", no_server, false, false),
            (503, invalid_client, "status 503", false, false),
        ] {
            let error = answer(status, body).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(told), "{body}: {text}");
            assert_eq!(error.is_final(), is_final, "{body}");
            assert_eq!(error.may_be_of_client(), may_be_of_client, "{body}");
        }
        let quoting = answer(400, r#"{"error":"no","message":"not s3cret, but s3cret"}"#);
        let told = r#"it answered with status 400: "no: not [hidden], but [hidden]""#;
        assert!(quoting.unwrap_err().to_string().contains(told));
        let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(5_000));
        assert!(answer(400, &long).unwrap_err().to_string().len() < 300);
    }
}
