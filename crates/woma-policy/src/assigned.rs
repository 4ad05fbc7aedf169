//! Variables that a program assigns to, as far as its text tells.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, Stmt};

use crate::syntax::{self, Python};

/// Names that are returned.
const NAMES_MAX: usize = 50;

/// Variables of the session that the program sets, changes in part (`df["a"] = 1`), defines or
/// deletes, in their order, without imports. Changes by methods and functions are not found.
pub fn assigned(source: &str, python: Python) -> Vec<String> {
    let read = |program: &syntax::Program| {
        let mut assigned = Assigned::default();
        assigned.visit_body(&program.tree.body);
        assigned.names
    };
    // A program that does not parse assigns nothing.
    syntax::parse(source, python, read).unwrap_or_default()
}

#[derive(Default)]
struct Assigned {
    names: Vec<String>,
}

impl Assigned {
    fn add(&mut self, name: &str) {
        if self.names.len() < NAMES_MAX && !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
    }
}

/// The variable that `a`, `a.b` or `a[b]` is a part of.
fn root(expr: &Expr) -> Option<&str> {
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::Name(name) => return Some(name.id.as_str()),
            Expr::Attribute(part) => &part.value,
            Expr::Subscript(part) => &part.value,
            _ => return None,
        };
    }
}

impl<'a> Visitor<'a> for Assigned {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(function) => self.add(function.name.as_str()),
            Stmt::ClassDef(class) => self.add(class.name.as_str()),
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        let context = match expr {
            Expr::Name(name) => name.ctx,
            Expr::Attribute(part) => part.ctx,
            Expr::Subscript(part) => part.ctx,
            // Names in these are their own.
            Expr::Lambda(_)
            | Expr::ListComp(_)
            | Expr::SetComp(_)
            | Expr::DictComp(_)
            | Expr::Generator(_) => return,
            _ => return walk_expr(self, expr),
        };
        match (context, root(expr)) {
            (ExprContext::Store | ExprContext::Del, Some(name)) => self.add(name),
            _ => walk_expr(self, expr),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES_MAX, assigned};
    use crate::syntax::Python;

    #[test]
    fn finds_names_that_a_program_assigns_to() {
        for (source, names) in [
            ("x = 1\ny: int = 2\nx += 1", &["x", "y"][..]),
            ("a, (b, *c) = 1, (2, 3)", &["a", "b", "c"]),
            ("df['a'] = 1\nplot.title.text = 'x'\ndel rows[0]", &["df", "plot", "rows"]),
            ("for i in range(3):\n    total = i\nwith open(f) as g: pass", &["i", "total", "g"]),
            ("def f():\n    inner = 1\nclass C:\n    field = 1", &["f", "C"]),
            ("if (n := 3) > 2: big = True\nelse: big = False", &["n", "big"]),
            ("import os\nfrom math import pi\nprint([k for k in range(3)])", &[]),
            ("%matplotlib inline\nx = 1", &["x"]),
            ("x = (", &[]),
        ] {
            assert_eq!(assigned(source, Python::new(3, 13)), names, "{source}");
        }
        let lines: Vec<String> = (0..100).map(|n| format!("x{n} = {n}")).collect();
        let many = lines.join("\n");
        assert_eq!(assigned(&many, Python::new(3, 13)).len(), NAMES_MAX);
    }
}
