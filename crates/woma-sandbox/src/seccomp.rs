//! Seccomp filters, defined as data in `seccomp/*.toml`. seccompiler compiles them into the
//! programs that are loaded by a zygote (`cell.toml`), by each cell as its last step
//! (`cell-final.toml`, `cell-watched.toml`, without
//! namespaces also `cell-shared.toml` and `cell-unscoped.toml`), and by a server that drops root (`server.toml`).
//!
//! seccompiler supports one action per filter, so a file becomes one filter for the allowed calls
//! (all others get ENOSYS) and one per errno. The Linux kernel applies the strictest action, and
//! among equals that of the filter loaded last: the refusals are therefore loaded after the allow
//! list.

use std::collections::BTreeMap;
use std::io;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::rung::Rung;

const CELL: &str = include_str!("../seccomp/cell.toml");
const CELL_FINAL: &str = include_str!("../seccomp/cell-final.toml");
const CELL_WATCHED: &str = include_str!("../seccomp/cell-watched.toml");
const CELL_SHARED: &str = include_str!("../seccomp/cell-shared.toml");
const CELL_UNSCOPED: &str = include_str!("../seccomp/cell-unscoped.toml");
const SERVER: &str = include_str!("../seccomp/server.toml");

/// A compiled program: eight bytes per instruction.
pub(crate) type Program = Vec<u8>;

#[derive(Debug)]
pub(crate) struct Filters {
    /// In loading order.
    pub(crate) zygote: Vec<Program>,
    pub(crate) cell: Vec<Program>,
}

/// `watched`: memory is limited by the watchdog, not by a cgroup.
pub(crate) fn compile(watched: bool, rung: Rung) -> io::Result<Filters> {
    let mut cell = Vec::new();
    if rung.is_shared() {
        cell.extend(compile_file(CELL_SHARED)?);
    }
    if rung == Rung::Minimal {
        cell.extend(compile_file(CELL_UNSCOPED)?);
    }
    if watched {
        cell.extend(compile_file(CELL_WATCHED)?);
    }
    // Last, because it forbids loading more filters.
    cell.extend(compile_file(CELL_FINAL)?);
    Ok(Filters { zygote: compile_file(CELL)?, cell })
}

/// Filters of a server that was started as root, in loading order.
pub(crate) fn compile_server() -> io::Result<Vec<Program>> {
    compile_file(SERVER)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allow: Vec<Allow>,
    #[serde(default)]
    refuse: Vec<Refuse>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    why: String,
    calls: Vec<String>,
    arch: Option<String>,
    #[serde(default)]
    when: Vec<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refuse {
    why: String,
    errno: String,
    calls: Vec<String>,
    arch: Option<String>,
    #[serde(default)]
    when: Vec<Vec<Condition>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Condition {
    arg: u8,
    /// Equal to this, after masking with `of`.
    is: Option<u64>,
    of: Option<u64>,
    /// All these bits are set.
    has: Option<u64>,
    above: Option<u64>,
    below: Option<u64>,
}

fn compile_file(text: &str) -> io::Result<Vec<Program>> {
    let file: File = toml::from_str(text).map_err(io::Error::other)?;
    let mut programs = Vec::new();
    let allowed = file.allow.iter().filter(|rule| here(rule.arch.as_ref()));
    let rules = rules(allowed.map(|rule| (&rule.why, &rule.calls, &rule.when)))?;
    if !rules.is_empty() {
        programs.push(program(&json!({"errno": libc::ENOSYS}), &json!("allow"), &rules)?);
    }
    let mut refused: BTreeMap<&str, Vec<&Refuse>> = BTreeMap::new();
    for rule in file.refuse.iter().filter(|rule| here(rule.arch.as_ref())) {
        refused.entry(&rule.errno).or_default().push(rule);
    }
    for (errno, group) in refused {
        let errno = errno_number(errno)?;
        let rules = self::rules(group.iter().map(|rule| (&rule.why, &rule.calls, &rule.when)))?;
        programs.push(program(&json!("allow"), &json!({"errno": errno}), &rules)?);
    }
    Ok(programs)
}

fn here(arch: Option<&String>) -> bool {
    arch.is_none_or(|arch| arch == std::env::consts::ARCH)
}

fn errno_number(name: &str) -> io::Result<i32> {
    match name {
        "0" => Ok(0),
        "EPERM" => Ok(libc::EPERM),
        "ENOSYS" => Ok(libc::ENOSYS),
        "EOPNOTSUPP" => Ok(libc::EOPNOTSUPP),
        "EAFNOSUPPORT" => Ok(libc::EAFNOSUPPORT),
        "ENOPROTOOPT" => Ok(libc::ENOPROTOOPT),
        "ESOCKTNOSUPPORT" => Ok(libc::ESOCKTNOSUPPORT),
        other => Err(io::Error::other(format!("seccomp: unknown errno {other}"))),
    }
}

type RuleParts<'a> = (&'a String, &'a Vec<String>, &'a Vec<Vec<Condition>>);

/// The rules in seccompiler's format, one entry per call and condition.
fn rules<'a>(parts: impl Iterator<Item = RuleParts<'a>>) -> io::Result<Vec<Value>> {
    let mut rules = Vec::new();
    for (why, calls, when) in parts {
        if why.trim().is_empty() {
            return Err(io::Error::other(format!("seccomp: the rule for {calls:?} says no why")));
        }
        for call in calls {
            if when.is_empty() {
                rules.push(json!({"syscall": call}));
            }
            for line in when {
                let args = line.iter().map(arguments).collect::<io::Result<Vec<_>>>()?.concat();
                rules.push(json!({"syscall": call, "args": args}));
            }
        }
    }
    Ok(rules)
}

/// A condition may set both bounds of a range.
fn arguments(condition: &Condition) -> io::Result<Vec<Value>> {
    let comparisons: Vec<(Value, u64)> = match condition {
        Condition { is: Some(value), of: Some(mask), .. } => {
            vec![(json!({"masked_eq": mask}), *value)]
        }
        Condition { is: Some(value), .. } => vec![(json!("eq"), *value)],
        Condition { has: Some(bits), .. } => vec![(json!({"masked_eq": bits}), *bits)],
        Condition { above, below, .. } => {
            let above = above.map(|value| (json!("gt"), value));
            above.into_iter().chain(below.map(|value| (json!("lt"), value))).collect()
        }
    };
    if comparisons.is_empty() {
        return Err(io::Error::other("seccomp: a condition without a comparison"));
    }
    // The kernel reads these arguments as 32-bit values; the upper half is undefined.
    let made =
        |(op, value)| json!({"index": condition.arg, "type": "dword", "op": op, "val": value});
    Ok(comparisons.into_iter().map(made).collect())
}

fn program(otherwise: &Value, matching: &Value, rules: &[Value]) -> io::Result<Program> {
    let filter = json!({"filter": {
        "mismatch_action": otherwise, "match_action": matching, "filter": rules,
    }});
    let arch = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let text = filter.to_string();
    let mut compiled =
        seccompiler::compile_from_json(text.as_bytes(), arch).map_err(io::Error::other)?;
    let instructions = compiled.remove("filter").unwrap_or_default();
    let mut bytes = Vec::with_capacity(instructions.len() * 8);
    for instruction in instructions {
        bytes.extend_from_slice(&instruction.code.to_ne_bytes());
        bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
        bytes.extend_from_slice(&instruction.k.to_ne_bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile() {
        let filters = compile(false, Rung::Rooms).unwrap();
        assert_eq!(compile(true, Rung::Rooms).unwrap().cell.len(), 2, "ENOSYS, EPERM");
        assert_eq!(filters.zygote.len(), 7, "allow and one for each errno");
        assert_eq!(filters.cell.len(), 1, "EPERM");
        assert_eq!(compile(false, Rung::Restricted).unwrap().cell.len(), 5, "0, EOPNOTSUPP, …");
        assert_eq!(compile(false, Rung::Minimal).unwrap().cell.len(), 6, "EPERM again");
        for program in filters.zygote.iter().chain(&filters.cell) {
            assert!(program.len() / 8 < 4096, "the kernel takes at most 4096 instructions");
        }
    }

    #[test]
    fn the_filter_of_the_server_compiles() {
        let programs = compile_server().unwrap();
        assert_eq!(programs.len(), 3, "EAFNOSUPPORT, ENOSYS, EPERM");
        assert!(programs.iter().all(|program| program.len() / 8 < 4096));
    }

    #[test]
    fn rejects_a_rule_without_a_reason() {
        let without = "[[allow]]\ncalls = [\"read\"]\n";
        assert!(compile_file(without).unwrap_err().to_string().contains("why"));
        let empty = "[[allow]]\nwhy = \" \"\ncalls = [\"read\"]\n";
        assert!(compile_file(empty).unwrap_err().to_string().contains("says no why"));
    }

    #[test]
    fn rejects_an_unknown_call() {
        let text = "[[allow]]\nwhy = \"a test\"\ncalls = [\"frobnicate\"]\n";
        assert!(compile_file(text).is_err());
    }
}
