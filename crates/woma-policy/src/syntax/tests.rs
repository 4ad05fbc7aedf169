//! Valid and invalid programs, the wording of errors, and time and stack in proportion to the
//! length.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use super::depth::{BRACKETS_MAX, EXPRESSION_MAX, INDENTATION_MAX};
use super::*;

const PYTHON: Python = Python::new(3, 11);

fn error_in(source: &str) -> String {
    match problem(source, PYTHON) {
        Some(problem) => format!("{}:{} {}", problem.line, problem.column, problem.message),
        None => "fine".to_owned(),
    }
}

#[test]
fn errors_have_the_wording_of_cpython() {
    let table = [
        ("x = 1\nreturn x\n", "2:1 'return' outside function"),
        ("break", "1:1 'break' outside loop"),
        ("def f():\n    continue\n", "2:5 'continue' not properly in loop"),
        ("def f(a, a): pass", "1:10 duplicate argument 'a' in function definition"),
        ("f(x=1, x=2)", "1:8 keyword argument repeated: x"),
        ("nonlocal x", "1:1 nonlocal declaration not allowed at module level"),
        ("yield 1", "1:1 'yield' outside function"),
        ("def f():\n    await g()\n", "2:5 'await' outside async function"),
        ("if x\n    pass\n", "1:5 expected ':'"),
        ("def f():\nx = 1\n", "2:1 expected an indented block after function definition on line 1"),
        ("if a:\n    pass\n  b\n", "3:1 unindent does not match any outer indentation level"),
        ("x = 'abc\n", "1:5 unterminated string literal (detected at line 1)"),
        ("print 'x'\n", "1:7 Missing parentheses in call to 'print'. Did you mean print(...)?"),
        ("x = “a”\n", "1:5 invalid character '“' (U+201C)"),
        ("1 = x\n", "1:1 cannot assign to this expression. Maybe you meant '==' instead of '='?"),
        ("f(a=1, 2)", "1:8 positional argument follows keyword argument"),
        ("ünï = 1; ö = = 2", "1:14 invalid syntax"),
        ("x = [1, (2)\nprint(x)\ny = 2", "1:5 '[' was never closed"),
        (
            "x = (1,\n\n     [2}\n",
            "3:8 closing parenthesis '}' does not match opening parenthesis '['",
        ),
        ("try:\n    x\ny = 1", "3:1 expected 'except' or 'finally' block"),
        ("x = 1)", "1:6 unmatched ')'"),
        ("f(x y)", "1:5 invalid syntax"),
        ("x=1;;y=2", "1:5 invalid syntax"),
        ("x = 1\0", "1:6 source code cannot contain null bytes"),
    ];
    for (source, expected) in table {
        assert_eq!(error_in(source), expected, "{source:?}");
    }
}

#[test]
fn accepts_notebook_syntax() {
    for source in [
        "%matplotlib inline\nimport math",
        "!ls -l",
        "files = !ls",
        "x = %who",
        "math?",
        "?math",
        "pip install pandas",
        "import math\npip install pandas==2.0 'x>1'\nprint(1)",
        "if True:\n    pip install -q x\n    python3 -m pip install y\nuv pip install z",
        "sudo pip3 install x",
        "ls /tmp",
        "  cd ..\n",
        "time f(x)",
        "%%bash\necho 'not python\n",
        "\n%%time\nx = 1\n",
        "await f()",
        "[await f(x) for x in y]",
        "async with a as b:\n    pass",
        "",
        "\u{feff}x = 1",
        "x = 1\r\ny = 2\r\n",
    ] {
        assert_eq!(error_in(source), "fine", "{source:?}");
    }
    assert_eq!(error_in("%%time\nx = = 1"), "2:5 invalid syntax");
    assert_eq!(error_in("pip = install x"), "1:15 invalid syntax");
}

#[test]
fn rejects_syntax_of_a_later_version() {
    let nested_quotes = "print(f\"{x[\"a\"]}\")";
    assert!(parses(nested_quotes, Python::new(3, 12)));
    assert!(!parses(nested_quotes, PYTHON));
    let statement = "type X = int";
    assert!(parses(statement, Python::new(3, 12)));
    let problem = problem(statement, PYTHON).unwrap();
    assert!(problem.message.contains("3.12"), "{}", problem.message);
}

#[test]
fn the_caret_is_below_the_error() {
    let caret = |source: &str| problem(source, PYTHON).unwrap().caret();
    assert_eq!(caret("x = = 1"), "x = = 1\n    ^");
    assert_eq!(caret("if x:\n\ty = = 1"), "\ty = = 1\n\t    ^");
    assert_eq!(caret("x['日本'] = = 1"), "x['日本'] = = 1\n            ^");
    assert_eq!(caret("x['e\u{301}'] = = 1"), "x['e\u{301}'] = = 1\n         ^");
    let long = format!("{} = = {}", "x".repeat(500), "y".repeat(500));
    let lines: Vec<usize> = caret(&long).lines().map(|line| line.chars().count()).collect();
    assert_eq!(lines, [123, 62]);
}

/// Valid and invalid programs, by CPython's judgement. `await` at the top level is valid, as in the
/// kernel.
const SNIPPETS: &[&str] = &[
    "x = 1",
    "return 1",
    "def f(): return 1",
    "class C: return 1",
    "lambda: (yield)",
    "yield 1",
    "[(yield x) for x in y]",
    "def f(): [x for x in (yield)]",
    "class C: yield 1",
    "break",
    "continue",
    "while 1: break",
    "for x in y: continue",
    "for x in y: pass\nelse: break",
    "while 1:\n    def f(): break",
    "while 1:\n    class C: break",
    "while 1:\n    if x: break\n    try: continue\n    finally: break",
    "await x",
    "async for x in y: pass",
    "async with x: pass",
    "[x async for x in y]",
    "def f(): await x",
    "def f(): [x async for x in y]",
    "def f(): (x async for x in y)",
    "async def f(): [await x for x in y]",
    "async def f(): yield from x",
    "async def f():\n    yield 1\n    return 2",
    "async def f():\n    yield 1\n    return",
    "class C: await x",
    "async def f(): lambda: await x",
    "nonlocal x",
    "def f(): nonlocal x",
    "def f():\n    x = 1\n    def g(): nonlocal x",
    "def f(x):\n    def g():\n        nonlocal x\n        x = 2",
    "def f():\n    for x in y: pass\n    def g(): nonlocal x",
    "def f():\n    import x\n    def g(): nonlocal x",
    "def f():\n    with a as x: pass\n    def g(): nonlocal x",
    "def f():\n    try: pass\n    except E as x: pass\n    def g(): nonlocal x",
    "def f():\n    (x := 1)\n    def g(): nonlocal x",
    "def f():\n    [x := 1 for _ in y]\n    def g(): nonlocal x",
    "def f():\n    def x(): pass\n    def g(): nonlocal x",
    "def f():\n    class x: pass\n    def g(): nonlocal x",
    "def f():\n    match y:\n        case [x, *z]: pass\n    def g(): nonlocal x, z",
    "def f():\n    x: int\n    def g(): nonlocal x",
    "def f():\n    x += 1\n    def g(): nonlocal x",
    "def f():\n    del x\n    def g(): nonlocal x",
    "def f():\n    def g():\n        nonlocal x\n    x = 1",
    "class C:\n    x = 1\n    def g(self): nonlocal x",
    "def f():\n    global x\n    x = 1",
    "def f():\n    x = 1\n    global x",
    "def f():\n    print(x)\n    global x",
    "x = 1\nglobal x",
    "global x\nx = 1",
    "def f(x): global x",
    "def f():\n    [x for x in y]\n    global x",
    "def f():\n    global x\n    x: int = 1",
    "def f(a, a): pass",
    "lambda a, a: 1",
    "def f(a, *, a): pass",
    "def f(a=1, b): pass",
    "def f(*, **k): pass",
    "def f(a, /, b, *, c): pass",
    "f(a=1, a=2)",
    "f(a=1, 2)",
    "f(**a, *b)",
    "f(*a, b, *c, d=1, **e)",
    "None = 1",
    "x.None = 1",
    "True: int = 1",
    "f() = 1",
    "f() += 1",
    "del f()",
    "(a, b) += 1",
    "a, b = c",
    "*a = b",
    "*a, = b",
    "*a, *b = c",
    "[*a, (*b, c)] = d",
    "x = *a",
    "*a",
    "*a, b",
    "x = *a, b",
    "print(*a)",
    "a if b",
    "x = (1, 2",
    "x = 1)",
    "x = [1, 2)",
    "if x:\npass",
    "  x = 1",
    "if x:\n    y\n  z",
    "if x:\n\ty\n        z",
    "'abc",
    "'''abc",
    "f'{x'",
    "f'{}'",
    "f'{x!z}'",
    "f'{x:{y}}'",
    "f'{lambda x: 1}'",
    "b'é'",
    "'\\N{no such name}'",
    "'\\N{BULLET}'",
    "'\\x4'",
    "0777",
    "1_000",
    "1__0",
    "0xg",
    "1.e5j",
    "import a.b as c",
    "import a.b.c, d",
    "from . import x",
    "from .. import (a, b,)",
    "from a import b,",
    "from a import (b as c, d)",
    "from a import *",
    "def f(): from a import *",
    "from __future__ import annotations",
    "x = 1\nfrom __future__ import annotations",
    "'doc'\nfrom __future__ import annotations",
    "from __future__ import nothing",
    "try: pass",
    "try: pass\nexcept: pass\nexcept E: pass",
    "try: pass\nexcept* E: pass",
    "try: pass\nexcept E: pass\nexcept* F: pass",
    "try: pass\nfinally: pass",
    "with a as b, c as d: pass",
    "with (a as b, c as d,): pass",
    "with a as f(): pass",
    "match x:\n    case 1: pass\n    case _: pass",
    "match x:\n    case _: pass\n    case 1: pass",
    "match x:\n    case [a, a]: pass",
    "match x:\n    case a | b: pass",
    "match = 1; case = 2; type = 3; _ = 4",
    "print(match, case)",
    "[x := 1 for x in y]",
    "[i for i in (j := y)]",
    "class C: [(x := 1) for i in y]",
    "(x := 1)",
    "x := 1",
    "f(x := 1)",
    "async def f():\n    async with a: pass\n    async for b in c: pass\n    await d",
    "async x = 1",
    "def f[T](): pass",
    "type X = int",
    "assert (x, 'y')",
    "raise X from Y",
    "raise from Y",
    "class C(a, b=c, *d, **e): pass",
    "@a.b[c](d)\ndef f(): pass",
    "@x := y\ndef f(): pass",
    "x = yield",
    "def f(): x = yield",
    "def f(x: (yield)): pass",
    "__debug__ = 1",
    "def __debug__(): pass",
    "x.__debug__",
    "a = b = c = 1",
    "a: int = 1",
    "(a): int = 1",
    "a.b: int",
    "a, b: int",
    "lambda *a, b=1, **c: (a, b, c)",
    "{**a, 'b': 1}",
    "{a: b, **c for d in e}",
    "{*a, b}",
    "(x for x in y)",
    "f(x for x in y)",
    "f(x for x in y, 1)",
    "x[1:2, ::3, ...]",
    "x[]",
    "not x",
    "x not in y",
    "x is not y",
    "x <> y",
    "x !",
    "a b",
    "é = 1",
    "€ = 1",
    "x = 1 # comment",
    "\\\nx = 1",
    "x = \\ 1",
    "if 1: x; y; z",
    "if 1: if 2: x",
    "else: x",
    "def f() -> int: ...",
    "def f(): pass; return 1",
    "exec 'x'",
    "print x",
    "x++",
    "x = y++",
    "++x",
    "i = 0xFFL",
    "ur'x'",
    "rb'x'",
    "`x`",
    "import",
    "from x import",
    "def f(",
    "class",
    "for x in",
    "while",
    "with open(f) as g:",
];

#[test]
fn agrees_with_cpython_on_snippets() {
    let program = "import json, sys\n\
        def fine(source):\n    \
            try: compile(source, 'x', 'exec', 0x2000, True)\n    \
            except (SyntaxError, ValueError): return False\n    \
            return True\n\
        import warnings; warnings.simplefilter('ignore')\n\
        print(json.dumps([list(sys.version_info[:2]), [fine(s) for s in json.load(sys.stdin)]]))";
    let answer = ask_python(program, &serde_json::to_string(SNIPPETS).unwrap());
    let ((major, minor), fine): ((u8, u8), Vec<bool>) = serde_json::from_str(&answer).unwrap();
    let python = Python::new(major, minor);
    let differences: Vec<String> = SNIPPETS
        .iter()
        .zip(fine)
        .filter(|(source, fine)| parses(source, python) != *fine)
        .map(|(source, fine)| format!("{source:?}: CPython says {fine}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn accepts_the_standard_library() {
    let program = "import json, sys, sysconfig\n\
        print(json.dumps([sysconfig.get_path('stdlib'), list(sys.version_info[:2])]))";
    let answer = ask_python(program, "");
    let (root, (major, minor)): (PathBuf, (u8, u8)) = serde_json::from_str(&answer).unwrap();
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    assert!(files.len() > 300, "only {} files in {}", files.len(), root.display());
    let mut read = 0;
    for file in files {
        let Ok(source) = std::fs::read_to_string(&file) else { continue };
        read += 1;
        let problem = problem(&source, Python::new(major, minor));
        assert!(problem.is_none(), "{}: {problem:?}", file.display());
    }
    assert!(read > 300, "only {read} could be read");
}

/// Python files, without those that are invalid on purpose.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    const SKIPPED: [&str; 6] =
        ["site-packages", "dist-packages", "test", "tests", "lib2to3", "idlelib"];
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "py") {
            files.push(path);
        }
    }
}

fn ask_python(program: &str, input: &str) -> String {
    let mut child = Process::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs python3 on the path");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "python3 failed: {:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn rejects_nesting_beyond_its_limits() {
    let brackets = |levels: usize| format!("x = {}1{}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(error_in(&brackets(BRACKETS_MAX)), "fine");
    assert!(error_in(&brackets(BRACKETS_MAX + 1)).contains("too deeply nested"));

    let blocks = |levels: usize| {
        let source: String = (0..levels).map(|level| " ".repeat(level) + "if x:\n").collect();
        source + &" ".repeat(levels) + "pass\n"
    };
    assert_eq!(error_in(&blocks(INDENTATION_MAX)), "fine");
    let message = error_in(&blocks(INDENTATION_MAX + 1));
    assert!(message.starts_with("102:"), "{message}");
    assert!(message.contains("too many levels of indentation"), "{message}");

    let sum = |terms: usize| format!("\n\nx = 1{}\n", " + 1".repeat(terms));
    assert_eq!(error_in(&sum(EXPRESSION_MAX - 10)), "fine");
    let message = error_in(&sum(EXPRESSION_MAX + 1));
    assert!(message.starts_with("3:1 too deeply nested"), "{message}");
}

#[test]
fn long_programs_are_not_deep() {
    let many = 20_000;
    for source in [
        format!("x = [{}]", "1 + 2, ".repeat(many)),
        format!("x = [{}]", "lambda a, b: a if b else -a, ".repeat(many)),
        format!("x = {{{}}}", "'a': not b, ".repeat(many)),
        format!("f({})", "b.c[d](e), ".repeat(many)),
        format!("x = a{}", " or not b".repeat(many)),
        format!("x = a{}", " and b is not None".repeat(many)),
        "x = -1; ".repeat(many),
        "x = f(1)(2)[3].y\n".repeat(many),
        format!("if x: pass\n{}", "elif y: pass\n".repeat(many)),
        format!("x = ({})", "'a'\n".repeat(many)),
        format!("x = f'{}'", "{a + b!r:>{c}}".repeat(many)),
    ] {
        assert_eq!(error_in(&source), "fine", "{}", &source[..40]);
    }
}

const MIB: usize = 1024 * 1024;

/// Nested constructs that would overflow the stack of a naive parser.
const NESTING: &[&str] = &[
    "(",
    "[",
    "{",
    "f(",
    "x[",
    "{1:",
    "-",
    "not ",
    "~",
    "await ",
    "lambda: ",
    "lambda x, y=1: ",
    "x.",
    "a**",
    "1+",
    "1 if 1 else ",
    "a if (",
    "f'{",
    "f\"{f'{",
    "f'''{",
    "async ",
    "if x: ",
    "class a: ",
    "else: ",
    "try: ",
    "with a: ",
    "for x in y: ",
    "yield ",
    "[x for x in ",
    "(yield ",
    "a.b(",
    "(a)(",
    "{**",
    "[*",
    "x[a:",
    "t'{",
    "a@",
    "lambda *: ",
    "lambda: (",
    "x if y else lambda: ",
    "not not -",
    "match x:\n case (",
    "case [",
    "def f(x=",
    "def f[T: ",
    "class C(",
    "x := ",
    "a is not ",
];

/// Unusual texts that may be misread.
const ODD: &[&str] = &[
    "x = ",
    "*",
    "**",
    "@",
    "match ",
    "case ",
    "match x: ",
    "type ",
    "x: ",
    "a<",
    "a and ",
    ")",
    "]",
    "}",
    ":",
    ";",
    ",",
    "'",
    "\"\"\"",
    "\\",
    "\\\n",
    "!",
    "?",
    "%",
    "del ",
    "import a.",
    "from . import (",
    "from ....",
    "global ",
    "return ",
    "raise ",
    "def f(",
    "print ",
    "1",
    "0x",
    "1_",
    "()",
    "[]",
    "rb'",
    "é",
    "\u{0}",
    "\t",
    " ",
    "\n ",
    "\r",
    "pip install x\n",
    "%%time\n",
    "!ls\n",
    "if x:\n\t",
    "\u{c}",
    "...",
    "->",
    "a not in ",
];

fn hostile() -> Vec<String> {
    let deep = NESTING.iter().map(|unit| unit.repeat(MIB / unit.len()));
    let odd = ODD.iter().map(|unit| unit.repeat(MIB / 16 / unit.len()));
    let mut programs: Vec<String> = deep.chain(odd).collect();
    programs.push(format!("{}1{}", "(".repeat(MIB / 2), ")".repeat(MIB / 2)));
    programs.push(format!("x = a{}", "(1)".repeat(MIB / 3)));
    programs.push(format!("x = a{}", ".b[0]".repeat(MIB / 5)));
    programs.push(format!("{}x{}", "f'{".repeat(140), "}'".repeat(140)));
    programs.push((0..1400).map(|level| " ".repeat(level) + "if x:\n").collect());
    programs
}

#[test]
fn rejects_hostile_nesting_on_small_stacks() {
    let threads = [2 * MIB, 8 * MIB].map(|stack| {
        let thread = std::thread::Builder::new().stack_size(stack).spawn(|| {
            for source in hostile() {
                let answer = problem(&source, PYTHON);
                let start: String = source.chars().take(20).collect();
                assert!(answer.is_none_or(|message| message.line > 0), "{start:?}");
            }
        });
        thread.unwrap()
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn accepts_the_deepest_program_on_a_small_stack() {
    let deep = EXPRESSION_MAX - 20;
    let thread = std::thread::Builder::new().stack_size(MIB).spawn(move || {
        for source in [
            format!("x = 1{}", " + 1".repeat(deep)),
            format!("x = {}1", "-".repeat(deep)),
            format!("x = {}1", "lambda: ".repeat(deep)),
            format!("x = a{}", ".b".repeat(deep)),
            format!("x = a{}", "()".repeat(deep)),
            format!("x = {}1", "1**".repeat(deep)),
            format!("x = {}1", "1 if 1 else ".repeat(deep / 2)),
            format!("async def f(a: 1{}): pass", " + 1".repeat(deep)),
            format!("x = {}1{}", "[-(".repeat(100), ")]".repeat(100)),
            format!("x = {}1{}", "[(".repeat(90), ") for x in y]".repeat(90)),
        ] {
            assert_eq!(error_in(&source), "fine", "{}", &source[..20]);
        }
    });
    thread.unwrap().join().unwrap();
}
