//! The processes behind the sessions: separated, replaced when they die, gone at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use woma_sandbox::{
    Cell, Config, Crash, Environment, Error, Event, Limits, Outcome, Rotation, Sandbox, State, Tier,
};

use crate::harness::{
    environment, is_root, patience, pid_namespace, processes_in, run, sandbox, spec, start, until,
};
use crate::{complete, describe, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("sessions draw different random numbers", randomness),
        trial("no generator of any library has one state in two sessions", searched),
        trial("sessions have host users of their own", host_users),
        trial("a light cell is for programs that import nothing", light),
        trial("a killed zygote is replaced and sessions go on", zygote_killed),
        trial("a stopped zygote is replaced", zygote_stopped),
        trial("a zygote is replaced after some forks and its sessions go on", zygote_rotated),
        trial("a zygote is replaced when it is old", zygote_aged),
        trial("retired zygotes of sessions that live on have a number", zygotes_retired),
        trial("a killed steward is replaced", steward_killed),
        trial("a dropped session leaves no process", dropped_cell),
        trial("a dropped run ends its session", dropped_run),
        trial("a closed session leaves no process", closed_cell),
        trial("a dropped sandbox leaves no process", dropped_sandbox),
        trial("two sandboxes work side by side", two_sandboxes),
        trial("a missing Python is reported", || bad_python("nonexistent/python")),
        trial("a Python that is none is told", || bad_python("/bin/false")),
        trial("fifty sessions opened at once all answer", fifty),
        trial("opening and dropping leaves no descriptor", no_leak),
    ]
}

const DRAWS: &str = "
import os, random, secrets, ssl, tempfile, uuid
import numpy
print(random.random())
print(numpy.random.random())
print(numpy.random.default_rng().random())
print(uuid.uuid4())
print(secrets.token_hex())
print(ssl.RAND_bytes(16).hex())
print(os.urandom(16).hex())
print(tempfile.mktemp())
print(hash(object()) and next(tempfile._get_candidate_names()))
";

/// All random generators of all libraries, found by a search; and the key of multiprocessing.
const SEARCHED: &str = "
import gc, hashlib, multiprocessing, random
import numpy.random
def digest(state):
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]
found = set()
gc.unfreeze()  # the parent's objects are hidden otherwise
for one in gc.get_objects():
    if isinstance(one, random.Random) and not isinstance(one, random.SystemRandom):
        found.add(digest(one.getstate()))
    elif isinstance(one, (numpy.random.BitGenerator)):
        found.add(digest(one.state))
found.add(multiprocessing.current_process().authkey.hex())
print(*found, sep='\\n')
";

/// Every tier serves: the light one is started by the first cell that asks for it.
async fn all_tiers() {
    let wanted = woma_sandbox::Spec { tier: Some(Tier::Light), ..spec(Limits::default()) };
    drop(sandbox().await.open(&wanted).await.unwrap());
    for tier in Tier::ALL {
        sandbox().await.ready(tier).await.unwrap();
    }
}

/// Until its zygote is ready, the light tier is served by another one; never the other way round.
async fn light() {
    let started = start(Tier::Base).await;
    let wanted = woma_sandbox::Spec { tier: Some(Tier::Light), ..spec(Limits::default()) };
    let mut first = started.open(&wanted).await.unwrap();
    assert_ne!(first.tier(), Tier::Light);
    complete(&mut first, "import numpy").await;
    started.ready(Tier::Light).await.unwrap();
    let mut cell = started.open(&wanted).await.unwrap();
    assert_eq!(cell.tier(), Tier::Light);
    let code = "import sys; print([name for name in ('numpy', 'pandas') if name in sys.modules])";
    assert_eq!(complete(&mut cell, code).await.stdout, "[]\n");
    // What its program imports after all works as in any other cell.
    let code = "from matplotlib import pyplot\npyplot.plot([1, 2])\npyplot.show()";
    let shown = complete(&mut cell, code).await.events;
    let pictures = shown.iter().filter(|event| matches!(event, Event::Display(_)));
    assert_eq!(pictures.count(), 1);
    let other = started.open(&spec(Limits::default())).await.unwrap();
    assert_ne!(other.tier(), Tier::Light);
}

async fn searched() {
    all_tiers().await;
    for tier in Tier::ALL {
        let mut result = BTreeSet::new();
        for _ in 0..3 {
            let wanted = woma_sandbox::Spec { tier: Some(tier), ..spec(Limits::default()) };
            let mut cell = sandbox().await.open(&wanted).await.unwrap();
            let found = complete(&mut cell, SEARCHED).await.stdout;
            assert!(found.lines().count() >= 3, "{found}");
            for state in found.lines() {
                assert!(result.insert(state.to_owned()), "{tier:?}: {state} is in two sessions");
            }
        }
    }
}

async fn randomness() {
    all_tiers().await;
    for tier in Tier::ALL {
        let mut drawn: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for _ in 0..3 {
            let wanted = woma_sandbox::Spec { tier: Some(tier), ..spec(Limits::default()) };
            let mut cell = sandbox().await.open(&wanted).await.unwrap();
            assert_eq!(cell.tier(), tier);
            for (line, value) in complete(&mut cell, DRAWS).await.stdout.lines().enumerate() {
                drawn.entry(line).or_default().insert(value.to_owned());
            }
        }
        assert_eq!(drawn.len(), 9);
        for (line, values) in drawn {
            let source = DRAWS.lines().nth(line + 3).unwrap();
            assert_eq!(values.len(), 3, "{}: {source} gave {values:?}", tier.name());
        }
    }
}

async fn host_users() {
    let cells = [open(Limits::default()).await, open(Limits::default()).await];
    let ours = users(std::process::id());
    let theirs = [users(cells[0].host_pid()), users(cells[1].host_pid())];
    if is_root() {
        assert!(theirs[0] != theirs[1] && !theirs.contains(&ours), "{ours} {theirs:?}");
    } else {
        // There is only one user; namespaces separate the sessions.
        assert_eq!(theirs, [ours.clone(), ours]);
    }
}

fn users(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().trim().to_owned()
}

/// Processes by parent, as the host sees them.
fn children() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name may contain anything, including a parenthesis.
        let mut after_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, parent) = (after_name.next(), after_name.next());
        if let (Some(pid), Some(parent)) = (pid, parent.and_then(|parent| parent.parse().ok()))
            && state != Some("Z")
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

fn descendants(of: u32) -> BTreeSet<u32> {
    let children = children();
    let mut found = BTreeSet::new();
    let mut waiting = vec![of];
    while let Some(pid) = waiting.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                waiting.push(*child);
            }
        }
    }
    found
}

/// Starts a sandbox and returns the pid of the child that serves it.
async fn start_and_find() -> (Sandbox, u32) {
    let children_of_ours = || children().remove(&std::process::id()).unwrap_or_default();
    let before = children_of_ours();
    let sandbox = start(Tier::Base).await;
    let after = children_of_ours();
    let new: Vec<u32> = after.into_iter().filter(|pid| !before.contains(pid)).collect();
    let [steward] = *new else { panic!("{} stewards have been started", new.len()) };
    (sandbox, steward)
}

/// The zygotes below a steward: they run `zygote.py`, in its pid namespace and not in a room's.
fn zygotes(steward: u32) -> Vec<u32> {
    let is_zygote = |pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let depth = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        line.contains("/opt/woma/zygote.py")
            && depth.is_some_and(|pids| pids.split_whitespace().count() == own_depth() + 1)
    };
    descendants(steward).into_iter().filter(is_zygote).collect()
}

/// We may be in a pid namespace ourselves, but /proc shows the pids from its own level on.
fn own_depth() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    pids.split_whitespace().count()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

async fn zygote_killed() {
    let (sandbox, steward) = start_and_find().await;
    let mut kept = sandbox.open(&spec(Limits::default())).await.unwrap();
    complete(&mut kept, "kept = 1").await;
    let [zygote] = *zygotes(steward) else { panic!("one zygote, not {:?}", zygotes(steward)) };
    signal(zygote, Signal::KILL);
    until("the loss has been noticed", Duration::from_secs(5), || {
        let health = sandbox.health();
        if health.restarts > 0 { Ok(()) } else { Err(format!("{health:?}")) }
    })
    .await;
    sandbox.ready(Tier::Base).await.unwrap();
    assert_ne!(zygotes(steward), [zygote]);
    let mut fresh = sandbox.open(&spec(Limits::default())).await.unwrap();
    assert_eq!(complete(&mut fresh, "print(1)").await.stdout, "1\n");
    assert_eq!(complete(&mut kept, "print(kept)").await.stdout, "1\n");
    let crash = run(&mut kept, "import os; os._exit(3)").await;
    assert_eq!(crash.exit.state, State::Lost, "{}", describe(&crash));
}

/// Address of the interpreter's code: the layout of a zygote and all its forks.
const LAYOUT: &str = "import ctypes
print(ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value, hash('layout'))";

async fn rotating(forks_max: u64, age_max: Duration) -> Sandbox {
    let mut config = Config::new(environment());
    config.preload = Tier::Base;
    config.rotation = Rotation { forks_max, age_max };
    Sandbox::start(config).await.unwrap()
}

async fn zygote_aged() {
    let sandbox = rotating(u64::MAX, Duration::from_secs(1)).await;
    let mut layouts = BTreeSet::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while layouts.len() < 2 {
        assert!(Instant::now() < deadline, "the layout has not changed");
        let mut cell = sandbox.open(&spec(Limits::default())).await.unwrap();
        layouts.insert(complete(&mut cell, LAYOUT).await.stdout);
    }
}

async fn zygotes_retired() {
    let sandbox = rotating(1, Duration::from_secs(3600)).await;
    // One session of each zygote stays, and keeps it alive.
    let mut kept = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut opened_since = 0;
    while opened_since < 20 {
        assert!(Instant::now() < deadline, "{} zygotes", kept.len());
        let mut cell = sandbox.open(&spec(Limits::default())).await.unwrap();
        let layout = complete(&mut cell, LAYOUT).await.stdout;
        kept.entry(layout).or_insert(cell);
        // One that serves, and four that are retired.
        opened_since += usize::from(kept.len() >= 5);
    }
    assert_eq!(kept.len(), 5, "a sixth zygote was started");
}

async fn zygote_rotated() {
    let sandbox = rotating(4, Duration::from_secs(3600)).await;
    let mut first = sandbox.open(&spec(Limits::default())).await.unwrap();
    let layout = complete(&mut first, &format!("kept = 7\n{LAYOUT}")).await.stdout;
    let mut layouts = BTreeSet::from([layout]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while layouts.len() < 3 {
        assert!(Instant::now() < deadline, "only {} layouts", layouts.len());
        let mut cell = sandbox.open(&spec(Limits::default())).await.unwrap();
        layouts.insert(complete(&mut cell, LAYOUT).await.stdout);
        cell.close().await.unwrap();
    }
    assert_eq!(sandbox.health().restarts, 0, "a rotation is not a restart");
    assert_eq!(complete(&mut first, "print(kept)").await.stdout, "7\n");
    let ended = run(&mut first, "import os; os._exit(7)").await;
    assert_eq!(
        ended.exit.outcome,
        Outcome::Crashed(Crash::Exited(7)),
        "its parent reports how it ended"
    );
}

async fn zygote_stopped() {
    let (sandbox, steward) = start_and_find().await;
    let mut kept = sandbox.open(&spec(Limits::default())).await.unwrap();
    complete(&mut kept, "kept = 1").await;
    for zygote in zygotes(steward) {
        signal(zygote, Signal::STOP);
    }
    let started = Instant::now();
    // The first one may have been forked before.
    let mut cells = Vec::new();
    while cells.len() < 3 {
        match sandbox.open(&spec(Limits::default())).await {
            Ok(mut cell) => {
                assert_eq!(complete(&mut cell, "print(1)").await.stdout, "1\n");
                cells.push(cell);
            }
            // On a busy machine its successor takes longer than a caller waits.
            Err(error) => {
                assert!(started.elapsed() < Duration::from_secs(120), "{error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    assert!(sandbox.health().restarts > 0);
    assert_eq!(complete(&mut kept, "print(kept)").await.stdout, "1\n");
}

async fn steward_killed() {
    let (sandbox, steward) = start_and_find().await;
    let mut lost = sandbox.open(&spec(Limits::default())).await.unwrap();
    complete(&mut lost, "kept = 1").await;
    let namespace = pid_namespace(&lost);
    signal(steward, Signal::KILL);
    until("every process of the session is gone", Duration::from_secs(5), || {
        match processes_in(&namespace) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    let result = run(&mut lost, "print(kept)").await;
    assert_eq!((result.exit.state, &*result.stdout), (State::Lost, ""), "{}", describe(&result));
    assert!(!matches!(result.exit.outcome, Outcome::Completed), "{}", describe(&result));
    until("the loss has been noticed", Duration::from_secs(5), || {
        let health = sandbox.health();
        if health.restarts > 0 { Ok(()) } else { Err(format!("{health:?}")) }
    })
    .await;
    let mut fresh = sandbox.open(&spec(Limits::default())).await.unwrap();
    assert_eq!(complete(&mut fresh, "print(1)").await.stdout, "1\n");
}

/// A session with various children.
async fn crowded() -> (Cell, PathBuf) {
    let mut cell = open(Limits::default()).await;
    let code = "
import os, signal, subprocess, time
subprocess.Popen(['sleep', '300'])
subprocess.Popen(['nohup', 'setsid', 'sleep', '300'], stderr=subprocess.DEVNULL)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    while True: time.sleep(60)
";
    complete(&mut cell, code).await;
    let namespace = pid_namespace(&cell);
    assert!(processes_in(&namespace).len() >= 4, "{:?}", processes_in(&namespace));
    (cell, namespace)
}

async fn dropped_cell() {
    let (cell, namespace) = crowded().await;
    let live = sandbox().await.live_cells();
    drop(cell);
    assert_eq!(sandbox().await.live_cells(), live - 1);
    until("every process is gone", Duration::from_secs(2), || match processes_in(&namespace) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
}

async fn dropped_run() {
    let mut cell = open(Limits::default()).await;
    let namespace = pid_namespace(&cell);
    let endless = woma_sandbox::Run::new("while True: pass");
    let given_up = tokio::time::timeout(Duration::from_millis(100), async {
        cell.run(&endless, &mut |_| {}).await
    });
    assert!(given_up.await.is_err());
    let result = run(&mut cell, "print(1)").await;
    assert!(matches!(result.exit.outcome, Outcome::NeverStarted { .. }), "{}", describe(&result));
    until("every process is gone", Duration::from_secs(2), || match processes_in(&namespace) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
}

async fn closed_cell() {
    let (cell, namespace) = crowded().await;
    cell.close().await.unwrap();
    assert_eq!(processes_in(&namespace), BTreeSet::new());
}

async fn dropped_sandbox() {
    let before = descendants(std::process::id());
    let (sandbox, steward) = start_and_find().await;
    let mut cell = sandbox.open(&spec(Limits::default())).await.unwrap();
    complete(&mut cell, "import subprocess; p = subprocess.Popen(['sleep', '300'])").await;
    let below: Vec<u32> = descendants(steward).into_iter().chain([steward]).collect();
    assert!(below.len() >= 5, "{below:?}");
    drop(cell);
    drop(sandbox);
    // Also by pid: an orphan is no longer our descendant.
    until("every process is gone", Duration::from_secs(5), || {
        let now = descendants(std::process::id());
        let left: Vec<_> = now.difference(&before).collect();
        let all = children();
        let orphans: Vec<_> = all.values().flatten().filter(|pid| below.contains(pid)).collect();
        if left.is_empty() && orphans.is_empty() {
            return Ok(());
        }
        Err(format!("{left:?} {orphans:?}"))
    })
    .await;
}

async fn two_sandboxes() {
    let (first, second) = tokio::join!(start(Tier::Base), start(Tier::Base));
    let limits = spec(Limits::default());
    let (mut a, mut b) = (first.open(&limits).await.unwrap(), second.open(&limits).await.unwrap());
    complete(&mut a, "x = 'a'").await;
    complete(&mut b, "x = 'b'").await;
    drop(first);
    until("its session ends with a sandbox", Duration::from_secs(5), || {
        if a.is_alive() { Err("alive".to_owned()) } else { Ok(()) }
    })
    .await;
    assert_eq!(complete(&mut b, "print(x)").await.stdout, "b\n");
    let mut c = second.open(&limits).await.unwrap();
    assert_eq!(complete(&mut c, "print('c')").await.stdout, "c\n");
}

async fn bad_python(python: &str) {
    let before = descendants(std::process::id());
    let environment = environment();
    let python = environment.prefix.join(python);
    let started = Instant::now();
    let config = Config::new(Environment { python, ..environment });
    let Err(error) = Sandbox::start(config).await else { panic!("it started") };
    assert!(matches!(error, Error::Python { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.len() > 45 && !text.contains("None"), "{text}");
    assert!(started.elapsed() < patience(Duration::from_secs(10)), "{:?}", started.elapsed());
    until("every process is gone", Duration::from_secs(5), || {
        let now = descendants(std::process::id());
        match now.difference(&before).collect::<Vec<_>>() {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
}

async fn fifty() {
    let sandbox = sandbox().await;
    let tasks: Vec<_> = (0..50)
        .map(|i| {
            tokio::spawn(async move {
                let mut cell = sandbox.open(&spec(Limits::default())).await.unwrap();
                let result = complete(&mut cell, &format!("x = {i}\nprint(x * x)")).await;
                assert_eq!(result.stdout, format!("{}\n", i * i));
                cell
            })
        })
        .collect();
    let mut cells = Vec::new();
    for task in tasks {
        cells.push(task.await.unwrap());
    }
    let numbers: BTreeSet<u32> = cells.iter().map(Cell::host_pid).collect();
    assert_eq!(numbers.len(), 50);
    for (i, cell) in cells.iter_mut().enumerate() {
        assert_eq!(complete(cell, "print(x)").await.stdout, format!("{i}\n"));
    }
}

async fn no_leak() {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    drop(open(Limits::default()).await);
    let before = descriptors();
    for _ in 0..20 {
        let mut cell = open(Limits::default()).await;
        complete(&mut cell, "1").await;
    }
    until("descriptors are closed", Duration::from_secs(5), || match descriptors() {
        now if now <= before => Ok(()),
        now => Err(format!("{before} → {now}")),
    })
    .await;
}
