//! Tables of sources, with their repairs and diagnoses.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{diagnose, remarks, repair_source};
use crate::syntax::{Python, parses, problem};
use crate::verdict::ProblemKind;

const PYTHON: Python = Python::new(3, 11);

/// Source, repaired program, and kinds of repairs.
const MENDED: &[(&str, &str, &[&str])] = &[
    ("```python\nprint(1)\n```", "print(1)\n", &["fence"]),
    ("```py\nprint(1)\n```\n", "print(1)\n", &["fence"]),
    ("```\nprint(1)\n```", "print(1)\n", &["fence"]),
    ("~~~python3\nprint(1)\n~~~", "print(1)\n", &["fence"]),
    ("```{python}\nprint(1)\n```", "print(1)\n", &["fence"]),
    ("```python title=\"a.py\"\nprint(1)\n```", "print(1)\n", &["fence"]),
    ("Here is the code:\n\n```python\nx = 1\n```\n\nIt works.", "x = 1\n", &["fence"]),
    ("```python\nx = 1\nprint(x)", "x = 1\nprint(x)", &["fence"]),
    ("```python\nx = 1\nprint(x)```", "x = 1\nprint(x)", &["fence"]),
    ("  ```python\n  x = 1\n  ```", "x = 1\n", &["fence", "indentation"]),
    ("x = 1\n```", "x = 1\n", &["fence"]),
    ("`print(1)`", "print(1)", &["fence"]),
    ("```python print(1)```", "print(1)", &["fence"]),
    ("```bash\npip install x\n```\n```python\nx = 1\n```", "x = 1\n", &["fence"]),
    ("```python\nprint(1)\n```\nOutput:\n```\n1\n```", "print(1)\n", &["fence"]),
    (
        "```python\nt = '''\n```json\n{}\n```\n'''\n```",
        "t = '''\n```json\n{}\n```\n'''\n",
        &["fence"],
    ),
    ("```python\n>>> x = 1\n>>> x\n1\n```", "x = 1\nx\n", &["fence", "prompts"]),
    ("print(“hello”)", "print(\"hello\")", &["characters"]),
    ("print(“it’s”)", "print(\"it’s\")", &["characters"]),
    ("print(“it's”)", "print(\"it's\")", &["characters"]),
    ("print(“say \"x\"”)", "print(“say \"x\"”)", &[]),
    ("print(‘a \"b\" c’)", "print('a \"b\" c')", &["characters"]),
    ("print(‘it’s’)", "print(\"it’s\")", &[]),
    ("x = ‘a’ + “b”  # “c”", "x = 'a' + \"b\"  # “c”", &["characters"]),
    ("print(\"a”)", "print(\"a\")", &["characters"]),
    ("print(f“{x} a”)", "print(f\"{x} a\")", &["characters"]),
    ("“““doc”””\nx = 1", "\"\"\"doc\"\"\"\nx = 1", &["characters"]),
    ("x = “““a\nb”””", "x = \"\"\"a\nb\"\"\"", &["characters"]),
    ("x\u{a0}=\u{a0}1\ny = '\u{a0}'", "x = 1\ny = '\u{a0}'", &["characters"]),
    ("if x:\n\u{a0}\u{a0}y = 1", "if x:\n  y = 1", &["characters"]),
    ("x\u{200b} = 1\ny = '\u{200b}'", "x = 1\ny = '\u{200b}'", &["characters"]),
    ("x = 3 − 1", "x = 3 - 1", &["characters"]),
    ("print（'a，b'，1）", "print('a，b',1)", &["characters"]),
    ("if x ≥ 1：\n    y = '≥'", "if x >= 1:\n    y = '≥'", &["characters"]),
    ("def f() → int:\n    return 1", "def f() -> int:\n    return 1", &["characters"]),
    ("    x = 1\n    print(x)\n", "x = 1\nprint(x)\n", &["indentation"]),
    ("\tx = 1\n\tif x:\n\t\tx = 2\n", "x = 1\nif x:\n\tx = 2\n", &["indentation"]),
    (
        "    x = '''\n    a\n  b'''\n    y = 1\n",
        "x = '''\n    a\n  b'''\ny = 1\n",
        &["indentation"],
    ),
    ("    x = (\n1)\n# c\n\n    y = 1", "x = (\n1)\n# c\n\ny = 1", &["indentation"]),
    ("import os\n    x = 1\n    print(x)", "import os\nx = 1\nprint(x)", &["indentation"]),
    (" import os\nprint(1)", "import os\nprint(1)", &["indentation"]),
    ("import os\\nprint(1)", "import os\nprint(1)", &["escapes"]),
    ("print(\\\"a\\\")\\nx = 1", "print(\"a\")\nx = 1", &["escapes"]),
    ("x = 1\\nprint(\"a\\nb\")", "x = 1\nprint(\"a\\nb\")", &["escapes"]),
    ("x = 1\\n# don't\\nprint(\"a\\n\")", "x = 1\n# don't\nprint(\"a\\n\")", &["escapes"]),
    ("if x:\\n\\ty = f\"{x}\"\\nz = 1", "if x:\n\ty = f\"{x}\"\nz = 1", &["escapes"]),
    ("```python\\nprint(1)\\n```", "print(1)\n", &["escapes", "fence"]),
    (">>> x = 1\n>>> x\n1", "x = 1\nx\n", &["prompts"]),
    (
        ">>> def f():\n...     return 1\n...\n>>> f()\n1",
        "def f():\n    return 1\n\nf()\n",
        &["prompts"],
    ),
    ("In [1]: import os\n\nIn [2]: 1\nOut[2]: 1\n", "import os\n1\n", &["prompts"]),
    ("In [1]: for i in x:\n   ...:     pass", "for i in x:\n    pass\n", &["prompts"]),
    ("<code>\nprint(1)\n</code>", "print(1)\n", &["tags"]),
    ("print(1)\n</code>", "print(1)\n", &["tags"]),
    ("<tool_call>\n```python\nprint(1)\n```\n</tool_call>", "print(1)\n", &["fence"]),
    ("<|python_tag|>print(1)<|eom_id|>", "print(1)", &["tags"]),
    ("[PYTHON]\nprint(1)\n[/PYTHON]", "print(1)\n", &["tags"]),
    (
        "<execute>\n    print(“a”)\n</execute>",
        "print(\"a\")\n",
        &["tags", "characters", "indentation"],
    ),
];

/// Sources that must not be changed.
const LEFT: &[&str] = &[
    "",
    "   ",
    "```python\n```",
    "```python\nx = 1\n```\nand\n```python\ny = 2\n```",
    "```\nx = 1\n```\nand\n```\ny = 2\n```",
    "```python\nimport os\n```\nthen\n```\nprint(os)\n```",
    "```bash\nls\n```",
    "```json\n{}\n```",
    "print(“say \"it's\"”)",
    "print(“a “b” c”)",
    "print(“a)",
    "x = 'a\ny = \"b”",
    "    x = 1\n\ty = 2",
    "    x = 1\n  y = 2",
    "if x:\n\u{3000}y = 1",
    "    x = 1\nprint(x)",
    "for x in y:\nprint(x)",
    "In [1]: import os\nprint(os.getcwd())",
    "x = 1\n>>> y = 2",
    "<p>Hello</p>",
    "<html><code>x</code></html>",
    "Write a program that prints the sum.",
    "def f(:\n    pass",
    "x = (1",
];

#[test]
fn repairs_sources_that_do_not_parse() {
    for (source, expected, kinds) in MENDED.iter().filter(|(.., kinds)| !kinds.is_empty()) {
        assert!(!parses(source, PYTHON), "is Python as it came: {source:?}");
        let Some((text, repairs)) = repair_source(source, PYTHON) else {
            panic!("not mended: {source:?}");
        };
        assert_eq!(&text, expected, "{source:?}");
        let found: Vec<&str> = repairs.iter().map(|repair| repair.kind).collect();
        assert_eq!(&found, kinds, "{source:?}");
        assert!(repairs.iter().all(|repair| repair.text.ends_with('.')), "{repairs:?}");
    }
}

#[test]
fn leaves_ambiguous_sources_unchanged() {
    for source in LEFT {
        assert_eq!(repair_source(source, PYTHON), None, "{source:?}");
    }
}

#[test]
fn a_repair_names_what_it_removed() {
    let table = [
        (
            "```bash\nls\n```\n```python\nx = 1\n```",
            "The code came in a markdown fence; what is inside it was run. Other blocks of the text, \
             which are no Python, were left out. Line numbers count from the first line inside the \
             fence.",
        ),
        (
            ">>> x = 1\n1",
            "The prompts before the lines were left out, and the output between them.",
        ),
        (">>> x = 1", "The prompts before the lines were left out."),
        ("x = “a”", "Typographic quotes around strings were replaced by plain ones."),
    ];
    for (source, said) in table {
        let found = repair_source(source, PYTHON).map(|(_, repairs)| repairs[0].text.clone());
        assert_eq!(found.as_deref(), Some(said), "{source:?}");
    }
}

/// Source, kind of problem, and text that the hint must contain.
const DIAGNOSED: &[(&str, ProblemKind, &str)] = &[
    ("def f(x):", ProblemKind::Truncated, "after `:`"),
    ("x = 1\nfor i in range(3):\n", ProblemKind::Truncated, "after `:`"),
    ("x = [1,\n     2,", ProblemKind::Truncated, "`[` that was opened in line 1"),
    ("x = 1\nprint(foo(1, 2", ProblemKind::Truncated, "`(` that was opened in line 2"),
    ("x = '''a\nb", ProblemKind::Truncated, "was opened in line 1"),
    ("def f():\n    \"\"\"Does a thing", ProblemKind::Truncated, "was opened in line 2"),
    ("print(\"hello", ProblemKind::Truncated, "string"),
    ("x = {'a': 1, 'b'", ProblemKind::Truncated, "`{`"),
    ("x = 1 +", ProblemKind::Truncated, "after `+`"),
    ("x = 1 + \\", ProblemKind::Truncated, "after a backslash"),
    ("x =", ProblemKind::Truncated, "after `=`"),
    ("import os\nfrom os import", ProblemKind::Truncated, "after `import`"),
    ("df.groupby('a').", ProblemKind::Truncated, "after `.`"),
    ("def f(a, b", ProblemKind::Truncated, "`(`"),
    ("try:\n    x = 1\n", ProblemKind::Truncated, "`try` of line 1"),
    ("try:\n    for x in y:", ProblemKind::Truncated, "after `:`"),
    ("x = [i for i in", ProblemKind::Truncated, "`[`"),
    ("print(f\"{x", ProblemKind::Truncated, "`{`"),
    ("if x:\n    y = 1\nelse:", ProblemKind::Truncated, "after `:`"),
    ("x = (1\ny = 2\nprint(y)\n", ProblemKind::Syntax, "`(` that line 1 opens"),
    ("x = f(1))\n", ProblemKind::Syntax, "`)` in line 1"),
    ("print('hello)", ProblemKind::Syntax, "`'` has no partner"),
    ("i++", ProblemKind::Syntax, "`i += 1`"),
    ("```python\nprint(1", ProblemKind::Truncated, "`(`"),
    ("Hello world", ProblemKind::Prose, "code only"),
    ("Traceback (most recent call last):\n  File \"x\"", ProblemKind::Syntax, "report of an error"),
    ("for x in y:\nprint(x)", ProblemKind::Syntax, ""),
    ("Write a program that prints the sum.", ProblemKind::Prose, "Send the code only"),
    ("I'm sorry, but I can't run this.", ProblemKind::Prose, "Send the code only"),
    ("Calculate the mean of the following numbers:\n1, 2, 3", ProblemKind::Prose, "code only"),
    ("请计算这些数字的平均值。", ProblemKind::Prose, "code only"),
    ("Here is the code:\nimport os\nx = 1\nprint(x)", ProblemKind::Syntax, "Line 1 is text"),
    ("```python\nx = 1\n```\nand\n```python\ny = 2\n```", ProblemKind::Fenced, "one block"),
    ("{\"code\": \"print(1)\", \"x\": 1,, }", ProblemKind::Syntax, "value of `code`"),
    ("{\"code\": \"import os\nx", ProblemKind::Syntax, "JSON"),
    ("<!DOCTYPE html>\n<html></html>", ProblemKind::Syntax, "markup"),
    ("x = 1\ncd x && ls\n", ProblemKind::Syntax, "`!cd x && ls`"),
    ("python script.py", ProblemKind::Syntax, "`!python script.py`"),
    ("const x = 5;", ProblemKind::Syntax, "`x = 5`"),
    ("SELECT * FROM t WHERE a = 1", ProblemKind::Syntax, "SQL"),
    ("print \"x\"", ProblemKind::Syntax, "`print(\"x\")`"),
    ("try:\n    x = 1\nexcept ValueError, e:\n    pass", ProblemKind::Syntax, "as e"),
    ("raise ValueError, 'x'", ProblemKind::Syntax, "raise ValueError('x')"),
    ("import x from y", ProblemKind::Syntax, "`from y import x`"),
    ("if x = 1:\n    pass", ProblemKind::Syntax, "`==`"),
    ("if x == 1\n    pass", ProblemKind::Syntax, "ends with `:`"),
    ("def f(x)\n    pass", ProblemKind::Syntax, "ends with `:`"),
    ("if x:\n    pass\nelse if y:\n    pass", ProblemKind::Syntax, "`elif`"),
    ("x = a && b", ProblemKind::Syntax, "`and`"),
    ("x = a || b", ProblemKind::Syntax, "`or`"),
    ("if !x:\n    pass", ProblemKind::Syntax, "`not`"),
    ("i = 0\ni++\nprint(i)", ProblemKind::Syntax, "`i += 1`"),
    ("x := 5", ProblemKind::Syntax, "`x = 5`"),
    ("x = 'it's'\nprint(x)", ProblemKind::Syntax, "apostrophe"),
    ("x = \"a\ny = 1", ProblemKind::Syntax, "closing quote"),
    ("if x {\n    y = 1\n}", ProblemKind::Syntax, "braces"),
    ("x = 1\n    y = 2\nz = 3", ProblemKind::Syntax, "indented further"),
];

#[test]
fn diagnoses_sources_that_cannot_be_repaired() {
    for (source, kind, said) in DIAGNOSED {
        assert_eq!(repair_source(source, PYTHON), None, "{source:?}");
        let Some(problem) = problem(source, PYTHON) else { panic!("is Python: {source:?}") };
        let found = diagnose(source, problem, PYTHON);
        let hint = found.hint.unwrap_or_default();
        assert!(
            found.kind == *kind && hint.contains(said),
            "{source:?}: {:?} {hint:?}",
            found.kind
        );
        assert!(!said.is_empty() || hint.is_empty(), "{source:?}: {hint:?}");
    }
}

#[test]
fn names_the_python_version_that_newer_syntax_needs() {
    let source = "d = {'a': 1}\nprint(f'{d['a']}')\n";
    let before = problem(source, PYTHON).map(|found| diagnose(source, found, PYTHON));
    let hint = before.and_then(|problem| problem.hint).unwrap_or_default();
    assert!(hint.contains("needs Python 3.12"), "{hint}");
}

#[test]
fn remarks_on_programs_that_are_encoded_twice() {
    let table = [
        ("\"import os\\nprint(1)\"", "one string"),
        ("'x = 1'", "one string"),
        ("\"\"\"\nimport os\nprint(os)\n\"\"\"", "one string"),
        ("{\"code\": \"print(1)\"}", "`code`"),
        ("{'code': 'print(1)', 'x': 1}", "`code`"),
    ];
    for (source, said) in table {
        let remarks = remarks(source);
        assert!(remarks.len() == 1 && remarks[0].contains(said), "{source}: {remarks:?}");
    }
    let plain = [
        "\"Hello, world\"",
        "'name'",
        "\"\"\"Docs.\"\"\"\nx = 1",
        "x = 'y = 1'",
        "{'a': 'code'}",
        "{'a': {'code': 'x'}}",
        "{'code': 1}",
        "{'code': 'x'}['code']",
        "print(1)",
        "",
    ];
    for source in plain {
        assert_eq!(remarks(source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn repair_time_is_proportional_to_length() {
    let parts = [
        "“",
        "”",
        "‘a",
        "’",
        "\"",
        "'",
        "f\"{a:",
        "f'''{a:{",
        "{",
        "(",
        "```\n",
        "```python\nx\n```\n",
        "\\n",
        "#\\n",
        "# \n",
        "    x\n",
        ">>> x\n",
        "In [1]: x\n",
        "<code>",
        "</code>",
        "[",
        "\\",
        "try:\n",
        "word ",
        "a.b ",
        "\u{a0}",
        "（",
        "x = 1\n",
        "if x:\n    ",
        "'''",
        "～",
    ];
    for part in parts {
        let size = 64 * 1024;
        let source = format!("x ?? {}", part.repeat(size / part.len()));
        let begun = Instant::now();
        let mended = repair_source(&source, PYTHON);
        if let (None, Some(found)) = (mended, problem(&source, PYTHON)) {
            diagnose(&source, found, PYTHON);
        }
        let taken = begun.elapsed();
        // An unoptimised build under load; quadratic code would take minutes.
        assert!(taken < Duration::from_secs(20), "{part:?} took {taken:?}");
    }
}

proptest! {
    /// Properly delimited strings keep their content, whatever surrounds them.
    #[test]
    fn repairs_keep_the_content_of_strings(
        content in "[a-z “”‘’–（），：\u{a0}\u{200b}…]{0,12}",
        before in prop::sample::select(vec!["x = “a”\n", "print（1）\n", "y\u{a0}= 1\n", "z = 3 − 1\n"]),
        frame in prop::sample::select(vec!["", "```python\n", "    "]),
    ) {
        let literal = format!("\"{content}\"");
        let source = match frame {
            "    " => format!("    {before}    s = {literal}\n"),
            _ => format!("{frame}{before}s = {literal}\n"),
        };
        if let Some((text, _)) = repair_source(&source, PYTHON) {
            prop_assert!(text.contains(&literal), "{source:?} became {text:?}");
        }
    }

    #[test]
    fn repair_never_panics(source in "[\\PC\n`'\"“”‘’{}()\\\\:#f>.…\u{a0}]{0,60}") {
        let mended = repair_source(&source, PYTHON);
        if let Some((text, repairs)) = mended {
            prop_assert!(parses(&text, PYTHON) && !repairs.is_empty());
        } else if let Some(found) = problem(&source, PYTHON) {
            diagnose(&source, found, PYTHON);
        }
        remarks(&source);
    }
}
