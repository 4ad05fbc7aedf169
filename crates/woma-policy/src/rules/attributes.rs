//! Attributes that lead from harmless objects to arbitrary code, however they are accessed.

use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::Ranged;

use super::text;
use super::walk::Walk;
use crate::verdict::Rule;

/// `x.__subclasses__`.
pub(super) fn check(walk: &mut Walk<'_>, attribute: &ast::ExprAttribute) {
    check_word(walk, attribute.attr.as_str(), attribute.attr.start().to_usize());
}

/// `__builtins__`, a name in every module.
pub(super) fn check_name(walk: &mut Walk<'_>, name: &ast::ExprName) {
    let id = name.id.as_str();
    if id.starts_with("__") && !walk.profile.blocked_builtins.contains(id) && !walk.is_own(id) {
        check_word(walk, id, name.start().to_usize());
    }
}

/// `getattr(x, "__subclasses__")`, `attrgetter("a.__globals__")`, `"{0.__globals__}".format(x)`.
pub(super) fn check_call(walk: &mut Walk<'_>, call: &ast::ExprCall) {
    if walk.profile.blocked_attributes.is_empty() {
        return;
    }
    let name = match &*call.func {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        _ => return,
    };
    match name {
        "getattr" | "hasattr" | "setattr" | "delattr" | "__getattribute__" | "__getattr__"
        | "attrgetter" | "methodcaller" | "getattr_static" => {
            for argument in &call.arguments.args {
                check_path(walk, argument);
            }
        }
        "format" | "format_map" | "vformat" => {
            if let Expr::Attribute(attribute) = &*call.func {
                check_fields(walk, &attribute.value);
            }
            for argument in &call.arguments.args {
                check_fields(walk, argument);
            }
        }
        _ => {}
    }
}

/// `vars(x)["__globals__"]`. Only names that are never used for a column.
pub(super) fn check_subscript(walk: &mut Walk<'_>, subscript: &ast::ExprSubscript) {
    if walk.profile.blocked_attributes.is_empty() {
        return;
    }
    if let Some(key) = text::constant(&subscript.slice).filter(|key| key.starts_with("__")) {
        check_word(walk, &key, subscript.slice.start().to_usize());
    }
}

/// Checks one attribute name.
pub(super) fn check_word(walk: &mut Walk<'_>, word: &str, offset: usize) {
    if walk.profile.blocked_attributes.contains(word) {
        walk.report(Rule::Attribute, word, offset);
    }
}

fn check_path(walk: &mut Walk<'_>, argument: &Expr) {
    let Some(path) = text::constant(argument) else { return };
    for word in path.split('.') {
        check_word(walk, word, argument.start().to_usize());
    }
}

fn check_fields(walk: &mut Walk<'_>, expr: &Expr) {
    let Some(format) = text::constant(expr) else { return };
    for field in format.split('{').skip(1) {
        let field = field.split('}').next().unwrap_or_default();
        for word in field.split(['.', '[', ']', '!', ':']).skip(1) {
            check_word(walk, word, expr.start().to_usize());
        }
    }
}
