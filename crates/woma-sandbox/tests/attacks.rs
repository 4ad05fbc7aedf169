//! Runs every file of `tests/attacks/` in a cell, without a policy, and checks that it ends as its
//! header says, gained nothing and left nothing behind.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may unwrap")]

mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use harness::{
    RunResult, attacks_folder, only, patience, pid_namespace, processes_in, role, run, rung,
    runtime, sandbox, slowed, spec, until,
};
use libtest_mimic::{Arguments, Failed, Trial};
use woma_sandbox::workspace::{
    Bounds, DigestBounds, Folder, Snapshot, WorkspacePath, diff, remove_tree,
};
use woma_sandbox::{Cell, Limits, RoomAddress, Rung, State, Workspace};

const PLANTED_FILE: &str = "/var/tmp/woma-attack-secret.txt";
const PLANTED_SOCKET: &str = "/var/tmp/woma-attack.sock";
/// Longest promised time over the wall limit.
const OVERTIME_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    if let Some(code) = role() {
        return code;
    }
    woma_sandbox::allocator::bound();
    let mut arguments = Arguments::from_args();
    // One at a time: a bomb must not be affected by what another does to the machine.
    arguments.test_threads = Some(1);
    let _planted = (!arguments.list).then(Planted::new);
    let mut trials: Vec<Trial> = fs::read_dir(attacks_folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "py"))
        .filter(|path| is_promised(path))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            Trial::test(name, move || runtime().block_on(attack(&path)))
        })
        .collect();
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    assert!(trials.len() >= 60, "only {} attack files", trials.len());
    let trials = only(trials.into_iter().map(|trial| ("attacks", trial)).collect());
    let before = (!arguments.list).then(Footprint::now);
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(before) = before
        && !before.compare()
    {
        return ExitCode::from(101);
    }
    conclusion.exit_code()
}

/// Resources of the host that an attack would like to reach.
struct Planted {
    _tcp: TcpListener,
    _abstract: UnixListener,
    _path: UnixListener,
}

impl Planted {
    fn new() -> Self {
        for path in [PLANTED_FILE, PLANTED_SOCKET] {
            if Path::new(path).exists() {
                fs::remove_file(path).unwrap();
            }
        }
        let mut file = fs::File::create(PLANTED_FILE).unwrap();
        file.write_all(harness::SECRET.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
        let address = SocketAddr::from_abstract_name("woma-attack-listener").unwrap();
        Self {
            _tcp: TcpListener::bind("127.0.0.1:47110").expect("port 47110 must be free"),
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            _path: UnixListener::bind(PLANTED_SOCKET).unwrap(),
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        for path in [PLANTED_FILE, PLANTED_SOCKET] {
            fs::remove_file(path).unwrap();
        }
    }
}

/// Resource use of the server process itself.
#[derive(Clone, Copy, PartialEq)]
struct Footprint {
    rss_kib: u64,
    fds: usize,
}

impl Footprint {
    fn now() -> Self {
        // Warm up: output, a long display, a failure.
        const SERVED: [&str; 3] = [
            "print('x' * 2_000_000)",
            "from IPython.display import HTML\nHTML('x' * 300_000)",
            "1 / 0",
        ];
        runtime().block_on(async {
            let mut cell = sandbox().await.open(&spec(Limits::default())).await.unwrap();
            for code in SERVED {
                run(&mut cell, code).await;
            }
        });
        Self::settled()
    }

    /// Waits until nothing has changed for a while: dead rooms are cleaned up, a spare is ready,
    /// and the allocator has returned unused memory.
    fn settled() -> Self {
        const STILL: Duration = Duration::from_secs(3);
        let (mut last, mut since) = (Self::look(), Instant::now());
        runtime().block_on(until("nothing changes", Duration::from_secs(60), || {
            let now = Self::look();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if since.elapsed() > STILL { Ok(()) } else { Err("it still does".to_owned()) }
        }));
        last
    }

    fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let rss_kib = rss.trim().trim_end_matches(" kB").parse().unwrap();
        Self { rss_kib, fds: fs::read_dir("/proc/self/fd").unwrap().count() }
    }

    /// Compares memory within a tenth and what an allocator keeps of its own accord, descriptors
    /// within ten.
    fn compare(&self) -> bool {
        let mut now = Self::now();
        let started = Instant::now();
        // The last room, if large, takes a moment to die.
        while now.fds.abs_diff(self.fds) > 10 && started.elapsed() < Duration::from_secs(60) {
            now = Self::now();
        }
        eprintln!(
            "the server after all attacks: {} → {} KiB, {} → {} descriptors",
            self.rss_kib, now.rss_kib, self.fds, now.fds
        );
        now.rss_kib <= self.rss_kib + self.rss_kib / 10 + ALLOCATOR_KIB
            && now.fds.abs_diff(self.fds) <= 10
    }
}

/// Memory that an allocator may keep, in KiB. A server of 9 MiB was seen to keep 1.1.
const ALLOCATOR_KIB: u64 = 2 * 1024;

/// Whether this rung must hold an attack: all must, but for a file that names the rungs that do.
fn is_promised(path: &Path) -> bool {
    let source = fs::read_to_string(path).unwrap();
    let mut head = source.lines().take_while(|line| line.starts_with('#'));
    let named = head.find_map(|line| line.strip_prefix("# rungs: "));
    named.is_none_or(|named| named.split_whitespace().any(|name| name == rung().name()))
}

/// Header of an attack file.
#[derive(Debug, Default)]
struct Head {
    must_end: Vec<String>,
    limits: Limits,
    /// Surroundings of the attacker, as words.
    with: String,
    state: Option<State>,
    then: Option<String>,
    /// How it ends on a rung without namespaces: an outcome; or the place at which the kernel
    /// refuses, which is earlier than in a room.
    below_strong: Option<String>,
}

impl Head {
    fn has(&self, what: &str) -> bool {
        self.with.split_whitespace().any(|word| word == what)
    }
}

fn head(source: &str) -> Result<Head, Failed> {
    let mut head = Head::default();
    let mut attack = false;
    head.limits.wall = Duration::from_secs(10);
    for line in source.lines().take_while(|line| line.starts_with('#')) {
        let Some((key, value)) = line.trim_start_matches("# ").split_once(": ") else { continue };
        let value = value.trim();
        match key {
            "attack" => attack = true,
            "must end" => head.must_end = value.split(" or ").map(str::to_owned).collect(),
            "limits" => set_limits(&mut head.limits, value)?,
            "with" => value.clone_into(&mut head.with),
            "state" => {
                head.state = Some(if value == "lost" { State::Lost } else { State::Preserved });
            }
            // See `is_promised`.
            "rungs" => {}
            "below strong" => head.below_strong = Some(value.to_owned()),
            "then" => head.then = Some(value.to_owned()),
            other => return Err(format!("unknown header {other}").into()),
        }
    }
    if let Some(end) = &head.below_strong
        && rung() != Rung::Rooms
        && !end.starts_with("refused at ")
    {
        head.must_end = end.split(" or ").map(str::to_owned).collect();
    }
    if head.below_strong.is_some() && rung() != Rung::Rooms {
        (head.state, head.then) = (None, None);
    }
    // A run that must complete gets enough time; one that must be cut off does not.
    if head.must_end.iter().all(|end| end != "timed_out") {
        head.limits.wall = patience(head.limits.wall);
    }
    if !attack || head.must_end.is_empty() {
        return Err("the head must say `# attack:` and `# must end:`".into());
    }
    Ok(head)
}

fn set_limits(limits: &mut Limits, text: &str) -> Result<(), Failed> {
    for item in text.split_whitespace() {
        let (key, value) = item.split_once('=').ok_or("limits are written as name=value")?;
        let (digits, unit) =
            value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()));
        let number: u64 = digits.parse()?;
        let bytes = number
            * match unit {
                "k" => 1 << 10,
                "m" => 1 << 20,
                "g" => 1 << 30,
                _ => 1,
            };
        match key {
            "wall" => limits.wall = Duration::from_secs(number),
            "cpu_seconds" => limits.cpu = Duration::from_secs(number),
            "memory" => limits.memory_bytes = bytes,
            "processes" => limits.processes = number,
            "open_files" => limits.open_files = number,
            "file_size" => limits.file_bytes = bytes,
            "workspace" => limits.workspace_bytes = bytes,
            "workspace_files" => limits.workspace_files = number,
            "output" => limits.output_bytes = bytes,
            other => return Err(format!("unknown limit {other}").into()),
        }
    }
    Ok(())
}

async fn attack(path: &Path) -> Result<(), Failed> {
    let source = fs::read_to_string(path)?;
    let head = head(&source)?;
    let mut neighbour = if head.has("neighbour") { Some(neighbour().await?) } else { None };
    let folder = if head.has("folder") { Some(OnDisk::new()?) } else { None };
    let mut spec_here = spec(head.limits.clone());
    if let Some(folder) = &folder {
        spec_here.workspace = Workspace::Folder(folder.path());
        spec_here.name = Some("mine".to_owned());
    }
    let mut cell = sandbox().await.open(&spec_here).await?;
    let datasets = if head.has("datasets") { Some(Shelves::new()?) } else { None };
    if let Some(Shelves { own, other, .. }) = &datasets {
        cell.show_datasets(own).await?;
        if let Some(neighbour) = &mut neighbour {
            neighbour.show_datasets(other).await?;
        }
    }
    let _sockets = if head.has("sockets") {
        Some(RoomListeners::new(&cell, neighbour.as_ref()).await?)
    } else {
        None
    };
    let namespace = pid_namespace(&cell);
    // Files that are about these rungs alone name no folders of a room.
    let is_about_rooms = !source.contains("\n# rungs: ");
    let names = if is_about_rooms { Names::of(&mut cell).await } else { Names(None) };
    let source = names.put_into(source);
    let started = Instant::now();
    let result = run(&mut cell, &source).await;
    let took = started.elapsed();
    let verdict = judge(&head, &result, took);
    let then = match &head.then {
        Some(expression) if result.exit.state == State::Preserved => {
            then(&mut cell, &names.put_into(expression.clone())).await
        }
        _ => Ok(()),
    };
    let looked = folder.as_ref().map_or(Ok(()), OnDisk::look);
    let looked = looked.and(datasets.as_ref().map_or(Ok(()), Shelves::check));
    drop(cell);
    until("every process of the room is gone", Duration::from_secs(1), || {
        match processes_in(&namespace) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    if let Some(neighbour) = &mut neighbour {
        let asked = Instant::now();
        let result = run(neighbour, "print(SECRET[:9], open('neighbour.txt').read())").await;
        let is_slow = asked.elapsed() > patience(Duration::from_secs(1));
        if result.stdout.trim() != "neighbour kept" || is_slow {
            return Err(format!("the neighbour was harmed: {result:?}").into());
        }
    }
    let mut fresh = sandbox().await.open(&spec(Limits::default())).await?;
    let healthy = run(&mut fresh, "print(6 * 7)").await;
    if healthy.stdout != "42\n" {
        return Err(format!("a fresh cell does not work: {healthy:?}").into());
    }
    let deleted = folder.map_or(Ok(()), OnDisk::delete);
    verdict.and(then).and(looked).and(deleted)
}

/// Sockets of the server in the attacker's room, which nobody accepts from, and in its neighbour's.
struct RoomListeners {
    _held: Vec<OwnedFd>,
}

impl RoomListeners {
    async fn new(cell: &Cell, neighbour: Option<&Cell>) -> Result<Self, Failed> {
        let at = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        let service = RoomAddress::Service("attack.sock".to_owned());
        let mut held = Vec::new();
        for place in [RoomAddress::Tcp(at(80)), RoomAddress::Udp(at(53)), service.clone()] {
            held.push(cell.sockets().listen(&place).await?);
        }
        if let Some(neighbour) = neighbour {
            for place in [RoomAddress::Tcp(at(4712)), RoomAddress::Udp(at(4712)), service] {
                held.push(neighbour.sockets().listen(&place).await?);
            }
        }
        Ok(Self { _held: held })
    }
}

/// Datasets of the attacker's caller and of another one, beside each other as on a server.
struct Shelves {
    _around: tempfile::TempDir,
    own: PathBuf,
    other: PathBuf,
}

impl Shelves {
    fn new() -> Result<Self, Failed> {
        let around = tempfile::Builder::new().prefix("woma-attack-").tempdir_in("/var/tmp")?;
        let (own, other) = (around.path().join("own"), around.path().join("other"));
        for (path, content) in [(&own, "PAR1-own"), (&other, harness::SECRET)] {
            Folder::make(path)?;
            fs::write(path.join("sales.parquet"), content)?;
            fs::set_permissions(path.join("sales.parquet"), fs::Permissions::from_mode(0o644))?;
        }
        Ok(Self { _around: around, own, other })
    }

    /// Nothing was changed, and nothing is there that was not.
    fn check(&self) -> Result<(), Failed> {
        for (path, content) in [(&self.own, "PAR1-own"), (&self.other, harness::SECRET)] {
            let names: Vec<_> =
                fs::read_dir(path)?.flatten().map(|file| file.file_name()).collect();
            if names != ["sales.parquet"]
                || fs::read_to_string(path.join("sales.parquet"))? != content
            {
                return Err(format!("a dataset was changed: {names:?}").into());
            }
        }
        Ok(())
    }
}

/// A workspace on disk, used by the server while the attacker's threads run, and afterwards.
struct OnDisk {
    around: tempfile::TempDir,
    folder: Folder,
}

impl OnDisk {
    fn new() -> Result<Self, Failed> {
        let around = tempfile::Builder::new().prefix("woma-attack-").tempdir_in("/var/tmp")?;
        let folder = Folder::make(&around.path().join("session"))?;
        fs::write(around.path().join("beside.txt"), harness::SECRET)?;
        Ok(Self { around, folder })
    }

    fn path(&self) -> PathBuf {
        self.around.path().join("session")
    }

    /// Lists, reads, compares and writes; no call may block, or find files outside the session.
    fn look(&self) -> Result<(), Failed> {
        const ROUNDS: usize = 50;
        let bounds = Bounds { entries: 10_000, hidden: true, ..Bounds::default() };
        let began = Instant::now();
        let mut before = Snapshot::default();
        for _ in 0..ROUNDS {
            for entry in self.folder.list(bounds)?.entries.iter().take(100) {
                let Ok(path) = WorkspacePath::parse(&format!("./{}", entry.path)) else { continue };
                let Ok((file, _)) = self.folder.open(&path) else { continue };
                let mut content = Vec::new();
                file.take(4_096).read_to_end(&mut content)?;
                let text = String::from_utf8_lossy(&content);
                if text.contains(harness::SECRET) || text.contains("root:") {
                    return Err(format!("{} leads out: {text}", entry.path).into());
                }
            }
            let mut after = Snapshot::take(&self.folder, bounds, 10_000)?;
            diff(&self.folder, &before, &mut after, DigestBounds::default());
            before = after;
            if began.elapsed() > slowed(Duration::from_secs(3)) {
                break;
            }
        }
        self.folder.create(&WorkspacePath::parse("server/was/here.txt")?)?.commit()?;
        if began.elapsed() > patience(Duration::from_secs(6)) {
            return Err(format!("the server was held up for {:?}", began.elapsed()).into());
        }
        Ok(())
    }

    fn delete(self) -> Result<(), Failed> {
        remove_tree(&self.path(), 1_000_000)?;
        let kept = fs::read_to_string(self.around.path().join("beside.txt"))?;
        if self.path().exists() || kept != harness::SECRET {
            return Err("deleting the folder deleted more or less than it".into());
        }
        Ok(())
    }
}

fn judge(head: &Head, result: &RunResult, took: Duration) -> Result<(), Failed> {
    if let Some(place) =
        head.below_strong.as_deref().and_then(|text| text.strip_prefix("refused at "))
        && rung() != Rung::Rooms
    {
        return refused_at(place, result);
    }
    let ended = result.exit.outcome.name();
    let tail = |text: &str| {
        text.chars().rev().take(1500).collect::<Vec<_>>().into_iter().rev().collect::<String>()
    };
    let story = || {
        let error = result.exit.done.as_ref().and_then(|done| done.error.clone());
        let (stdout, stderr) = (tail(&result.stdout), tail(&result.stderr));
        format!("{:?} {error:?}\nstdout: {stdout}\nstderr: {stderr}", result.exit.outcome)
    };
    if !head.must_end.iter().any(|expected| expected == ended) {
        return Err(format!("ended {ended}, must end {:?}\n{}", head.must_end, story()).into());
    }
    // Only at the start of a line: tracebacks quote the source.
    let breach = |text: &str| text.lines().any(|line| line.starts_with("BREACH"));
    if breach(&result.stdout) || breach(&result.stderr) {
        return Err(format!("breach\n{}", story()).into());
    }
    // An attack that failed by accident does not show that containment works.
    if ended == "completed" && head.must_end == ["completed"] && !result.stdout.contains("held") {
        return Err(format!("it did not get to its end\n{}", story()).into());
    }
    if head.state.is_some_and(|state| state != result.exit.state) {
        return Err(format!("state {:?}\n{}", result.exit.state, story()).into());
    }
    if took > head.limits.wall + patience(OVERTIME_MAX) {
        return Err(format!("took {took:?}\n{}", story()).into());
    }
    Ok(())
}

/// Whether the run was refused in that line, and had no success before.
fn refused_at(place: &str, result: &RunResult) -> Result<(), Failed> {
    let error = result.exit.done.as_ref().and_then(|done| done.error.clone());
    let is_refused = error.is_some_and(|error| {
        error.name == "PermissionError" && error.traceback.iter().any(|line| line.contains(place))
    });
    if is_refused && !result.stdout.contains("BREACH") {
        return Ok(());
    }
    Err(format!("not refused at {place}: {result:?}").into())
}

async fn then(cell: &mut Cell, expression: &str) -> Result<(), Failed> {
    let result = run(cell, &format!("print(bool({expression}))")).await;
    if result.stdout.trim_end().ends_with("True") {
        return Ok(());
    }
    Err(format!("afterwards `{expression}` is not true: {result:?}").into())
}

/// Names of a session's folders; without mounts, they are others than in a room.
struct Names(Option<(String, String)>);

impl Names {
    async fn of(cell: &mut Cell) -> Self {
        if rung() == Rung::Rooms {
            return Self(None);
        }
        let asked = run(cell, "import os\nprint(os.environ['HOME'], os.environ['TMPDIR'])").await;
        let (home, temporary) = asked.stdout.trim().split_once(' ').unwrap();
        let scratch = temporary.strip_suffix("/tmp").unwrap();
        Self(Some((home.to_owned(), scratch.to_owned())))
    }

    fn put_into(&self, code: String) -> String {
        let Some((home, scratch)) = &self.0 else { return code };
        let code = code.replace("\"/tmp", "\"/mnt/data");
        code.replace("/mnt/data", home).replace("/run/scratch", scratch)
    }
}

const NEIGHBOUR: &str = "SECRET = 'neighbour-' + 'secret-' + '90210'\n\
                         open('neighbour.txt', 'w').write('kept')\n";
const NEIGHBOUR_WITH_SOCKETS: &str = "import socket\n\
     SECRET = 'neighbour-' + 'secret-' + '90210'\n\
     open('neighbour.txt', 'w').write('kept')\n\
     unix = socket.socket(socket.AF_UNIX); unix.bind('\\0woma-neighbour'); unix.listen()\n\
     tcp = socket.create_server(('127.0.0.1', 4711))\n";

/// Another session with something to lose.
async fn neighbour() -> Result<Cell, Failed> {
    let mut cell = sandbox().await.open(&spec(Limits::default())).await?;
    let result =
        run(&mut cell, if rung() == Rung::Rooms { NEIGHBOUR_WITH_SOCKETS } else { NEIGHBOUR })
            .await;
    match result.exit.outcome.name() {
        "completed" => Ok(cell),
        _ => Err(format!("the neighbour does not start: {result:?}").into()),
    }
}
