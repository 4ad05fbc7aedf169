//! Servers that are killed in the middle of everything, again and again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::{Value, json};

use super::{Home, blobs_are_whole, done, health, pass, try_code, until_recorded};
use crate::auth::descendants;
use crate::harness::{Server, until};

/// Servers that are killed; `WOMA_TEST_KILLS` says otherwise.
const KILLS: u32 = 25;
/// Every so many, one is left alone until variables must have been saved.
const CALM_EVERY: u32 = 5;
/// From the answer to a call until its variables outlive the server.
const SAVED_AFTER: Duration = Duration::from_millis(3_500);
/// From the start of the program to its first answer, in a debug build on a busy machine; 2 s are
/// promised.
const HEALTHY_MAX: Duration = Duration::from_secs(10);
const HEALTHY_MEDIAN_MAX: Duration = Duration::from_secs(4);
/// Until nothing is said to run any more.
const SETTLED_MAX: Duration = Duration::from_secs(5);
/// Orphans; 1 s is promised, and the machine is busy.
const GONE_MAX: Duration = Duration::from_secs(3);

/// What clients were told, and must find again.
#[derive(Default)]
struct Told {
    executions: Vec<String>,
    /// Digests by name.
    files: BTreeMap<String, String>,
    /// Addresses, with the digests of what they lead to.
    addresses: BTreeMap<String, String>,
    /// Lines of a file that every run adds one to.
    lines: Vec<u64>,
    /// The latest value of a variable whose session was left alone.
    calm: Option<(String, u64)>,
}

impl Told {
    fn hear(&mut self, reply: &Value) {
        assert_eq!(reply["success"], true, "{reply}");
        self.executions.push(text(&reply["execution_id"]));
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn kills() -> u32 {
    let said = env::var_os("WOMA_TEST_KILLS").and_then(|kills| kills.into_string().ok());
    said.map_or(KILLS, |kills| kills.parse().unwrap())
}

#[test]
fn nothing_that_was_acknowledged_is_lost_when_the_server_is_killed() {
    let (home, told) = (Home::new(), Mutex::<Told>::default());
    let (mut starts, mut dead) = (Vec::new(), Vec::new());
    for number in 0..=kills() {
        let started = Instant::now();
        let server = home.start(&[("MAX_KERNELS", "6")]);
        until("it is healthy", || health(&server)["status"] == "healthy");
        starts.push(started.elapsed());
        let lost_before = home.rows("SELECT id FROM executions WHERE status = 'lost'").len();
        verify(&home, &server, &mut told.lock().unwrap());
        nothing_is_left_of(&dead);
        if number == kills() {
            assert!(lost_before > 0, "no run was ever cut off");
            continue;
        }
        let is_calm = number % CALM_EVERY == CALM_EVERY - 1;
        work_until_killed(&server, number, is_calm, &told);
        dead.push(server.pid);
    }
    starts.sort_unstable();
    let (median, longest) = (starts[starts.len() / 2], starts[starts.len() - 1]);
    let told = told.lock().unwrap();
    println!(
        "{} servers killed, healthy again in {median:?} (median), {longest:?} at most; {} \
         executions, {} files, {} lines acknowledged",
        dead.len(),
        told.executions.len(),
        told.files.len(),
        told.lines.len()
    );
    assert!(median < HEALTHY_MEDIAN_MAX && longest < HEALTHY_MAX, "{starts:?}");
    assert!(told.executions.len() > dead.len() && told.files.len() > 10 && told.calm.is_some());
}

/// Clients of every kind, and the end of the server while they are at it.
fn work_until_killed(server: &Server, number: u32, is_calm: bool, told: &Mutex<Told>) {
    let (address, is_over) = (server.address, AtomicBool::new(false));
    if is_calm {
        // The session is left alone, and what it has is saved.
        let (session, value) = (format!("calm-{}", number % 2), u64::from(number));
        done(server, &session, &format!("v = {value}; big = list(range(100_000))"));
        told.lock().unwrap().calm = Some((session, value));
    }
    let before: Vec<u32> = thread::scope(|scope| {
        let until_over = |work: fn(SocketAddr, u64, &Mutex<Told>) -> bool| {
            let is_over = &is_over;
            move || {
                let mut count = u64::from(number) * 1_000_000;
                while !is_over.load(Ordering::Relaxed) && work(address, count, told) {
                    count += 1;
                }
            }
        };
        for work in [plain, files, lines] {
            scope.spawn(until_over(work));
        }
        scope.spawn(move || try_code(address, "sleeper", "import time; time.sleep(60)").err());
        if is_calm {
            pass(SAVED_AFTER);
        }
        pass(Duration::from_millis(u64::from(number) * 7919 % 500));
        let processes = descendants(server.pid);
        server.kill();
        is_over.store(true, Ordering::Relaxed);
        processes
    });
    let killed = Instant::now();
    until("its processes are gone", || !before.iter().any(|pid| is_alive(*pid)));
    assert!(killed.elapsed() < GONE_MAX, "{:?}", killed.elapsed());
}

fn plain(address: SocketAddr, count: u64, told: &Mutex<Told>) -> bool {
    let Ok(reply) = try_code(address, "plain", &format!("x = {count}; x")) else { return false };
    assert_eq!(reply["result"], count);
    told.lock().unwrap().hear(&reply);
    true
}

fn files(address: SocketAddr, count: u64, told: &Mutex<Told>) -> bool {
    let name = format!("f{count}.csv");
    let code = format!(
        "import hashlib, random\ncontent = random.Random({count}).randbytes({count} % 97 * 4096)\n\
         open('{name}', 'wb').write(content)\nhashlib.sha256(content).hexdigest()"
    );
    let Ok(reply) = try_code(address, "files", &code) else { return false };
    let digest = text(&reply["result"]);
    assert_eq!(reply["files_created"], json!([name]), "{reply}");
    assert_eq!(reply["warnings"], json!([]), "{reply}");
    let mut told = told.lock().unwrap();
    told.hear(&reply);
    told.addresses.insert(text(&reply["download_urls"][0]["file_id"]), digest.clone());
    told.files.insert(name, digest);
    true
}

fn lines(address: SocketAddr, count: u64, told: &Mutex<Told>) -> bool {
    let code = format!("with open('lines', 'a') as file: print({count}, file=file)");
    let Ok(reply) = try_code(address, "lines", &code) else { return false };
    let mut told = told.lock().unwrap();
    told.hear(&reply);
    told.lines.push(count);
    true
}

/// Everything that clients were told is there.
fn verify(home: &Home, server: &Server, told: &mut Told) {
    let settled = until_recorded(server);
    assert!(settled < SETTLED_MAX, "records came after {settled:?}");
    let known = home.rows("SELECT id, status, ended_at FROM executions");
    let known: BTreeMap<&str, &Value> =
        known.iter().map(|row| (row[0].as_str().unwrap(), &row[1])).collect();
    assert!(known.values().all(|status| **status != "running"), "{known:?}");
    for id in &told.executions {
        assert_eq!(known.get(id.as_str()), Some(&&json!("finished")), "{id}");
    }
    blobs_are_whole(home.path());
    let rows = home.rows("SELECT id, digest, size_bytes FROM files");
    let rows: BTreeMap<&str, &Vec<Value>> =
        rows.iter().map(|row| (row[0].as_str().unwrap(), row)).collect();
    for (id, digest) in &told.addresses {
        let row = rows.get(id.as_str()).unwrap_or_else(|| panic!("the address {id} is gone"));
        assert_eq!(row[1], *digest);
        let (shelf, name) = digest.split_at(2);
        let blob = fs::metadata(home.path().join("blobs").join(shelf).join(name)).unwrap();
        assert_eq!(row[2], blob.len());
    }
    for row in home.rows("SELECT digest FROM checkpoints") {
        let digest = text(&row[0]);
        let (shelf, name) = digest.split_at(2);
        assert!(home.path().join("blobs").join(shelf).join(name).exists(), "{digest}");
    }
    if !told.files.is_empty() {
        verify_inside(server, told);
    }
    let lost = home.rows("SELECT id FROM executions WHERE status = 'lost' AND ended_at IS NULL");
    assert!(lost.is_empty(), "{lost:?}");
}

/// As the code of the sessions sees it.
fn verify_inside(server: &Server, told: &mut Told) {
    let list = "import glob, hashlib\n\
                {n: hashlib.sha256(open(n, 'rb').read()).hexdigest() for n in glob.glob('f*.csv')}";
    let reply = done(server, "files", list);
    assert_eq!(reply["session_restarted"], true, "{reply}");
    for (name, digest) in &told.files {
        assert_eq!(reply["result"][name], *digest, "{name}");
    }
    let reply = done(server, "lines", "list(map(int, open('lines')))");
    let found: Vec<u64> = serde_json::from_value(reply["result"].clone()).unwrap();
    let mut once = found.clone();
    once.dedup();
    assert_eq!(found, once, "a run was done twice");
    assert!(told.lines.iter().all(|line| found.binary_search(line).is_ok()), "a line is gone");
    if let Some((session, value)) = &told.calm {
        let reply = done(server, session, "v, len(big)");
        assert_eq!(reply["result"], json!([value, 100_000]), "{reply}");
        let restored = &reply["session_restored"]["restored"];
        assert_eq!(*restored, json!(["v", "big"]), "{reply}");
    }
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z'))
}

/// No cgroup, and no mount that others see, of servers that are no more.
fn nothing_is_left_of(dead: &[u32]) {
    let mut find = Command::new("find");
    let names =
        dead.iter().flat_map(|pid| ["-o".to_owned(), "-name".to_owned(), format!("woma-{pid}-*")]);
    find.args(["/sys/fs/cgroup", "-false"]).args(names);
    let found = find.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "cgroups stay");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("woma"), "{mounts}");
}
