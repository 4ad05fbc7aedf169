//! Facts in a review besides violations, and time in proportion to the length.

use std::time::{Duration, Instant};

use woma_policy::{Complexity, Profile, Python, Rule, Switches, VIOLATIONS_MAX, review};

const PYTHON: Python = Python::new(3, 11);

fn tiers() -> Profile {
    Profile::named("tiers", &Switches::default()).expect("a test cannot go on without it")
}

fn errors(source: &str, profile: &Profile) -> Vec<String> {
    let review = review(source, profile, PYTHON);
    assert_eq!(review.problem, None, "{source}");
    review
        .violations
        .iter()
        .map(|violation| format!("Line {}: {}", violation.line, violation.reason))
        .collect()
}

#[test]
fn reports_the_example_of_system_c_in_its_words() {
    let source = "import os\nos.system('rm -rf /')";
    let review = review(source, &tiers(), PYTHON);
    assert_eq!(errors(source, &tiers()), ["Line 1: Import 'os' is not allowed"]);
    assert_eq!((review.line_count, review.character_count), (2, 31));
    assert_eq!(review.complexity, Complexity::Low);
    assert!(!review.has_print && !review.is_clean());
}

#[test]
fn reports_facts_about_the_program() {
    let review = review("print('é')\n", &Profile::open(), PYTHON);
    assert_eq!((review.line_count, review.character_count), (1, 11));
    assert!(review.has_print && review.is_clean());
    assert!(!woma_policy::review("# print('x')", &Profile::open(), PYTHON).has_print);
}

#[test]
fn a_program_is_plain_if_its_text_names_nothing_but_the_standard_library() {
    for (source, is_plain) in [
        ("print(1)", true),
        ("from __future__ import annotations\nimport math, os.path\nfrom json import dumps", true),
        ("def f():\n    import urllib.request as r\n    return r", true),
        ("%%time\nimport math", true),
        ("```python\nimport math\n```", true),
        ("import numpy as np", false),
        ("def f():\n    from pandas import DataFrame", false),
        ("if False:\n    import helper", false),
        ("from . import helper", false),
        ("import importlib", false),
        ("__import__('numpy')", false),
        ("exec(\"import numpy\")", false),
        ("print(datasets['a'])", false),
        ("!ls", false),
        ("x = !ls", false),
        ("%matplotlib inline", false),
        ("%%bash\nls", false),
        ("pip install x", false),
        ("print(", false),
    ] {
        let review = review(source, &Profile::open(), PYTHON);
        assert_eq!(review.is_plain, is_plain, "{source}");
    }
}

#[test]
fn the_hint_names_the_list_of_the_call() {
    let profile = tiers().narrowed(&["math".to_owned()]);
    assert!(review("import math", &profile, PYTHON).is_clean());
    let review = review("import json", &profile, PYTHON);
    assert_eq!(review.violations[0].subject, "json");
    let hint = review.violations[0].hint.as_deref().unwrap();
    assert!(hint.contains("this run"), "{hint}");
    let nothing = Profile::open().narrowed(&[]);
    assert_eq!(errors("import math", &nothing), ["Line 1: Import 'math' is not allowed"]);
    assert_eq!(errors("from __future__ import annotations", &nothing), [""; 0]);
}

#[test]
fn violations_beyond_the_limit_are_counted() {
    let source = "import os\n".repeat(VIOLATIONS_MAX + 7);
    let review = review(&source, &tiers(), PYTHON);
    assert_eq!((review.violations.len(), review.violations_more), (VIOLATIONS_MAX, 7));
    let lines: Vec<usize> = review.violations.iter().map(|violation| violation.line).collect();
    assert!(lines.is_sorted());
}

#[test]
fn permission_errors_are_caught_as_such() {
    let source = "try:\n    eval('1')\n    import os\nexcept PermissionError:\n    pass";
    let review = review(source, &tiers(), PYTHON);
    let caught: Vec<(Rule, bool)> =
        review.violations.iter().map(|one| (one.rule, one.is_caught)).collect();
    assert_eq!(caught, [(Rule::Builtin, true), (Rule::Import, false)]);
}

#[test]
fn classifies_complexity() {
    use Complexity::{High, Low, Medium};
    for (source, expected) in [
        ("x = 1", Low),
        ("if x: y", Medium),
        ("[a for a in b]", Medium),
        ("class C: pass", Medium),
        ("def f(): return g()", Medium),
        ("for a in b:\n    if a: c", Medium),
        ("for a in b:\n    for c in d: e", High),
        ("for a in b:\n    def f():\n        for c in d: e", Medium),
        ("def f():\n    def g(): pass", High),
        ("def f(): return f()", High),
        ("lambda: 1", High),
        ("if a:\n if b:\n  if c:\n   if d: e", Medium),
        ("if a:\n if b:\n  if c:\n   if d:\n    if e: f", High),
    ] {
        assert_eq!(review(source, &Profile::open(), PYTHON).complexity, expected, "{source}");
    }
}

#[test]
fn an_invalid_program_has_a_problem_and_no_violations() {
    let review = review("import os\nx = = 1", &tiers(), PYTHON);
    assert_eq!(review.violations, []);
    let problem = review.problem.unwrap();
    assert_eq!((problem.line, problem.column), (2, 5));
}

/// The fastest of a few runs, with the least interference.
fn time(source: &str, profile: &Profile) -> Duration {
    (0..5)
        .map(|_| {
            let begun = Instant::now();
            std::hint::black_box(review(source, profile, PYTHON));
            begun.elapsed()
        })
        .min()
        .expect("a test cannot go on without it")
}

#[test]
fn review_time_is_proportional_to_length() {
    let profile = tiers();
    for unit in [
        "import os, sys; eval(x); random._os.path\n",
        "eval; ",
        "def f(a, b=eval):\n    try:\n        import os\n    except E:\n        pass\n",
        "x = [a.b.c(d)[e] for a in b if c]\n",
        "getattr(x, 'a' + 'b'); '{0.a}'.format(x)\n",
        "os.os.os.os.os.os.os.os.os.os.os.os.os.os.os.os.os.os.os.os.os\n",
        "lambda a: lambda b: [c for d in e]\n",
        "x.__globals__\n",
        "!ls\n",
    ] {
        let small = unit.repeat(10_000 / unit.len());
        let large = unit.repeat(100_000 / unit.len());
        let (small, large) = (time(&small, &profile), time(&large, &profile));
        assert!(large < small * 25 + Duration::from_millis(5), "{unit:?}: {small:?}, {large:?}");
    }
}

#[test]
fn reports_unstoppable_violations_after_any_number_of_others() {
    let before = "import os\n".repeat(VIOLATIONS_MAX + 7);
    for (last, rule) in
        [("().__class__.__base__", Rule::Attribute), ("import random\nrandom._os", Rule::Import)]
    {
        let review = review(&format!("{before}{last}"), &tiers(), PYTHON);
        assert_eq!((review.violations.len(), review.violations_more), (VIOLATIONS_MAX, 8));
        let free: Vec<Rule> =
            review.violations.iter().filter(|one| one.is_free).map(|one| one.rule).collect();
        assert_eq!(free, [rule], "{last}");
    }
}

#[test]
fn finds_modules_held_by_other_modules_in_every_form() {
    for source in [
        "import random\nrandom._os",
        "from random import _os",
        "from typing import sys as s",
        "import random as r\ngetattr(r, '_' + 'os')",
        "from random import choice, _os as o",
    ] {
        let review = review(source, &tiers(), PYTHON);
        let found: Vec<_> = review.violations.iter().map(|one| (one.rule, one.is_free)).collect();
        assert_eq!(found, [(Rule::Import, true)], "{source}");
    }
    let all = Profile::open().narrowed(&["asyncio".to_owned(), "importlib".to_owned()]);
    assert_eq!(errors("from asyncio import subprocess", &all), [""; 0]);
    let source = "import importlib\nimportlib.import_module('os')";
    assert!(review(source, &all, PYTHON).violations[0].is_free);
}

#[test]
fn truncates_long_names() {
    let source = format!("import {}", "a".repeat(100_000));
    let review = review(&source, &tiers(), PYTHON);
    assert_eq!(review.violations[0].subject.len(), 200);
    assert!(review.violations[0].reason.len() < 300);
}

#[test]
fn rejects_notebook_lines_inside_statements() {
    for source in ["{]\n;", "lambda \n??", "lambda \n,f", "import lambda x\n\u{300};", "(\n?]\n;x"]
    {
        assert!(review(source, &tiers(), PYTHON).problem.is_some(), "{source:?}");
    }
    for source in ["x = [1\n , 2]\n!ls", "x = 1\n?x\n,f a\n/f 1\nx?", "x = !ls\nif x:\n    %time 1"]
    {
        assert_eq!(review(source, &Profile::open(), PYTHON).problem, None, "{source:?}");
    }
}

#[test]
fn commands_match_those_that_the_kernel_refuses() {
    for (source, is_refused) in [
        ("%pip install x", false),
        ("pip install x", false),
        ("x = 1\npython -m pip install x", false),
        ("%uv pip list", false),
        ("%pip uninstall x", true),
        ("!pip install x", true),
        ("%run a.py", true),
        ("%load_ext x", true),
        ("%%writefile a.py\nx", true),
        ("%save a 1", true),
        ("%%bash\nls", true),
        ("%%html\n<b>", false),
        ("get_ipython().run_line_magic('matplotlib', 'inline')", false),
        ("get_ipython().run_line_magic('sx', 'ls')", true),
        ("get_ipython().magic('%sx ls')", true),
        ("get_ipython().run_cell_magic('bash', '', 'ls')", true),
    ] {
        let found = review(source, &tiers(), PYTHON).violations;
        assert_eq!(!found.is_empty(), is_refused, "{source}: {found:?}");
    }
}

#[test]
fn suppressed_errors_count_as_caught() {
    for (errors, expected) in [("ImportError", true), ("ValueError, Exception", true), ("", false)]
    {
        let source =
            format!("from contextlib import suppress\nwith suppress({errors}):\n    import os");
        let found = review(&source, &tiers(), PYTHON).violations;
        assert_eq!(
            found.iter().map(|one| one.is_caught).collect::<Vec<_>>(),
            [expected],
            "{errors}"
        );
    }
}
