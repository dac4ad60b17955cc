//! Pages: templates, filled from structs against which the compiler checks them. Every value is
//! escaped, and what is invisible in it is shown, so that nothing hides in what a person answers.

use std::{any::Any, fmt};

use askama::{
    Template,
    filters::{Escaper, Html},
};
use axum::{
    http::StatusCode,
    response::{self, IntoResponse, Response},
};
use jiff::{Timestamp, tz::TimeZone};
use letterbox_operator::escape;

use crate::response::{Trouble, see};

/// Escapes all values of templates (`askama.toml`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen;

impl Escaper for Seen {
    fn write_escaped_str<W: fmt::Write>(&self, page: W, value: &str) -> fmt::Result {
        Html.write_escaped_str(page, &escape::lines(value))
    }
}

/// The frame around each page.
#[derive(Template)]
#[template(path = "frame.html")]
struct Frame<'p> {
    title: &'p str,
    visitor: Option<Visitor<'p>>,
    room: String,
}

/// The name by which filters find the visitor's time zone.
const ZONE: &str = "zone";

/// A person to whom a page is shown.
pub(crate) struct Visitor<'p> {
    pub(crate) name: &'p str,
    pub(crate) form_token: &'p str,
    /// The time zone in which times are told.
    pub(crate) zone: &'p TimeZone,
}

/// The page that says what went wrong.
#[derive(Template)]
#[template(path = "told.html")]
struct Told<'p> {
    title: &'p str,
    words: &'p str,
}

/// The page that holds what was posted from a page of another session.
#[derive(Template)]
#[template(path = "held.html")]
struct Held<'p> {
    path: &'p str,
    values: &'p [(String, String)],
    form_token: Option<&'p str>,
}

impl IntoResponse for Trouble {
    /// The page that says what went wrong.
    fn into_response(self) -> Response {
        let (status, title, words) = match &self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Not found",
                "There is nothing here, or not for you.",
            ),
            Self::SignedOut(to) => return (to.clone(), see("/sign-in")).into_response(),
            Self::Held(path, values, token) => {
                let form_token = token.as_deref();
                let held = Held {
                    path,
                    values,
                    form_token,
                };
                return (StatusCode::FORBIDDEN, page(None, "Not sent yet", &held)).into_response();
            }
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
        (status, page(None, title, &Told { title, words })).into_response()
    }
}

/// A page for a visitor, or for a browser without a session.
pub(crate) fn page(visitor: Option<Visitor<'_>>, title: &str, room: &impl Template) -> Response {
    let utc = TimeZone::UTC;
    let zone = visitor.as_ref().map_or(&utc, |visitor| visitor.zone);
    let values: [(&str, &dyn Any); 1] = [(ZONE, zone)];
    let framed = room
        .render_with_values(&values.as_slice())
        .and_then(|room| {
            Frame {
                title,
                visitor,
                room,
            }
            .render()
        });
    let framed = framed.map(response::Html).map_err(|error| {
        tracing::error!(%error, title, "a template failed");
        let words = "The page could not be made.";
        (StatusCode::INTERNAL_SERVER_ERROR, words)
    });
    framed.into_response()
}

/// How templates write some values.
#[expect(unreachable_pub, reason = "made so by filter_fn")]
pub(crate) mod filters {
    use std::fmt::Display;

    use askama::{Result, Values, filter_fn, get_value};
    use jiff::{Timestamp, tz::TimeZone};

    /// A state as people read it.
    #[filter_fn]
    pub(crate) fn state(state: &impl Display, _: &dyn Values) -> Result<String> {
        Ok(match &*state.to_string() {
            "waiting_approval" => "waits for approval".to_owned(),
            state => state.replace('_', " "),
        })
    }

    /// A time as people read it, in their time zone.
    #[filter_fn]
    pub(crate) fn moment(time: &Timestamp, values: &dyn Values) -> Result<String> {
        let zone = get_value::<TimeZone>(values, super::ZONE);
        let time = time.to_zoned(zone.cloned().unwrap_or(TimeZone::UTC));
        Ok(time.strftime("%Y-%m-%d %H:%M %Z").to_string())
    }

    /// How long ago a time is, or how long until then.
    #[filter_fn]
    pub(crate) fn ago(time: &Timestamp, _: &dyn Values) -> Result<String> {
        Ok(super::ago(*time))
    }
}

fn ago(time: Timestamp) -> String {
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

    #[derive(Template)]
    #[template(source = r#"{{ it }} "{{ it }}" {{ it|e("field") }}"#, ext = "html")]
    struct Sample {
        it: &'static str,
    }

    #[test]
    fn what_is_filled_in_is_inert_and_seen() {
        let it = "</textarea><script>alert('1')</script>\"\u{202e}\u{200b}";
        let page = Sample { it }.render().unwrap();
        assert_eq!(page.matches("\\u{202e}\\u{200b}").count(), 2, "{page}");
        assert_eq!(page.matches("\u{202e}\u{200b}").count(), 1, "{page}");
        assert_eq!(page.matches(['<', '>', '\'']).count(), 0, "{page}");
        assert_eq!(page.matches('"').count(), 2, "{page}");
    }

    /// Nothing is exempt but the room in its frame, which is a page itself.
    #[test]
    fn no_template_leaves_a_value_as_it_is() {
        let mut exempt = Vec::new();
        let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        for template in std::fs::read_dir(templates).unwrap() {
            let template = std::fs::read_to_string(template.unwrap().path()).unwrap();
            let filters = template.split("{{").skip(1);
            let filters = filters.filter_map(|rest| rest.split_once("}}")?.0.rsplit_once('|'));
            let filters = filters.map(|(_, filter)| filter.trim().to_owned());
            let known = ["e(\"field\")", "moment", "ago", "state"];
            exempt.extend(filters.filter(|filter| !known.contains(&&**filter)));
            assert!(!template.contains("autoescape") && !template.contains("{% filter"));
            for secret in [
                "credential",
                "secret",
                "client_secret",
                "code",
                "form_token",
            ] {
                assert!(
                    !template.contains(&format!("filled(\"{secret}\")")),
                    "{secret}"
                );
            }
        }
        assert_eq!(exempt, ["safe"]);
    }

    #[test]
    fn times_are_told_in_words() {
        for (seconds, words) in [
            (1, "1 second"),
            (600, "10 minutes"),
            (7_300, "2 hours"),
            (200_000, "2 days"),
        ] {
            let before = Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
            assert_eq!(ago(before), words);
        }
    }
}
