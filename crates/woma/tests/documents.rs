//! The pages for users: every snippet of the README, the guides and the examples runs, every link
//! leads somewhere, also in the site that is made of them, figures are those of the specification, and
//! the picture is of today's program.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const README_LINES_MAX: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn setting(name: &str) -> PathBuf {
    let set = env::var_os(name);
    assert!(set.is_some(), "{name} must be set; `make test` fetches what is needed and sets it");
    set.map(PathBuf::from).unwrap_or_default()
}

/// Runs a program with the Python of the tests' environment; on failure, prints what it said.
fn python(arguments: &[&Path], variables: &[(&str, &Path)]) {
    let output = Command::new(setting("WOMA_TEST_ENV").join("bin/python"))
        .arg("-B")
        .args(arguments)
        .env("WOMA_ENV", setting("WOMA_TEST_ENV"))
        .envs(variables.iter().copied())
        .current_dir(root())
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
}

fn program(name: &str) -> PathBuf {
    root().join("crates/woma/tests/documents").join(name)
}

/// Runs every block of a page.
fn runs(page: &str) {
    let (woma, clients) = (Path::new(env!("CARGO_BIN_EXE_woma")), setting("WOMA_TEST_CLIENTS"));
    python(&[&program("snippets.py"), woma, &clients, Path::new(page)], &[]);
}

#[test]
fn every_snippet_of_the_readme_runs() {
    runs("README.md");
}

#[test]
fn every_step_of_the_tutorial_runs_and_prints_what_it_says() {
    runs("docs/TUTORIAL.md");
}

#[test]
fn every_example_runs_and_prints_what_it_says() {
    runs("examples/README.md");
    let text = fs::read_to_string(root().join("examples/README.md")).unwrap();
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_program = [".py", ".sh"].iter().any(|ending| name.ends_with(ending));
        assert!(!is_program || text.contains(&format!("examples/{name}\n")), "{name} is not run");
    }
}

#[test]
fn every_command_of_the_guides_runs() {
    let pages = ["COMMANDS.md", "DEPLOYMENT.md", "MIGRATION.md", "OPERATING.md"];
    for page in pages {
        runs(&format!("docs/{page}"));
    }
}

#[test]
fn links_and_anchors_lead_somewhere() {
    python(&[&program("links.py")], &[]);
}

#[test]
fn the_site_of_the_documents_is_whole_and_loads_nothing_from_elsewhere() {
    python(&[&program("site.py"), &setting("WOMA_TEST_PACKAGING")], &[]);
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= README_LINES_MAX, "{lines} lines");
}

/// Numbers with their unit in a row of a table, such as `3.1 ms`.
fn figures(row: &str) -> Vec<String> {
    let words: Vec<&str> = row.split_whitespace().collect();
    let is_unit = |word: &str| ["ms", "MiB", "GB"].contains(&word.trim_end_matches([',', ';']));
    let pairs = words.windows(2).filter(|pair| {
        pair[0].starts_with(|first: char| first.is_ascii_digit()) && is_unit(pair[1])
    });
    pairs.map(|pair| format!("{} {}", pair[0], pair[1].trim_end_matches([',', ';']))).collect()
}

#[test]
fn the_figures_of_the_comparison_are_those_of_the_specification() {
    let specification = fs::read_to_string(root().join("docs/SPEC.md")).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, compared) = readme.split_once("\n## Compared\n").unwrap();
    let (compared, _) = compared.split_once("\n## ").unwrap();
    let mut checked = 0;
    for row in compared.lines().filter(|line| line.starts_with("| ")) {
        // The row of the benchmark that the last column names.
        let Some((_, command)) = row.split_once("`woma bench ") else { continue };
        let name = command.split(['`', ' ']).next().unwrap();
        let promise = specification.lines().find(|line| line.contains(&format!("| `{name}` |")));
        let promise = promise.unwrap_or_else(|| panic!("docs/SPEC.md has no row `{name}`"));
        for figure in figures(row) {
            assert!(promise.contains(&figure), "{figure} of README.md is not in: {promise}");
            checked += 1;
        }
    }
    assert!(checked >= 8, "{checked} figures");
}

#[test]
fn the_table_of_deployments_is_the_doctors() {
    let page = fs::read_to_string(root().join("docs/DEPLOYMENT.md")).unwrap();
    let (_, rest) = page.split_once("<!-- deployments:").unwrap();
    let (_, rest) = rest.split_once("-->\n").unwrap();
    let (table, _) = rest.split_once("<!-- end of deployments -->").unwrap();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_woma"));
    let printed = doctor.args(["doctor", "--deployments"]).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(table.trim(), printed.trim(), "copy what `woma doctor --deployments` prints");
}

#[test]
fn the_picture_of_a_session_is_of_this_program() {
    let data = tempfile::tempdir().unwrap();
    let (picture, check) = (root().join("scripts/picture"), Path::new("--check"));
    let woma = Path::new(env!("CARGO_BIN_EXE_woma"));
    python(&[&picture, check, woma], &[("WOMA_DATA_DIR", data.path())]);
}
