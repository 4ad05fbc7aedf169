//! What both test programs share: the steward's role, the environment, dropping to an ordinary user.
//!
//! These programs have their own `main` because the server is this very process: it starts itself
//! again as its steward, and as an ordinary user when `WOMA_TEST_UID` says so.
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

use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use woma_sandbox::{
    Cell, Config, Environment, Event, Exit, Limits, Run, Sandbox, Spec, Stream, Tier,
};

pub(crate) const SECRET_NAME: &str = "WOMA_ATTACK_SECRET";
pub(crate) const SECRET: &str = "planted-secret-7351";

/// Takes the roles that are not the test's own; `None` means: go on and test.
pub(crate) fn role() -> Option<ExitCode> {
    if env::args().nth(1).as_deref() == Some(woma_sandbox::steward::ROLE) {
        return Some(woma_sandbox::steward::main());
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

/// A copy of what the test needs where an ordinary user can read it, wherever the project lies.
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

pub(crate) fn attacks_folder() -> PathBuf {
    let staged = env::var_os("WOMA_TEST_ATTACKS").map(PathBuf::from);
    staged.unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attacks")))
}

/// The environment that `make test` has made.
pub(crate) fn environment() -> Environment {
    let prefix = env::var_os("WOMA_TEST_ENV").unwrap_or_else(|| {
        panic!("WOMA_TEST_ENV must name a Python environment; `make test` makes one and sets it")
    });
    let prefix = PathBuf::from(prefix);
    let python = prefix.join("bin/python");
    assert!(python.exists(), "{} does not exist: run `make test`", python.display());
    let mounts = env::var_os("WOMA_TEST_ENV_MOUNTS").unwrap_or_default();
    let mounts = env::split_paths(&mounts).filter(|path| path.as_os_str() != "").collect();
    Environment { prefix, python, is_virtual: true, mounts }
}

pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    })
}

/// One sandbox for all tests of the process; the tests share nothing else.
pub(crate) async fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceCell<Sandbox> = OnceCell::const_new();
    SANDBOX.get_or_init(|| start(Tier::Full)).await
}

pub(crate) async fn start(preload: Tier) -> Sandbox {
    let mut config = Config::new(environment());
    config.preload = preload;
    Sandbox::start(config).await.unwrap_or_else(|error| panic!("{error}"))
}

/// What a run did, as a caller sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) exit: Exit,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) events: Vec<Event>,
}

pub(crate) async fn run(cell: &mut Cell, source: &str) -> Seen {
    run_with(cell, &Run::new(source)).await
}

pub(crate) async fn run_with(cell: &mut Cell, run: &Run) -> Seen {
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
    Seen { exit, stdout: text(Stream::Stdout), stderr: text(Stream::Stderr), events }
}

pub(crate) fn spec(limits: Limits) -> Spec {
    Spec { limits, ..Spec::default() }
}

/// The pid namespace of a cell, by which its processes can be found.
pub(crate) fn pid_namespace(cell: &Cell) -> PathBuf {
    fs::read_link(format!("/proc/{}/ns/pid", cell.host_pid())).unwrap()
}

pub(crate) fn processes_in(namespace: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let link = fs::read_link(entry.path().join("ns/pid"));
        if let (Some(pid), Ok(link)) = (pid, link)
            && link == namespace
        {
            found.insert(pid);
        }
    }
    found
}

/// Waits for a state, bounded, and says what it last saw.
pub(crate) async fn until<T: std::fmt::Debug>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let started = Instant::now();
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(last) => {
                assert!(started.elapsed() < limit, "{what}: not within {limit:?}; last: {last}");
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
