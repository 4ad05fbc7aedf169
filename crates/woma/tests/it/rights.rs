//! Privileges of a server that is started as root: its user, and the files that it can still reach.
//! Started as an ordinary user, it keeps that user.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{Server, descendants, environment, is_alive, until};

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn woma(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_woma"));
    command.arg("--data-dir").arg(data).arg("--env").arg(environment()).args(arguments);
    command.env_clear().output().unwrap()
}

fn on(data: &Path, more: &[&str]) -> Server {
    let mut arguments = vec!["--data-dir", data.to_str().unwrap()];
    arguments.extend(more);
    Server::start(&arguments)
}

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status}"))
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The statuses of all threads of a process.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect()
}

fn keeper(server: &Server) -> Option<u32> {
    descendants(server.pid).into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"keeper")
    })
}

#[test]
fn no_thread_of_a_server_is_root_or_could_be() {
    let server = Server::start(&[]);
    server.code("a", "print(1)");
    let own = fs::metadata("/proc/self").unwrap().uid();
    for status in threads(server.pid) {
        let ids = field(&status, "Uid");
        let uid = ids.split(' ').next().unwrap();
        assert_eq!(ids, [uid; 4].join(" "), "all four of them");
        if !is_root() {
            assert_eq!(uid, own.to_string());
            continue;
        }
        assert_ne!(uid, "0");
        assert_eq!(field(&status, "Gid"), [uid; 4].join(" "));
        assert_eq!(field(&status, "Groups"), "");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(&status, set), "0000000000000000", "{set}");
        }
        assert_eq!(
            (field(&status, "NoNewPrivs"), field(&status, "Seccomp")),
            ("1".into(), "2".into())
        );
    }
    until("the layers are known", || server.get("/health").json()["layers"].is_array());
    let health = server.get("/health").json();
    let layers = health["layers"].as_array().unwrap();
    let layer = layers.iter().find(|layer| layer["name"] == "server").unwrap();
    assert_eq!(layer["state"], if is_root() { "enforced" } else { "partly" }, "{layer}");
    assert_eq!(keeper(&server).is_some(), is_root());
}

#[test]
fn files_that_a_confined_server_can_open() {
    if !is_root() {
        return;
    }
    let around = tempfile::tempdir().unwrap();
    // Open to all users, so that a refusal is not due to the owner.
    fs::set_permissions(around.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let at = |name: &str| around.path().join(name).to_str().unwrap().to_owned();
    for folder in ["data", "other"] {
        fs::create_dir(at(folder)).unwrap();
        fs::set_permissions(at(folder), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(at(&format!("{folder}/file")), "1").unwrap();
        fs::set_permissions(at(&format!("{folder}/file")), fs::Permissions::from_mode(0o666))
            .unwrap();
    }
    let inside = [at("data"), at("data/file")];
    let outside = [at("other"), at("other/file"), at("")];
    let mut read: Vec<String> = inside.iter().chain(&outside).cloned().collect();
    let fixed = [
        "/etc/hosts",
        "/proc/self/status",
        "/",
        "/root",
        "/home",
        "/var",
        "/tmp",
        "/usr/bin",
        "/usr/bin/env",
        "/etc/shadow",
        "/proc/1/environ",
        "/proc/1/mem",
        "/proc/1/maps",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/sda",
        "/proc/kcore",
        "/sys/kernel",
        "/boot",
        "/run",
    ];
    read.extend(fixed.map(str::to_owned));
    let write = [
        at("data/new"),
        at("data/file"),
        at("other/file"),
        at("other/new"),
        "/etc/woma-test".into(),
        "/tmp/woma-test".into(),
        "/var/tmp/woma-test".into(),
        "/dev/null".into(),
        "/dev/shm/woma-test".into(),
        "/proc/sys/kernel/core_pattern".into(),
        "/proc/self/uid_map".into(),
        "/proc/self/oom_score_adj".into(),
        "/sys/fs/cgroup/memory/tasks".into(),
    ];
    let trial = json!({ "writable": [at("data")], "read": read, "write": write, "run": ["/bin/true", "/proc/self/exe"] });
    let output = Command::new(env!("CARGO_BIN_EXE_woma"))
        .args(["keeper", "try", &trial.to_string()])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{told}"));
    let readable = [&inside[0], &inside[1], "/etc/hosts", "/proc/self/status"];
    assert_eq!(found["read"], json!(readable));
    assert_eq!(found["write"], json!([at("data/new"), at("data/file"), "/dev/null"]));
    assert_eq!(found["run"], json!([]));
    assert_ne!(found["uid"], 0);
}

#[test]
fn files_made_by_root_belong_to_the_servers_user() {
    let folder = tempfile::tempdir().unwrap();
    let server = on(folder.path(), &[]);
    assert_eq!(server.get("/api/v1/sessions").status, 200, "there is no key yet");
    let made = woma(folder.path(), &["keys", "create", "ann"]);
    assert!(made.status.success(), "{made:?}");
    let key = format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim());
    let owner = fs::metadata(folder.path().join("server-id")).unwrap().uid();
    assert_eq!(fs::metadata(folder.path().join("keys.json")).unwrap().uid(), owner);
    until("the key is asked for", || server.get("/api/v1/sessions").status == 401);
    let with = [("Authorization", key.as_str())];
    assert_eq!(server.request("GET", "/api/v1/sessions", &with, b"").status, 200);
    let audit = woma(folder.path(), &["audit"]);
    assert!(audit.status.success(), "{audit:?}");
    if is_root() {
        for name in ["envs", "woma.toml"] {
            assert!(!folder.path().join(name).exists());
        }
        let metadata = fs::metadata(folder.path()).unwrap();
        let mode = metadata.mode() & 0o7070;
        assert_eq!((metadata.uid(), metadata.gid(), mode), (0, owner, 0o1070));
    }
}

#[test]
fn files_of_a_server_that_was_root_are_handed_over_and_back() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let add = |user: &[&str], word: &str| {
        let server = on(folder.path(), user);
        let code = format!("open('words', 'a').write('{word} '); print(open('words').read())");
        let reply = server.code("a", &code);
        let is_kept = field(&threads(server.pid)[0], "Uid") == "0 0 0 0";
        server.stop();
        (reply["stdout"].as_str().unwrap_or_default().trim().to_owned(), is_kept, server.log())
    };
    let (said, is_kept, log) = add(&["--user", "root"], "one");
    assert!(said == "one" && is_kept && log.contains("RUN_AS is root"), "{said} {log}");
    let (said, is_kept, _) = add(&[], "two");
    assert!(said == "one two" && !is_kept, "{said}");
    let (said, is_kept, _) = add(&["--user", "root"], "three");
    assert!(said == "one two three" && is_kept, "{said}");
    let (said, is_kept, _) = add(&[], "four");
    assert!(said == "one two three four" && !is_kept, "{said}");
}

#[test]
fn refuses_to_start_if_privileges_cannot_be_dropped() {
    if !is_root() {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = |data: &Path, more: &[&str], says: &str| {
        let output = woma(data, &[&["serve", "--port", "0"], more].concat());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{told}");
        assert!(told.contains(says) && told.lines().count() <= 3, "{says}: {told}");
    };
    // Its folder is in one of root's.
    refused(&closed.path().join("data"), &[], "is closed to others");
    refused(closed.path(), &["--user", "nobody-of-that-name"], "there is no user");
    // A folder of another user.
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(12_345), Some(12_345)).unwrap();
    refused(theirs.path(), &["--user", "54321"], "belongs to the user 12345");
    // A settings file that a compromised server has left.
    let planted = tempfile::tempdir().unwrap();
    fs::write(planted.path().join("woma.toml"), "run_as = \"root\"\n").unwrap();
    chown(planted.path().join("woma.toml"), Some(12_345), Some(12_345)).unwrap();
    refused(planted.path(), &[], "is not owned by root");
}

#[test]
fn the_user_can_be_named_or_is_the_folders_owner() {
    if !is_root() {
        return;
    }
    let program = "import os; print(os.getuid(), os.getgid())";
    let folder = tempfile::tempdir().unwrap();
    let output = woma(folder.path(), &["--user", "12345", "run", "-c", program]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "12345 12345\n", "{output:?}");
    let theirs = tempfile::tempdir().unwrap();
    chown(theirs.path(), Some(12_346), Some(12_347)).unwrap();
    let server = on(theirs.path(), &[]);
    assert_eq!(server.code("a", program)["stdout"], "12346 12347\n");
    assert_eq!(field(&threads(server.pid)[0], "Uid"), ["12346"; 4].join(" "));
    assert_eq!(fs::metadata(theirs.path().join("woma.db")).unwrap().uid(), 12_346);
}

#[test]
fn a_server_without_its_keeper_opens_no_session_and_leaves_no_process() {
    if !is_root() {
        return;
    }
    let server = Server::start(&["--set", "session_pool_size=0"]);
    assert_eq!(server.code("a", "print(1)")["stdout"], "1\n");
    let keeper = keeper(&server).unwrap();
    let kill = Command::new("kill").args(["-KILL", &keeper.to_string()]).status().unwrap();
    assert!(kill.success());
    until("it is gone", || !is_alive(keeper));
    let answer = server.post("/execute", &json!({ "code": "1", "session_id": "b" }));
    assert!(answer.status >= 500, "{}", answer.text());
    assert_eq!(server.code("a", "print(2)")["stdout"], "2\n", "existing sessions go on");
    let below = descendants(server.pid);
    server.kill();
    until("nothing is left", || !below.iter().any(|pid| is_alive(*pid)));
}
