//! Strings that are known before the program runs.

use ruff_python_ast::{Expr, Operator};

/// Most parts of a string concatenation that are joined.
const PARTS_MAX: usize = 32;

/// Value of a literal, or of a sum of literals.
pub(super) fn constant(expr: &Expr) -> Option<String> {
    let mut parts = Vec::new();
    let mut expr = expr;
    while let Expr::BinOp(sum) = expr {
        if sum.op != Operator::Add || parts.len() > PARTS_MAX {
            return None;
        }
        parts.push(literal(&sum.right)?);
        expr = &sum.left;
    }
    parts.push(literal(expr)?);
    parts.reverse();
    Some(parts.concat())
}

fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::StringLiteral(string) => Some(string.value.to_str()),
        _ => None,
    }
}
