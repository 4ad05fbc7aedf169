//! Test server, and a minimal HTTP/1.1 client that can send malformed requests.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};
use std::{env, fs, io, panic, thread};

use serde_json::{Value, json};

/// Longest time that anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of a failure that is reported at once.
const FAILURE_CHARS_MAX: usize = 2_000;
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Outlives a test binary that is killed, and takes the server and its folder with it. It tells the
/// server's process id first and its exit status last.
const GUARDIAN: &str = "exec 3<&0; \"$@\" >&2 & child=$!; echo $child; \
                        { cat <&3 >/dev/null; kill -9 $child; } 2>/dev/null & \
                        wait $child; echo \"exited $?\" >&2; exec 2>/dev/null; \
                        exec 3<&-; wait; rm -rf \"$0\"";

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    log: Arc<Mutex<String>>,
    /// The server is killed when this closes.
    life: Option<ChildStdin>,
    shell: Child,
}

/// The server that most tests share.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start_with(&[], &[EVERYTHING]))
}

/// Setting of a server that many tests share. The others import the larger libraries only if a
/// program does: that takes most of the time of a start.
pub(crate) const EVERYTHING: (&str, &str) = ("PRELOAD", "full");
pub(crate) const BASE: (&str, &str) = ("PRELOAD", "base");

impl Server {
    /// With these arguments, and with no setting from anywhere else. Those before a `serve` come
    /// before the command.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// With these arguments and variables.
    pub(crate) fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(&[], arguments, variables)
    }

    /// As [`Server::start_with`], by a program that finally executes the server.
    pub(crate) fn start_in(place: &[&str], arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        tell_failures_at_once();
        let folder = tempfile::tempdir().unwrap().keep();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GUARDIAN]).arg(&folder).args(place);
        command.arg(env!("CARGO_BIN_EXE_woma"));
        if !arguments.contains(&"--data-dir") {
            command.arg("--data-dir").arg(&folder);
        }
        let command_at = arguments.iter().position(|argument| *argument == "serve");
        let (before, after) = match command_at {
            Some(at) => (&arguments[..at], &arguments[at + 1..]),
            None => (&[][..], arguments),
        };
        let mut shell = command
            .arg("--env")
            .arg(environment())
            .args(before)
            .args(["serve", "--port", "0"])
            .args(after)
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .envs([BASE])
            .envs(variables.iter().copied())
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let life = shell.stdin.take();
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let mut stderr = BufReader::new(shell.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended: {said}");
            said.push_str(&line);
            if let Some((_, address)) = line.split_once("listening on http://") {
                break address.trim().parse().unwrap();
            }
        };
        let log = Arc::new(Mutex::new(said));
        let heard = Arc::clone(&log);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                writeln!(heard.lock().unwrap(), "{line}").unwrap();
            }
        });
        Self { address, pid: pid.trim().parse().unwrap(), log, life, shell }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The exit status, once there is one; a signal counts from 128 on.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        self.log().lines().find_map(|line| line.strip_prefix("exited ")?.parse().ok())
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.pid.to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Kills the server, and returns when it is gone.
    pub(crate) fn kill(&self) {
        self.signal("-KILL");
        until("it has ended", || self.exit_status().is_some());
    }

    /// Tells the server to stop, and returns when it has stopped.
    pub(crate) fn stop(&self) {
        self.signal("-TERM");
        until("it has ended", || self.exit_status().is_some());
        assert_eq!(self.exit_status(), Some(0), "{}", self.log());
    }

    /// Peak memory of the server, in MiB.
    pub(crate) fn memory_peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path, &[], body.to_string().as_bytes())
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut connection = self.connect();
        connection.send(method, path, headers, body);
        connection.answer(method == "HEAD")
    }

    /// Runs code and returns the reply, which must be one.
    pub(crate) fn run(&self, body: &Value) -> Value {
        let answer = self.post("/execute", body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    pub(crate) fn code(&self, session: &str, code: &str) -> Value {
        self.run(&json!({ "code": code, "session_id": session }))
    }

    /// Waits until the session is or is not busy.
    pub(crate) fn until_busy(&self, session: &str, is_busy: bool) {
        until(&format!("{session} busy: {is_busy}"), || {
            let answer = self.get(&format!("/api/v1/sessions/{session}"));
            answer.status == 200 && answer.json()["is_busy"] == is_busy
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.life.take());
        self.shell.wait().unwrap();
    }
}

/// Reports a failure with the name of its test when it happens, and not only at the end of all:
/// a truncated log may end before that.
fn tell_failures_at_once() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let as_always = panic::take_hook();
        panic::set_hook(Box::new(move |failure| {
            let who = thread::current();
            let text: String = failure.to_string().chars().take(FAILURE_CHARS_MAX).collect();
            // Written past the test harness, which captures output until the test ends.
            let line = format!("{}: {text}\n", who.name().unwrap_or("a thread of a test"));
            io::stderr().write_all(line.as_bytes()).unwrap_or_default();
            as_always(failure);
        }));
    });
}

/// The Python environment of the tests.
pub(crate) fn environment() -> OsString {
    env::var_os("WOMA_TEST_ENV").unwrap_or_else(|| {
        panic!("WOMA_TEST_ENV must name an environment; `make test` makes one and sets it")
    })
}

/// Checks repeatedly, until the time limit.
#[expect(clippy::disallowed_methods, reason = "what is waited for needs the processor more")]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(PAUSE);
    }
}

/// A zombie counts as gone.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.rsplit(')').next().is_some_and(|rest| rest.trim().starts_with('Z'))
}

/// Every process below this one.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent: u32| (pid, parent)));
    }
    let (mut found, mut next) = (Vec::new(), vec![pid]);
    while let Some(parent) = next.pop() {
        let below = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        let below: Vec<u32> = below.collect();
        found.extend(&below);
        next.extend(below);
    }
    found
}

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}

pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

/// The head of a response; the caller reads the body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    /// From another address of this machine.
    pub(crate) fn open_from(source: [u8; 4], address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((source, 0)))?;
            socket.connect(address).await?.into_std()
        });
        let stream = stream.unwrap();
        stream.set_nonblocking(false).unwrap();
        Self::with(stream).unwrap()
    }

    pub(crate) fn try_open(address: SocketAddr) -> io::Result<Self> {
        Self::with(TcpStream::connect(address)?)
    }

    fn with(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    pub(crate) fn patience(&self, patience: Duration) {
        self.reader.get_ref().set_read_timeout(Some(patience)).unwrap();
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// A request with a length and the given headers.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        self.try_send(method, path, headers, body).unwrap();
    }

    pub(crate) fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
        self.write(&[head.as_bytes(), body].concat())
    }

    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    pub(crate) fn head(&mut self) -> io::Result<Head> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no response: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
                None => return Ok(Head { status, headers }),
            }
        }
    }

    /// The next piece of a chunked body; `None` at its end.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let length = self.line()?;
        let length = usize::from_str_radix(&length, 16)
            .map_err(|_| io::Error::other(format!("no length of a chunk: {length:?}")))?;
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok((length > 0).then_some(bytes))
    }

    pub(crate) fn answer(&mut self, is_head: bool) -> Answer {
        self.try_answer(is_head).unwrap()
    }

    pub(crate) fn try_answer(&mut self, is_head: bool) -> io::Result<Answer> {
        let Head { status, headers } = self.head()?;
        let head = Head { status, headers };
        let mut body = Vec::new();
        if head.get("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                body.extend(chunk);
            }
        } else if !is_head && let Some(length) = head.get("content-length") {
            body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut body)?;
        }
        Ok(Answer { status, headers: head.headers, body })
    }

    /// Whether the other side has closed; earlier data is dropped.
    pub(crate) fn is_closed(&mut self) -> bool {
        io::copy(&mut self.reader, &mut io::sink()).is_ok()
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

impl Answer {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The objects of a stream of lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Checks that this is an error of the common shape, with this status.
    pub(crate) fn refused(&self, status: u16) -> String {
        let object = self.json();
        assert_eq!(self.status, status, "{object}");
        assert!(object["code"].is_string(), "{object}");
        assert!(self.get("x-request-id").is_some(), "{self:?}");
        object["message"].as_str().unwrap().to_owned()
    }
}
