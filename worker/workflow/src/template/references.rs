//! The values that a template refers to. Any mention in its expressions counts, however it is used.

use std::collections::BTreeSet;

use minijinja::machinery::ast::{BinOpKind, Expr};

use super::{
    language::work,
    syntax::{Syntax, member, parts, variable},
};

/// The member of `run` that only the actions of `on_failure` can use.
pub(super) const FAILURE: &str = "failure";

/// The values that a template, or all templates of an action, refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// Whether text from a submitter is referred to.
    pub form: bool,
    /// Whether `run.failure` is referred to, whose text submitters and accounts may influence.
    pub(crate) failure: bool,
    /// Answers of earlier actions.
    pub(super) answers: BTreeSet<AnswerName>,
    /// Of each expression the answers, and how much work it is for each byte of its values.
    pub(super) works: Vec<(BTreeSet<AnswerName>, usize)>,
}

/// A use of `actions`: the action's id, and the member of its answer; `None` if computed.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AnswerName {
    pub(super) id: Option<String>,
    pub(super) member: Option<String>,
}

impl References {
    /// The references of a template or an expression.
    pub(super) fn of(syntax: &Syntax<'_>) -> Self {
        let each = syntax.expressions().into_iter().map(Self::of_expression);
        each.fold(Self::default(), Self::and)
    }

    fn of_expression(expression: &Expr<'_>) -> Self {
        let mut found = Self::default();
        let mut open = vec![expression];
        while let Some(expression) = open.pop() {
            found.form |= variable(expression, "form").is_some();
            found.failure |= is_failure(expression);
            match answer(expression) {
                Some((name, computed)) => {
                    found.answers.insert(name);
                    open.extend(computed);
                }
                None => open.extend(parts(expression)),
            }
        }
        let work = work(expression);
        if work > 0 {
            found.works.push((found.answers.clone(), work));
        }
        found
    }

    /// All possible references, for a source that can't be parsed.
    pub(super) fn any() -> Self {
        Self {
            form: true,
            failure: true,
            answers: BTreeSet::from([AnswerName::default()]),
            works: vec![(BTreeSet::from([AnswerName::default()]), usize::MAX)],
        }
    }

    pub(crate) fn and(mut self, others: Self) -> Self {
        self.form |= others.form;
        self.failure |= others.failure;
        self.answers.extend(others.answers);
        self.works.extend(others.works);
        self
    }

    /// Whether any referenced value is untrusted.
    pub fn is_untrusted(&self) -> bool {
        self.form || self.failure || self.has_answers()
    }

    /// Whether any answer is referred to.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether the answer of the action with this id may be referred to.
    pub fn has_answer_of(&self, id: &str) -> bool {
        has_answer_of(&self.answers, id)
    }

    /// How much work it is to evaluate all, for each byte of the values.
    pub fn work(&self) -> usize {
        let works = self.works.iter().map(|(_, work)| *work);
        works.fold(0, usize::saturating_add)
    }
}

/// Whether one of these may be the answer of the action with this id.
pub(super) fn has_answer_of(answers: &BTreeSet<AnswerName>, id: &str) -> bool {
    let mut answers = answers.iter();
    answers.any(|name| name.id.as_deref().is_none_or(|known| known == id))
}

/// Whether an expression compares a value of the form, and nowhere asks whether it is there.
pub(crate) fn compares_unasked(source: &str, key: &str) -> bool {
    let Ok(syntax) = Syntax::of_expression(source) else {
        return false;
    };
    let is_it = |expression: &Expr<'_>| {
        let found = member(expression).filter(|(object, _)| variable(object, "form").is_some());
        found.is_some_and(|(_, name)| name == Some(key))
    };
    let mut is_compared = false;
    let mut open = syntax.expressions();
    while let Some(expression) = open.pop() {
        let is_part = parts(expression).into_iter().any(is_it);
        match expression {
            Expr::Test(test) if is_it(&test.expr) => return false,
            Expr::BinOp(it) if is_part => match it.op {
                BinOpKind::ScAnd | BinOpKind::ScOr => return false,
                BinOpKind::Eq | BinOpKind::Ne => is_compared = true,
                BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte => {
                    is_compared = true;
                }
                _ => {}
            },
            Expr::Compare(_) => is_compared |= is_part,
            _ => {}
        }
        open.extend(parts(expression));
    }
    is_compared
}

/// The comparisons of an action's status with a number that an expression needs to be true.
pub(crate) fn compared_statuses(source: &str) -> Vec<(String, i64)> {
    let Ok(syntax) = Syntax::of_expression(source) else {
        return Vec::new();
    };
    let status = |expression: &Expr<'_>| match answer(expression)?.0 {
        AnswerName {
            id,
            member: Some(member),
        } if member == "status" => id,
        _ => None,
    };
    let number = |expression: &Expr<'_>| match expression {
        Expr::Const(number) => number.value.as_i64(),
        _ => None,
    };
    let mut found = Vec::new();
    let mut open = syntax.expressions();
    while let Some(expression) = open.pop() {
        if let Expr::BinOp(it) = expression
            && matches!(it.op, BinOpKind::Eq)
        {
            let either = [(&it.left, &it.right), (&it.right, &it.left)];
            let compared = |(one, other)| Some((status(one)?, number(other)?));
            found.extend(either.into_iter().find_map(compared));
        }
        open.extend(parts(expression));
    }
    found
}

/// Whether the expression is `run.failure`, or may be.
fn is_failure(expression: &Expr<'_>) -> bool {
    member(expression).is_some_and(|(object, name)| {
        variable(object, "run").is_some() && name.is_none_or(|name| name == FAILURE)
    })
}

/// Parses an expression as a use of `actions`; also returns the subexpressions that compute names.
fn answer<'e, 's>(expression: &'e Expr<'s>) -> Option<(AnswerName, Vec<&'e Expr<'s>>)> {
    let mut object = expression;
    let mut names = Vec::new();
    let mut computed = Vec::new();
    while let Some((inner, name)) = member(object) {
        names.push(name);
        computed.extend(parts(object).into_iter().skip(1));
        object = inner;
    }
    variable(object, "actions")?;
    let mut names = names.into_iter().rev();
    let id = names.next().flatten().map(str::to_owned);
    let member = names.next().flatten().map(str::to_owned);
    let member = member.filter(|_| id.is_some());
    Some((AnswerName { id, member }, computed))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use minijinja::{Environment, Value, value::Object};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_mention_counts() {
        let branch = "{% if actions.a.status == 200 %}{{ form.x }}{% endif %}";
        let text = "{{ run.id ~ 'actions.a' }} actions and {# {{ actions.a }} #}";
        for (source, form, of_a, of_b) in [
            ("text", false, false, false),
            ("{{ form.x }}", true, false, false),
            ("{{ actions.a.body.x }}", false, true, false),
            ("{{ actions['a'].status }}", false, true, false),
            ("{{ run.id | default(actions.b.body) }}", false, false, true),
            (branch, true, true, false),
            ("{{ actions }}", false, true, true),
            ("{{ actions[form.x] }}", true, true, true),
            ("{{ actions['a' ~ 'b'].body }}", false, true, true),
            (text, false, false, false),
            ("{{ actions . a . body }}", false, true, false),
            ("{{ actions[ \"a\" ].body }}", false, true, false),
            ("actions and form", false, false, false),
            ("{{ actions.ab.body }}", false, false, false),
        ] {
            let found = References::of(&Syntax::of_template(source).unwrap());
            let has = (
                found.form,
                found.has_answer_of("a"),
                found.has_answer_of("b"),
            );
            assert_eq!(has, (form, of_a, of_b), "{source}");
        }
        let condition = Syntax::of_expression("actions.a.body.n > form.n").unwrap();
        let condition = References::of(&condition);
        assert!(condition.form && condition.has_answer_of("a") && !condition.has_answer_of("b"));
    }

    /// The values of a run, which record the accesses to them.
    #[derive(Debug, Default)]
    struct Witness {
        form: AtomicBool,
        actions: AtomicBool,
    }

    impl Object for Witness {
        fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
            let seen = match name.as_str()? {
                "form" => &self.form,
                "actions" => &self.actions,
                _ => return None,
            };
            seen.store(true, Ordering::Relaxed);
            Some(Value::from_iter([("n", 1), ("a", 2)]))
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The engine accesses no value that was not found as a reference.
        #[test]
        fn nothing_is_evaluated_that_was_not_found(pieces in prop::collection::vec(
            prop::sample::select(vec![
                "{{", "}}", "{{ ", " }}", "{%", "%}", "{#", "#}", "'", "\"", "\\", "-", "+", " ",
                "form", "form.n", "actions", "actions.a", "{{ form.n }}", "{{ actions.a }}",
                "{% if 1 %}", "{% if form.n %}", "{% else %}", "{% endif %}", "{% raw %}",
                "{% endraw %}", "{{ '", "' }}", "{# ' #}", "{# {{ ' #}", "{# ' }} #}", "(", ")",
                "|", "string", "~", "if", "else", "1", "\n", "[", "]", ".",
            ]),
            1..12,
        )) {
            let source = pieces.concat();
            let witness = Arc::new(Witness::default());
            let context = Value::from_dyn_object(Arc::clone(&witness));
            let _ = Environment::empty().render_str(&source, context);
            let found = Syntax::of_template(&source).map_or_else(
                |_| References::default(),
                |syntax| References::of(&syntax),
            );
            for (found, asked) in [
                (found.form, &witness.form),
                (found.has_answers(), &witness.actions),
            ] {
                prop_assert!(found || !asked.load(Ordering::Relaxed), "{}", source);
            }
        }
    }
}
