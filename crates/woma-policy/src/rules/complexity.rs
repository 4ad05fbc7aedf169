//! Complexity of a program: a word, from the shape of its tree.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ModModule, Stmt};

use crate::verdict::Complexity;

/// Most nested blocks of medium complexity.
const BLOCKS_MAX: usize = 4;

/// Low: no blocks. Medium: a block. High: nested blocks of the same kind, recursion or lambdas.
pub(super) fn of(tree: &ModModule) -> Complexity {
    let mut shape = Shape::default();
    shape.visit_body(&tree.body);
    shape.complexity
}

#[derive(Default)]
struct Shape<'a> {
    complexity: Complexity,
    blocks: usize,
    loops: usize,
    /// Enclosing functions.
    functions: Vec<&'a str>,
}

impl<'a> Shape<'a> {
    fn at_least(&mut self, complexity: Complexity) {
        self.complexity = self.complexity.max(complexity);
    }

    fn block(&mut self, stmt: &'a Stmt) {
        self.at_least(Complexity::Medium);
        self.blocks += 1;
        if self.blocks > BLOCKS_MAX {
            self.at_least(Complexity::High);
        }
        walk_stmt(self, stmt);
        self.blocks -= 1;
    }
}

impl<'a> Visitor<'a> for Shape<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if self.complexity == Complexity::High {
            return;
        }
        match stmt {
            Stmt::FunctionDef(function) => {
                if !self.functions.is_empty() {
                    self.at_least(Complexity::High);
                }
                self.functions.push(function.name.as_str());
                let loops = std::mem::take(&mut self.loops);
                self.block(stmt);
                self.loops = loops;
                self.functions.pop();
            }
            Stmt::For(_) | Stmt::While(_) => {
                if self.loops > 0 {
                    self.at_least(Complexity::High);
                }
                self.loops += 1;
                self.block(stmt);
                self.loops -= 1;
            }
            Stmt::If(_) | Stmt::With(_) | Stmt::Try(_) | Stmt::Match(_) | Stmt::ClassDef(_) => {
                self.block(stmt);
            }
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if self.complexity == Complexity::High {
            return;
        }
        match expr {
            Expr::Lambda(_) => self.at_least(Complexity::High),
            Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => {
                self.at_least(Complexity::Medium);
            }
            Expr::Call(call) => {
                let name = match &*call.func {
                    Expr::Name(name) => Some(name.id.as_str()),
                    Expr::Attribute(attribute) if is_self(&attribute.value) => {
                        Some(attribute.attr.as_str())
                    }
                    _ => None,
                };
                if name.is_some_and(|name| self.functions.contains(&name)) {
                    self.at_least(Complexity::High);
                }
            }
            _ => {}
        }
        walk_expr(self, expr);
    }
}

fn is_self(expr: &Expr) -> bool {
    matches!(expr, Expr::Name(name) if name.id == "self" || name.id == "cls")
}
