//! Shell commands, and magics that start processes.

use ruff_python_ast::{self as ast, Expr, IpyEscapeKind};
use ruff_text_size::Ranged;

use super::walk::Walk;
use super::{Finding, text};
use crate::profile::Profile;
use crate::syntax::Command;
use crate::verdict::Rule;

/// Line magics that start a process, or load code without review. The kernel has the same list.
const LINES: [&str; 22] = [
    "!",
    "system",
    "sx",
    "sc",
    "run",
    "load_ext",
    "reload_ext",
    "autoreload",
    "alias",
    "alias_magic",
    "rehashx",
    "edit",
    "ed",
    "micromamba",
    "ls",
    "ll",
    "cat",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "rmdir",
];

/// Cell magics that do.
const CELLS: [&str; 12] = [
    "!", "system", "sx", "bash", "sh", "script", "perl", "ruby", "python", "python2", "python3",
    "pypy",
];

/// Magics that write files.
const WRITERS: [&str; 5] = ["writefile", "file", "save", "notebook", "logstart"];

const INSTALLERS: [&str; 4] = ["pip", "conda", "mamba", "uv"];

/// Commands that the kernel answers itself, without a process.
const ANSWERED: [&str; 3] = ["install", "list", "freeze"];

/// `!ls`, `%system ls`.
pub(super) fn check(walk: &mut Walk<'_>, kind: IpyEscapeKind, value: &str, offset: usize) {
    let is_refused = match kind {
        IpyEscapeKind::Shell | IpyEscapeKind::ShCap => !walk.profile.commands,
        IpyEscapeKind::Magic | IpyEscapeKind::Magic2 => refuses(walk.profile, value, &LINES),
        _ => false,
    };
    if is_refused {
        let subject = format!("{}{}", kind.as_str(), first_word(value));
        walk.report(Rule::Command, &subject, offset);
    }
}

/// `get_ipython().system("ls")`.
pub(super) fn check_call(walk: &mut Walk<'_>, call: &ast::ExprCall) {
    let Expr::Attribute(attribute) = &*call.func else { return };
    let Expr::Call(inner) = &*attribute.value else { return };
    if !matches!(&*inner.func, Expr::Name(name) if name.id == "get_ipython") {
        return;
    }
    let words: Vec<String> = call.arguments.args.iter().map_while(text::constant).collect();
    let magic = words.join(" ");
    let is_refused = match attribute.attr.as_str() {
        "system" | "getoutput" | "system_raw" | "system_piped" => !walk.profile.commands,
        "run_line_magic" => refuses(walk.profile, &magic, &LINES),
        "run_cell_magic" => refuses(walk.profile, &magic, &CELLS),
        "magic" => refuses(walk.profile, magic.trim_start().trim_start_matches('%'), &LINES),
        _ => false,
    };
    if is_refused {
        let subject = format!("get_ipython().{}", attribute.attr);
        walk.report(Rule::Command, &subject, call.start().to_usize());
    }
}

/// Checks lines and cells that are commands and not part of the tree.
pub(super) fn check_whole(commands: &[Command], profile: &Profile, found: &mut Vec<Finding>) {
    for command in commands {
        let text = command.text.as_str();
        let is_refused = match (text.strip_prefix("%%"), text.strip_prefix('%')) {
            (Some(cell), _) => refuses(profile, cell, &CELLS),
            (None, Some(line)) => refuses(profile, line, &LINES),
            (None, None) => !profile.commands && !is_answered(text),
        };
        if is_refused {
            let (rule, subject) = (Rule::Command, first_word(text).to_owned());
            let offset = command.offset;
            found.push(Finding { offset, rule, subject, is_caught: false, is_free: false });
        }
    }
}

/// Whether the kernel refuses a magic with these arguments.
fn refuses(profile: &Profile, magic: &str, commands: &[&str]) -> bool {
    let name = first_word(magic);
    if WRITERS.contains(&name) && profile.blocked_builtins.contains("open") {
        return true;
    }
    let is_command =
        if INSTALLERS.contains(&name) { !is_answered(magic) } else { commands.contains(&name) };
    is_command && !profile.commands
}

/// `pip install x`, `python -m pip install x`, `uv pip list`.
fn is_answered(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        let word = word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        !["pip", "conda", "mamba"].contains(&word)
    });
    words.nth(1).is_some_and(|word| ANSWERED.contains(&word))
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}
