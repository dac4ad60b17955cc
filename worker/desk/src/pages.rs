//! Pages: templates, filled with what a room has found out. Everything that is filled in is escaped
//! by the engine; invisible characters are made visible, so that nothing hides in what a person
//! answers.

use std::sync::LazyLock;

use axum::{
    http::StatusCode,
    response::{Html, IntoResponse, Response},
};
use jiff::Timestamp;
use letterbox_operator::escape;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use crate::response::{Trouble, see};

/// The frame around each page.
const FRAME: &str = "frame";
macro_rules! templates {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../templates/", $name, ".html")))),+]
    };
}

const TEMPLATES: [(&str, &str); 19] = templates![
    "accounts",
    "account_authorize",
    "form",
    "form_link",
    "form_new",
    "forms",
    "frame",
    "me",
    "member",
    "people",
    "question",
    "run",
    "runs",
    "sign_in",
    "told",
    "waiting",
    "webhook",
    "webhook_new",
    "webhooks",
];

/// The templates of all rooms.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_filter("seen", |text: String| escape::lines(&text));
    environment.add_filter("state", state);
    environment.add_filter("moment", moment);
    environment.add_filter("ago", ago);
    for (name, template) in TEMPLATES {
        #[expect(clippy::expect_used, reason = "tests fill every template")]
        environment
            .add_template(name, template)
            .expect("a template");
    }
    environment
});

impl IntoResponse for Trouble {
    /// The page that says what went wrong.
    fn into_response(self) -> Response {
        let (status, title, words) = match &self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Not found",
                "There is nothing here, or not for you.",
            ),
            Self::SignedOut => return see("/sign-in"),
            Self::Forged => (
                StatusCode::FORBIDDEN,
                "Not done",
                "This did not come from a page of your session. Open the page again, and repeat \
                 what you did.",
            ),
            Self::Busy => (
                StatusCode::TOO_MANY_REQUESTS,
                "Not now",
                "You, or others at your address, have many requests under way: try again in a \
                 moment.",
            ),
            Self::Unreadable => (
                StatusCode::BAD_REQUEST,
                "Not done",
                "That is not what a page of the desk sends.",
            ),
            Self::Unfit(words) => (StatusCode::BAD_REQUEST, "Not done", words.as_str()),
            Self::Refused(words) => (StatusCode::CONFLICT, "Not done", words.as_str()),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Not now",
                "The desk can't reach its database now. Whatever you sent may have been done: \
                 look before you repeat it.",
            ),
        };
        (status, page("told", title, (), context! { words })).into_response()
    }
}

/// A page for a person, or for a browser without a session.
pub(crate) fn page(template: &str, title: &str, person: impl Serialize, found: Value) -> Response {
    let person = Value::from_serialize(person);
    let filled = ENVIRONMENT.get_template(template).and_then(|room| {
        let room = room.render(context! { title, ..found.clone() })?;
        let frame = ENVIRONMENT.get_template(FRAME)?;
        frame.render(context! { title, person, room, ..found })
    });
    filled
        .map(Html)
        .map_err(|error| {
            tracing::error!(%error, template, "a template failed");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "The page could not be made.",
            )
        })
        .into_response()
}

/// A state as people read it.
fn state(state: &str) -> String {
    match state {
        "waiting_approval" => "waits for approval".to_owned(),
        state => state.replace('_', " "),
    }
}

/// A time as people read it, in UTC.
fn moment(time: &str) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => String::new(),
    }
}

/// How long ago a time is, or how long until then.
fn ago(time: &str) -> String {
    let Ok(time) = time.parse::<Timestamp>() else {
        return String::new();
    };
    let seconds = Timestamp::now()
        .duration_since(time)
        .as_secs()
        .unsigned_abs();
    let (count, unit) = match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_inert_and_seen() {
        let hostile = "</textarea><script>alert(1)</script>\u{202e}\u{200b}";
        let page = ENVIRONMENT.render_str("{{ it | seen }}", context! { it => hostile });
        let page = page.unwrap();
        assert!(
            !page.contains('<') && page.contains("\\u{202e}\\u{200b}"),
            "{page}"
        );
    }

    #[test]
    fn times_are_told_in_words() {
        assert_eq!(moment("2026-01-31T08:00:00Z"), "2026-01-31 08:00 UTC");
        let before =
            |seconds| (Timestamp::now() - jiff::SignedDuration::from_secs(seconds)).to_string();
        for (seconds, words) in [
            (1, "1 second"),
            (600, "10 minutes"),
            (7_300, "2 hours"),
            (200_000, "2 days"),
        ] {
            assert_eq!(ago(&before(seconds)), words);
        }
    }
}
