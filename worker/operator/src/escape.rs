//! Text from outside, made harmless to readers: control characters steer a terminal,
//! directional marks reorder a line, and what can't be seen hides in what a person approves.

use std::fmt::Write as _;

/// Whether a character is what it looks like.
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
    for c in text.chars() {
        if is_plain(c) {
            out.push(c);
        } else {
            write(c, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HARMFUL: [char; 28] = [
        '\0',
        '\u{7}',
        '\n',
        '\r',
        '\u{1b}',
        '\u{7f}',
        '\u{9b}',
        '\u{9d}',
        '\u{ad}',
        '\u{34f}',
        '\u{61c}',
        '\u{115f}',
        '\u{180e}',
        '\u{200b}',
        '\u{200d}',
        '\u{200f}',
        '\u{2028}',
        '\u{202e}',
        '\u{2060}',
        '\u{2066}',
        '\u{206a}',
        '\u{2800}',
        '\u{3164}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{fffb}',
        '\u{e0041}',
        '\u{e0100}',
    ];

    #[test]
    fn what_is_not_what_it_looks_like_is_written_out() {
        for c in HARMFUL {
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
        assert_eq!(lines("a\nb\u{1b}\n"), "a\nb\\u{1b}\n");
        let pretty = "{\n  \"a\": \"\u{202e}\"\n}";
        assert_eq!(json(pretty), "{\n  \"a\": \"\\u202e\"\n}");
    }
}
