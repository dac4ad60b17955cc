//! Collects what is wrong with a definition, each mistake with its path. Its methods give a
//! stand-in for what they refuse, so that the check goes on.

use std::fmt::Display;

use serde_json::{Map, Value};

/// What is wrong so far.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<String>);

impl Mistakes {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_list(self) -> Vec<String> {
        self.0
    }

    pub fn add(&mut self, path: &str, mistake: impl Display) {
        self.0.push(format!("{path}: {mistake}"));
    }

    /// An object with no other members than these.
    pub fn object<'v>(
        &mut self,
        value: &'v Value,
        path: &str,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.add(path, "has to be an object");
            return None;
        };
        for name in members
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
        {
            self.add(
                path,
                format_args!("has no member {name:?}, only {}", known.join(", ")),
            );
        }
        Some(members)
    }

    pub fn boolean(&mut self, value: Option<&Value>, path: &str) -> bool {
        value.and_then(Value::as_bool).unwrap_or_else(|| {
            self.add(path, "has to be true or false");
            false
        })
    }

    /// A member that is a text with something in it, of at most so many characters.
    pub fn text(
        &mut self,
        members: &Map<String, Value>,
        path: &str,
        name: &str,
        most: usize,
    ) -> String {
        let text = members
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default();
        if text.trim().is_empty() || text.chars().count() > most {
            self.add(
                &format!("{path}.{name}"),
                format_args!("has to be a string of 1 to {most} characters, not blank"),
            );
        }
        text.to_owned()
    }

    pub fn optional_text(
        &mut self,
        members: &Map<String, Value>,
        path: &str,
        name: &str,
        most: usize,
    ) -> Option<String> {
        members
            .contains_key(name)
            .then(|| self.text(members, path, name, most))
    }

    /// One of some words.
    pub fn one_of<T: Copy>(
        &mut self,
        value: Option<&Value>,
        path: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let found = words
            .iter()
            .find(|(word, _)| value.and_then(Value::as_str) == Some(word));
        if found.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.add(path, format_args!("has to be one of {}", words.join(", ")));
        }
        found.map(|(_, meaning)| *meaning)
    }
}
