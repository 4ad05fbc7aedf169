//! Imports in every form, and modules that are reached without an import.

use ruff_python_ast::{self as ast, Expr};
use ruff_text_size::Ranged;

use super::walk::Walk;
use super::{hints, text};
use crate::verdict::Rule;

/// Modules that other modules hold in their own namespace, as `random._os`.
const CARRIED: [&str; 11] = [
    "os",
    "sys",
    "subprocess",
    "importlib",
    "builtins",
    "socket",
    "ctypes",
    "shutil",
    "posix",
    "pickle",
    "threading",
];

/// Attributes of such names that are something else.
const HARMLESS: [&str; 2] = ["asyncio.subprocess", "os.posix"];

/// `import a, b.c as d`.
pub(super) fn check_import(walk: &mut Walk<'_>, import: &ast::StmtImport) {
    for alias in &import.names {
        let module = alias.name.as_str();
        if !walk.profile.allows_import(module) {
            report(walk, module, alias.start().to_usize());
        }
    }
}

/// `from a import b`: allowed where `a` is, or where `a.b` is.
pub(super) fn check_import_from(walk: &mut Walk<'_>, import: &ast::StmtImportFrom) {
    // A relative import has no package here; Python reports that itself.
    let Some(module) = import.module.as_ref().filter(|_| import.level == 0) else { return };
    if walk.profile.allows_import(module.as_str()) {
        for alias in &import.names {
            check_carried(walk, module.as_str(), alias.name.as_str(), alias.start().to_usize());
        }
        return;
    }
    let is_below = |alias: &ast::Alias| {
        alias.name.as_str() != "*"
            && walk.profile.allows_import(&format!("{module}.{}", alias.name))
    };
    if !import.names.iter().all(is_below) {
        report(walk, module.as_str(), module.start().to_usize());
    }
}

/// `from random import _os`: the module is allowed, the one that it holds is not.
fn check_carried(walk: &mut Walk<'_>, module: &str, name: &str, offset: usize) {
    let carried = name.trim_start_matches('_');
    let is_carried = CARRIED.contains(&carried) && !walk.profile.allows_import(carried);
    if is_carried && !HARMLESS.contains(&format!("{module}.{name}").as_str()) {
        walk.report_reached(carried, offset);
    }
}

/// `__import__("os")`, `importlib.import_module("os")`, `getattr(random, "_os")`.
pub(super) fn check_call(walk: &mut Walk<'_>, call: &ast::ExprCall) {
    if walk.profile.imports.is_empty() {
        return;
    }
    let path = walk.path(&call.func);
    let is_free =
        matches!(path.as_deref(), Some("importlib.import_module" | "importlib.__import__"));
    let is_import = match &*call.func {
        Expr::Name(name) if name.id == "getattr" && !walk.is_own("getattr") => {
            return check_getattr(walk, call);
        }
        Expr::Name(name) if name.id == "__import__" => !walk.is_own("__import__"),
        _ => path.as_deref() == Some("builtins.__import__"),
    };
    let argument = call.arguments.find_argument_value("name", 0);
    let Some(argument) = argument.filter(|_| is_import || is_free) else { return };
    let module = text::constant(argument).filter(|module| !module.starts_with('.'));
    let Some(module) = module.filter(|module| !walk.profile.allows_import(module)) else { return };
    let offset = argument.start().to_usize();
    if is_free { walk.report_reached(&module, offset) } else { report(walk, &module, offset) }
}

/// `getattr(random, "_os")`.
fn check_getattr(walk: &mut Walk<'_>, call: &ast::ExprCall) {
    let [thing, name, ..] = &*call.arguments.args else { return };
    if let (Some(module), Some(word)) = (walk.path(thing), text::constant(name)) {
        check_carried(walk, &module, &word, name.start().to_usize());
    }
}

/// `sys.modules["os"]`.
pub(super) fn check_subscript(walk: &mut Walk<'_>, subscript: &ast::ExprSubscript) {
    if walk.profile.imports.is_empty() || !subscript.value.is_attribute_expr() {
        return;
    }
    if walk.path(&subscript.value).as_deref() != Some("sys.modules") {
        return;
    }
    let module = text::constant(&subscript.slice);
    if let Some(module) = module.filter(|module| !walk.profile.allows_import(module)) {
        walk.report_reached(&module, subscript.slice.start().to_usize());
    }
}

/// `random._os`, and `urllib.request` where only `urllib.parse` was imported.
pub(super) fn check_attribute(walk: &mut Walk<'_>, expr: &Expr, attribute: &ast::ExprAttribute) {
    if walk.profile.imports.is_empty() {
        return;
    }
    let word = attribute.attr.as_str();
    let offset = attribute.attr.start().to_usize();
    let carried = word.trim_start_matches('_');
    if CARRIED.contains(&carried) && !walk.profile.allows_import(carried) {
        if walk.path(expr).is_some_and(|path| !HARMLESS.contains(&path.as_str())) {
            walk.report_reached(carried, offset);
        }
        return;
    }
    // The first attribute of a package of which only a part is allowed.
    let Expr::Name(name) = &*attribute.value else { return };
    let package = walk.imported(name.id.as_str()).filter(|imported| imported.is_package);
    if package.is_none() || walk.profile.allows_import(name.id.as_str()) || word.starts_with("__") {
        return;
    }
    let path = format!("{}.{word}", name.id);
    if hints::is_or_holds_allowed(walk.profile, &path) {
        return;
    }
    let is_module = hints::is_known(&path);
    report(walk, if is_module { &path } else { name.id.as_str() }, offset);
}

fn report(walk: &mut Walk<'_>, module: &str, offset: usize) {
    walk.report(Rule::Import, module, offset);
}
