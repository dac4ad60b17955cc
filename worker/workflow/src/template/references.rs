//! What a template refers to. Any mention in its code counts, however the name is used.

use std::collections::BTreeSet;

use super::{
    insertions::next_mark,
    language::{after_string, end_of_code},
};

/// What a template, or everything of an action, refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Text that a submitter wrote.
    pub form: bool,
    /// Answers of earlier actions.
    answers: BTreeSet<AnswerName>,
}

/// A use of `actions`: of which one, and what of its answer; none where that is not written out.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AnswerName {
    pub(super) id: Option<String>,
    pub(super) member: Option<String>,
}

impl References {
    /// Those of a template.
    pub(super) fn of_template(source: &str) -> Self {
        let mut answers = BTreeSet::new();
        let mut rest = source;
        while let Some((begin, open)) = next_mark(rest) {
            rest = &rest[begin + open.len()..];
            if open == "{#" {
                rest = rest.find("#}").map_or("", |end| &rest[end..]);
                continue;
            }
            let (code, after) = rest.split_at(end_of_code(rest));
            answers.extend(answers_in(code));
            rest = after;
        }
        Self {
            form: mentions(source, "form"),
            answers,
        }
    }

    /// Those of an expression.
    pub(super) fn of_expression(source: &str) -> Self {
        Self {
            form: mentions(source, "form"),
            answers: answers_in(source),
        }
    }

    /// These and others.
    pub(crate) fn and(mut self, others: Self) -> Self {
        self.form |= others.form;
        self.answers.extend(others.answers);
        self
    }

    pub(super) fn answers(&self) -> impl Iterator<Item = &AnswerName> {
        self.answers.iter()
    }

    /// Whether there is any answer among them.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether the answer of the action with this id is among them.
    #[must_use]
    pub fn has_answer_of(&self, id: &str) -> bool {
        let mut answers = self.answers.iter();
        answers.any(|name| name.id.as_deref().is_none_or(|known| known == id))
    }
}

/// The uses of `actions` in code.
fn answers_in(code: &str) -> BTreeSet<AnswerName> {
    let (mut found, mut rest, mut before) = (BTreeSet::new(), code, ' ');
    while let Some(character) = rest.chars().next() {
        let word = word_at(rest);
        if word.is_empty() {
            rest = &rest[character.len_utf8()..];
            if matches!(character, '"' | '\'') {
                rest = after_string(rest, character);
            }
        } else {
            rest = &rest[word.len()..];
            // A member of something else may be called so.
            if word == "actions" && before != '.' {
                let (id, after) = member_at(rest);
                let member = id.as_ref().and_then(|_| member_at(after).0);
                found.insert(AnswerName { id, member });
            }
        }
        if !character.is_whitespace() {
            before = character;
        }
    }
    found
}

fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The name in `.name` or `['name']`, and what follows.
fn member_at(text: &str) -> (Option<String>, &str) {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix('.') {
        let rest = rest.trim_start();
        let word = word_at(rest);
        return (
            (!word.is_empty()).then(|| word.to_owned()),
            &rest[word.len()..],
        );
    }
    let quoted = text.strip_prefix('[').map(str::trim_start);
    let Some((rest, quote)) = quoted.and_then(|rest| Some((rest, rest.chars().next()?))) else {
        return (None, text);
    };
    if !matches!(quote, '"' | '\'') {
        return (None, text);
    }
    let after = after_string(&rest[1..], quote);
    let name = &rest[1..rest.len() - after.len()];
    let name = name.strip_suffix(quote).filter(|name| !name.contains('\\'));
    match (name, after.trim_start().strip_prefix(']')) {
        (Some(name), Some(after)) => (Some(name.to_owned()), after),
        _ => (None, text),
    }
}

/// Whether a source mentions a name at all.
fn mentions(source: &str, name: &str) -> bool {
    source
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mention_counts() {
        for (source, form, of_a, of_b) in [
            ("text", false, false, false),
            ("{{ form.x }}", true, false, false),
            ("{{ actions.a.body.x }}", false, true, false),
            ("{{ actions['a'].status }}", false, true, false),
            ("{{ run.id | default(actions.b.body) }}", false, false, true),
            (
                "{% if actions.a.status == 200 %}{{ form.x }}{% endif %}",
                true,
                true,
                false,
            ),
            ("{{ actions }}", false, true, true),
            ("{{ actions[form.x] }}", true, true, true),
            ("{{ actions['a' ~ 'b'].body }}", false, true, true),
            (
                "{{ run.id ~ 'actions.a' }} actions and {# {{ actions.a }} #}",
                false,
                false,
                false,
            ),
            ("{{ actions . a . body }}", false, true, false),
            ("{{ actions[ \"a\" ].body }}", false, true, false),
            ("actions and form", true, false, false),
            ("{{ actions.ab.body }}", false, false, false),
        ] {
            let found = References::of_template(source);
            let has = (
                found.form,
                found.has_answer_of("a"),
                found.has_answer_of("b"),
            );
            assert_eq!(has, (form, of_a, of_b), "{source}");
        }
        let condition = References::of_expression("actions.a.body.n > form.n");
        assert!(condition.form && condition.has_answer_of("a") && !condition.has_answer_of("b"));
    }
}
