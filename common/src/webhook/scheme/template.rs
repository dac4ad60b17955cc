//! The template of a signed text: which parts of a request are signed, and in which order.
//!
//! What is signed of one part must not pass for a piece of the next. Between most parts the
//! template has a sign that they can't contain. Where parts stand next to each other, one of them
//! must say itself where it ends: the body, which then is an object or a list while the others have
//! plain characters only; or a time of a fixed form.

use std::{convert::Infallible, fmt, str::FromStr};

use super::{
    error::RulesError,
    parts::{Parts, WebhookRequest},
    words::TimeFormat,
};
use crate::{as_text::serde_as_text, text_enum};

const MAX_TEMPLATE: usize = 200;

text_enum! {
    /// A part of a request, as it is written.
    enum Place {
        Body = "{body}",
        Timestamp = "{timestamp}",
        Id = "{id}",
        Method = "{method}",
        Url = "{url}",
        Path = "{path}",
        Query = "{query}",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Place),
}

/// A template of a signed text, such as `{timestamp}.{body}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
    /// Whether the body stands next to another part.
    is_body_close: bool,
    /// Whether the time stands next to the id.
    is_time_close: bool,
}

impl FromStr for Template {
    type Err = Infallible;

    /// What is no placeholder is text.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let mut places = Place::ALL.iter();
            let begun = places.find_map(|place| Some((rest.strip_prefix(place.as_str())?, *place)));
            rest = match begun {
                Some((after, place)) => {
                    pieces.push(Piece::Place(place));
                    after
                }
                None => {
                    let end = rest.char_indices().skip(1).find(|(_, one)| *one == '{');
                    let (piece, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
                    pieces.push(Piece::Text(piece.to_owned()));
                    after
                }
            };
        }
        let mut template = Self {
            text: text.to_owned(),
            pieces,
            is_body_close: false,
            is_time_close: false,
        };
        let close: Vec<_> = template.close().collect();
        let both = |a, b| close.contains(&(a, b)) || close.contains(&(b, a));
        template.is_time_close = both(Place::Timestamp, Place::Id);
        template.is_body_close = Place::ALL.iter().any(|other| both(Place::Body, *other));
        Ok(template)
    }
}

impl Template {
    /// Checks that the parts are known, each is signed as often as it is there, and none can pass
    /// for a piece of another.
    pub(super) fn check(
        &self,
        times: usize,
        ids: usize,
        is_time_checked: bool,
    ) -> Result<(), RulesError> {
        if let Some(word) = self.unknown_placeholder() {
            return Err(RulesError::Placeholder(word.to_owned()));
        }
        let has = |place: Place| self.places().filter(|one| *one == place).count();
        if has(Place::Body) != 1 || self.text.chars().count() > MAX_TEMPLATE {
            return Err(RulesError::Body);
        }
        if has(Place::Timestamp) != times {
            return Err(RulesError::Timestamp);
        }
        if has(Place::Id) != ids {
            return Err(RulesError::Id);
        }
        let mut close = self.close();
        let is_apart = |(one, other): (Place, Place)| match (one, other) {
            (Place::Body, _) | (_, Place::Body) => true,
            // Both are the same in each request to a webhook.
            (Place::Method, _) => true,
            (Place::Timestamp, Place::Id) | (Place::Id, Place::Timestamp) => is_time_checked,
            _ => false,
        };
        match close.all(is_apart) {
            true => Ok(()),
            false => Err(RulesError::Adjacent),
        }
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Place(place) => Some(*place),
            Piece::Text(_) => None,
        })
    }

    /// The parts between which nothing stands that could not be in them.
    fn close(&self) -> impl Iterator<Item = (Place, Place)> {
        let ends_part = |text: &str| text.contains(|c: char| !c.is_alphanumeric());
        let mut former = None;
        self.pieces.iter().filter_map(move |piece| match piece {
            Piece::Text(text) => {
                former = former.filter(|_| !ends_part(text));
                None
            }
            Piece::Place(place) => Some((former.replace(*place)?, *place)),
        })
    }

    /// The signs of the texts between its parts that no letter or digit is.
    fn signs(&self) -> impl Iterator<Item = char> {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.chars()),
            Piece::Place(_) => None,
        });
        texts.flatten().filter(|one| !one.is_alphanumeric())
    }

    /// The first word in braces that stands for nothing. Other braces are part of the text.
    fn unknown_placeholder(&self) -> Option<&str> {
        let begun = self.text.split('{').skip(1);
        let words = begun.filter_map(|rest| Some(rest.split_once('}')?.0));
        let is_word = |text: &str| {
            let in_word = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
            text.contains(char::is_alphabetic) && text.chars().all(in_word)
        };
        let is_known = |word: &str| {
            let mut known = Place::WORDS.iter();
            known.any(|written| written.trim_matches(['{', '}']) == word)
        };
        words
            .filter(|word| is_word(word))
            .find(|word| !is_known(word))
    }

    /// Whether parts stand next to each other.
    pub fn has_close_parts(&self) -> bool {
        self.is_body_close || self.is_time_close
    }

    /// The signed text of a request, in pieces.
    pub(super) fn filled<'a>(
        &'a self,
        request: &WebhookRequest<'a>,
        parts: &Parts<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (request, parts) = (*request, *parts);
        let target = request.target;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        self.pieces.iter().flat_map(move |piece| {
            let (first, second): (&[u8], &str) = match piece {
                Piece::Text(text) => (text.as_bytes(), ""),
                Piece::Place(Place::Body) => (request.body, ""),
                Piece::Place(Place::Timestamp) => (parts.timestamp.as_bytes(), ""),
                Piece::Place(Place::Id) => (parts.id.as_bytes(), ""),
                Piece::Place(Place::Method) => (request.method.as_bytes(), ""),
                Piece::Place(Place::Url) => (request.base.as_bytes(), request.target),
                Piece::Place(Place::Path) => (path.as_bytes(), ""),
                Piece::Place(Place::Query) => (query.as_bytes(), ""),
            };
            [first, second.as_bytes()]
        })
    }

    /// Whether each part of a request says where it ends, if the template doesn't.
    pub(super) fn are_told_apart(
        &self,
        request: &WebhookRequest<'_>,
        parts: &Parts<'_>,
        format: TimeFormat,
    ) -> bool {
        let body = request.body.trim_ascii();
        let is_target = |place| matches!(place, Place::Url | Place::Path | Place::Query);
        let target = self.places().any(is_target).then_some(request.target);
        let others = [parts.timestamp, parts.id, target.unwrap_or_default()];
        let is_body_apart = || {
            let is_enclosed = matches!(
                (body.first(), body.last()),
                (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']'))
            );
            is_enclosed && others.iter().all(|part| is_plain(part))
        };
        let is_time_apart = || match format {
            TimeFormat::Seconds => parts.timestamp.len() == 10,
            TimeFormat::Milliseconds => parts.timestamp.len() == 13,
            TimeFormat::Iso8601 => parts.timestamp.ends_with('Z'),
            TimeFormat::Unchecked => false,
        };
        // A time of any form must not hold a sign that stands between parts, nor the id then.
        let is_sign = |one: char| self.signs().any(|sign| sign == one);
        let is_unchecked = format == TimeFormat::Unchecked && !parts.timestamp.is_empty();
        let has_sign = |part: &str| is_unchecked && part.contains(is_sign);
        (!self.is_body_close || is_body_apart())
            && (!self.is_time_close || is_time_apart())
            && !has_sign(parts.timestamp)
            && !has_sign(parts.id)
    }
}

/// Whether a part has characters only that a JSON text of an object or a list neither begins nor
/// ends with: those of a URL (RFC 3986), and spaces within.
fn is_plain(part: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#@!$&'()*+,;=% ".contains(&byte);
    part.bytes().all(is_plain) && part.trim_ascii() == part
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(Template);
