//! Fail closed: each isolation layer is removed in turn, and the result is an error, a hint, and no
//! session.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::path::PathBuf;
use std::process::{Command, Output};

fn setting(name: &str) -> PathBuf {
    let set = std::env::var_os(name);
    assert!(set.is_some(), "{name} must be set; `make test` makes the environment and sets it");
    set.map(PathBuf::from).unwrap_or_default()
}

/// Runs woma with these system calls failing.
fn woma_without(errno: i32, calls: &[i64], arguments: &[&str]) -> Output {
    let calls: Vec<String> = calls.iter().map(ToString::to_string).collect();
    Command::new(setting("WOMA_TEST_ENV").join("bin/python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/without.py"))
        .arg(errno.to_string())
        .arg(calls.join(","))
        .arg(env!("CARGO_BIN_EXE_woma"))
        .arg("--data-dir")
        .arg(setting("WOMA_TEST_DATA_DIR"))
        .args(arguments)
        .output()
        .unwrap()
}

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(crate) const UNSHARE: i64 = 272;
    pub(crate) const MOUNT: i64 = 165;
    pub(crate) const PIVOT_ROOT: i64 = 155;
    pub(crate) const SECCOMP: i64 = 317;
    pub(crate) const SETNS: i64 = 308;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub(crate) const UNSHARE: i64 = 97;
    pub(crate) const MOUNT: i64 = 40;
    pub(crate) const PIVOT_ROOT: i64 = 41;
    pub(crate) const SECCOMP: i64 = 277;
    pub(crate) const SETNS: i64 = 268;
}
const CLONE3: i64 = 435;
const LANDLOCK_CREATE_RULESET: i64 = 444;
const LANDLOCK_RESTRICT_SELF: i64 = 446;

#[test]
fn refuses_to_run_if_a_wall_is_missing_and_names_it() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    let first_step = if is_root { "use root's rights" } else { "create a user namespace" };
    // A server started as root needs it for itself, before any cell does.
    let cells_landlock = if is_root { "Landlock" } else { "start the kernel" };
    for (what, errno, calls, says) in [
        ("namespaces", EPERM, vec![number::UNSHARE], first_step),
        ("clone3", ENOSYS, vec![CLONE3], "create the outer namespaces"),
        ("mounts", EPERM, vec![number::MOUNT], "make the mount namespace our own"),
        ("pivot_root", EPERM, vec![number::PIVOT_ROOT], "pivot_root"),
        ("landlock", ENOSYS, vec![LANDLOCK_CREATE_RULESET], "Landlock"),
        ("landlock for cells", ENOSYS, vec![LANDLOCK_RESTRICT_SELF], cells_landlock),
        ("seccomp", ENOSYS, vec![number::SECCOMP], "system call"),
        ("setns", EPERM, vec![number::SETNS], "could not be opened"),
    ] {
        let output = woma_without(errno, &calls, &["run", "-c", "print('it ran')"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{what}: {stderr}");
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains("it ran"),
            "{what} is not needed?"
        );
        assert!(stderr.contains(says), "{what}: {stderr}");
        assert!(stderr.lines().count() <= 3, "{what}: more than a sentence and a hint: {stderr}");
    }
}

#[test]
fn the_doctor_names_the_missing_wall_and_fails() {
    let output = woma_without(ENOSYS, &[LANDLOCK_CREATE_RULESET], &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["isolation"], "none");
    let layers = report["layers"].as_array().unwrap();
    let landlock = layers.iter().find(|layer| layer["name"] == "landlock").unwrap();
    assert_eq!(landlock["state"], "missing");
    assert!(landlock["fix"].as_str().unwrap().contains("landlock"));
}
