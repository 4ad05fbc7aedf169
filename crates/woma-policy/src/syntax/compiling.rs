//! Errors of CPython's compiler that the grammar does not catch, such as `return` outside a
//! function.
//!
//! The checks are ruff's; the walk and its scopes are ours. `await` at the top level is allowed,
//! because the kernel runs such cells.

use std::cell::RefCell;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{self as ast, Comprehension, Expr, ModModule, PythonVersion, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::Python;
use super::ruff::{
    LazyImportContext, SemanticSyntaxChecker, SemanticSyntaxContext, SemanticSyntaxError,
};
use super::wording;
use crate::scopes::{Bindings, visit_function_head};

/// The first error: its offset, and its message in CPython's words.
pub(super) fn first_error(
    tree: &ModModule,
    source: &str,
    python: Python,
) -> Option<(usize, String)> {
    let mut walk = Walk {
        checker: SemanticSyntaxChecker::new(),
        scopes: vec![Scope::new(ScopeKind::Module, Bindings::of_body(&tree.body, None))],
        first: RefCell::new(None),
        source,
        version: PythonVersion { major: python.major, minor: python.minor },
    };
    walk.visit_body(&tree.body);
    walk.first.into_inner()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Module,
    Class,
    Function { is_async: bool },
    Lambda,
    Comprehension { is_async: bool },
    Generator,
}

struct Scope<'a> {
    kind: ScopeKind,
    bindings: Bindings<'a>,
    loops: usize,
}

impl<'a> Scope<'a> {
    fn new(kind: ScopeKind, bindings: Bindings<'a>) -> Self {
        Self { kind, bindings, loops: 0 }
    }
}

struct Walk<'a> {
    checker: SemanticSyntaxChecker,
    scopes: Vec<Scope<'a>>,
    first: RefCell<Option<(usize, String)>>,
    source: &'a str,
    version: PythonVersion,
}

impl<'a> Walk<'a> {
    fn kind(&self) -> ScopeKind {
        self.scopes.last().map_or(ScopeKind::Module, |scope| scope.kind)
    }

    /// Kinds of scopes, from the innermost outwards.
    fn kinds(&self) -> impl Iterator<Item = ScopeKind> {
        self.scopes.iter().rev().map(|scope| scope.kind)
    }

    /// Kind of the innermost scope that is not a comprehension.
    fn body_kind(&self) -> ScopeKind {
        self.kinds()
            .find(|kind| !matches!(kind, ScopeKind::Comprehension { .. } | ScopeKind::Generator))
            .unwrap_or(ScopeKind::Module)
    }

    fn inside(&mut self, kind: ScopeKind, bindings: Bindings<'a>, work: impl FnOnce(&mut Self)) {
        self.scopes.push(Scope::new(kind, bindings));
        work(self);
        self.scopes.pop();
    }

    fn in_loop(&mut self, body: &'a [Stmt]) {
        self.add_loops(1);
        self.visit_body(body);
        self.add_loops(-1);
    }

    fn add_loops(&mut self, change: isize) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.loops = scope.loops.saturating_add_signed(change);
        }
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        visit_function_head(self, function);
        let bindings = Bindings::of_body(&function.body, Some(&function.parameters));
        let kind = ScopeKind::Function { is_async: function.is_async };
        self.inside(kind, bindings, |walk| walk.visit_body(&function.body));
    }

    /// A check that ruff does not have.
    fn check_handlers(&self, handlers: &[ast::ExceptHandler]) {
        let all_but_last = handlers.split_last().map_or(&[][..], |(_, before)| before);
        let bare = all_but_last.iter().find(|handler| {
            let ast::ExceptHandler::ExceptHandler(clause) = handler;
            clause.type_.is_none()
        });
        if let Some(handler) = bare {
            self.take(handler.range(), "default 'except:' must be last".to_owned());
        }
    }

    fn take(&self, range: TextRange, message: String) {
        let start = range.start().to_usize();
        let mut first = self.first.borrow_mut();
        if first.as_ref().is_none_or(|(known, _)| start < *known) {
            *first = Some((start, message));
        }
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        for decorator in &class.decorator_list {
            self.visit_decorator(decorator);
        }
        if let Some(parameters) = &class.type_params {
            self.visit_type_params(parameters);
        }
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        let bindings = Bindings::of_body(&class.body, None);
        self.inside(ScopeKind::Class, bindings, |walk| walk.visit_body(&class.body));
    }

    fn comprehension(
        &mut self,
        items: [Option<&'a Expr>; 2],
        generators: &'a [Comprehension],
        is_generator: bool,
    ) {
        if let Some(first) = generators.first() {
            self.visit_expr(&first.iter);
        }
        let kind = match is_generator {
            true => ScopeKind::Generator,
            false => {
                ScopeKind::Comprehension { is_async: generators.iter().any(|one| one.is_async) }
            }
        };
        let bindings = Bindings::of_comprehension(generators);
        self.inside(kind, bindings, |walk| {
            for (index, generator) in generators.iter().enumerate() {
                walk.visit_expr(&generator.target);
                if index > 0 {
                    walk.visit_expr(&generator.iter);
                }
                for condition in &generator.ifs {
                    walk.visit_expr(condition);
                }
            }
            for item in items.into_iter().flatten() {
                walk.visit_expr(item);
            }
        });
    }
}

impl<'a> Visitor<'a> for Walk<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let mut checker = std::mem::take(&mut self.checker);
        checker.visit_stmt(stmt, self);
        self.checker = checker;
        match stmt {
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::For(ast::StmtFor { target, iter, body, orelse, .. }) => {
                self.visit_expr(iter);
                self.visit_expr(target);
                self.in_loop(body);
                self.visit_body(orelse);
            }
            Stmt::While(ast::StmtWhile { test, body, orelse, .. }) => {
                self.visit_expr(test);
                self.in_loop(body);
                self.visit_body(orelse);
            }
            Stmt::Expr(statement) => {
                if statement.value.is_starred_expr() {
                    self.take(stmt.range(), "can't use starred expression here".to_owned());
                }
                walk_stmt(self, stmt);
            }
            Stmt::Try(attempt) => {
                self.check_handlers(&attempt.handlers);
                walk_stmt(self, stmt);
            }
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        let mut checker = std::mem::take(&mut self.checker);
        checker.visit_expr(expr, self);
        self.checker = checker;
        match expr {
            Expr::Lambda(lambda) => {
                if let Some(parameters) = &lambda.parameters {
                    self.visit_parameters(parameters);
                }
                let bindings = Bindings::of_lambda(lambda);
                self.inside(ScopeKind::Lambda, bindings, |walk| walk.visit_expr(&lambda.body));
            }
            Expr::ListComp(ast::ExprListComp { elt, generators, .. })
            | Expr::SetComp(ast::ExprSetComp { elt, generators, .. }) => {
                self.comprehension([Some(elt), None], generators, false);
            }
            Expr::Generator(ast::ExprGenerator { elt, generators, .. }) => {
                self.comprehension([Some(elt), None], generators, true);
            }
            Expr::DictComp(ast::ExprDictComp { key, value, generators, .. }) => {
                self.comprehension([key.as_deref(), Some(value)], generators, false);
            }
            _ => walk_expr(self, expr),
        }
    }
}

impl SemanticSyntaxContext for Walk<'_> {
    fn future_annotations_or_stub(&self) -> bool {
        false
    }

    fn lazy_import_context(&self) -> Option<LazyImportContext> {
        None
    }

    fn python_version(&self) -> PythonVersion {
        self.version
    }

    fn source(&self) -> &str {
        self.source
    }

    fn global(&self, name: &str) -> Option<TextRange> {
        self.scopes.last()?.bindings.globals.get(name).copied()
    }

    fn has_nonlocal_binding(&self, name: &str) -> bool {
        let outer = self.scopes.iter().rev().skip(1);
        outer
            .filter(|scope| matches!(scope.kind, ScopeKind::Function { .. } | ScopeKind::Lambda))
            .any(|scope| scope.bindings.binds(name))
    }

    fn in_async_context(&self) -> bool {
        matches!(self.body_kind(), ScopeKind::Module | ScopeKind::Function { is_async: true })
    }

    fn in_await_allowed_context(&self) -> bool {
        !matches!(self.body_kind(), ScopeKind::Class)
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.kind(), ScopeKind::Function { .. } | ScopeKind::Lambda)
    }

    fn in_sync_comprehension(&self) -> bool {
        self.kinds()
            .take_while(|kind| {
                matches!(kind, ScopeKind::Comprehension { .. } | ScopeKind::Generator)
            })
            .any(|kind| kind == ScopeKind::Comprehension { is_async: false })
    }

    fn in_class_body_comprehension(&self) -> bool {
        self.body_kind() == ScopeKind::Class
    }

    fn in_module_scope(&self) -> bool {
        self.kind() == ScopeKind::Module
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.kind(), ScopeKind::Function { .. })
    }

    fn in_generator_context(&self) -> bool {
        self.kinds()
            .take_while(|kind| {
                matches!(kind, ScopeKind::Comprehension { .. } | ScopeKind::Generator)
            })
            .any(|kind| kind == ScopeKind::Generator)
    }

    fn in_notebook(&self) -> bool {
        true
    }

    fn report_semantic_error(&self, error: SemanticSyntaxError) {
        let message = wording::plain(&error.to_string());
        self.take(error.range, wording::of_compiling(&error.kind, &message));
    }

    fn in_loop_context(&self) -> bool {
        self.scopes.last().is_some_and(|scope| scope.loops > 0)
    }

    fn is_bound_parameter(&self, name: &str) -> bool {
        self.scopes.last().is_some_and(|scope| scope.bindings.parameters.contains(name))
    }
}
