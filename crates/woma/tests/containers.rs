//! Woma inside of containers of podman and crun, on a Debian base that `scripts/container-base` makes:
//! which rung of isolation each set of options gives, what is refused, and that sessions work there.
#![expect(clippy::unwrap_used, reason = "a test may unwrap in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn setting(name: &str) -> PathBuf {
    let set = std::env::var_os(name);
    assert!(set.is_some(), "{name} must be set; `make test` makes what is needed and sets it");
    set.map(PathBuf::from).unwrap_or_default()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Only root may use the base of the containers: podman needs ids, and crun a cgroup.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Runs a program in a container with these options of podman.
fn container(options: &[&str], command: &[&str]) -> Output {
    let show = |from: &Path, to: &str| format!("--volume={}:{to}:ro", from.display());
    let env = setting("WOMA_TEST_ENV");
    let base = format!("{}:O", setting("WOMA_TEST_CONTAINER").display());
    // crun refuses to run beside a cgroup v2 that is mounted in addition to v1, even without cgroups.
    let hide = "umount -l /sys/fs/cgroup/unified 2>/dev/null; exec podman \"$@\"";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", hide, "podman"])
        .args(["run", "--rm", "--runtime=crun", "--network=none", "--cgroups=disabled"])
        .args(["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"])
        .arg(show(Path::new(env!("CARGO_BIN_EXE_woma")), "/usr/bin/woma"))
        .arg(show(&env, env.to_str().unwrap()))
        .args(["--env", &format!("WOMA_ENV={}", env.display()), "--env=WOMA_DATA_DIR=/data"])
        .arg(show(&root().join("crates/woma/tests/support/without.py"), "/without.py"))
        .args(["--tmpfs=/data:mode=1777", "--tmpfs=/tmp:mode=1777"])
        .args(options)
        .args(["--rootfs", &base])
        .args(command)
        .output()
        .unwrap()
}

/// As a profile that refuses namespaces and mounts, as Docker's and Kubernetes' do; podman's allows
/// them. `clone3` does not exist under these.
fn under_dockers_profile<'a>(command: &[&'a str]) -> Vec<&'a str> {
    let without = ["/usr/bin/python3", "/without.py"];
    let mut all = [without.as_slice(), &["38", "435"], &without, &["1", REFUSED]].concat();
    all.extend(command);
    all
}

/// Numbers of calls that make namespaces and mounts.
#[cfg(target_arch = "x86_64")]
const REFUSED: &str = "272,308,165,166,155,170,428,429,442";
#[cfg(target_arch = "aarch64")]
const REFUSED: &str = "97,268,40,39,41,161,428,429,442";

fn text(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr))
}

/// Level that the doctor finds in a container.
fn level(options: &[&str]) -> String {
    level_of(options, &["/usr/bin/woma", "doctor", "--json"])
}

fn level_of(options: &[&str], command: &[&str]) -> String {
    let output = container(options, command);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{options:?}: {error}: {}", text(&output)));
    let cell = report["layers"].as_array().unwrap().iter().find(|layer| layer["name"] == "cell");
    let (level, cell) = (report["isolation"].as_str().unwrap(), cell.unwrap());
    assert_eq!(cell["state"], if level == "none" { "unknown" } else { "enforced" }, "{cell}");
    level.to_owned()
}

const PERSON: &str = "--user=10001:10001";
const DROP: &str = "--cap-drop=ALL";
const NO_NEW: &str = "--security-opt=no-new-privileges";

fn profile() -> String {
    let profile = root().join("packaging/container/seccomp.json").canonicalize().unwrap();
    format!("--security-opt=seccomp={}", profile.display())
}

#[test]
fn each_set_of_options_gives_its_rung() {
    assert!(is_root(), "containers are tested as root");
    let profile = profile();
    for (options, expected) in [
        // An engine's defaults, as an ordinary user.
        (vec![PERSON], "restricted"),
        (vec![PERSON, DROP, NO_NEW], "restricted"),
        (vec![PERSON, DROP, NO_NEW, "--read-only"], "restricted"),
        // The full walls: the shipped profile, and no covers over /proc.
        (vec![PERSON, DROP, NO_NEW, &profile, "--security-opt=unmask=ALL"], "strong"),
        (
            vec![PERSON, DROP, NO_NEW, "--read-only", &profile, "--security-opt=unmask=ALL"],
            "strong",
        ),
    ] {
        assert_eq!(level(&options), expected, "{options:?}");
    }
}

#[test]
fn profiles_that_refuse_namespaces_leave_the_restricted_rung() {
    let command = under_dockers_profile(&["/usr/bin/woma", "doctor", "--json"]);
    assert_eq!(level_of(&[PERSON, DROP, NO_NEW, "--read-only"], &command), "restricted");
    // Not even what would make it strong in podman helps then.
    assert_eq!(level_of(&[PERSON, DROP, "--security-opt=unmask=ALL"], &command), "restricted");
}

#[test]
fn a_refused_start_prints_one_command_and_the_weaker_level() {
    let output = container(&[PERSON, DROP], &["/usr/bin/woma", "run", "-c", "print('it ran')"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(!said.contains("it ran"), "{said}");
    assert_eq!(said.matches("podman run --user 10001:10001 --cap-drop ALL").count(), 1, "{said}");
    assert!(said.contains("MIN_ISOLATION=restricted"), "{said}");
    assert!(!said.contains("docker") && !said.contains("as root"), "{said}");
}

#[test]
fn sessions_work_and_are_held_at_the_rung_that_is_allowed() {
    let code = "import numpy, os, subprocess, concurrent.futures, pandas, sys\n\
        open('a.txt', 'w').write('x')\n\
        print(numpy.arange(4).sum(), subprocess.run(['/bin/echo', 'child'], capture_output=True).stdout)\n\
        for path in ('/etc/shadow', '/data/woma.db', '/proc/1/environ', '/tmp'):\n\
        \x20   try:\n\
        \x20       os.open(path, os.O_RDONLY); print('BREACH', path)\n\
        \x20   except OSError as error:\n\
        \x20       pass\n\
        import socket\n\
        try:\n\
        \x20   socket.socket(); print('BREACH socket')\n\
        except OSError:\n\
        \x20   pass\n\
        try:\n\
        \x20   os.kill(1, 9); print('BREACH signal')\n\
        except OSError:\n\
        \x20   pass\n\
        print('held', pandas.DataFrame({'a': [1]}).shape)\n";
    let command = ["/usr/bin/woma", "run", "-c", code];
    let hardened = vec![PERSON, DROP, NO_NEW, "--read-only"];
    for (mut options, command) in [
        (vec![PERSON], command.to_vec()),
        (hardened.clone(), command.to_vec()),
        (hardened, under_dockers_profile(&command)),
    ] {
        options.push("--env=MIN_ISOLATION=restricted");
        let output = container(&options, &command);
        let said = text(&output);
        assert!(output.status.success(), "{options:?}: {said}");
        assert!(said.contains("6 b'child\\n'") && said.contains("held (1, 1)"), "{said}");
        assert!(!said.contains("BREACH"), "{said}");
    }
}
