//! `woma sessions`, `files`, `jobs` and `keys` on a server elsewhere.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::{KEY, Keyed};
use crate::harness::{environment, unique};

/// A server whose key may do everything but manage keys.
fn keyed() -> &'static Keyed {
    static KEYED: OnceLock<Keyed> = OnceLock::new();
    KEYED.get_or_init(|| Keyed::start(&[("API_KEY", KEY)]))
}

/// The program with no setting from anywhere, in this folder.
fn bare(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_woma"));
    command.args(arguments).env_clear().env("HOME", folder).current_dir(folder);
    command.stdin(Stdio::null());
    command
}

/// The program as a user of the server has it.
fn woma(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = bare(folder, arguments);
    command.env("WOMA_URL", format!("http://{}", keyed().server.address)).env("WOMA_API_KEY", KEY);
    command
}

/// Exit status, standard output, standard error.
fn seen(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Standard output of a command that must succeed.
fn said(folder: &Path, arguments: &[&str]) -> String {
    let (status, stdout, stderr) = seen(&mut woma(folder, arguments));
    assert_eq!(status, 0, "{arguments:?}: {stderr}");
    stdout
}

fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let text = said(folder, arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {arguments:?}: {text}"))
}

fn run(session: &str, code: &str) -> Value {
    let body = json!({ "code": code, "session_id": session });
    keyed().client(KEY).post("/execute", &body).json()
}

#[test]
fn sessions_are_listed_shown_and_deleted() {
    let folder = TempDir::new().unwrap();
    let (one, two) = (unique("one"), unique("two"));
    for session in [&one, &two] {
        assert_eq!(run(session, "6 * 7")["result"], 42);
    }
    let listed = said(folder.path(), &["sessions", "list"]);
    assert!(
        listed.lines().any(|line| line.starts_with(&*one) && line.contains("live")),
        "{listed}"
    );
    let rows = said(folder.path(), &["sessions", "list", "--json"]);
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["session_id"] == *two), "{rows:?}");
    assert!(said(folder.path(), &["sessions", "show", &one]).contains("/mnt/data"));
    let shown = json_of(folder.path(), &["sessions", "show", &one, "--json"]);
    assert_eq!(shown["execution_count"], 1, "{shown}");
    let deleted = said(folder.path(), &["sessions", "delete", &one, &two]);
    assert_eq!(deleted, format!("deleted  {one}\ndeleted  {two}\n"));
    let (status, stdout, stderr) = seen(&mut woma(folder.path(), &["sessions", "show", &one]));
    assert_eq!((status, &*stdout), (125, ""), "{stderr}");
    assert!(stderr.starts_with("woma: http://") && stderr.contains(&*one), "{stderr}");
}

#[test]
fn files_go_up_and_down_unchanged() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let session = unique("files");
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(here.join("größe 1.bin"), &bytes).unwrap();
    said(here, &["files", "upload", &session, "größe 1.bin"]);
    let to = ["files", "upload", &session, "größe 1.bin", "--to", "in/100% ?.bin", "--json"];
    assert_eq!(json_of(here, &to)["path"], "in/100% ?.bin");
    let code = "import os\n[os.path.getsize(p) for p in ('größe 1.bin', 'in/100% ?.bin')]";
    assert_eq!(run(&session, code)["result"], json!([12_000_000, 12_000_000]));
    let listed = said(here, &["files", "list", &session]);
    assert!(listed.contains("12000000") && listed.contains("in/100% ?.bin"), "{listed}");

    // The last part of the name, in the working directory, and never over a file that is there.
    said(here, &["files", "download", &session, "in/100% ?.bin"]);
    assert_eq!(fs::read(here.join("100% ?.bin")).unwrap(), bytes);
    fs::write(here.join("mine"), "precious").unwrap();
    let over = ["files", "download", &session, "in/100% ?.bin", "-o", "mine"];
    let (status, _, stderr) = seen(&mut woma(here, &over));
    assert_eq!(status, 125);
    assert!(stderr.contains("mine exists: use --force"), "{stderr}");
    assert_eq!(fs::read(here.join("mine")).unwrap(), b"precious");
    said(here, &[&over[..], &["--force"]].concat());
    assert_eq!(fs::read(here.join("mine")).unwrap(), bytes);
    let output = woma(here, &["files", "download", &session, "größe 1.bin", "-o", "-"]).output();
    assert_eq!(output.unwrap().stdout, bytes);

    let absent = ["files", "download", &session, "absent.csv"];
    assert_eq!(seen(&mut woma(here, &absent)).0, 125);
    let mut left: Vec<_> = fs::read_dir(here).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["100% ?.bin", "größe 1.bin", "mine"], "nothing is left of a failed download");

    said(here, &["files", "delete", &session, "größe 1.bin", "in/100% ?.bin"]);
    assert_eq!(said(here, &["files", "list", &session]), "");
    let (status, _, stderr) = seen(&mut woma(here, &["files", "upload", &session, "."]));
    assert_eq!(status, 125);
    assert!(stderr.contains("is not a file"), "{stderr}");
}

#[test]
fn a_job_is_submitted_awaited_and_cancelled() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    fs::write(here.join("good.py"), "print('from a job')").unwrap();
    fs::write(here.join("bad.py"), "print('before'); 1 / 0").unwrap();
    fs::write(here.join("long.py"), "import time; time.sleep(600)").unwrap();
    assert_eq!(said(here, &["jobs", "submit", "good.py", "--wait"]), "from a job\n");
    let (status, stdout, stderr) = seen(&mut woma(here, &["jobs", "submit", "bad.py", "--wait"]));
    assert_eq!(status, 1, "{stderr}");
    assert_eq!(stdout, "before\n");
    assert!(stderr.contains("failed  ZeroDivisionError: division by zero"), "{stderr}");

    let submitted = json_of(here, &["jobs", "submit", "good.py", "--json"]);
    let id = submitted["job_id"].as_str().unwrap();
    let reply = json_of(here, &["jobs", "wait", id, "--json"]);
    assert_eq!(reply["stdout"], "from a job\n", "{reply}");
    assert_eq!(json_of(here, &["jobs", "show", id, "--json"])["status"], "completed");
    assert_eq!(said(here, &["jobs", "result", id]), "from a job\n");
    let listed = said(here, &["jobs", "list", "--status", "completed", "--limit", "1"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");

    let long = json_of(here, &["jobs", "submit", "long.py", "--json"]);
    let id = long["job_id"].as_str().unwrap();
    let (status, _, stderr) = seen(&mut woma(here, &["jobs", "result", id, "--json"]));
    assert_eq!(status, 125);
    assert!(stderr.contains("woma jobs wait"), "{stderr}");
    said(here, &["jobs", "cancel", id]);
    let (status, _, stderr) = seen(&mut woma(here, &["jobs", "wait", id]));
    assert_eq!(status, 1);
    assert!(stderr.contains("cancelled"), "{stderr}");

    for flag in [["--owner", "local"], ["--set", "debug=true"]] {
        let arguments = [&["jobs"][..], &flag, &["list"]].concat();
        let (status, _, stderr) = seen(&mut woma(here, &arguments));
        assert_eq!(status, 125);
        assert!(stderr.contains("has no effect on a server elsewhere"), "{stderr}");
    }
}

#[test]
fn jobs_of_this_machines_server_can_be_awaited_too() {
    let open = Keyed::start(&[]);
    let here = TempDir::new().unwrap();
    fs::write(here.path().join("good.py"), "print('from a job')").unwrap();
    let data = open.folder().to_str().unwrap();
    let submit = ["--data-dir", data, "jobs", "submit", "good.py", "--wait"];
    // An option beats the variable.
    let (status, stdout, stderr) = seen(&mut woma(here.path(), &submit));
    assert_eq!((status, &*stdout), (0, "from a job\n"), "{stderr}");
    let (status, _, stderr) = seen(bare(here.path(), &submit[..5]).arg("--url").arg("http://x"));
    assert_eq!(status, 125);
    assert!(stderr.contains("leave one of them out"), "{stderr}");
}

#[test]
fn keys_are_managed_by_an_administrator() {
    let keyed = Keyed::start(&[]);
    let admin = keyed.key("admin", &["--scope", "admin,execute,read"]);
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let url = format!("http://{}", keyed.server.address);
    fs::write(here.join("admin.key"), format!("{admin}\n")).unwrap();
    let by = |key: &str, more: &[&str]| {
        let mut command = bare(here, more);
        command.args(["--url", &url]);
        match key {
            "" => {}
            key => {
                command.args(["--key-file", key]);
            }
        }
        command
    };
    let limits = ["--rate", "5", "--sessions", "2", "--storage", "1g", "--expires", "30d"];
    let create = [&["keys", "create", "ci"][..], &limits].concat();
    let (status, key, stderr) = seen(&mut by("admin.key", &create));
    assert_eq!(status, 0, "{stderr}");
    assert!(stderr.contains("5 executions/min, 2 sessions, 1073741824 bytes"), "{stderr}");
    assert_eq!(keyed.client(key.trim()).get("/api/v1/sessions").status, 200);
    let (_, listed, _) = seen(&mut by("admin.key", &["keys", "list"]));
    assert!(listed.contains("  ci ") && !listed.contains(key.trim()), "{listed}");

    // That key may not manage keys, and no key at all may do nothing.
    fs::write(here.join("ci.key"), &key).unwrap();
    let (status, _, stderr) = seen(&mut by("ci.key", &["keys", "list"]));
    assert_eq!(status, 125);
    assert!(stderr.contains("admin"), "{stderr}");
    let (status, _, stderr) = seen(&mut by("", &["keys", "list"]));
    assert_eq!(status, 125);
    assert!(stderr.contains("hint: ") && stderr.contains("WOMA_API_KEY"), "{stderr}");

    let (status, revoked, _) = seen(&mut by("admin.key", &["keys", "revoke", "ci", "--json"]));
    assert_eq!(status, 0);
    assert_eq!(serde_json::from_str::<Value>(&revoked).unwrap()["revoked"], true);
    assert_eq!(keyed.client(key.trim()).get("/api/v1/sessions").status, 401);
    assert_eq!(seen(&mut by("admin.key", &["keys", "revoke", "ci"])).0, 125);

    // A key that nobody has seen is revoked.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let lost = by("admin.key", &["keys", "create", "lost"]).stdout(full).output().unwrap();
    assert_eq!(lost.status.code(), Some(125));
    let stderr = String::from_utf8(lost.stderr).unwrap();
    assert!(stderr.contains("could not be printed, and is revoked"), "{stderr}");
    let (_, listed, _) = seen(&mut by("admin.key", &["keys", "list", "--json"]));
    let keys: Value = serde_json::from_str(&listed).unwrap();
    let lost = keys.as_array().unwrap().iter().find(|key| key["name"] == "lost").unwrap();
    assert!(lost["revoked_at"].is_string(), "{lost}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_of_every_command() {
    let folder = TempDir::new().unwrap();
    let here = folder.path();
    let session = unique("lost");
    run(&session, "open('a.txt', 'w').write('a' * 100000)");
    fs::write(here.join("b.txt"), "b").unwrap();
    fs::write(here.join("c.py"), "print('c')").unwrap();
    let commands: [&[&str]; 9] = [
        &["--help"],
        &["sessions", "--help"],
        &["--version"],
        &["sessions", "list"],
        &["sessions", "show", &session, "--json"],
        &["files", "list", &session],
        &["files", "upload", &session, "b.txt"],
        &["files", "download", &session, "a.txt", "-o", "-"],
        &["jobs", "submit", "c.py", "--wait"],
    ];
    for arguments in commands {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let lost = woma(here, arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8(lost.stderr).unwrap();
        assert_eq!(lost.status.code(), Some(125), "{arguments:?}: {stderr}");
        assert_eq!(stderr.matches("woma: cannot write: ").count(), 1, "{arguments:?}: {stderr}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let unread = woma(here, arguments).stdout(writer).output().unwrap();
        let stderr = String::from_utf8(unread.stderr).unwrap();
        assert_eq!((unread.status.code(), &*stderr), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn a_terminal_shows_what_takes_long_and_a_file_does_not() {
    let folder = TempDir::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // A terminal of its own, by the standard library of Python.
    let spawn = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let python = Path::new(&environment()).join("bin/python");
    let mut child = Command::new(python)
        .args(["-c", spawn, env!("CARGO_BIN_EXE_woma"), "sessions", "list", "--url", &url])
        .env_clear()
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    // The answer comes when the waiting has been shown.
    let mut shown = Vec::new();
    let mut screen = child.stdout.take().unwrap();
    let mut buffer = [0; 1024];
    while !String::from_utf8_lossy(&shown).contains("waiting for the server") {
        let read = screen.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend(&buffer[..read]);
    }
    let body = r#"{"sessions": {"s-1": {"session_id": "s-1", "name": "a\u001b[2Jb"}}}"#;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    screen.read_to_end(&mut shown).unwrap();
    assert!(child.wait().unwrap().success());
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("\r\x1b[Ks-1"), "the line is cleared before the data: {shown:?}");
    assert!(shown.contains("a\u{fffd}[2Jb"), "a name does not move the cursor: {shown:?}");
}

/// A server that is not Woma: a thread that returns what it was sent, and its address.
fn impostor(reply: &'static str) -> (std::thread::JoinHandle<String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            request.extend(&buffer[..read]);
        }
        stream.write_all(reply.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (thread, url)
}

#[test]
fn other_servers_are_told_from_woma_and_not_followed() {
    let folder = TempDir::new().unwrap();
    let table = [
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "302"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "is no woma server"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is no woma server"),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}", "status 500"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "cannot reach"),
    ];
    for (reply, expected) in table {
        let (thread, url) = impostor(reply);
        let mut command = bare(folder.path(), &["sessions", "list", "--url", &url]);
        let (status, stdout, stderr) = seen(command.env("WOMA_API_KEY", KEY));
        assert_eq!((status, &*stdout), (125, ""), "{stderr}");
        assert!(stderr.contains(expected) && !stderr.contains(KEY), "{expected}: {stderr}");
        assert!(thread.join().unwrap().contains(&format!("Bearer {KEY}")));
    }
    let (status, _, stderr) = seen(&mut bare(folder.path(), &["sessions", "list"]));
    assert_eq!(status, 125);
    assert!(stderr.contains("--url URL") && stderr.contains("WOMA_URL"), "{stderr}");
    let url = ["sessions", "list", "--url", "http://127.0.0.1:1"];
    let (status, _, stderr) = seen(&mut bare(folder.path(), &url));
    assert_eq!(status, 125);
    assert!(stderr.starts_with("woma: cannot reach http://127.0.0.1:1: "), "{stderr}");
}
