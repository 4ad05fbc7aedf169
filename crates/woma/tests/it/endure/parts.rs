//! Parts of a server that are killed or stopped under load, at random moments, again and again.
//! Nothing acknowledged is lost, nothing runs twice, nothing is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Held, Part, groups_of, mounts, number, parts};
use crate::durability::{Home, Over, pass, try_code, until_recorded};
use crate::harness::{Server, descendants, is_alive, until};

/// Faults in `make test`; `SOAK_KILLS` sets another number.
const FAULTS: usize = 14;
/// Sessions under load, each with a client of its own.
const SESSIONS: usize = 4;
/// For how long a part is stopped.
const STOPPED: Duration = Duration::from_millis(700);
/// Until a run succeeds after a fault: ten times the 5 s that are promised of a machine that does
/// nothing else.
const HEALTHY_MAX: Duration = Duration::from_secs(50);

/// Faults in turn. A signal of the server itself is the last.
const KINDS: [(Option<Part>, &str); 13] = [
    (Some(Part::Cell), "-KILL"),
    (Some(Part::Zygote), "-KILL"),
    (Some(Part::Init), "-KILL"),
    (Some(Part::Steward), "-KILL"),
    (Some(Part::Cell), "-STOP"),
    (Some(Part::Launcher), "-KILL"),
    (Some(Part::Zygote), "-STOP"),
    (None, "-KILL"),
    (Some(Part::Steward), "-STOP"),
    (Some(Part::Init), "-STOP"),
    (Some(Part::Keeper), "-STOP"),
    (Some(Part::Launcher), "-STOP"),
    (None, "-STOP"),
];

/// Lines that runs have acknowledged, by session.
type Told = Mutex<BTreeMap<usize, Vec<u64>>>;

fn signal(name: &str, pid: u32) -> bool {
    Command::new("kill").args([name, &pid.to_string()]).output().unwrap().status.success()
}

/// Adds lines until the end; an error or a crash of a run is allowed, and its line may be there.
fn add_lines(
    server: &Server,
    session: usize,
    is_over: &AtomicBool,
    next: &Mutex<u64>,
    told: &Told,
) {
    while !is_over.load(Ordering::Relaxed) {
        let line = {
            let mut next = next.lock().unwrap();
            *next += 1;
            *next
        };
        let code =
            format!("with open('lines', 'a') as f: print({line}, file=f)\nseen = {line}\nseen");
        let Ok(reply) = answered(server, &format!("part-{session}"), &code) else {
            pass(Duration::from_millis(20));
            continue;
        };
        if reply["success"] == true {
            assert_eq!(reply["result"], line, "{reply}");
            told.lock().unwrap().entry(session).or_default().push(line);
        }
    }
}

/// A reply of any status; an error means that the server did not answer.
fn answered(server: &Server, session: &str, code: &str) -> std::io::Result<Value> {
    let mut connection = crate::harness::Connection::try_open(server.address)?;
    connection.patience(Duration::from_secs(40));
    let body = json!({ "code": code, "session_id": session, "timeout": 5 }).to_string();
    connection.try_send("POST", "/execute", &[], body.as_bytes())?;
    Ok(connection.try_answer(false)?.json())
}

/// A random process of a part, if there is one.
fn victim(server: &Server, part: Part, random: u64) -> Option<u32> {
    let all = parts(server.pid).remove(&part)?;
    let at = usize::try_from(random).unwrap_or(0) % all.len();
    Some(all[at])
}

#[test]
fn parts_that_die_or_stop_lose_nothing_acknowledged() {
    let (home, told, next) = (Home::new(), Told::default(), Mutex::new(0));
    let variables = [("MAX_KERNELS", "8"), ("SESSION_POOL_SIZE", "1")];
    let faults = number("SOAK_KILLS", FAULTS);
    let (mut server, mut dead) = (home.start(&variables), Vec::new());
    let (mut waits, mut done) = (Vec::new(), BTreeMap::<String, usize>::new());
    let mounts_before = mounts();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for fault in 0..faults {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(fault as u64 + 1);
        let (part, name) = KINDS[fault % KINDS.len()];
        let is_over = AtomicBool::new(false);
        let before = descendants(server.pid);
        let happened = thread::scope(|scope| {
            for session in 0..SESSIONS {
                let (server, is_over, next, told) = (&server, &is_over, &next, &told);
                scope.spawn(move || add_lines(server, session, is_over, next, told));
            }
            let over = Over(&is_over);
            pass(Duration::from_millis(50 + (random >> 33) % 500));
            let happened = strike(&server, part, name, random >> 17);
            drop(over);
            happened
        });
        *done.entry(format!("{part:?} {name}")).or_default() += usize::from(happened);
        if part.is_none() && name == "-KILL" {
            dead.push((server.pid, before));
            server = home.start(&variables);
        }
        waits.push((healthy_again(&server), part, name));
        verify(&server, &told);
    }
    waits.sort_unstable_by_key(|(wait, ..)| *wait);
    eprintln!("{faults} faults: {done:?}");
    eprintln!(
        "working again after {:?} (median), the slowest {:?}",
        waits[faults / 2],
        waits.last()
    );
    let acknowledged: usize = told.lock().unwrap().values().map(Vec::len).sum();
    assert!(acknowledged > 4 * faults, "only {acknowledged} runs between {faults} faults");
    nothing_is_left(&home, &server, &dead, mounts_before);
}

/// Sends the signal; a stopped process goes on after a while, if it is still there. Gives whether
/// there was such a process.
fn strike(server: &Server, part: Option<Part>, name: &str, random: u64) -> bool {
    let pid = match part {
        Some(part) => victim(server, part, random),
        None => Some(server.pid),
    };
    let Some(pid) = pid else { return false };
    if part.is_none() && name == "-KILL" {
        server.kill();
        return true;
    }
    let happened = signal(name, pid);
    if name == "-STOP" {
        pass(STOPPED);
        // A hang may have been noticed, and the process be gone.
        signal("-CONT", pid);
    } else {
        until("it is gone", || !is_alive(pid));
        // The fault becomes known while calls come in.
        pass(Duration::from_millis(200));
    }
    happened
}

/// Time until every session answers and the server says that it is healthy.
fn healthy_again(server: &Server) -> Duration {
    let started = Instant::now();
    for session in (0..SESSIONS).map(|session| format!("part-{session}")).chain(["new".to_owned()])
    {
        until("a run succeeds", || {
            answered(server, &session, "1 + 1").is_ok_and(|reply| reply["result"] == 2)
        });
    }
    // Without an interpreter, health has another status.
    until("it is healthy", || server.get("/health").json()["status"] == "healthy");
    let took = started.elapsed();
    assert!(took < HEALTHY_MAX, "{took:?}");
    took
}

/// Every acknowledged line is there, and none twice.
fn verify(server: &Server, told: &Told) {
    for (session, lines) in told.lock().unwrap().iter() {
        let reply =
            try_code(server.address, &format!("part-{session}"), "print(open('lines').read())");
        let reply = reply.unwrap();
        let text = reply["stdout"].as_str().unwrap();
        let found: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let once: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(once.len(), found.len(), "a run was done twice in session {session}");
        let lost: Vec<&u64> = lines.iter().filter(|line| !once.contains(line)).collect();
        assert!(lost.is_empty(), "acknowledged and lost in session {session}: {lost:?}");
    }
}

/// No process, cgroup, mount or folder of what is gone.
fn nothing_is_left(home: &Home, server: &Server, dead: &[(u32, Vec<u32>)], mounts_before: usize) {
    until_recorded(server);
    for session in (0..SESSIONS).map(|session| format!("part-{session}")).chain(["new".to_owned()])
    {
        let path = format!("/api/v1/sessions/{session}");
        assert_eq!(server.request("DELETE", &path, &[], b"").status, 200);
    }
    for (pid, processes) in dead {
        until("no process of a dead server is left", || {
            !processes.iter().any(|pid| is_alive(*pid) && !descendants(server.pid).contains(pid))
        });
        until("no cgroup of a dead server is left", || groups_of(*pid).is_empty());
    }
    until("only spare rooms are left", || {
        let left = parts(server.pid);
        let rooms = left.get(&Part::Init).map_or(0, Vec::len);
        // One in the pool, one that is being made, and folders' spares.
        rooms <= 4 && left.get(&Part::Steward).map_or(0, Vec::len) == 1
    });
    assert_eq!(mounts(), mounts_before);
    let kept = home.rows("SELECT id FROM sessions");
    assert!(kept.is_empty(), "{kept:?}");
    let held = Held::by(server.pid);
    assert!(held.descriptors < 250.0 && held.threads < 60.0, "{held:?}");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
