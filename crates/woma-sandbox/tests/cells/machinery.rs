//! The processes behind the sessions: kept apart, replaced when they die, gone at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};
use woma_sandbox::{Cell, Config, Environment, Error, Limits, Outcome, Sandbox, State, Tier};

use crate::harness::{
    environment, is_root, pid_namespace, processes_in, run, sandbox, spec, start, until,
};
use crate::{complete, open, story, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("sessions draw different random numbers", randomness),
        trial("sessions have host users of their own", host_users),
        trial("a killed zygote is replaced and sessions go on", zygote_killed),
        trial("a stopped zygote is replaced", zygote_stopped),
        trial("a killed steward is replaced", steward_killed),
        trial("a dropped session leaves no process", dropped_cell),
        trial("a run that nobody waits for ends its session", dropped_run),
        trial("a closed session leaves no process", closed_cell),
        trial("a dropped sandbox leaves no process", dropped_sandbox),
        trial("two sandboxes work side by side", two_sandboxes),
        trial("a Python that is missing is told", || bad_python("nonexistent/python")),
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

async fn randomness() {
    sandbox().await.ready(Tier::Full).await.unwrap();
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
        // One user is all there is; the namespaces keep them apart.
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
        // The name may hold anything, a parenthesis included.
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

/// Starts a sandbox and tells which child of ours serves it.
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

/// We may be in a pid namespace ourselves, but /proc shows the numbers from its own on.
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
    assert_eq!(crash.exit.state, State::Lost, "{}", story(&crash));
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
    for _ in 0..3 {
        let mut cell = sandbox.open(&spec(Limits::default())).await.unwrap();
        assert_eq!(complete(&mut cell, "print(1)").await.stdout, "1\n");
        cells.push(cell);
    }
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
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
    let seen = run(&mut lost, "print(kept)").await;
    assert_eq!((seen.exit.state, &*seen.stdout), (State::Lost, ""), "{}", story(&seen));
    assert!(!matches!(seen.exit.outcome, Outcome::Completed), "{}", story(&seen));
    until("the loss has been noticed", Duration::from_secs(5), || {
        let health = sandbox.health();
        if health.restarts > 0 { Ok(()) } else { Err(format!("{health:?}")) }
    })
    .await;
    let mut fresh = sandbox.open(&spec(Limits::default())).await.unwrap();
    assert_eq!(complete(&mut fresh, "print(1)").await.stdout, "1\n");
}

/// A session with children of all sorts.
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
    let seen = run(&mut cell, "print(1)").await;
    assert!(matches!(seen.exit.outcome, Outcome::NeverStarted { .. }), "{}", story(&seen));
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
    // By number as well: an orphan is no descendant of ours any more.
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
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
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
                let seen = complete(&mut cell, &format!("x = {i}\nprint(x * x)")).await;
                assert_eq!(seen.stdout, format!("{}\n", i * i));
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
