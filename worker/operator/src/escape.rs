//! Text from outside, made harmless to readers: control characters steer a terminal,
//! directional marks reorder a line, and what can't be seen hides in what a person approves. This
//! is for screens: what is handed over to programs stays as it was written.

use std::{fmt::Write as _, ops::RangeInclusive};

/// Scripts whose letters are joined, or kept apart, by letters that can't be seen.
const JOINED: [RangeInclusive<char>; 5] = [
    // Arabic, Syriac, Thaana, N'Ko, Samaritan and Mandaic.
    '\u{620}'..='\u{8ff}',
    // Devanagari to Sinhala, in which a word has letters of one script.
    '\u{900}'..='\u{dff}',
    // Myanmar.
    '\u{1000}'..='\u{109f}',
    // Khmer and Mongolian.
    '\u{1780}'..='\u{18af}',
    // Balinese.
    '\u{1b00}'..='\u{1b7f}',
];

/// Whether a character is a picture, also as part of one.
fn is_picture(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{2600}'..='\u{27bf}'
        | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Whether a character that can't be seen belongs to its neighbours: a joiner between letters of
/// one such script, or between pictures; what makes a sign a picture.
fn belongs(before: Option<char>, c: char, after: Option<char>) -> bool {
    const PICTURE: char = '\u{fe0f}';
    let Some(before) = before else {
        return false;
    };
    let is_picture_of = |sign: char| is_picture(sign) || matches!(sign, '\u{a9}' | '\u{ae}');
    match (c, after) {
        ('\u{200c}' | '\u{200d}', Some(after)) => {
            let is_between = |script: &RangeInclusive<char>| {
                let is_in = |c| script.contains(&c) && is_plain(c);
                is_in(before) && is_in(after)
            };
            let pictures = c == '\u{200d}' && is_picture(after);
            JOINED.iter().any(is_between) || pictures && (is_picture(before) || before == PICTURE)
        }
        (PICTURE, Some('\u{20e3}')) => before.is_ascii_digit() || before == '#' || before == '*',
        (PICTURE, _) => is_picture_of(before),
        _ => false,
    }
}

/// Whether a character is what it looks like, whatever is beside it.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            // Directional marks, embeddings, overrides and isolates.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators.
            | '\u{2028}' | '\u{2029}'
            // No glyph, or an empty one.
            | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // Variation selectors and tags.
            | '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// One line for people: everything else is written as `\u{…}`.
pub fn line(text: &str) -> String {
    escape(text, |c, out| {
        let _ = write!(out, "{}", c.escape_unicode());
    })
}

/// Several lines for people.
pub fn lines(text: &str) -> String {
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// JSON text that means the same. Outside of its strings there is nothing to escape but line
/// breaks, which stay.
pub fn json(text: &str) -> String {
    let escaped = text.split('\n').map(|line| {
        escape(line, |c, out| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        })
    });
    escaped.collect::<Vec<_>>().join("\n")
}

fn escape(text: &str, write: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        if is_plain(c) || belongs(before, c, letters.peek().copied()) {
            out.push(c);
        } else {
            write(c, &mut out);
        }
        before = Some(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARMFUL: &str = "\0\u{7}\n\r\u{1b}\u{7f}\u{9b}\u{9d}\u{ad}\u{34f}\u{61c}\u{115f}\
        \u{180e}\u{200b}\u{200d}\u{200f}\u{2028}\u{202e}\u{2060}\u{2066}\u{206a}\
        \u{2800}\u{3164}\u{fe0f}\u{feff}\u{fffb}\u{e0041}\u{e0100}";

    #[test]
    fn what_is_not_what_it_looks_like_is_written_out() {
        for c in HARMFUL.chars() {
            let text = format!("a{c}b");
            let code = u32::from(c);
            assert_eq!(line(&text), format!("a\\u{{{code:x}}}b"));
            let json_text = serde_json::to_string(&text).unwrap();
            let escaped = json(&json_text);
            assert!(!escaped.contains(c), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        }
        for text in ["", "Zoë, 東京, שלום, 👍🏽, ½", r#"{"a": "\\"}"#] {
            assert_eq!((line(text).as_str(), json(text).as_str()), (text, text));
        }
        for text in [
            "می\u{200c}خواهم", // Persian: "I want"
            "क्\u{200d}ष, ശ്\u{200d}രീ, ක්\u{200d}ය",
            "👩\u{200d}👩\u{200d}👧 👩🏽\u{200d}💻",
            "❤\u{fe0f} ❤\u{fe0f}\u{200d}🔥 1\u{fe0f}\u{20e3} ©\u{fe0f}",
        ] {
            assert_eq!((line(text).as_str(), json(text).as_str()), (text, text));
        }
        // Where nothing is joined they hide.
        for hidden in [
            "a\u{200c}b",
            "می\u{200c}",
            "\u{200c}می",
            "م\u{200c}k",
            "می \u{200d}خ",
            "م\u{200c}क",
            "ی\u{200c}\u{200c}خ",
            "👩\u{200d}a",
            "👩\u{200d}",
            "👩\u{200c}👩",
            "a\u{fe0f}",
            "1\u{fe0f}",
            "❤\u{fe0f}\u{fe0f}",
            "ی\u{200b}خ",
            "❤\u{fe0e}",
        ] {
            assert!(line(hidden).contains("\\u{"), "{hidden:?}");
        }
        assert_eq!(lines("a\nb\u{1b}\n"), "a\nb\\u{1b}\n");
        let pretty = "{\n  \"a\": \"\u{202e}\"\n}";
        assert_eq!(json(pretty), "{\n  \"a\": \"\\u202e\"\n}");
    }
}
