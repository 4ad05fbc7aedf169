//! `woma run FILE` beside the environment's own `python FILE`: output, last line of standard error
//! and exit status are the same.

use std::io::Write;
use std::process::{Command, Stdio};
use std::{env, fs};

use super::{Seen, feed, run, seen, woma};

/// A program, its arguments, its standard input.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("print('hello')", &[], ""),
    ("import sys\nprint(sys.argv[1:])", &["a", "--b", "-c", "--timeout", "1", "--", "-h"], ""),
    ("import os, sys\nprint(os.path.basename(sys.argv[0]))", &[], ""),
    ("print(__name__, __file__.rsplit('/')[-1])", &["x"], ""),
    ("'not shown'\n6 * 7", &[], ""),
    ("if __name__ == '__main__':\n    print('main')", &[], ""),
    ("import sys\nfor line in sys.stdin: print(repr(line))", &[], "a\nb\n\nc"),
    ("print(input('name? '), input())", &[], "Ann\nBob\nrest"),
    ("input()", &[], ""),
    ("import sys\nprint(len(sys.stdin.buffer.read()))", &[], "bytes\x01\x7f"),
    (
        "import subprocess\nprint(subprocess.run(['cat'], capture_output=True).stdout)",
        &[],
        "to cat",
    ),
    ("import sys\nsys.exit()", &[], ""),
    ("import sys\nsys.exit(7)", &[], ""),
    ("import sys\nsys.exit('a message')", &[], ""),
    ("exit(4)", &[], ""),
    ("raise SystemExit(300)", &[], ""),
    ("def f(n):\n    return 1 / n\nprint('before')\nf(0)", &[], ""),
    ("try:\n    {}['k']\nexcept KeyError as e:\n    raise RuntimeError('second') from e", &[], ""),
    ("x = (1,\ny = 2", &[], ""),
    ("await 1", &[], ""),
    ("%time 1", &[], ""),
    (
        "import argparse\np = argparse.ArgumentParser(prog='p')\np.add_argument('--n', type=int)\n\
      print(p.parse_args().n)",
        &["--n", "5"],
        "",
    ),
    (
        "import argparse\np = argparse.ArgumentParser(prog='p')\np.add_argument('n', type=int)\n\
      p.parse_args()",
        &["five"],
        "",
    ),
    (
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.stdout.write('no newline')",
        &[],
        "",
    ),
    ("import warnings\nwarnings.warn('careful')", &[], ""),
    (
        "from __future__ import annotations\ndef f(x: Unknown): ...\nprint(f.__annotations__)",
        &[],
        "",
    ),
    ("import atexit\natexit.register(print, 'bye')\nprint('first')", &[], ""),
    ("import threading\nthreading.Timer(0.05, print, ['late']).start()\nprint('first')", &[], ""),
    ("", &[], ""),
    ("# a comment", &[], ""),
    ("\u{feff}print('after a mark')", &[], ""),
    ("import asyncio\nasync def main(): return 5\nprint(asyncio.run(main()))", &[], ""),
    (
        "from concurrent.futures import ProcessPoolExecutor\ndef double(x): return 2 * x\n\
      if __name__ == '__main__':\n    with ProcessPoolExecutor(2) as pool:\n        \
      print(list(pool.map(double, [1, 2])))",
        &[],
        "",
    ),
];

/// Both in a folder of their own, so that the program's name is the same text.
fn both(source: &str, arguments: &[&str], input: &str) -> [Seen; 2] {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("program.py"), source).unwrap();
    let python = format!("{}/bin/python", env::var_os("WOMA_TEST_ENV").unwrap().display());
    let mut ours = woma(&["run", "program.py"]);
    let mut theirs = Command::new(python);
    theirs.arg("program.py").env_remove("PYTHONPATH");
    [&mut ours, &mut theirs].map(|command| {
        let command = command.args(arguments).current_dir(folder.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that does not read its input may have ended.
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap_or_default();
        seen(child.wait_with_output().unwrap())
    })
}

#[test]
fn a_file_runs_as_python_runs_it() {
    let mut different = Vec::new();
    for (source, arguments, input) in PROGRAMS {
        let [ours, theirs] = both(source, arguments, input);
        // `python` shows the whole path of its program, and the name is the caller's own here.
        let last = |seen: &Seen| {
            let line = seen.stderr.trim_end().lines().last().unwrap_or_default();
            line.rsplit('/').next().unwrap_or_default().to_owned()
        };
        let parts = |seen: &Seen| (seen.status, seen.stdout.clone(), last(seen));
        if parts(&ours) != parts(&theirs) {
            different.push(format!("{source}\n  woma: {ours:?}\n  python: {theirs:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn a_traceback_has_the_name_of_the_program() {
    let [ours, _] = both("def f():\n    raise ValueError('x')\nf()\n", &[], "");
    let expected = "  File \"program.py\", line 3, in <module>\n    f()\n";
    assert!(ours.stderr.contains(expected), "{}", ours.stderr);
    assert!(ours.stderr.contains("  File \"program.py\", line 2, in f\n"), "{}", ours.stderr);
}

#[test]
fn modules_beside_the_program_are_found_in_its_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("tools");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("helper.py"), "def name(): return __name__\n").unwrap();
    let program = below.join("program.py");
    fs::write(&program, "import helper\nprint(helper.name(), __file__)\n").unwrap();
    let [workdir, program] = [folder.path(), &program].map(|path| path.to_str().unwrap());
    let seen = run(&["run", "--workdir", workdir, program]);
    assert_eq!(seen.stdout, "helper /mnt/data/tools/program.py\n", "{}", seen.stderr);
}

#[test]
fn the_folder_of_a_program_is_shown_read_only() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("project");
    fs::create_dir(&folder).unwrap();
    for open in [around.path(), &folder] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let secret = around.path().join("secret");
    fs::write(&secret, "of the host").unwrap();
    symlink(&secret, folder.join("link")).unwrap();
    fs::write(folder.join("helper.py"), "def name(): return __name__\n").unwrap();
    fs::write(folder.join("data.csv"), "a,b\n").unwrap();
    let program = folder.join("program.py");
    let source = "
import helper, os
from pathlib import Path
here = Path(__file__).parent
print(helper.name(), (here / 'data.csv').read_text().strip())
for attempt in (lambda: (here / 'new').write_text('x'), lambda: (here / 'link').read_text(),
                lambda: (here / 'data.csv').write_text('x'), lambda: (here / 'helper.py').unlink()):
    try: print('BREACH', attempt())
    except OSError as error: print(type(error).__name__)
Path('own.txt').write_text('the working directory is another one')
";
    fs::write(&program, source).unwrap();
    let seen = run(&["run", program.to_str().unwrap()]);
    assert_eq!(seen.status, 0, "{}", seen.stderr);
    assert!(seen.stdout.starts_with("helper a,b\n"), "{}", seen.stdout);
    assert!(!seen.stdout.contains("BREACH"), "{}", seen.stdout);
    assert_eq!(seen.stdout.lines().count(), 5, "{}", seen.stdout);
    assert!(!folder.join("own.txt").exists());
}

#[test]
fn standard_input_has_no_size_limit_and_is_read_as_it_comes() {
    let program = "import sys\nprint(sum(map(len, sys.stdin)))";
    let text = "0123456789\n".repeat(400_000);
    let seen = feed(&["run", "-c", program], text.as_bytes());
    assert_eq!(seen.stdout, format!("{}\n", text.len()), "{}", seen.stderr);

    let program = "print(input(), flush=True)\nprint(input())";
    let (mut child, mut stdout, line) = super::converse(&["run", "-c", program], b"first\n");
    assert_eq!(line, "first\n");
    child.stdin.take().unwrap().write_all(b"second\n").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("second\n", Some(0)));
}

#[test]
fn a_program_whose_output_cannot_be_written_is_stopped() {
    let program = "while True: print('x' * 1000)";
    let (mut child, stdout, _) = super::start(&["run", "--timeout", "300", "-c", program]);
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(141));

    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = woma(&["run", "-c", "print(1)"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"));
}

#[test]
fn an_argument_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;

    let argument = std::ffi::OsStr::from_bytes(b"\xff");
    let output = woma(&["run", "-c", "1"]).arg(argument).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not UTF-8"));
}
