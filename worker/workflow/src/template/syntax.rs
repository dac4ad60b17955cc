//! The syntax tree of a template. It comes from the engine's own parser, so that the checks see
//! exactly what the engine evaluates.

use minijinja::{
    Error, ErrorKind,
    machinery::{
        self, Span, Token,
        ast::{CallArg, Expr, Stmt},
    },
};

/// Maximum number of consecutive minus signs.
const MAX_SIGNS: usize = 100;

/// A parsed template or expression.
#[derive(Default)]
pub(super) struct Syntax<'s> {
    statements: Vec<Stmt<'s>>,
    expression: Option<Expr<'s>>,
}

impl<'s> Syntax<'s> {
    pub(super) fn of_template(source: &'s str) -> Result<Self, Error> {
        check_tokens(source, false)?;
        let parsed = machinery::parse(source, "<string>", Default::default(), Default::default())?;
        Ok(Self {
            statements: vec![parsed],
            expression: None,
        })
    }

    pub(super) fn of_expression(source: &'s str) -> Result<Self, Error> {
        check_tokens(source, true)?;
        Ok(Self {
            statements: Vec::new(),
            expression: Some(machinery::parse_expr(source)?),
        })
    }

    /// Every statement, at any depth.
    pub(super) fn statements(&self) -> Vec<&Stmt<'s>> {
        let mut found: Vec<_> = self.statements.iter().collect();
        let mut seen = 0;
        while let Some(statement) = found.get(seen) {
            seen += 1;
            match statement {
                Stmt::Template(template) => found.extend(&template.children),
                Stmt::IfCond(tag) => found.extend(tag.true_body.iter().chain(&tag.false_body)),
                _ => {}
            }
        }
        found
    }

    /// The expressions whose values are inserted.
    pub(super) fn insertions(&self) -> impl Iterator<Item = &Expr<'s>> {
        let inserted = self
            .statements()
            .into_iter()
            .filter_map(|statement| match statement {
                Stmt::EmitExpr(emitted) => Some(&emitted.expr),
                _ => None,
            });
        inserted.chain(&self.expression)
    }

    /// The outermost expressions.
    pub(super) fn expressions(&self) -> Vec<&Expr<'s>> {
        let decided = self
            .statements()
            .into_iter()
            .filter_map(|statement| match statement {
                Stmt::IfCond(tag) => Some(&tag.expr),
                _ => None,
            });
        decided.chain(self.insertions()).collect()
    }
}

/// Refuses many consecutive signs: the engine's parser recurses for each. Refuses `}}` after an
/// expression, too: the engine's lexer panics at what follows.
fn check_tokens(source: &str, is_expression: bool) -> Result<(), Error> {
    let syntax = Default::default();
    let whitespace = Default::default();
    let mut in_a_row = 0;
    for token in machinery::tokenize(source, is_expression, syntax, whitespace) {
        in_a_row = match token?.0 {
            Token::Minus => in_a_row + 1,
            Token::VariableEnd if is_expression => {
                let problem = "unexpected `}}` in an expression";
                return Err(Error::new(ErrorKind::SyntaxError, problem));
            }
            _ => 0,
        };
        if in_a_row > MAX_SIGNS {
            let problem = format!("more than {MAX_SIGNS} signs in a row");
            return Err(Error::new(ErrorKind::SyntaxError, problem));
        }
    }
    Ok(())
}

/// The direct subexpressions of an expression.
pub(super) fn parts<'e, 's>(expression: &'e Expr<'s>) -> Vec<&'e Expr<'s>> {
    let arguments = |args: &'e [CallArg<'s>]| {
        args.iter().map(|argument| match argument {
            CallArg::Pos(value)
            | CallArg::Kwarg(_, value)
            | CallArg::PosSplat(value)
            | CallArg::KwargSplat(value) => value,
        })
    };
    match expression {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(slice) => {
            let bounds = [&slice.start, &slice.stop, &slice.step];
            [&slice.expr]
                .into_iter()
                .chain(bounds.into_iter().flatten())
                .collect()
        }
        Expr::UnaryOp(operation) => vec![&operation.expr],
        Expr::BinOp(operation) => vec![&operation.left, &operation.right],
        Expr::Compare(compared) => {
            let others = compared.ops.iter().map(|other| &other.expr);
            [&compared.expr].into_iter().chain(others).collect()
        }
        Expr::IfExpr(choice) => {
            let either = [&choice.test_expr, &choice.true_expr].into_iter();
            either.chain(&choice.false_expr).collect()
        }
        Expr::Filter(filter) => filter.expr.iter().chain(arguments(&filter.args)).collect(),
        Expr::Test(test) => [&test.expr]
            .into_iter()
            .chain(arguments(&test.args))
            .collect(),
        Expr::GetAttr(member) => vec![&member.expr],
        Expr::GetItem(item) => vec![&item.expr, &item.subscript_expr],
        Expr::Call(call) => [&call.expr]
            .into_iter()
            .chain(arguments(&call.args))
            .collect(),
        Expr::List(list) => list.items.iter().collect(),
        Expr::Map(map) => map.keys.iter().chain(&map.values).collect(),
    }
}

/// Splits `object.name` and `object['name']` into the object and the name; the name is `None` if it
/// is computed.
pub(super) fn member<'e, 's>(expression: &'e Expr<'s>) -> Option<(&'e Expr<'s>, Option<&'e str>)> {
    match expression {
        Expr::GetAttr(member) => Some((&member.expr, Some(member.name))),
        Expr::GetItem(item) => {
            let name = match &item.subscript_expr {
                Expr::Const(name) => name.value.as_str(),
                _ => None,
            };
            Some((&item.expr, name))
        }
        _ => None,
    }
}

/// The position of the expression, if it is the variable `name`.
pub(super) fn variable(expression: &Expr<'_>, name: &str) -> Option<Span> {
    match expression {
        Expr::Var(variable) if variable.id == name => Some(variable.span()),
        _ => None,
    }
}
