//! Shared by both test programs: the steward's role, the environment, switching to an ordinary
//! user.
//!
//! These programs have their own `main` because the server is this very process: it starts itself
//! again as its steward, and as an ordinary user if `WOMA_TEST_UID` is set. `WOMA_TEST_SLOW` and
//! `WOMA_TEST_ONLY` are for slow machines, such as the emulated one of `make test-vm`.
//! `WOMA_TEST_RUNTIME` opens all sessions in containers of that runtime.
//! `WOMA_TEST_GROUPS` names the mechanism that must enforce limits, as `cgroup v2`.
#![allow(
    clippy::allow_attributes,
    clippy::unwrap_used,
    dead_code,
    reason = "each program uses a part of it; a test may unwrap"
)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, fs};

use libtest_mimic::Trial;
use tokio::runtime;
use tokio::sync::OnceCell;
use woma_sandbox::{
    Cell, Config, Environment, Event, Exit, Limits, Run, Rung, Runtime, RuntimeChoice, Sandbox,
    Spec, Stream, Tier,
};

pub(crate) const SECRET_NAME: &str = "WOMA_ATTACK_SECRET";
pub(crate) const SECRET: &str = "planted-secret-7351";

/// Runs a role other than the tests; `None` means: run the tests.
pub(crate) fn role() -> Option<ExitCode> {
    if env::args().nth(1).as_deref() == Some(woma_sandbox::steward::ROLE) {
        return Some(woma_sandbox::steward::main());
    }
    let first = env::args().nth(1);
    if first.as_deref() == Some(woma_sandbox::container::ROLE) {
        return Some(woma_sandbox::container::main());
    }
    if first.as_deref() == Some(woma_sandbox::container::INIT_ROLE) {
        return Some(woma_sandbox::container::init_main());
    }
    // The secret must be in our environment from the start, as a server's API key would be.
    if env::var_os(SECRET_NAME).is_some() {
        return None;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let uid = env::var_os("WOMA_TEST_UID").map(|uid| uid.to_str().unwrap().parse().unwrap());
    let mut stage = None;
    if let (Some(uid), true) = (uid, is_root()) {
        let folder = stage_for(uid);
        command = Command::new(folder.join("test"));
        // As root, this drops the supplementary groups too.
        command.uid(uid).gid(uid).env("WOMA_TEST_ATTACKS", folder.join("attacks"));
        command.env("HOME", &folder).current_dir("/");
        stage = Some(folder);
    }
    let status = command.args(env::args_os().skip(1)).env(SECRET_NAME, SECRET).status().unwrap();
    if let Some(folder) = stage {
        fs::remove_dir_all(folder).unwrap();
    }
    Some(ExitCode::from(u8::try_from(status.code().unwrap_or(101)).unwrap_or(101)))
}

pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

/// Copies the files of the test to where an ordinary user can read them.
fn stage_for(uid: u32) -> PathBuf {
    let folder = PathBuf::from(format!("/var/tmp/woma-test-{uid}-{}", std::process::id()));
    fs::create_dir_all(folder.join("attacks")).unwrap();
    fs::copy(env::current_exe().unwrap(), folder.join("test")).unwrap();
    for file in fs::read_dir(attacks_folder()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.join("attacks").join(file.file_name())).unwrap();
    }
    for entry in [folder.clone(), folder.join("attacks")] {
        fs::set_permissions(entry, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Ten times the promised `bound`: the machine may be busy with other work, and a fault takes longer
/// or for ever. `woma bench` measures the promise itself.
pub(crate) fn patience(bound: Duration) -> Duration {
    slowed(bound) * 10
}

/// A limit of a run, for this machine. `WOMA_TEST_SLOW` is the factor by which it is slower than a
/// usual one.
pub(crate) fn slowed(bound: Duration) -> Duration {
    static SLOW: OnceLock<u32> = OnceLock::new();
    let read = || {
        let slow = env::var_os("WOMA_TEST_SLOW")?;
        Some(slow.to_str().and_then(|slow| slow.parse().ok()).expect("WOMA_TEST_SLOW is a number"))
    };
    bound * *SLOW.get_or_init(|| read().unwrap_or(1))
}

/// Trials selected by `WOMA_TEST_ONLY`, by group or by prefix of the name; all if it is not set. A
/// word that selects nothing is an error.
pub(crate) fn only(trials: Vec<(&'static str, Trial)>) -> Vec<Trial> {
    let Some(words) = env::var_os("WOMA_TEST_ONLY") else {
        return trials.into_iter().map(|(_, trial)| trial).collect();
    };
    let words = words.into_string().expect("WOMA_TEST_ONLY is text");
    let names = |word: &str, (group, trial): &(&str, Trial)| {
        word == *group || trial.name().starts_with(word)
    };
    for word in words.split_whitespace() {
        assert!(
            trials.iter().any(|trial| names(word, trial)),
            "WOMA_TEST_ONLY: {word} selects no test"
        );
    }
    let wanted = |trial: &(&str, Trial)| words.split_whitespace().any(|word| names(word, trial));
    trials.into_iter().filter(wanted).map(|(_, trial)| trial).collect()
}

pub(crate) fn attacks_folder() -> PathBuf {
    let staged = env::var_os("WOMA_TEST_ATTACKS").map(PathBuf::from);
    staged.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks")))
}

/// The environment created by `make test`.
pub(crate) fn environment() -> Environment {
    let prefix = env::var_os("WOMA_TEST_ENV").unwrap_or_else(|| {
        panic!("WOMA_TEST_ENV must name a Python environment; `make test` makes one and sets it")
    });
    let prefix = PathBuf::from(prefix);
    let python = prefix.join("bin/python");
    assert!(python.exists(), "{} does not exist: run `make test`", python.display());
    let mounts = env::var_os("WOMA_TEST_ENV_MOUNTS").unwrap_or_default();
    let mounts = env::split_paths(&mounts).filter(|path| path.as_os_str() != "").collect();
    Environment { prefix, python, is_virtual: true, mounts, installer: None }
}

pub(crate) fn runtime() -> &'static runtime::Runtime {
    static RUNTIME: OnceLock<runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    })
}

/// One sandbox for all tests of the process; they share nothing else.
pub(crate) async fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceCell<Sandbox> = OnceCell::const_new();
    // The whole environment is preloaded, except on a slow machine.
    let is_slow = slowed(Duration::from_secs(1)) > Duration::from_secs(1);
    let preload = if is_slow { Tier::Base } else { Tier::Full };
    SANDBOX.get_or_init(|| start(preload)).await
}

/// Rung of isolation that the tests are about: `WOMA_TEST_RUNG`, by default the highest.
pub(crate) fn rung() -> Rung {
    let named = env::var_os("WOMA_TEST_RUNG").unwrap_or_else(|| Rung::Rooms.name().into());
    let named = named.into_string().expect("WOMA_TEST_RUNG is text");
    let all = [Rung::Rooms, Rung::Restricted, Rung::Minimal];
    let found = all.into_iter().find(|rung| rung.name() == named);
    found.unwrap_or_else(|| panic!("WOMA_TEST_RUNG: {named} is no rung"))
}

pub(crate) async fn start(preload: Tier) -> Sandbox {
    let mut config = Config::new(environment());
    config.preload = preload;
    config.containers = containers();
    (config.highest, config.lowest) = (rung(), rung());
    let sandbox = Sandbox::start(config).await.unwrap_or_else(|error| panic!("{error}"));
    if let Some(expected) = env::var_os("WOMA_TEST_GROUPS") {
        let (held_by, why) = sandbox.limits_held_by();
        assert_eq!(expected, held_by, "{why:?}");
    }
    sandbox
}

/// Result of a run, as a caller sees it.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) exit: Exit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) events: Vec<Event>,
}

pub(crate) async fn run(cell: &mut Cell, source: &str) -> RunResult {
    run_with(cell, &Run::new(source)).await
}

pub(crate) async fn run_with(cell: &mut Cell, run: &Run) -> RunResult {
    let mut events = Vec::new();
    let exit = cell.run(run, &mut |event| events.push(event)).await;
    let text = |wanted| {
        let mut bytes = Vec::new();
        for event in &events {
            if let Event::Output { stream, bytes: some } = event
                && *stream == wanted
            {
                bytes.extend_from_slice(some);
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    RunResult { exit, stdout: text(Stream::Stdout), stderr: text(Stream::Stderr), events }
}

/// Runtime of `WOMA_TEST_RUNTIME`, in which all sessions are opened.
pub(crate) fn containers() -> Option<RuntimeChoice> {
    let name = env::var_os("WOMA_TEST_RUNTIME")?.into_string().unwrap();
    let found = Runtime::ALL.into_iter().find(|runtime| runtime.name() == name);
    Some(RuntimeChoice::Named(found.unwrap_or_else(|| panic!("WOMA_TEST_RUNTIME: {name}"))))
}

pub(crate) fn spec(limits: Limits) -> Spec {
    let container = containers().is_some();
    // Each container imports its libraries by itself.
    let tier = container.then_some(Tier::Base);
    Spec { limits, container, tier, ..Spec::default() }
}

/// Pid namespace of a cell, by which its processes are found. Without namespaces, its session id.
pub(crate) fn pid_namespace(cell: &Cell) -> PathBuf {
    if rung() != Rung::Rooms {
        return PathBuf::from(cell.host_pid().to_string());
    }
    fs::read_link(format!("/proc/{}/ns/pid", cell.host_pid())).unwrap()
}

pub(crate) fn processes_in(namespace: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let of = match rung() {
            Rung::Rooms => fs::read_link(entry.path().join("ns/pid")).ok(),
            Rung::Restricted | Rung::Minimal => session(&entry.path()),
        };
        if let (Some(pid), Some(of)) = (pid, of)
            && of == namespace
        {
            found.insert(pid);
        }
    }
    found
}

/// Session id of a living process.
fn session(process: &Path) -> Option<PathBuf> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let words: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (words[0] != "Z").then(|| PathBuf::from(words[3]))
}

/// Waits for a state, with the [`patience`] for `limit`; on failure reports the last value.
pub(crate) async fn until<T: std::fmt::Debug>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let (started, limit) = (Instant::now(), patience(limit));
    loop {
        match look() {
            Ok(result) => return result,
            Err(last) => {
                assert!(started.elapsed() < limit, "{what}: not within {limit:?}; last: {last}");
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
