//! Whether a program needs any library beyond the standard one, as far as its text tells.

use std::collections::HashSet;
use std::sync::LazyLock;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ModModule, Stmt};

/// Modules of the standard library, without those that import others by name.
static STANDARD: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("../data/standard.txt").lines().collect());

/// Names by which a program can import what its text does not say, or reach a library that the
/// session provides.
const OPEN: [&str; 7] =
    ["__import__", "exec", "eval", "compile", "get_ipython", "__builtins__", "datasets"];

/// Whether all imports are of the standard library. Commands and code that is made while the
/// program runs count as an import of something else.
pub(super) fn is_plain(tree: &ModModule) -> bool {
    let mut search = Search { is_plain: true };
    search.visit_body(&tree.body);
    search.is_plain
}

struct Search {
    is_plain: bool,
}

fn is_standard(module: &str) -> bool {
    STANDARD.contains(module.split('.').next().unwrap_or(module))
}

impl<'a> Visitor<'a> for Search {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => {
                self.is_plain &= import.names.iter().all(|alias| is_standard(&alias.name));
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().filter(|_| import.level == 0);
                self.is_plain &= module.is_some_and(|module| is_standard(module));
            }
            Stmt::IpyEscapeCommand(_) => self.is_plain = false,
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Name(name) => self.is_plain &= !OPEN.contains(&name.id.as_str()),
            Expr::IpyEscapeCommand(_) => self.is_plain = false,
            _ => walk_expr(self, expr),
        }
    }
}
