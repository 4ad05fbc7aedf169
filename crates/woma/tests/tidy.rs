//! House rules that a machine can check: dependencies of crates and rooms, places of `unsafe`,
//! length of files, doc comments.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LINES_MAX: usize = 500;
/// Tables and files of tests may be longer than other files.
const TABLE_LINES_MAX: usize = 640;
const TABLES: [&str; 3] = ["settings.rs", "catalogue.rs", "table.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below `crates/` with this ending.
fn files(ending: &str) -> Vec<PathBuf> {
    files_below("crates", ending)
}

fn files_below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join(folder)];
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
fn woma_calls_the_sandbox_for_roles_rights_and_the_doctor_only() {
    let (source, bench) = (root().join("crates/woma/src"), root().join("crates/woma/src/bench"));
    // The benchmark measures the sandbox without the service around it.
    let is_checked = |path: &&PathBuf| path.starts_with(&source) && !path.starts_with(&bench);
    for path in files(".rs").iter().filter(is_checked) {
        for line in fs::read_to_string(path).unwrap().lines() {
            let allowed =
                ["steward", "keeper", "container", "rights", "doctor", "allocator", "sync"];
            let allowed =
                allowed.iter().any(|part| line.contains(&format!("woma_sandbox::{part}")));
            assert!(!line.contains("woma_sandbox") || allowed, "{}: {line}", path.display());
        }
    }
}

#[test]
fn unsafe_code_is_in_one_module_only() {
    let room = root().join("crates/woma-sandbox/src/sys");
    // No part of the program: the interface of a C++ library for tests.
    let fuzzer = root().join("crates/woma-fuzz/src/guided.rs");
    let is_checked = |path: &&PathBuf| !path.starts_with(&room) && **path != fuzzer;
    for path in files(".rs").iter().filter(is_checked) {
        let text = fs::read_to_string(path).unwrap();
        let found = text.lines().find(|line| line.contains(concat!("unsafe", " {")));
        assert_eq!(found, None, "{}", path.display());
    }
}

/// Words of the code, which say nothing to an operator who reads a log.
const INTERNAL_WORDS: [&str; 6] = ["zygote", "steward", "cell", "room", "launcher", "keeper"];

/// Texts of log lines of the levels that are logged by default.
fn logged(text: &str) -> impl Iterator<Item = &str> {
    let calls = ["tracing::info!(", "tracing::warn!(", "tracing::error!("];
    let bodies = calls.into_iter().flat_map(move |call| text.split(call).skip(1));
    let texts = bodies
        .flat_map(|body| body.split(");").next().unwrap_or_default().split('"').skip(1).step_by(2));
    // A target is a path of the code.
    texts.filter(|text| !text.contains("::"))
}

fn is_internal(text: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase);
    words.into_iter().any(|word| INTERNAL_WORDS.contains(&word.trim_end_matches('s')))
}

#[test]
fn logs_have_no_internal_words() {
    assert!(is_internal("Two Zygotes end") && !is_internal("the cellar has headroom"));
    let example = "tracing::warn!(%error, \"a room\"); tracing::debug!(\"a cell\")";
    assert_eq!(logged(example).collect::<Vec<_>>(), ["a room"]);
    let mut found = Vec::new();
    for path in files(".rs") {
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let internal = logged(&text).filter(|text| is_internal(text));
        found.extend(internal.map(|text| format!("{}: {text}", path.display())));
    }
    assert!(found.is_empty(), "say it in the operator's words:\n{}", found.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    for path in files(".rs").iter().chain(&files(".py")).chain(&files_below("clients", ".py")) {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().count();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_test =
            path.components().any(|part| part.as_os_str() == "tests") || name == "tests.rs";
        let is_long = is_test || TABLES.contains(&name);
        let limit = if is_long { TABLE_LINES_MAX } else { LINES_MAX };
        assert!(lines <= limit, "{} has {lines} lines", path.display());
        let is_in = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
        let starts = if path.extension().is_some_and(|extension| extension == "rs") {
            "//!"
        } else if is_in("attacks") {
            "# attack: "
        } else if is_in("programs") {
            "# program: "
        } else {
            "\"\"\""
        };
        assert!(text.starts_with(starts), "{} must begin with {starts}", path.display());
    }
}

#[test]
fn the_code_has_no_unfinished_marks() {
    let marks =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("#[ig", "nore")];
    for path in files(".rs").iter().chain(&files(".py")) {
        let text = fs::read_to_string(path).unwrap();
        for mark in marks {
            assert!(!text.contains(mark), "{}: {mark}", path.display());
        }
    }
}

/// Rooms of each crate, in order: a room may import only rooms that come after it. A room is the
/// first part of a path below `src`: a folder, or a file of the top level.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "woma",
        &["main", "cli", "bench", "server", "http", "mcp", "api", "config", "terminal", "units"],
    ),
    (
        "woma-core",
        &[
            "lib",
            "service",
            "execution",
            "session",
            "datasets",
            "packages",
            "workspace",
            "policy",
            "error",
            "access",
            "storage",
            "net",
            "environments",
            "text",
            "metrics",
            "shares",
            "model",
        ],
    ),
];

#[test]
fn rooms_import_only_rooms_below_them() {
    let mut wrong = Vec::new();
    for (name, rooms) in ROOMS {
        let source = root().join("crates").join(name).join("src");
        let place = |room: &str| rooms.iter().position(|known| *known == room);
        for path in files(".rs").iter().filter(|path| path.starts_with(&source)) {
            let below = path.strip_prefix(&source).unwrap();
            let first = below.iter().next().unwrap().to_str().unwrap();
            let room = first.trim_end_matches(".rs");
            let own = place(room).unwrap_or_else(|| panic!("{name}: `{room}` is in no table"));
            for imported in imported_rooms(&fs::read_to_string(path).unwrap()) {
                // A name that is no room is an item of the crate's root.
                if place(&imported).is_some_and(|other| other < own) {
                    wrong.push(format!("{}: {room} → {imported}", below.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the order of rooms:\n{}", wrong.join("\n"));
}

/// The first part of every `crate::…` path, those in `crate::{a::b, c}` too. Comments are skipped.
fn imported_rooms(source: &str) -> Vec<String> {
    let code: Vec<&str> =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let name = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut rooms = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            rooms.push(name(rest));
            continue;
        };
        let mut depth = 0_usize;
        let mut part = String::new();
        for character in group.chars() {
            match character {
                '}' if depth == 0 => break,
                ',' if depth == 0 => rooms.push(name(std::mem::take(&mut part).trim())),
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => part.push(character),
            }
        }
        rooms.push(name(part.trim()));
    }
    rooms
}

#[test]
fn imports_are_found_in_every_form() {
    let source = "use crate::api::{self, state};\nuse crate::{http, mcp::{a, b}, config};\n\
                  // crate::cli\nlet x = crate::server::start();\npub(in crate::bench) fn f() {}\n";
    assert_eq!(imported_rooms(source), ["api", "http", "mcp", "config", "server", "bench"]);
}

#[test]
fn a_module_with_children_is_a_folder_with_a_mod_file() {
    let source = root().join("crates/woma/src");
    for path in files(".rs").iter().filter(|path| path.starts_with(&source)) {
        let folder = path.with_extension("");
        assert!(!folder.is_dir(), "{}: its place is mod.rs in the folder", path.display());
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains(concat!("#[pa", "th")), "{}", path.display());
    }
}

#[test]
fn the_architecture_page_names_files_that_exist() {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let known: Vec<PathBuf> = files(".rs").into_iter().chain(files(".py")).collect();
    let mut named = 0;
    for word in page.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.')) {
        let extension = Path::new(word).extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("rs" | "py")) && !word.starts_with('.') {
            named += 1;
            let ending = word.trim_start_matches("crates/");
            assert!(known.iter().any(|path| path.ends_with(ending)), "{word} does not exist");
        }
    }
    assert!(named > 100, "{named} files are named");
}

/// Folders whose doc comments name their subject first.
const PLAIN_ENGLISH: &[&str] = &["crates"];
/// First words of a sentence that must be decoded.
const RIDDLES: &[&str] = &[
    "What",
    "Who",
    "Whoever",
    "Whose",
    "Where",
    "There is",
    "There are",
    "Nobody",
    "Somebody",
    "None",
    "Such",
];

#[test]
fn doc_comments_begin_with_their_subject() {
    let mut wrong = Vec::new();
    for folder in PLAIN_ENGLISH {
        for path in files(".rs").iter().filter(|path| path.starts_with(root().join(folder))) {
            let text = fs::read_to_string(path).unwrap();
            let mut is_inside = false;
            for (index, line) in text.lines().enumerate() {
                let line = line.trim_start();
                let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
                let is_first = !std::mem::replace(&mut is_inside, doc.is_some());
                let Some(doc) = doc.map(str::trim_start).filter(|_| is_first) else { continue };
                let is_riddle = |word: &&&str| {
                    doc.strip_prefix(**word)
                        .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
                };
                if RIDDLES.iter().any(|word| is_riddle(&word)) {
                    wrong.push(format!("{}:{}: {doc}", path.display(), index + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "name the subject first:\n{}", wrong.join("\n"));
}

/// Every text that may hold a test or a trial, and every path, one after the other.
fn everything_that_proves() -> String {
    let mut all = String::new();
    for ending in [".rs", ".py", ".mjs", ".toml"] {
        // The packages in `clients/` have tests in Python and JavaScript.
        let own = if ending == ".rs" { Vec::new() } else { files_below("clients", ending) };
        for path in files(ending).into_iter().chain(own) {
            all.push_str(path.to_str().unwrap());
            all.push('\n');
            all.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
    all
}

/// Names of tests in a cell of a table: words with underscores that are not code.
fn named_tests(cell: &str) -> Vec<&str> {
    let bare = cell.split('`').step_by(2);
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = bare.flat_map(|text| text.split(move |letter| !is_part(letter)));
    words.filter(|word| word.trim_matches('_').contains('_')).collect()
}

/// Whether a quoted word of a cell is a file that exists, or a group of attacks.
fn is_proof(quoted: &str, all: &str) -> bool {
    let is_file = [".rs", ".py", ".md", ".toml"].iter().any(|ending| quoted.ends_with(ending));
    match quoted.strip_suffix('*') {
        Some(prefix) => all.contains(&format!("tests/attacks/{prefix}")),
        None if is_file || quoted == "LICENSE" => {
            let is_there = root().join(quoted).is_file() || all.contains(&format!("/{quoted}\n"));
            assert!(is_there, "{quoted} does not exist");
            true
        }
        None => quoted == "clients" || all.contains(&format!("/{quoted}.py\n")),
    }
}

#[test]
fn every_claim_of_compatibility_names_what_proves_it() {
    let all = everything_that_proves();
    let exists = |name: &str| all.contains(name) || all.contains(&name.replace('_', " "));
    let text = fs::read_to_string(root().join("docs/COMPATIBILITY.md")).unwrap();
    let mut claims = 0;
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let state = row.trim_end_matches(['|', ' ']).rsplit(" | ").next().unwrap();
        let Some(state) = state.strip_prefix('✓') else { continue };
        claims += 1;
        let names = named_tests(state);
        let missing: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "no test is called {missing:?}: {row}");
        let quoted: Vec<&str> = state.split('`').skip(1).step_by(2).collect();
        let proofs = quoted.iter().filter(|quoted| is_proof(quoted, &all)).count();
        assert!(
            proofs + names.len() > 0 || state.contains("the same"),
            "the row names no test: {row}"
        );
    }
    assert!(claims > 200, "{claims} claims");
}

#[test]
fn every_test_that_the_specification_names_exists() {
    let all = everything_that_proves();
    let text = fs::read_to_string(root().join("docs/SPEC.md")).unwrap();
    for row in text.lines().filter(|line| line.starts_with('|')) {
        for name in named_tests(row) {
            let is_there = all.contains(name) || all.contains(&name.replace('_', " "));
            assert!(is_there, "no test is called {name}: {row}");
        }
    }
}

#[test]
fn the_makefile_has_the_targets_of_an_older_system() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets = ["dev-install", "install", "dev", "serve-http", "build-sandbox", "test-sandbox"];
    for target in targets {
        let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
        assert!(is_there, "make {target}");
    }
}
