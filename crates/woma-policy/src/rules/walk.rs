//! Walk over the tree: scopes, caught exceptions, and names of modules.

use std::collections::HashMap;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_pattern_keyword, walk_stmt};
use ruff_python_ast::{
    self as ast, Comprehension, ExceptHandler, Expr, ExprContext, ModModule, PatternKeyword, Stmt,
};
use ruff_text_size::Ranged;

use super::{Facts, Finding, attributes, builtins, commands, cut, imports};
use crate::profile::Profile;
use crate::scopes::{Bindings, visit_function_head};
use crate::verdict::Rule;

/// Most dots in a path that is resolved.
const PATH_PARTS_MAX: usize = 16;

pub(super) fn walk(tree: &ModModule, profile: &Profile) -> Facts {
    let mut modules = ImportedNames::default();
    modules.visit_body(&tree.body);
    let mut walk = Walk {
        profile,
        scopes: vec![Scope { bindings: Bindings::of_body(&tree.body, None), is_class: false }],
        modules: modules.0,
        caught: Vec::new(),
        facts: Facts::default(),
    };
    walk.visit_body(&tree.body);
    walk.facts
}

pub(super) struct Walk<'a> {
    pub(super) profile: &'a Profile,
    scopes: Vec<Scope<'a>>,
    /// Names bound by imports anywhere in the program: `np` is `numpy`, `urlopen` is
    /// `urllib.request.urlopen`.
    modules: HashMap<&'a str, Imported<'a>>,
    /// One element for each enclosing `try` body within the function.
    caught: Vec<Catches>,
    facts: Facts,
}

struct Scope<'a> {
    bindings: Bindings<'a>,
    /// Names of a class are not visible in its functions.
    is_class: bool,
}

/// Target of a name that an import binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Imported<'a> {
    module: &'a str,
    name: Option<&'a str>,
    /// `import a.b`: the name is `a`, of which `a.b` was requested.
    pub(super) is_package: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Catches {
    imports: bool,
    permissions: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn report(&mut self, rule: Rule, subject: &str, offset: usize) {
        let is_caught = self.caught.iter().any(|catches| match rule {
            Rule::Import => catches.imports,
            Rule::Builtin | Rule::Attribute | Rule::Command => catches.permissions,
        });
        let is_free = rule == Rule::Attribute;
        self.facts.findings.push(Finding {
            offset,
            rule,
            subject: cut(subject),
            is_caught,
            is_free,
        });
    }

    /// Reports a module that is reached without an import statement, bypassing the guard.
    pub(super) fn report_reached(&mut self, module: &str, offset: usize) {
        let (rule, subject) = (Rule::Import, cut(module));
        self.facts.findings.push(Finding {
            offset,
            rule,
            subject,
            is_caught: false,
            is_free: true,
        });
    }

    /// Whether the program itself binds a name, in this or an enclosing scope.
    pub(super) fn is_own(&self, name: &str) -> bool {
        let mut inner = self.scopes.iter().rev();
        inner.next().is_some_and(|scope| scope.bindings.binds(name))
            || inner.any(|scope| !scope.is_class && scope.bindings.binds(name))
    }

    /// Import that bound a name, unless an inner scope rebinds it.
    pub(super) fn imported(&self, name: &str) -> Option<Imported<'a>> {
        let imported = self.modules.get(name)?;
        let is_parameter = self.scopes.iter().any(|scope| scope.bindings.parameters.contains(name));
        (!is_parameter).then_some(*imported)
    }

    /// Dotted path of an expression that starts at an import: `np.linalg` is `numpy.linalg`.
    pub(super) fn path(&self, expr: &Expr) -> Option<String> {
        let mut parts = Vec::new();
        let mut expr = expr;
        while let Expr::Attribute(attribute) = expr {
            if parts.len() > PATH_PARTS_MAX {
                return None;
            }
            parts.push(attribute.attr.as_str());
            expr = &attribute.value;
        }
        let Expr::Name(name) = expr else { return None };
        let imported = self.imported(name.id.as_str())?;
        let start = match imported.name {
            Some(name) => format!("{}.{name}", imported.module),
            None => imported.module.to_owned(),
        };
        parts.push(&start);
        parts.reverse();
        Some(parts.join("."))
    }

    fn inside(&mut self, bindings: Bindings<'a>, work: impl FnOnce(&mut Self)) {
        self.scopes.push(Scope { bindings, is_class: false });
        work(self);
        self.scopes.pop();
    }

    /// Visits a body that runs when it is called, outside of the `try` around it.
    fn deferred(&mut self, bindings: Bindings<'a>, work: impl FnOnce(&mut Self)) {
        let caught = std::mem::take(&mut self.caught);
        self.inside(bindings, work);
        self.caught = caught;
    }

    fn function(&mut self, function: &'a ast::StmtFunctionDef) {
        visit_function_head(self, function);
        let bindings = Bindings::of_body(&function.body, Some(&function.parameters));
        self.deferred(bindings, |walk| walk.visit_body(&function.body));
    }

    fn class(&mut self, class: &'a ast::StmtClassDef) {
        for decorator in &class.decorator_list {
            self.visit_decorator(decorator);
        }
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        let bindings = Bindings::of_body(&class.body, None);
        self.scopes.push(Scope { bindings, is_class: true });
        self.visit_body(&class.body);
        self.scopes.pop();
    }

    fn attempt(&mut self, attempt: &'a ast::StmtTry) {
        self.caught.push(Catches::of(&attempt.handlers));
        self.visit_body(&attempt.body);
        self.caught.pop();
        for handler in &attempt.handlers {
            self.visit_except_handler(handler);
        }
        self.visit_body(&attempt.orelse);
        self.visit_body(&attempt.finalbody);
    }

    /// `with suppress(ImportError):` catches as well.
    fn with(&mut self, with: &'a ast::StmtWith) {
        let mut catches = Catches::default();
        for item in &with.items {
            self.visit_with_item(item);
            if let Expr::Call(call) = &item.context_expr
                && self.path(&call.func).as_deref() == Some("contextlib.suppress")
            {
                call.arguments.args.iter().for_each(|error| catches.take(error));
            }
        }
        self.caught.push(catches);
        self.visit_body(&with.body);
        self.caught.pop();
    }

    /// Whether a condition is `TYPE_CHECKING`, which is false at run time.
    fn is_type_checking(&self, test: &Expr) -> bool {
        let path = self.path(test);
        matches!(path.as_deref(), Some("typing.TYPE_CHECKING" | "typing_extensions.TYPE_CHECKING"))
    }

    fn comprehension(&mut self, expr: &'a Expr, generators: &'a [Comprehension]) {
        let bindings = Bindings::of_comprehension(generators);
        self.inside(bindings, |walk| walk_expr(walk, expr));
    }

    fn name(&mut self, name: &'a ast::ExprName) {
        if name.ctx != ExprContext::Load {
            return;
        }
        if name.id == "print" {
            self.facts.has_print = true;
        }
        builtins::check_name(self, name);
        attributes::check_name(self, name);
    }
}

impl<'a> Visitor<'a> for Walk<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::Try(attempt) => self.attempt(attempt),
            Stmt::With(with) => self.with(with),
            Stmt::If(condition) if self.is_type_checking(&condition.test) => {
                for clause in &condition.elif_else_clauses {
                    self.visit_elif_else_clause(clause);
                }
            }
            Stmt::Import(import) => imports::check_import(self, import),
            Stmt::ImportFrom(import) => imports::check_import_from(self, import),
            Stmt::IpyEscapeCommand(command) => {
                commands::check(self, command.kind, &command.value, command.start().to_usize());
            }
            _ => walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Name(name) => self.name(name),
            Expr::Attribute(attribute) => {
                attributes::check(self, attribute);
                imports::check_attribute(self, expr, attribute);
                builtins::check_attribute(self, expr, attribute);
                walk_expr(self, expr);
            }
            Expr::Call(call) => {
                imports::check_call(self, call);
                attributes::check_call(self, call);
                commands::check_call(self, call);
                walk_expr(self, expr);
            }
            Expr::Subscript(subscript) => {
                imports::check_subscript(self, subscript);
                attributes::check_subscript(self, subscript);
                walk_expr(self, expr);
            }
            Expr::Lambda(lambda) => {
                if let Some(parameters) = &lambda.parameters {
                    self.visit_parameters(parameters);
                }
                let bindings = Bindings::of_lambda(lambda);
                self.deferred(bindings, |walk| walk.visit_expr(&lambda.body));
            }
            Expr::ListComp(ast::ExprListComp { generators, .. })
            | Expr::SetComp(ast::ExprSetComp { generators, .. })
            | Expr::Generator(ast::ExprGenerator { generators, .. })
            | Expr::DictComp(ast::ExprDictComp { generators, .. }) => {
                self.comprehension(expr, generators);
            }
            Expr::IpyEscapeCommand(command) => {
                commands::check(self, command.kind, &command.value, command.start().to_usize());
            }
            _ => walk_expr(self, expr),
        }
    }

    fn visit_pattern_keyword(&mut self, keyword: &'a PatternKeyword) {
        attributes::check_word(self, keyword.attr.as_str(), keyword.start().to_usize());
        walk_pattern_keyword(self, keyword);
    }
}

impl Catches {
    fn of(handlers: &[ExceptHandler]) -> Self {
        let mut catches = Self::default();
        for handler in handlers {
            let ExceptHandler::ExceptHandler(clause) = handler;
            match clause.type_.as_deref() {
                None => catches = Self { imports: true, permissions: true },
                Some(Expr::Tuple(tuple)) => tuple.iter().for_each(|expr| catches.take(expr)),
                Some(expr) => catches.take(expr),
            }
        }
        catches
    }

    fn take(&mut self, expr: &Expr) {
        let name = match expr {
            Expr::Name(name) => name.id.as_str(),
            Expr::Attribute(attribute) => attribute.attr.as_str(),
            _ => return,
        };
        match name {
            "Exception" | "BaseException" => *self = Self { imports: true, permissions: true },
            // A blocked import does not raise `ModuleNotFoundError`.
            "ImportError" => self.imports = true,
            "PermissionError" | "OSError" => self.permissions = true,
            _ => {}
        }
    }
}

/// All names that imports bind, anywhere.
#[derive(Default)]
struct ImportedNames<'a>(HashMap<&'a str, Imported<'a>>);

impl<'a> Visitor<'a> for ImportedNames<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let module = alias.name.as_str();
                    let package = module.split('.').next().unwrap_or(module);
                    match &alias.asname {
                        Some(name) => self.take(name.as_str(), module, None, false),
                        None => self.take(package, package, None, package != module),
                    }
                }
            }
            Stmt::ImportFrom(import) if import.level == 0 => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                for alias in &import.names {
                    let name = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                    self.take(name, module, Some(alias.name.as_str()), false);
                }
            }
            _ => walk_stmt(self, stmt),
        }
    }

    /// Expressions contain no imports.
    fn visit_expr(&mut self, _: &'a Expr) {}
}

impl<'a> ImportedNames<'a> {
    fn take(&mut self, bound: &'a str, module: &'a str, name: Option<&'a str>, is_package: bool) {
        // `import a.b` is remembered, even if the program also has `import a`.
        let was_package = self.0.get(bound).is_some_and(|known| known.is_package);
        let is_package = is_package || was_package && name.is_none();
        self.0.insert(bound, Imported { module, name, is_package });
    }
}
