//! A private `PostgreSQL` with its own folder and port, removed at the end.

use std::fs::Permissions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::authority::Signed;

pub(crate) const PASSWORD: &str = "s3cret-of-the-database";
/// `PostgreSQL` refuses to run as root; Debian's package creates this user.
const USER: &str = "postgres";
const START_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    pub(crate) port: u16,
    server: Mutex<Option<Child>>,
    /// Additional settings.
    settings: Vec<String>,
}

static SHARED: OnceLock<Mutex<Option<&'static Cluster>>> = OnceLock::new();

/// Cluster shared by most tests, each with its own database.
pub(crate) fn shared() -> &'static Cluster {
    let shared = SHARED.get_or_init(Mutex::default);
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.get_or_insert_with(|| {
        let (sender, receiver) = std::sync::mpsc::channel();
        // The kernel ends the server with the *thread* that started it (`--pdeathsig`). A thread of
        // the harness ends when no test is left for it, while others still run.
        std::thread::spawn(move || {
            sender.send(Cluster::start()).unwrap();
            loop {
                std::thread::park();
            }
        });
        Box::leak(Box::new(receiver.recv().unwrap()))
    })
}

pub(crate) fn stop_shared() {
    if let Some(shared) = SHARED.get()
        && let Some(cluster) = shared.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        cluster.stop("-QUIT");
        std::fs::remove_dir_all(cluster.folder.path()).unwrap();
    }
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let cluster = Self::make();
        cluster.launch();
        cluster
    }

    /// Creates a cluster without starting its server.
    pub(crate) fn make() -> Self {
        let programs = programs();
        // A folder that another user can enter, unlike some folders for temporary files.
        let folder = TempDir::new_in("/var/tmp").unwrap();
        let password = folder.path().join("password");
        std::fs::File::create(&password).unwrap().write_all(PASSWORD.as_bytes()).unwrap();
        if is_root() {
            let id = |flag: &str| -> u32 {
                let id = output(Command::new("id").args([flag, USER])).unwrap();
                id.trim().parse().unwrap()
            };
            for path in [folder.path(), &password] {
                chown(path, Some(id("-u")), Some(id("-g"))).unwrap();
            }
        }
        let mut make = as_user(&programs.join("initdb"), false);
        make.arg("-D").arg(folder.path().join("data")).arg("--pwfile").arg(&password);
        make.args(["-U", "woma", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]);
        output(&mut make).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { programs, folder, port, server: Mutex::default(), settings: Vec::new() }
    }

    /// Starts a cluster without passwords. Authentication with one takes the driver hundreds of
    /// steps, and on a busy machine longer than the time limit of a connection.
    pub(crate) fn start_trusting() -> Self {
        let cluster = Self::make();
        cluster.admit("host all all 127.0.0.1/32 trust\n");
        cluster.launch();
        cluster
    }

    fn admit(&self, rules: &str) {
        std::fs::write(self.folder.path().join("data/pg_hba.conf"), rules).unwrap();
    }

    /// Starts a cluster that accepts TLS connections only.
    pub(crate) fn start_secured(signed: &Signed) -> Self {
        let mut cluster = Self::make();
        let own = |from: &Path, name: &str| {
            let path = cluster.folder.path().join(name);
            std::fs::copy(from, &path).unwrap();
            let owner = std::fs::metadata(cluster.folder.path()).unwrap();
            chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let certificate = own(&signed.certificate, "server.pem");
        let key = own(&signed.key, "server.key");
        cluster.admit("hostssl all all 127.0.0.1/32 scram-sha-256\n");
        cluster.settings = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={certificate}"),
            format!("ssl_key_file={key}"),
        ];
        cluster.launch();
        cluster
    }

    #[expect(clippy::disallowed_methods, reason = "the server does not report when it is ready")]
    pub(crate) fn launch(&self) {
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let mut server = as_user(&self.programs.join("postgres"), true);
        server.arg("-D").arg(self.folder.path().join("data"));
        server.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        server.arg("-c").arg(format!("unix_socket_directories={}", self.folder.path().display()));
        server.args(["-c", "fsync=off", "-c", "max_connections=200"]);
        server.args(self.settings.iter().flat_map(|setting| ["-c", setting]));
        server.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let server = server.spawn().unwrap();
        *self.server.lock().unwrap() = Some(server);
        let deadline = Instant::now() + START_MAX;
        while self.sql("postgres", "SELECT 1").is_err() {
            assert!(Instant::now() < deadline, "PostgreSQL does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Stops the server: `-INT` aborts running statements, `-QUIT` acts as a crash.
    pub(crate) fn stop(&self, signal: &str) {
        if let Some(mut server) = self.server.lock().unwrap().take() {
            assert!(kill(signal, server.id()));
            server.wait().unwrap();
        }
    }

    /// Suspends the server with all its processes.
    pub(crate) fn freeze(&self) {
        let leader = self.leader();
        assert!(kill("-STOP", leader));
        self.signal_children("-STOP");
    }

    /// Resumes a frozen server. The leader comes last: while it reaps, `/proc` leaves out some of
    /// its children, and one that stays stopped can hold a lock that all others need.
    pub(crate) fn thaw(&self) {
        self.signal_children("-CONT");
        assert!(kill("-CONT", self.leader()));
    }

    fn leader(&self) -> u32 {
        self.server.lock().unwrap().as_ref().unwrap().id()
    }

    fn signal_children(&self, signal: &str) {
        let leader = self.leader();
        let children = format!("/proc/{leader}/task/{leader}/children");
        for child in std::fs::read_to_string(children).unwrap().split_whitespace() {
            // A child may have ended.
            kill(signal, child.parse().unwrap());
        }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://woma:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database; returns its name.
    pub(crate) fn fresh(&self) -> String {
        let name = format!("t{}", uuid::Uuid::new_v4().simple());
        self.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
        name
    }

    /// Output of `psql`, or its error message.
    pub(crate) fn sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        psql.arg(self.url(database)).env("PGCONNECT_TIMEOUT", "5");
        output(&mut psql)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop("-QUIT");
    }
}

fn programs() -> PathBuf {
    let version = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.parse::<u32>().ok())
    };
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = installed.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(version);
    let programs = newest.map(|path| path.join("bin"));
    let found = programs.filter(|programs| programs.join("postgres").exists());
    found.expect("PostgreSQL is missing: apt-get install postgresql")
}

/// Runs a program as a user that `PostgreSQL` accepts; a server ends with this program.
fn as_user(program: &Path, is_server: bool) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.args(["--reuid", USER, "--regid", USER, "--init-groups"]);
    }
    if is_server {
        command.args(["--pdeathsig", "QUIT"]);
    }
    // The other user may not be allowed to enter the current folder.
    command.current_dir("/").arg("--").arg(program);
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn kill(signal: &str, process: u32) -> bool {
    Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success()
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}
