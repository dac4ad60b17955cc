//! Collects the problems of a definition, each with its path. The methods return a placeholder for
//! an invalid value, so that the check continues and one try reports every mistake.

use std::fmt::Display;

use letterbox_common::text_enum::must_be_one_of;
use serde::Serialize;
use serde_json::{Map, Value};

/// A mistake in a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Problem {
    /// Where it is, such as `actions[1].path`.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

/// Problems as they are shown.
#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn texts(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

/// The problems found so far.
#[derive(Debug, Default)]
pub struct Diagnostics(Vec<Problem>);

impl Diagnostics {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The problems, in the order in which they were found.
    pub fn into_list(self) -> Vec<Problem> {
        self.0
    }

    pub(crate) fn add(&mut self, path: &str, problem: impl Display) {
        self.0.push(Problem {
            path: path.to_owned(),
            message: problem.to_string(),
        });
    }

    /// Adds the problem that the value at `path` is nested too deeply.
    pub(crate) fn add_too_deep(&mut self, path: &str, max_depth: usize) {
        self.add(
            path,
            format_args!("must be at most {max_depth} levels deep"),
        );
    }

    /// Refuses templates in a name, which is sent as it is.
    pub(crate) fn check_fixed_name(&mut self, path: &str, name: &str) {
        if has_template(name) {
            self.add(path, "must not contain values in its name");
        }
    }

    /// Refuses templates in a text that only the owner decides.
    pub(crate) fn check_fixed(&mut self, path: &str, text: &str) {
        if has_template(text) {
            self.add(
                path,
                "must be fixed text: values belong in a body or an input",
            );
        }
    }

    /// Requires an object.
    pub(crate) fn fields<'d, 'v>(
        &'d mut self,
        value: &'v Value,
        path: impl Into<String>,
    ) -> Option<Fields<'d, 'v>> {
        let path = path.into();
        let Some(members) = value.as_object() else {
            self.add(&path, "must be an object");
            return None;
        };
        Some(Fields {
            begin: self.len(),
            diagnostics: self,
            members,
            path,
            known: Vec::new(),
        })
    }

    /// Requires a string.
    pub(crate) fn string<'v>(&mut self, value: &'v Value, path: &str) -> Option<&'v str> {
        let text = value.as_str();
        if text.is_none() {
            self.add(path, "must be a string");
        }
        text
    }

    /// Requires a list.
    pub(crate) fn list<'v>(&mut self, value: Option<&'v Value>, path: &str) -> Option<&'v [Value]> {
        let values = value.and_then(Value::as_array);
        if values.is_none() {
            self.add(path, "must be a list");
        }
        values.map(Vec::as_slice)
    }
}

fn has_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// The members of an object that is parsed, and its path. What is read is known, and what is left
/// at the end is refused.
pub(crate) struct Fields<'d, 'v> {
    pub(crate) diagnostics: &'d mut Diagnostics,
    pub(crate) members: &'v Map<String, Value>,
    pub(crate) path: String,
    known: Vec<String>,
    /// Problems before those of this object.
    begin: usize,
}

impl<'v> Fields<'_, 'v> {
    pub(crate) fn get(&mut self, name: &str) -> Option<&'v Value> {
        if !self.known.iter().any(|known| known == name) {
            self.known.push(name.to_owned());
        }
        self.members.get(name)
    }

    /// Refuses the members that were not read, in front of the other problems of the object.
    pub(crate) fn refuse_others(&mut self) {
        let known = self.known.join(", ");
        let names = self.members.keys();
        let others = names.filter(|name| !self.known.contains(name));
        let problems = others.map(|name| Problem {
            path: self.path.clone(),
            message: format!("unknown member {name:?}, expected {known}"),
        });
        self.diagnostics.0.splice(self.begin..self.begin, problems);
    }

    /// The path of a member.
    pub(crate) fn place(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    pub(crate) fn add(&mut self, name: &str, problem: impl Display) {
        self.diagnostics.add(&self.place(name), problem);
    }

    pub(crate) fn boolean(&mut self, name: &str) -> bool {
        let given = self.get(name).and_then(Value::as_bool);
        if given.is_none() {
            self.add(name, "must be true or false");
        }
        given.unwrap_or_default()
    }

    /// Requires a member that is a string of 1 to `max` characters and not blank.
    pub(crate) fn text(&mut self, name: &str, max: usize) -> String {
        let text = self.get(name).and_then(Value::as_str).unwrap_or_default();
        // U+FEFF is white space to JavaScript and to the JSON schemas.
        let is_blank = |one: char| one.is_whitespace() || one == '\u{feff}';
        if text.chars().all(is_blank) || text.chars().count() > max {
            let problem = format_args!("must be a string of 1 to {max} characters, not blank");
            self.add(name, problem);
        }
        text.to_owned()
    }

    /// Requires a member that is a whole number.
    pub(crate) fn number(&mut self, name: &str, max: u64) -> Option<u64> {
        let given = self.get(name).and_then(Value::as_u64);
        let number = given.filter(|number| (1..=max).contains(number));
        if number.is_none() {
            self.add(name, format_args!("must be a whole number of 1 to {max}"));
        }
        number
    }

    /// Like [`Self::text`], for a member that may be missing.
    pub(crate) fn optional_text(&mut self, name: &str, max: usize) -> Option<String> {
        self.get(name).map(|_| self.text(name, max))
    }

    /// Requires a member that is the name of one of `options`.
    pub(crate) fn one_of<'o, T>(
        &mut self,
        name: &str,
        options: &'o [T],
        name_of: impl Fn(&'o T) -> &'o str,
    ) -> Option<&'o T> {
        let given = self.get(name).and_then(Value::as_str);
        let found = options.iter().find(|option| given == Some(name_of(option)));
        if found.is_none() {
            let names: Vec<_> = options.iter().map(name_of).collect();
            self.add(name, must_be_one_of(&names));
        }
        found
    }
}
