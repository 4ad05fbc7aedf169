//! Blocked builtins, unless the program rebinds the name.

use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::Ranged;

use super::walk::Walk;
use crate::verdict::Rule;

pub(super) fn check_name(walk: &mut Walk<'_>, name: &ast::ExprName) {
    let id = name.id.as_str();
    if walk.profile.blocked_builtins.contains(id) && !walk.is_own(id) {
        report(walk, id, name.start().to_usize());
    }
}

/// `builtins.eval`.
pub(super) fn check_attribute(walk: &mut Walk<'_>, expr: &Expr, attribute: &ast::ExprAttribute) {
    if !walk.profile.blocked_builtins.contains(attribute.attr.as_str()) {
        return;
    }
    let path = walk.path(expr);
    let name = path.as_deref().and_then(|path| path.strip_prefix("builtins."));
    if name == Some(attribute.attr.as_str()) {
        report(walk, attribute.attr.as_str(), attribute.attr.start().to_usize());
    }
}

fn report(walk: &mut Walk<'_>, name: &str, offset: usize) {
    walk.report(Rule::Builtin, name, offset);
}
