//! Programs and their verdicts, under each profile that their header names.

use std::fmt::Write;
use std::path::Path;

use woma_policy::{Profile, Python, Review, Switches, review};

const PYTHON: Python = Python::new(3, 11);

fn profile(name: &str) -> Profile {
    let all =
        Switches { data_science: true, network: true, filesystem: true, ..Switches::default() };
    match name.strip_suffix("+all") {
        Some(name) => Profile::named(name, &all),
        None => Profile::named(name, &Switches::default()),
    }
    .expect("a test cannot go on without it")
}

fn programs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut programs: Vec<(String, String)> = std::fs::read_dir(folder)
        .expect("a test cannot go on without it")
        .map(|entry| entry.expect("a test cannot go on without it").path())
        .map(|path| {
            let name = path
                .file_stem()
                .expect("a test cannot go on without it")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read_to_string(&path).expect("a test cannot go on without it"))
        })
        .collect();
    programs.sort();
    programs
}

fn profiles_of(source: &str) -> Vec<&str> {
    let header = source.lines().find_map(|line| line.split_once("profiles: ")).expect("a header").1;
    header.split_whitespace().collect()
}

fn told(review: &Review) -> String {
    let mut text = String::new();
    for violation in &review.violations {
        let caught = if violation.is_caught { " (caught)" } else { "" };
        let hint = violation.hint.as_ref().map(|hint| format!(" -- {hint}")).unwrap_or_default();
        let (line, column) = (violation.line, violation.column);
        writeln!(text, "    {line}:{column} {}{caught}{hint}", violation.reason)
            .expect("a test cannot go on without it");
    }
    if let Some(problem) = &review.problem {
        writeln!(text, "    {}:{} {}", problem.line, problem.column, problem.message)
            .expect("a test cannot go on without it");
    }
    for repair in &review.repairs {
        writeln!(text, "    repaired: {}", repair.text).expect("a test cannot go on without it");
    }
    text
}

#[test]
fn verdicts() {
    let programs = programs();
    assert!(programs.len() >= 60, "only {} programs", programs.len());
    let mut text = String::new();
    for (name, source) in &programs {
        let complexity = review(source, &Profile::open(), PYTHON).complexity;
        writeln!(text, "{name} ({complexity:?})").unwrap();
        for name in profiles_of(source) {
            let verdict = told(&review(source, &profile(name), PYTHON));
            let mark = if verdict.is_empty() { " clean" } else { "" };
            write!(text, "  {name}:{mark}\n{verdict}").unwrap();
        }
    }
    insta::assert_snapshot!("verdicts", text);
}

#[test]
fn the_open_profile_has_no_violations() {
    for (name, source) in programs() {
        let review = review(&source, &Profile::open(), PYTHON);
        assert!(review.violations.is_empty(), "{name}: {:?}", review.violations);
    }
}

#[test]
fn accepts_programs_of_earlier_systems_in_their_profiles() {
    for (name, source) in programs() {
        let profiles: &[&str] = match name.as_str() {
            "c_basic"
            | "c_average"
            | "c_fibonacci"
            | "c_statistics"
            | "c_bubble_sort"
            | "c_leibniz"
            | "c_basic_modules"
            | "ordinary_classes"
            | "ordinary_generators" => &["tiers", "tiers+all"],
            "c_numpy" | "c_large_array" | "c_file" | "own_names" => &["tiers+all"],
            "a_names" | "a_lazy" | "a_datetime" | "a_files" | "a_requests" => {
                &["power-interpreter"]
            }
            "words_in_text" => &["tiers", "tiers+all", "power-interpreter"],
            _ => continue,
        };
        for profile_name in profiles {
            let review = review(&source, &profile(profile_name), PYTHON);
            assert!(review.is_clean(), "{name} under {profile_name}: {}", told(&review));
        }
    }
}
