//! Marks: what must stand in no log, no metric and no answer. Everything secret that a test makes,
//! and what its submitters write, is marked; whatever processes say is searched for it.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex},
};

use crate::tenants::CREDENTIAL;

/// What submitters and accounts of many tests have in common.
const ALWAYS: [&str; 3] = [CREDENTIAL, "ada@example.com", "Hello\\nthere"];

/// What is shorter is no secret.
const LENGTH: usize = 24;

/// Secrets without punctuation, which are found as words.
static WORDS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Marks a secret: a token, a signature, the key after its name.
pub fn mark(secret: &str) {
    let words = words(secret).into_iter().map(str::to_owned);
    WORDS.lock().unwrap().extend(words);
}

/// Marks the password of a server's URL.
pub fn mark_password(url: &str) {
    // A database's URL may name several hosts, which no URL does.
    let (login, _) = url.split_once('@').unwrap();
    let (_, password) = login.rsplit_once(':').unwrap();
    assert!(password.len() >= LENGTH, "too short to be looked for");
    mark(password);
}

/// # Panics
/// When a mark stands in `text`, which is of `place`.
pub fn assert_unmarked(place: &str, text: &str) {
    let marked = WORDS.lock().unwrap().clone();
    let found = words(text)
        .into_iter()
        .find(|word| marked.contains(*word))
        .or_else(|| ALWAYS.into_iter().find(|mark| text.contains(mark)));
    if let Some(found) = found {
        let line = text.lines().find(|line| line.contains(found));
        panic!("{place} says {found}: {}", line.unwrap_or_default());
    }
}

/// The runs of letters and digits of at least [`LENGTH`]. Logs are long: only what may be part of
/// one is looked at.
fn words(text: &str) -> Vec<&str> {
    let (bytes, mut found, mut from) = (text.as_bytes(), Vec::new(), 0);
    while from + LENGTH <= bytes.len() {
        let mut back = from + LENGTH;
        while back > from && bytes[back - 1].is_ascii_alphanumeric() {
            back -= 1;
        }
        if back > from {
            from = back;
            continue;
        }
        let mut end = from + LENGTH;
        while end < bytes.len() && bytes[end].is_ascii_alphanumeric() {
            end += 1;
        }
        found.push(&text[from..end]);
        from = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_long_runs_of_letters_and_digits() {
        let (short, long) = ("a".repeat(LENGTH - 1), "b1".repeat(LENGTH));
        let text = format!("{short}-{long} é{short}\"{long}{short}é{long}");
        let longest = format!("{long}{short}");
        assert_eq!(words(&text), [&long, &longest, &long]);
        assert_eq!(words(&short), [""; 0]);
    }

    #[test]
    #[should_panic = "a log says"]
    fn a_mark_is_found() {
        let secret = "0123456789abcdef".repeat(4);
        mark(&format!("name:{secret}"));
        assert_unmarked("a log", &format!("first\ntoken={secret}&more"));
    }
}
