//! The command line from outside: exit status, output, messages.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may unwrap")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use serde_json::Value;

#[path = "cli/as_python.rs"]
mod as_python;
#[path = "cli/lost_output.rs"]
mod lost_output;

/// The data folder that `make test` has made, with the default environment in it.
fn data_folder() -> PathBuf {
    let folder = env::var_os("WOMA_TEST_DATA_DIR").unwrap_or_else(|| {
        panic!("WOMA_TEST_DATA_DIR must name a data folder; `make test` makes one and sets it")
    });
    let folder = PathBuf::from(folder);
    assert!(folder.join("envs").is_dir(), "WOMA_TEST_DATA_DIR={} has no envs", folder.display());
    folder
}

fn woma(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_woma"));
    command.args(arguments).env("WOMA_DATA_DIR", data_folder()).stdin(Stdio::null());
    command
}

#[derive(Debug)]
struct Seen {
    status: i32,
    stdout: String,
    stderr: String,
}

fn run(arguments: &[&str]) -> Seen {
    seen(woma(arguments).output().unwrap())
}

fn seen(output: Output) -> Seen {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    let status = output.status.code().unwrap_or_else(|| panic!("{}: {stderr}", output.status));
    Seen { status, stdout, stderr }
}

fn code(code: &str) -> Seen {
    run(&["run", "-c", code])
}

/// Starts a program and waits for the first line that it prints.
fn start(arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
    converse(arguments, b"")
}

/// As `start`, with this text on standard input, which stays open.
fn converse(
    arguments: &[&str],
    text: &[u8],
) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut command = woma(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(text).unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (child, stdout, line)
}

/// Checks that an error is one line of woma, without a panic or a debug dump.
fn one_sentence(seen: &Seen) {
    let text = &seen.stderr;
    let ours = text.lines().filter(|line| !line.starts_with("hint: ")).count();
    assert_eq!(ours, 1, "{text}");
    assert!(text.starts_with("woma: "), "{text}");
    for ugly in ["panicked", "Os {", "Some(", "Err(", "kind:"] {
        assert!(!text.contains(ugly), "{text}");
    }
    assert_eq!(seen.stdout, "");
}

#[test]
fn a_program_comes_from_an_argument_a_file_or_standard_input() {
    let seen = code("print('ä', 6 * 7)");
    assert_eq!((seen.status, &*seen.stdout, &*seen.stderr), (0, "ä 42\n", ""));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.py");
    fs::write(&file, "import sys\nprint('from a file')\nprint('aside', file=sys.stderr)\n")
        .unwrap();
    let seen = run(&["run", file.to_str().unwrap()]);
    assert_eq!((seen.status, &*seen.stdout, &*seen.stderr), (0, "from a file\n", "aside\n"));
    for arguments in [&["run", "-"][..], &["run"]] {
        let seen = feed(arguments, b"print('from a pipe')");
        assert_eq!((seen.status, &*seen.stdout, &*seen.stderr), (0, "from a pipe\n", ""));
    }
}

/// Runs the program with this text on its standard input.
fn feed(arguments: &[&str], text: &[u8]) -> Seen {
    let mut child = woma(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    seen(child.wait_with_output().unwrap())
}

#[test]
fn exits_with_the_status_of_the_program() {
    let expected = [
        ("pass", 0),
        ("# only a comment", 0),
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit(0)", 0),
        ("raise ValueError('x')", 1),
        ("import os; os._exit(9)", 9),
        ("import ctypes; ctypes.string_at(0)", 139),
    ];
    for (program, status) in expected {
        let seen = code(program);
        assert_eq!(seen.status, status, "{program}: {}", seen.stderr);
        assert_eq!(seen.stdout, "", "{program}");
    }
}

#[test]
fn shows_an_exception_as_python_does() {
    let seen = code("def f():\n    return 1 / 0\nprint('before')\nf()");
    assert_eq!((seen.status, &*seen.stdout), (1, "before\n"));
    let first = seen.stderr.lines().next().unwrap_or_default();
    assert_eq!(first, "Traceback (most recent call last):", "{}", seen.stderr);
    assert!(seen.stderr.contains("line 2, in f"), "{}", seen.stderr);
    assert!(seen.stderr.ends_with("ZeroDivisionError: division by zero\n"), "{}", seen.stderr);
    assert!(!seen.stderr.contains("\x1b["), "colours in a pipe: {:?}", seen.stderr);
}

#[test]
fn a_timeout_exits_with_status_124() {
    let started = Instant::now();
    let seen = run(&["run", "--timeout", "500ms", "-c", "print('before')\nwhile True: pass"]);
    assert_eq!((seen.status, &*seen.stdout), (124, "before\n"), "{}", seen.stderr);
    assert!(seen.stderr.contains("woma: Execution timed out after 0.5 seconds"), "{}", seen.stderr);
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
}

#[test]
fn exceeding_the_memory_limit_exits_with_status_137() {
    let hoard = "x = []\nwhile True: x.append(b'x' * (4 << 20))";
    let seen = run(&["run", "--memory", "384m", "-c", hoard]);
    assert_eq!(seen.status, 1, "{}", seen.stderr);
    assert!(seen.stderr.contains("MemoryError"), "{}", seen.stderr);
    assert!(seen.stderr.contains("may use 384 MiB of memory"), "{}", seen.stderr);
    // Code that ignores the signal.
    let hoard = "import mmap, signal\nsignal.signal(signal.SIGSTKFLT, signal.SIG_IGN)\nx = []\n\
                 while True:\n    x.append(mmap.mmap(-1, 4 << 20))\n    x[-1].write(bytes(4 << 20))";
    let seen = run(&["run", "--memory", "384m", "-c", hoard]);
    assert_eq!(seen.status, 137, "{}", seen.stderr);
    assert!(seen.stderr.contains("Memory limit exceeded (384 MB)"), "{}", seen.stderr);
}

#[test]
fn json_output_is_one_object() {
    let program = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nx = 20\nx + 1";
    let seen = run(&["run", "--json", "-c", program]);
    assert_eq!((seen.status, &*seen.stderr), (0, ""));
    assert_eq!(seen.stdout.lines().count(), 1);
    let reply: Value = serde_json::from_str(&seen.stdout).unwrap();
    for (pointer, value) in [
        ("/outcome", Value::from("completed")),
        ("/success", true.into()),
        ("/exit_code", 0.into()),
        ("/stdout", "out\n".into()),
        ("/stderr", "err\n".into()),
        ("/result", 21.into()),
        ("/variables", vec!["x"].into()),
        ("/kernel_info/session_persisted", false.into()),
    ] {
        assert_eq!(reply.pointer(pointer), Some(&value), "{pointer} in {reply:#}");
    }
    assert!(reply["execution_time_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms < 10_000.0));
}

#[test]
fn json_output_reports_failures() {
    let reply = |options: &[&str], program| {
        let seen = run(&[&["run", "--json"], options, &["-c", program]].concat());
        let reply: Value = serde_json::from_str(&seen.stdout).unwrap();
        assert_eq!(reply["exit_code"], seen.status, "{reply:#}");
        assert_eq!(reply["success"], false, "{reply:#}");
        let told = |name: &str| reply[name].as_str().unwrap().to_owned();
        (seen.status, told("outcome"), told("error_message"), reply["error"].clone())
    };
    let (status, outcome, message, error) = reply(&[], "print('x')\n1 / 0");
    assert_eq!((status, &*outcome), (1, "raised"));
    assert_eq!(message, "ZeroDivisionError: division by zero");
    assert_eq!((&error["type"], &error["line"]), (&"ZeroDivisionError".into(), &2.into()));
    let (status, outcome, message, _) =
        reply(&["--timeout", "300ms"], "print('x')\nwhile True: pass");
    assert_eq!((status, &*outcome), (124, "timed_out"));
    assert_eq!(message, "Execution timed out after 0.3 seconds.");
    let (status, outcome, message, _) = reply(&[], "import os; os._exit(3)");
    assert_eq!((status, &*outcome), (3, "crashed"));
    assert_eq!(message, "Python ended itself with status 3.");
}

#[test]
fn a_working_directory_outlives_the_run() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().to_str().unwrap();
    fs::write(folder.path().join("in.txt"), "given").unwrap();
    let seen = run(&[
        "run",
        "--workdir",
        path,
        "-c",
        "open('out.txt', 'w').write(open('in.txt').read() + '!')\npass",
    ]);
    assert_eq!((seen.status, &*seen.stderr), (0, ""));
    assert_eq!(fs::read_to_string(folder.path().join("out.txt")).unwrap(), "given!");
    // A relative path is relative to here.
    let mut relative = woma(&["run", "--workdir", ".", "-c", "print(open('out.txt').read())"]);
    assert_eq!(
        self::seen(relative.current_dir(folder.path()).output().unwrap()).stdout,
        "given!\n"
    );
    let missing = run(&["run", "--workdir", "/nonexistent/folder", "-c", "1"]);
    assert_eq!(missing.status, 125);
    one_sentence(&missing);
    assert!(missing.stderr.contains("/nonexistent/folder"), "{}", missing.stderr);
}

#[test]
fn charts_are_written_as_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let charts = folder.path().join("new/charts");
    let program = "
import matplotlib.pyplot as plt
for _ in range(2):
    plt.figure(); plt.plot([1, 2])
plt.show()
";
    let seen = run(&["run", "--charts", charts.to_str().unwrap(), "-c", program]);
    assert_eq!(seen.status, 0, "{}", seen.stderr);
    let mut found: Vec<PathBuf> =
        fs::read_dir(&charts).unwrap().map(|f| f.unwrap().path()).collect();
    found.sort();
    assert_eq!(found, [charts.join("chart_001.png"), charts.join("chart_002.png")]);
    for path in found {
        assert!(fs::read(&path).unwrap().starts_with(b"\x89PNG\r\n"), "{}", path.display());
        assert!(seen.stderr.contains(path.to_str().unwrap()), "{}", seen.stderr);
    }
}

#[test]
fn a_program_can_be_checked_without_running_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.py");
    let check = |program: &str, arguments: &[&str]| {
        fs::write(&path, program).unwrap();
        run(&[&["check"], arguments, &[path.to_str().unwrap()]].concat())
    };
    let fine = check("import os\nprint(os.sep)\n", &[]);
    assert_eq!((fine.status, &*fine.stdout), (0, ""), "{}", fine.stderr);
    assert!(fine.stderr.contains("Code passed validation (policy open)"), "{}", fine.stderr);
    let ruled = check("x = 1\nimport os\n", &["--preset", "ibm-sandbox"]);
    let place = format!("{}:2:8: Import 'os' is not allowed", path.display());
    assert_eq!(ruled.status, 1, "{}", ruled.stderr);
    assert!(ruled.stdout.starts_with(&place), "{}", ruled.stdout);
    assert_eq!(check("import math", &["--allowed-imports", "json"]).status, 1);
    let broken = check("print('a' 5)", &[]);
    assert_eq!(broken.status, 1);
    assert!(broken.stdout.contains("\n    print('a' 5)\n    "), "{}", broken.stdout);
    assert!(broken.stdout.lines().any(|line| line.trim() == "^"), "{}", broken.stdout);
    let json = check("import os", &["--json", "--preset", "ibm-sandbox"]);
    let found: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(found["validation"]["valid"], false);
    let missing = run(&["check", "/nonexistent/program.py"]);
    assert_eq!(missing.status, 125);
    one_sentence(&missing);
}

#[test]
fn output_arrives_while_the_program_runs() {
    let program = "import time\nprint('first')\nwhile True: time.sleep(0.1)";
    let (mut child, _, line) = start(&["run", "--timeout", "30", "-c", program]);
    assert_eq!(line, "first\n");
    assert!(child.try_wait().unwrap().is_none(), "it has ended already");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn an_interrupt_ends_the_run_with_status_130() {
    let program = "
import time
print('first')
try:
    while True: time.sleep(9)
finally: print('cleaned up')
";
    let (mut child, mut stdout, line) = start(&["run", "--timeout", "20", "-c", program]);
    assert_eq!(line, "first\n");
    let started = Instant::now();
    interrupt(&child);
    let (mut rest, mut stderr) = (String::new(), String::new());
    stdout.read_to_string(&mut rest).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{stderr}");
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
    assert_eq!(rest, "cleaned up\n");
    assert!(stderr.contains("interrupted"), "{stderr}");
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_killed_woma_leaves_no_process() {
    let marker = format!("{}.{}", std::process::id(), 271_828);
    let program = format!(
        "import subprocess\nsubprocess.Popen(['sleep', '{marker}'])\nprint('x')\nwhile True: pass"
    );
    let (mut child, _, line) = start(&["run", "-c", &program]);
    assert_eq!(line, "x\n");
    // Its arguments appear in /proc a moment after it has started.
    until_running(&marker, true);
    child.kill().unwrap();
    child.wait().unwrap();
    until_running(&marker, false);
}

/// Whether a process other than ours was started with exactly this argument.
/// Waits until a program with this argument is or is not running.
fn until_running(argument: &str, wanted: bool) {
    let started = Instant::now();
    while is_running(argument) != wanted {
        assert!(started.elapsed() < Duration::from_secs(50), "running: {}", !wanted);
        std::thread::yield_now();
    }
}

fn is_running(argument: &str) -> bool {
    let mut lines = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default());
    lines.any(|line| line == format!("sleep\0{argument}\0"))
}

#[test]
fn rejects_invalid_flags() {
    let refused: &[(&[&str], &str)] = &[
        (&["run", "--timeout", "0", "-c", "1"], "between 1ms and 24h"),
        (&["run", "--timeout", "soon", "-c", "1"], "--timeout"),
        (&["run", "--memory", "1k", "-c", "1"], "at least 16m"),
        (&["run", "--cpus", "0", "-c", "1"], "processors"),
        (&["run", "--nonsense"], "--nonsense"),
        (&["nonsense"], "nonsense"),
        (&["env", "nonsense"], "nonsense"),
    ];
    for (arguments, told) in refused {
        let seen = run(arguments);
        assert_eq!((seen.status, &*seen.stdout), (2, ""), "{arguments:?}");
        assert!(seen.stderr.contains(told), "{arguments:?}: {}", seen.stderr);
    }
}

#[test]
fn reports_missing_inputs_in_one_sentence() {
    let missing: &[(&[&str], &str)] = &[
        (&["run", "/nonexistent/program.py"], "/nonexistent/program.py"),
        (&["run", "/tmp"], "/tmp"),
        (&["run", "-c", ""], "the code is empty"),
        (&["run", "-"], "the code is empty"),
        (&["--env", "/nonexistent", "run", "-c", "1"], "/nonexistent"),
        (&["run", "--env", "/nonexistent", "-c", "1"], "/nonexistent"),
        (&["run", "--env", "nonexistent", "-c", "1"], "nonexistent"),
        (&["run", "--env", "/bin/false", "-c", "1"], "/bin/false"),
        (&["--data-dir", "/proc/x", "run", "-c", "1"], "/proc/x"),
        (&["--data-dir", "/dev/null/x", "run", "-c", "1"], "/dev/null/x"),
        (&["env", "info", "nonexistent"], "nonexistent"),
        (&["env", "remove", "nonexistent"], "nonexistent"),
    ];
    for (arguments, told) in missing {
        let seen = run(arguments);
        assert_eq!(seen.status, 125, "{arguments:?}: {}", seen.stderr);
        one_sentence(&seen);
        assert!(seen.stderr.contains(told), "{arguments:?}: {}", seen.stderr);
    }
}

#[test]
fn rejects_a_program_that_is_not_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("binary.py");
    fs::write(&file, b"print('\xff')").unwrap();
    let seen = run(&["run", file.to_str().unwrap()]);
    assert_eq!(seen.status, 125);
    one_sentence(&seen);
}

#[test]
fn the_doctor_calls_isolation_full_only_if_every_layer_is_enforced() {
    let seen = run(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&seen.stdout).unwrap();
    let layers = found["layers"].as_array().unwrap();
    assert!(layers.len() >= 9, "{found:#}");
    let is_full = layers.iter().all(|layer| layer["state"] == "enforced");
    let level = if is_full { "full" } else { "strong" };
    assert_eq!((seen.status, &found["isolation"]), (0, &level.into()), "{found:#}");
    for wall in ["namespaces", "landlock", "seccomp", "cell"] {
        let layer = layers.iter().find(|layer| layer["name"] == wall).unwrap();
        assert_eq!(layer["state"], "enforced", "{found:#}");
    }
    let seen = run(&["doctor"]);
    assert_eq!(seen.status, 0);
    assert!(seen.stdout.starts_with(&format!("isolation    {level}")), "{}", seen.stdout);
}

#[test]
fn the_doctor_says_where_data_goes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let doctor = |json: bool, variables: &[(&str, &str)]| {
        let arguments = ["--data-dir", data, "doctor", "--json"];
        let mut command = woma(&arguments[..3 + usize::from(json)]);
        seen(command.envs(variables.iter().copied()).current_dir(data).output().unwrap())
    };
    let url = ("DATABASE_URL", "postgres://someone:secret@127.0.0.1:1/none");
    let bucket = [
        ("BLOBS_IN", "s3"),
        ("S3_BUCKET", "kept"),
        ("S3_ENDPOINT", "http://127.0.0.1:1"),
        ("S3_ACCESS_KEY_ID", "a"),
        ("S3_SECRET_ACCESS_KEY", "secret"),
    ];
    let sqlite = format!("SQLite in the data folder, {data}");
    for (variables, records, contents) in [
        (&[][..], sqlite.as_str(), format!("in the data folder, {data}")),
        (&[url], "PostgreSQL", "PostgreSQL".to_owned()),
        (
            &[url, ("BLOBS_IN", "folder")],
            "PostgreSQL",
            format!("in the data folder, {data}: a server with another folder does not find them"),
        ),
        (&bucket, &sqlite, "S3, the bucket kept at http://127.0.0.1:1".to_owned()),
    ] {
        let seen = doctor(true, variables);
        let found: Value = serde_json::from_str(&seen.stdout).unwrap();
        let storage = &found["storage"];
        assert_eq!(
            (&storage["records"], &storage["contents"]),
            (&records.into(), &contents.into())
        );
        assert!(!seen.stdout.contains("secret") && !seen.stderr.contains("secret"), "{found}");
    }
    let seen = doctor(false, &[url]);
    let has = |line: &str| seen.stdout.lines().any(|it| it == line);
    assert!(has("records      PostgreSQL") && has("contents     PostgreSQL"), "{}", seen.stdout);
    let seen = doctor(false, &[("BLOBS_IN", "nowhere")]);
    assert!(seen.stdout.contains("contents     unknown"), "{}", seen.stdout);
    assert!(seen.stderr.contains("BLOBS_IN"), "{}", seen.stderr);
}

#[test]
fn environments_are_listed_and_described() {
    let seen = run(&["env", "list"]);
    assert_eq!((seen.status, &*seen.stderr), (0, ""));
    assert!(
        seen.stdout.contains("default-") && seen.stdout.contains("Python 3."),
        "{}",
        seen.stdout
    );
    let listed: Value = serde_json::from_str(&run(&["env", "list", "--json"]).stdout).unwrap();
    assert!(!listed.as_array().unwrap().is_empty());
    let seen = run(&["env", "info"]);
    assert_eq!(seen.status, 0, "{}", seen.stderr);
    for told in ["folder ", "python ", "size ", "  numpy "] {
        assert!(seen.stdout.contains(told), "{told}: {}", seen.stdout);
    }
    let info: Value = serde_json::from_str(&run(&["env", "info", "--json"]).stdout).unwrap();
    assert!(info["packages"].as_array().is_some_and(|packages| packages.len() > 30));
    assert!(run(&["env", "lock"]).stdout.contains("--hash=sha256:"));
}

#[test]
fn an_environment_can_be_named_by_its_path() {
    let folder = fs::read_dir(data_folder().join("envs")).unwrap().flatten();
    let default = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with("default-");
    let path = folder.map(|entry| entry.path()).find(|path| default(path)).unwrap();
    for name in [path.clone(), path.join("bin/python")] {
        let seen = run(&["run", "--env", name.to_str().unwrap(), "-c", "import numpy; print(1)"]);
        assert_eq!((seen.status, &*seen.stdout), (0, "1\n"), "{}: {}", name.display(), seen.stderr);
    }
}

#[test]
fn help_names_every_command() {
    let seen = run(&["--help"]);
    assert_eq!(seen.status, 0);
    for command in ["serve", "stdio", "run", "doctor", "env", "keys", "config", "bench"] {
        let named = seen.stdout.lines().any(|line| line.trim_start().starts_with(command));
        assert!(named, "{command}: {}", seen.stdout);
        let own = run(&[command, "--help"]);
        assert!(own.status == 0 && own.stdout.contains("Usage: woma "), "{}", own.stdout);
    }
    assert_eq!(run(&["--version"]).status, 0);
    // Standard input is not a terminal here, so this is a client, which is gone already.
    let nothing = run(&[]);
    assert_eq!((nothing.status, &*nothing.stdout), (0, ""));
}
