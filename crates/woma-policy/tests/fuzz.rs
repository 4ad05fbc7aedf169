//! Arbitrary input: no panic, always a verdict, and repaired programs are valid Python.

use std::path::Path;

use proptest::prelude::*;
use woma_policy::{Profile, Python, Switches, VIOLATIONS_MAX, review};

const PYTHON: Python = Python::new(3, 11);

fn check(source: &str) {
    for name in ["open", "tiers", "power-interpreter"] {
        let profile =
            Profile::named(name, &Switches::default()).expect("a test cannot go on without it");
        let verdict = review(source, &profile, PYTHON);
        assert_eq!(verdict, review(source, &profile, PYTHON), "the same twice");
        let text = verdict.mended.as_deref().unwrap_or(source);
        let lines = text.split('\n').count();
        assert!(verdict.violations.len() <= VIOLATIONS_MAX);
        for violation in &verdict.violations {
            assert!((1..=lines).contains(&violation.line), "{violation:?} of {lines} lines");
            assert!(violation.column >= 1);
        }
        if let Some(problem) = &verdict.problem {
            assert!(problem.line >= 1 && problem.column >= 1, "{problem:?}");
            assert!(problem.caret().contains('^'));
            assert!(verdict.mended.is_none() && verdict.violations.is_empty());
        }
        if let Some(mended) = &verdict.mended {
            let again = review(mended, &profile, PYTHON);
            assert_eq!((again.problem, again.mended), (None, None), "{mended:?}");
        }
        if name == "open" {
            assert!(verdict.violations.is_empty());
        }
    }
}

const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    ";",
    ".",
    "=",
    "==",
    ":=",
    "+",
    "-",
    "*",
    "**",
    "@",
    "!",
    "?",
    "%",
    "%%",
    "->",
    "...",
    "\\",
    "\\\n",
    "\n",
    "\n    ",
    "\n\t",
    " ",
    "'",
    "\"",
    "'''",
    "\"\"\"",
    "f'",
    "f'{",
    "}'",
    "rb'",
    "#",
    "if ",
    "elif ",
    "else",
    "for ",
    "in ",
    "while ",
    "def ",
    "class ",
    "return ",
    "yield ",
    "await ",
    "async ",
    "lambda ",
    "import ",
    "from ",
    "as ",
    "try",
    "except ",
    "finally",
    "with ",
    "match ",
    "case ",
    "type ",
    "global ",
    "nonlocal ",
    "del ",
    "raise ",
    "not ",
    "and ",
    "or ",
    "is ",
    "None",
    "True",
    "x",
    "y",
    "eval",
    "os",
    "__globals__",
    "getattr",
    "open",
    "1",
    "0x",
    "1e",
    "é",
    "日",
    "“",
    "\u{0}",
    "\u{feff}",
    "\r\n",
    "\r",
    "pip install x",
    "!ls",
    "```python\n",
    "```",
    ">>> ",
    "<code>",
    "&lt;",
    "\\n",
    "print ",
    "break",
    "continue",
    "pass",
];

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(WORDS), 0..60).prop_map(|words| words.concat())
}

fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a test cannot go on without it")
        .map(|entry| entry.expect("a test cannot go on without it").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read_to_string(file).expect("a test cannot go on without it"))
        .collect()
}

/// A program with a piece removed and another inserted.
fn mutated() -> impl Strategy<Value = String> {
    let programs = corpus();
    (
        prop::sample::select(programs),
        any::<prop::sample::Index>(),
        0_usize..30,
        prop::sample::select(WORDS),
    )
        .prop_map(|(program, at, length, word)| {
            let chars: Vec<char> = program.chars().collect();
            let start = at.index(chars.len());
            let end = (start + length).min(chars.len());
            chars[..start].iter().collect::<String>()
                + word
                + &chars[end..].iter().collect::<String>()
        })
}

fn nested() -> impl Strategy<Value = String> {
    let unit = prop::collection::vec(prop::sample::select(WORDS), 1..4);
    (unit, 1_usize..4_000, soup()).prop_map(|(unit, times, end)| unit.concat().repeat(times) + &end)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_has_a_verdict(source in "\\PC{0,200}") {
        check(&source);
    }

    #[test]
    fn any_tokens_have_a_verdict(source in soup()) {
        check(&source);
    }

    #[test]
    fn any_damaged_program_has_a_verdict(source in mutated()) {
        check(&source);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_nesting_has_a_verdict(source in nested()) {
        check(&source);
    }
}

/// Long hostile input goes through all parts of a review.
#[test]
fn reviews_a_mebibyte_of_hostile_text_on_a_small_stack() {
    const MIB: usize = 1024 * 1024;
    let thread = std::thread::Builder::new().stack_size(2 * MIB).spawn(|| {
        let profile = Profile::named("tiers", &Switches::default()).unwrap();
        for unit in [
            "(",
            "x.",
            "-",
            "lambda: ",
            "f'{",
            "eval;",
            "import os\n",
            "a if b else ",
            "'",
            "```\n",
            "x = 1\n",
            "“",
            "\\n",
            ">>> x\n",
            "pip install x\n",
            "if x:\n\t",
            "<b>",
        ] {
            let source = unit.repeat(MIB / unit.len());
            let verdict = review(&source, &profile, PYTHON);
            assert!(verdict.line_count > 0, "{unit:?}");
        }
    });
    thread.unwrap().join().unwrap();
}

/// The same checks, of inputs that reach new code.
#[test]
fn fuzz_review() {
    woma_fuzz::Target { name: "review", words: WORDS }.run(|bytes| {
        check(&String::from_utf8_lossy(bytes));
    });
}
