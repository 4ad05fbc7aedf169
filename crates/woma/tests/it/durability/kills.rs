//! Servers that are killed under load, again and again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use serde_json::{Value, json};

use super::{Home, Over, blobs_are_whole, done, health, pass, try_code, until_recorded};
use crate::harness::{Connection, Server, descendants, is_alive, until};

/// Number of kills, unless `WOMA_TEST_KILLS` is set. On a busy machine there are more, until enough
/// was acknowledged in between.
const KILLS: u32 = 50;
/// Files and uploads that must be acknowledged.
const ACKNOWLEDGED_MIN: usize = 10;
/// After this many kills, a session is left idle until its variables are saved.
const CALM_EVERY: u32 = 10;
/// From the start of the program to its first answer, in a debug build on a busy machine; 2 s are
/// promised.
const HEALTHY_MEDIAN_MAX: Duration = Duration::from_secs(10);
/// Time until no execution is recorded as running; 5 s are promised on a quiet machine.
const SETTLED_MAX: Duration = Duration::from_secs(60);
/// Time until no orphaned process is left; 1 s is promised on a quiet machine.
const GONE_MAX: Duration = Duration::from_secs(30);
/// Names that uploads have: each is replaced again and again.
const UPLOADS: u64 = 20;

/// Acknowledged state, which clients must find again.
#[derive(Default)]
struct Told {
    executions: Vec<String>,
    /// Digests by name.
    files: BTreeMap<String, String>,
    /// Addresses, with the digests of their files.
    addresses: BTreeMap<String, String>,
    /// Lines of a file that every run adds one to.
    lines: Vec<u64>,
    /// The latest upload of each name.
    uploads: BTreeMap<String, u64>,
    /// The latest value of a variable whose session was left alone.
    calm: Option<(String, u64)>,
}

impl Told {
    fn hear(&mut self, reply: &Value) {
        assert_eq!(reply["success"], true, "{reply}");
        self.executions.push(text(&reply["execution_id"]));
    }
}

impl Told {
    /// Whether enough was acknowledged for the checks to mean something.
    fn is_enough(&self, kills: usize) -> bool {
        let counts = [self.files.len(), self.uploads.len()];
        self.executions.len() > kills
            && counts.iter().all(|count| *count > ACKNOWLEDGED_MIN)
            && self.calm.is_some()
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
fn a_killed_server_loses_nothing_acknowledged() {
    let (home, told) = (Home::new(), Mutex::<Told>::default());
    let (mut starts, mut dead) = (Vec::new(), Vec::new());
    let before = groups();
    for number in 0.. {
        let started = Instant::now();
        let server = home.start(&[("MAX_KERNELS", "6")]);
        until("it is healthy", || health(&server)["status"] == "healthy");
        starts.push(started.elapsed());
        let lost_before = home.rows("SELECT id FROM executions WHERE status = 'lost'").len();
        verify(&home, &server, &mut told.lock().unwrap());
        nothing_is_left_of(&dead, &before);
        if number >= kills() && lost_before > 0 && told.lock().unwrap().is_enough(dead.len()) {
            break;
        }
        assert!(number < 4 * kills(), "too little happened between the kills");
        let is_calm = number % CALM_EVERY == CALM_EVERY - 1;
        work_until_killed(&home, &server, number, is_calm, &told);
        dead.push(server.pid);
    }
    starts.sort_unstable();
    let (median, longest) = (starts[starts.len() / 2], starts[starts.len() - 1]);
    let told = told.lock().unwrap();
    println!(
        "{} servers killed, healthy again in {median:?} (median), {longest:?} at most; {} \
         executions, {} files, {} lines acknowledged, upload {:?} the last",
        dead.len(),
        told.executions.len(),
        told.files.len(),
        told.lines.len(),
        told.uploads.values().max(),
    );
    assert!(median < HEALTHY_MEDIAN_MAX, "{starts:?}");
}

/// Runs clients of every kind, and kills the server meanwhile.
fn work_until_killed(home: &Home, server: &Server, number: u32, is_calm: bool, told: &Mutex<Told>) {
    let (address, is_over) = (server.address, AtomicBool::new(false));
    let calm = format!("calm-{number}");
    if is_calm {
        let value = u64::from(number);
        done(server, &calm, &format!("v = {value}; big = list(range(100_000))"));
        told.lock().unwrap().calm = Some((calm.clone(), value));
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
        for work in [plain, files, lines, uploads] {
            scope.spawn(until_over(work));
        }
        let over = Over(&is_over);
        scope.spawn(move || try_code(address, "sleeper", "import time; time.sleep(60)").err());
        if is_calm {
            // It is idle while others work, and its variables are saved.
            let saved = format!("SELECT 1 FROM checkpoints WHERE session_id = '{calm}'");
            until("its variables are saved", || !home.rows(&saved).is_empty());
        }
        pass(Duration::from_millis(u64::from(number) * 7919 % 500));
        let processes = descendants(server.pid);
        server.kill();
        drop(over);
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
        "import hashlib, random\ncontent = random.Random({count}).randbytes({count} % 97 * 512)\n\
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

/// A file whose lines all name the upload.
fn uploads(address: SocketAddr, count: u64, told: &Mutex<Told>) -> bool {
    let name = format!("u{}", count % UPLOADS);
    let content = format!("{count}\n").repeat(50_000);
    let Ok(status) = try_upload(address, &name, content.as_bytes()) else { return false };
    assert!([200, 201].contains(&status), "{status}");
    told.lock().unwrap().uploads.insert(name, count);
    true
}

fn try_upload(address: SocketAddr, name: &str, content: &[u8]) -> io::Result<u16> {
    let mut connection = Connection::try_open(address)?;
    let path = format!("/api/v1/sessions/uploads/files/{name}");
    connection.try_send("PUT", &path, &[], content)?;
    Ok(connection.try_answer(false)?.status)
}

/// Checks that all acknowledged state is there.
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

/// State as the sessions' code sees it.
fn verify_inside(server: &Server, told: &mut Told) {
    let list = "import glob, hashlib, json\n\
                print(json.dumps({n: hashlib.sha256(open(n, 'rb').read()).hexdigest() \
                for n in glob.glob('f*.csv')}))";
    let (reply, found) = printed(server, "files", list);
    assert_eq!(reply["session_restarted"], true, "{reply}");
    for (name, digest) in &told.files {
        assert_eq!(found[name], *digest, "{name}");
    }
    let (_, found) = printed(server, "lines", "print(list(map(int, open('lines'))))");
    let found: Vec<u64> = serde_json::from_value(found).unwrap();
    let mut once = found.clone();
    once.dedup();
    assert_eq!(found, once, "a run was done twice");
    assert!(told.lines.iter().all(|line| found.binary_search(line).is_ok()), "a line is gone");
    verify_uploads(server, &told.uploads);
    if let Some((session, value)) = &told.calm {
        let reply = done(server, session, "v, len(big)");
        assert_eq!(reply["result"], json!([value, 100_000]), "{reply}");
        let restored = &reply["session_restored"]["restored"];
        assert_eq!(*restored, json!(["v", "big"]), "{reply}");
    }
}

/// Checks that each file is whole and not older than acknowledged.
fn verify_uploads(server: &Server, told: &BTreeMap<String, u64>) {
    let list = "import glob, json\nfound = {}\n\
                for name in glob.glob('*'):\n\
                \x20   lines = open(name).read().splitlines(keepends=True)\n\
                \x20   whole = len(lines) == 50_000 and len(set(lines)) == 1\n\
                \x20   found[name] = int(lines[0]) if whole else lines[:1] + lines[-1:]\n\
                print(json.dumps(found))";
    let (_, found) = printed(server, "uploads", list);
    for (name, content) in found.as_object().unwrap() {
        assert!(content.is_u64(), "half an upload: {name}, {content}");
    }
    for (name, count) in told {
        assert!(found[name].as_u64() >= Some(*count), "{name}: {} of {count}", found[name]);
    }
}

/// The reply to code that prints JSON, and the parsed JSON, which can have any size.
fn printed(server: &Server, session: &str, code: &str) -> (Value, Value) {
    let reply = done(server, session, code);
    let printed = serde_json::from_str(reply["stdout"].as_str().unwrap());
    let printed = printed.unwrap_or_else(|error| panic!("{error}: {reply}"));
    (reply, printed)
}

/// The cgroups of all servers, live or dead.
fn groups() -> Vec<String> {
    let found =
        Command::new("find").args(["/sys/fs/cgroup", "-name", "woma-*-*"]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

/// No cgroup, and no mount that others see, of servers that are no more. Others may have left some
/// before, under ids that were given again.
fn nothing_is_left_of(dead: &[u32], before: &[String]) {
    let names: Vec<String> = dead.iter().map(|pid| format!("/woma-{pid}-")).collect();
    until("no cgroup is left", || {
        let mut new = groups().into_iter().filter(|group| !before.contains(group));
        !new.any(|group| names.iter().any(|name| group.contains(name)))
    });
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("woma"), "{mounts}");
}
