//! What of an account's answer is read, which part of it later actions see, and why they see none.

use super::MAX_ANSWER;
use crate::{
    diagnostics::Fields,
    json::{self, REASON},
};

/// The most bytes of an answer that a definition may ask for.
const MOST: u64 = 1 << 20;
/// Maximum characters of a pointer, and members on its way.
const MAX_POINTER: usize = 200;
const MAX_STEPS: usize = 20;

/// What of an answer is read, and what of that is kept. It is the definition's alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of the answer that are read; the rest is cut.
    pub max: usize,
    /// A JSON pointer to the part that is kept; `None` keeps all.
    keep: Option<String>,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            max: MAX_ANSWER,
            keep: None,
        }
    }
}

impl Reading {
    /// Parses the members `max_answer` and `keep`.
    pub(super) fn parse(fields: &mut Fields<'_, '_>) -> Self {
        let max = fields.get("max_answer");
        let max = max.and_then(|_| fields.number("max_answer", MOST));
        let keep = fields.optional_text("keep", MAX_POINTER);
        if let Some(pointer) = &keep {
            let place = fields.place("keep");
            fields.diagnostics.check_fixed(&place, pointer);
            let steps = pointer.matches('/').count();
            if !pointer.starts_with('/') || steps > MAX_STEPS {
                let problem = format_args!(
                    "must be a JSON pointer such as /results/0, of at most {MAX_STEPS} steps"
                );
                fields.add("keep", problem);
            }
        }
        Self {
            max: max.map_or(MAX_ANSWER, |max| max as usize),
            keep,
        }
    }

    /// What is kept of an answer, for later actions or for the model of an agent. One that was cut
    /// is longer than [`Self::max`].
    pub fn kept(&self, mut answer: Vec<u8>, is_for_model: bool) -> Vec<u8> {
        let is_cut = answer.len() > self.max;
        answer.truncate(self.max);
        let part = self
            .keep
            .as_ref()
            .map(|keep| (keep, json::part(&answer, keep)));
        let found = match part {
            _ if is_cut && (!is_for_model || self.keep.is_some()) => {
                format!("{REASON}is longer than {} bytes, and was cut", self.max)
            }
            Some((_, Ok(Some(part)))) => part.to_owned(),
            Some((keep, Ok(None))) => format!("{REASON}has nothing at {keep}"),
            // No answer passes for a reason.
            _ if answer.starts_with(REASON.as_bytes()) => String::new(),
            _ => return answer,
        };
        found.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_answer_is_kept_or_the_reason_why_not() {
        let kept = |keep: Option<&str>, max, answer: &str| {
            let keep = keep.map(str::to_owned);
            Reading { max, keep }.kept(answer.into(), false)
        };
        let told = |keep, max, answer: &str| {
            let kept = kept(Some(keep), max, answer);
            json::reason(&kept).unwrap_or_else(|| String::from_utf8(kept).unwrap())
        };
        let results = r#"{"results":[{"id":7.10,"a/b":"x"},[]],"results~":null}"#;
        let long = format!(r#"{{"first":1,"all":[{}1]}}"#, "1,".repeat(200_000));
        for (keep, answer, expected) in [
            ("/results/0", results, r#"{"id":7.10,"a/b":"x"}"#),
            ("/results/0/id", results, "7.10"),
            ("/results/0/a~1b", results, r#""x""#),
            ("/results~0", results, "null"),
            ("/results/2", results, "has nothing at /results/2"),
            ("/results/-", results, "has nothing at /results/-"),
            ("/results/00", results, "has nothing at /results/00"),
            ("/nobody/0", results, "has nothing at /nobody/0"),
            ("/results/0/id/x", results, "has nothing at /results/0/id/x"),
            ("/first", &long, "1"),
            ("/a", "\u{feff}{\"a\":1,\"a\":2}", "2"),
            ("/a", "<p>", "<p>"),
            ("/a", "\0has nothing", ""),
        ] {
            assert_eq!(told(keep, MOST as usize, answer), expected, "{keep}");
        }
        // What came before the cut may have been another part of the whole.
        let cut = "is longer than 20 bytes, and was cut";
        assert_eq!(told("/results/0", 20, &results[..21]), cut);
        assert_eq!(
            kept(None, 20, &results[..21]),
            format!("\0{cut}").into_bytes()
        );
        assert_eq!(kept(None, 2, "{}"), b"{}");
        // The beginning of a number is another number.
        assert_eq!(
            kept(None, 3, "1234"),
            b"\0is longer than 3 bytes, and was cut"
        );
    }
}
