//! Names that a body binds, by Python's rules and without nested scopes.

use std::collections::{HashMap, HashSet};

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_pattern, walk_stmt};
use ruff_python_ast::{
    self as ast, Comprehension, ExceptHandler, Expr, ExprContext, Parameters, Pattern, Stmt,
};
use ruff_text_size::TextRange;

/// The names of one scope.
#[derive(Debug, Default)]
pub(crate) struct Bindings<'a> {
    /// Assigned, imported, defined, deleted or declared.
    pub(crate) bound: HashSet<&'a str>,
    /// Declared `global`, with the first declaration.
    pub(crate) globals: HashMap<&'a str, TextRange>,
    pub(crate) nonlocals: HashSet<&'a str>,
    pub(crate) parameters: HashSet<&'a str>,
}

impl<'a> Bindings<'a> {
    /// Bindings of a module, a class or a function; of a function with its parameters.
    pub(crate) fn of_body(body: &'a [Stmt], parameters: Option<&'a Parameters>) -> Self {
        let mut bindings = Self::default();
        bindings.take_parameters(parameters);
        bindings.visit_body(body);
        bindings
    }

    pub(crate) fn of_lambda(lambda: &'a ast::ExprLambda) -> Self {
        let mut bindings = Self::default();
        bindings.take_parameters(lambda.parameters.as_deref());
        bindings.visit_expr(&lambda.body);
        bindings
    }

    pub(crate) fn of_comprehension(generators: &'a [Comprehension]) -> Self {
        let mut bindings = Self::default();
        for generator in generators {
            bindings.visit_expr(&generator.target);
        }
        bindings
    }

    pub(crate) fn binds(&self, name: &str) -> bool {
        self.bound.contains(name)
    }

    fn take_parameters(&mut self, parameters: Option<&'a Parameters>) {
        for parameter in parameters.into_iter().flatten() {
            self.parameters.insert(parameter.name().as_str());
            self.bound.insert(parameter.name().as_str());
        }
    }

    fn take_generators(&mut self, generators: &'a [Comprehension]) {
        // The targets belong to the comprehension; names bound by `:=` belong to this scope.
        for generator in generators {
            self.visit_expr(&generator.iter);
            for condition in &generator.ifs {
                self.visit_expr(condition);
            }
        }
    }
}

/// Visits the parts of a function definition that belong to the scope around it:
/// decorators, type parameters, parameters with defaults and annotations, return annotation.
pub(crate) fn visit_function_head<'a>(
    visitor: &mut impl Visitor<'a>,
    function: &'a ast::StmtFunctionDef,
) {
    for decorator in &function.decorator_list {
        visitor.visit_decorator(decorator);
    }
    if let Some(parameters) = &function.type_params {
        visitor.visit_type_params(parameters);
    }
    visitor.visit_parameters(&function.parameters);
    if let Some(returns) = &function.returns {
        visitor.visit_annotation(returns);
    }
}

impl<'a> Visitor<'a> for Bindings<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(function) => {
                self.bound.insert(function.name.as_str());
                for decorator in &function.decorator_list {
                    self.visit_decorator(decorator);
                }
                self.visit_parameters(&function.parameters);
            }
            Stmt::ClassDef(class) => {
                self.bound.insert(class.name.as_str());
                for decorator in &class.decorator_list {
                    self.visit_decorator(decorator);
                }
                if let Some(arguments) = &class.arguments {
                    self.visit_arguments(arguments);
                }
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                    self.bound.insert(name.split('.').next().unwrap_or(name));
                }
            }
            Stmt::ImportFrom(import) => {
                for alias in &import.names {
                    self.bound.insert(alias.asname.as_ref().unwrap_or(&alias.name).as_str());
                }
            }
            Stmt::Global(global) => {
                for name in &global.names {
                    self.globals.entry(name.as_str()).or_insert(global.range);
                }
            }
            Stmt::Nonlocal(nonlocal) => {
                for name in &nonlocal.names {
                    self.nonlocals.insert(name.as_str());
                    self.bound.insert(name.as_str());
                }
            }
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Name(name) => {
                if matches!(name.ctx, ExprContext::Store | ExprContext::Del) {
                    self.bound.insert(name.id.as_str());
                }
            }
            Expr::Lambda(lambda) => {
                if let Some(parameters) = &lambda.parameters {
                    self.visit_parameters(parameters);
                }
            }
            Expr::ListComp(ast::ExprListComp { elt, generators, .. })
            | Expr::SetComp(ast::ExprSetComp { elt, generators, .. })
            | Expr::Generator(ast::ExprGenerator { elt, generators, .. }) => {
                self.visit_expr(elt);
                self.take_generators(generators);
            }
            Expr::DictComp(comprehension) => {
                if let Some(key) = &comprehension.key {
                    self.visit_expr(key);
                }
                self.visit_expr(&comprehension.value);
                self.take_generators(&comprehension.generators);
            }
            _ => walk_expr(self, expr),
        }
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(clause) = handler;
        if let Some(name) = &clause.name {
            self.bound.insert(name.as_str());
        }
        ruff_python_ast::visitor::walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        let name = match pattern {
            Pattern::MatchAs(ast::PatternMatchAs { name, .. })
            | Pattern::MatchStar(ast::PatternMatchStar { name, .. }) => name.as_ref(),
            Pattern::MatchMapping(mapping) => mapping.rest.as_ref(),
            _ => None,
        };
        if let Some(name) = name {
            self.bound.insert(name.as_str());
        }
        walk_pattern(self, pattern);
    }
}
