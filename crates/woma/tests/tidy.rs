//! The rules of the house that a machine can check: who may depend on whom, where `unsafe` may be,
//! how long a file may grow, that every file says what it is for.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file of the project with this ending, by what git knows or would add.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join("crates")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.to_str().is_some_and(|path| path.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {ending} files");
    found
}

#[test]
fn arrows_between_crates_never_turn_back() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = ["woma", "woma-core", "woma-policy", "woma-sandbox"];
    let mut arrows = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let (from, to) =
                (package["name"].as_str().unwrap(), dependency["name"].as_str().unwrap());
            if ours.contains(&to) {
                arrows.push(format!("{from} → {to}"));
            }
        }
    }
    arrows.sort();
    assert_eq!(
        arrows,
        [
            "woma → woma-core",
            "woma → woma-sandbox",
            "woma-core → woma-policy",
            "woma-core → woma-sandbox",
        ]
    );
}

#[test]
fn the_shell_calls_the_sandbox_for_the_stewards_role_and_the_doctor_only() {
    for path in files(".rs").iter().filter(|path| path.starts_with(root().join("crates/woma/src")))
    {
        for line in fs::read_to_string(path).unwrap().lines() {
            let allowed =
                line.contains("woma_sandbox::steward") || line.contains("woma_sandbox::doctor");
            assert!(!line.contains("woma_sandbox") || allowed, "{}: {line}", path.display());
        }
    }
}

#[test]
fn unsafe_is_in_one_room_only() {
    let room = root().join("crates/woma-sandbox/src/sys");
    for path in files(".rs").iter().filter(|path| !path.starts_with(&room)) {
        let text = fs::read_to_string(path).unwrap();
        let found = text.lines().find(|line| line.contains(concat!("unsafe", " {")));
        assert_eq!(found, None, "{}", path.display());
    }
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    for path in files(".rs").iter().chain(&files(".py")) {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
        let is_attack = path.components().any(|part| part.as_os_str() == "attacks");
        let starts = if path.extension().is_some_and(|extension| extension == "rs") {
            "//!"
        } else if is_attack {
            "# attack: "
        } else {
            "\"\"\""
        };
        assert!(text.starts_with(starts), "{} must begin with {starts}", path.display());
    }
}

#[test]
fn nothing_unfinished_is_left_in_the_code() {
    let marks =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("#[ig", "nore")];
    for path in files(".rs").iter().chain(&files(".py")) {
        let text = fs::read_to_string(path).unwrap();
        for mark in marks {
            assert!(!text.contains(mark), "{}: {mark}", path.display());
        }
    }
}
