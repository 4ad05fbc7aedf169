//! Shell commands, and magics that start one.

use ruff_python_ast::{self as ast, Expr, IpyEscapeKind};
use ruff_text_size::Ranged;

use super::Found;
use super::walk::Walk;
use crate::profile::Profile;
use crate::syntax::Command;
use crate::verdict::Rule;

/// Magics, of lines and of cells, that run a program other than the kernel.
const MAGICS: [&str; 31] = [
    "!",
    "system",
    "sx",
    "sc",
    "bash",
    "sh",
    "script",
    "perl",
    "ruby",
    "python",
    "python2",
    "python3",
    "pypy",
    "js",
    "pip",
    "pip3",
    "conda",
    "mamba",
    "micromamba",
    "uv",
    "ls",
    "ll",
    "cat",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "rmdir",
    "man",
    "less",
    "more",
];

/// What the shell object offers for the same.
const METHODS: [&str; 6] =
    ["system", "getoutput", "system_raw", "system_piped", "run_line_magic", "run_cell_magic"];

/// `!ls`, `%system ls`.
pub(super) fn check(walk: &mut Walk<'_>, kind: IpyEscapeKind, value: &str, offset: usize) {
    if walk.profile.commands {
        return;
    }
    let is_command = match kind {
        IpyEscapeKind::Shell | IpyEscapeKind::ShCap => true,
        IpyEscapeKind::Magic | IpyEscapeKind::Magic2 => MAGICS.contains(&first_word(value)),
        _ => false,
    };
    // A bare `pip install x` stands in the tree as `%ip install x` and is told as a command.
    if is_command {
        let subject = format!("{}{}", kind.as_str(), first_word(value));
        walk.report(Rule::Command, &subject, offset);
    }
}

/// `get_ipython().system("ls")`.
pub(super) fn check_call(walk: &mut Walk<'_>, call: &ast::ExprCall) {
    if walk.profile.commands {
        return;
    }
    let Expr::Attribute(attribute) = &*call.func else { return };
    let Expr::Call(inner) = &*attribute.value else { return };
    let is_shell = matches!(&*inner.func, Expr::Name(name) if name.id == "get_ipython");
    if is_shell && METHODS.contains(&attribute.attr.as_str()) {
        let subject = format!("get_ipython().{}", attribute.attr);
        walk.report(Rule::Command, &subject, call.start().to_usize());
    }
}

/// Lines and cells that are commands and stand nowhere in the tree.
pub(super) fn check_whole(commands: &[Command], profile: &Profile, found: &mut Vec<Found>) {
    if profile.commands {
        return;
    }
    for command in commands {
        let name = first_word(command.text.trim_start_matches('%'));
        if command.text.starts_with('%') && !MAGICS.contains(&name) {
            continue;
        }
        let subject = first_word(&command.text).to_owned();
        let offset = command.offset;
        let (rule, is_caught) = (Rule::Command, false);
        found.push(Found { offset, rule, subject, is_caught, is_free: false });
    }
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}
