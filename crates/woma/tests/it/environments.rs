//! Named environments: templates of the operator, sessions in them, and locks of what they have.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::client;
use crate::harness::{self, Server, until};
use crate::package_index::Index;

/// Packages that the kernel needs, by the beginnings of names in their folder.
const KERNEL: &[&str] = &[
    "IPython",
    "ipython",
    "asttokens",
    "executing",
    "jedi",
    "matplotlib_inline",
    "parso",
    "pexpect",
    "prompt_toolkit",
    "ptyprocess",
    "pure_eval",
    "pygments",
    "stack_data",
    "traitlets",
    "typing_extensions",
    "wcwidth",
];

/// A data folder with an environment `small`, which has the kernel's packages and a module, and with
/// templates.
struct Place {
    folder: PathBuf,
    index: Index,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        make_small(&folder.join("envs/small"));
        let templates = folder.join("environments");
        fs::create_dir(&templates).unwrap();
        let write = |name: &str, text: &str| fs::write(templates.join(name), text).unwrap();
        // `lock` names what it would be made from; it is there already.
        write(
            "small.toml",
            "description = 'Nothing but the kernel'\nlock = 'small.lock'\npreload = 'base'\n",
        );
        write(
            "tight.toml",
            "env = 'small'\n[limits]\ntimeout = 5\nmemory = '300m'\nprocesses = 20\n",
        );
        write("strict.toml", "policy = 'power-interpreter'\n");
        write("absent.toml", "packages = ['woma_one']\n");
        let index = Index::start();
        index.add("woma_one", "1.0", &[]);
        index.add("woma_two", "0.3", &["woma_one<2"]);
        Self { folder, index }
    }

    fn data(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    fn start(&self, more: &[(&str, &str)]) -> Server {
        let url = self.index.url();
        let settings = [("REPLY", "full"), ("PACKAGE_INDEX_URL", url.as_str())];
        let settings: Vec<_> = settings.iter().chain(more).copied().collect();
        Server::start_with(&["--data-dir", self.data()], &settings)
    }

    fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_woma"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.args(["--data-dir", self.data()]).args(arguments).output().unwrap()
    }
}

/// Makes an environment as `woma env create` leaves one, of a few packages of the tests' own.
fn make_small(prefix: &Path) {
    let from = PathBuf::from(harness::environment());
    let record: Value = {
        let text = fs::read(from.join("woma-environment.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let library =
        format!("lib/python{}.{}/site-packages", record["version"][0], record["version"][1]);
    let (packages, bin) = (prefix.join(&library), prefix.join("bin"));
    fs::create_dir_all(&packages).unwrap();
    fs::create_dir_all(&bin).unwrap();
    for entry in fs::read_dir(from.join(&library)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if KERNEL.iter().any(|wanted| name.starts_with(wanted)) {
            let copied = Command::new("cp").arg("-r").arg(entry.path()).arg(&packages).status();
            assert!(copied.unwrap().success());
        }
    }
    fs::write(packages.join("woma_marker.py"), "NAME = 'small'\n").unwrap();
    fs::copy(from.join("pyvenv.cfg"), prefix.join("pyvenv.cfg")).unwrap();
    std::os::unix::fs::symlink(record["python"].as_str().unwrap(), bin.join("python")).unwrap();
    fs::write(prefix.join("woma-environment.lock"), "ipython==9 \\\n    --hash=sha256:aa\n")
        .unwrap();
    fs::write(prefix.join("woma-environment.json"), record.to_string()).unwrap();
}

fn out(reply: &Value) -> &str {
    assert_eq!(reply["success"], true, "{reply}");
    reply["stdout"].as_str().unwrap()
}

fn create(server: &Server, session: &str, environment: &str) -> Value {
    let arguments = json!({ "session_id": session, "environment": environment });
    let answer = client(server).post("/api/v1/sessions", &arguments);
    assert!(answer.status < 300, "{}", answer.text());
    answer.json()["data"].clone()
}

/// A server with an environment, for tests that need no settings of their own.
fn here() -> &'static (Place, Server) {
    static HERE: OnceLock<(Place, Server)> = OnceLock::new();
    HERE.get_or_init(|| {
        let place = Place::new();
        let server = place.start(&[]);
        (place, server)
    })
}

#[test]
fn a_session_runs_in_the_environment_that_it_names() {
    let (_, server) = here();
    let made = create(server, "small", "small");
    assert_eq!(made["environment"], "small", "{made}");
    let code = "import woma_marker, importlib.util\n\
                print(woma_marker.NAME, importlib.util.find_spec('pandas'))";
    assert_eq!(out(&server.code("small", code)), "small None\n");
    let ran = server.code("elsewhere", "import woma_marker");
    assert_eq!(ran["error"]["type"], "ModuleNotFoundError", "{ran}");
    assert_eq!(out(&server.code("elsewhere", "import pandas\nprint(1)")), "1\n");
    let listed = client(server).get("/api/v1/sessions/small").json();
    assert_eq!(listed["environment"], "small", "{listed}");
    let listed = client(server).get("/api/v1/sessions/elsewhere").json();
    assert_eq!(listed.get("environment"), None, "{listed}");
}

#[test]
fn tools_name_environments_and_tell_of_them() {
    let (_, server) = here();
    let arguments = json!({ "session_id": "by-tool", "environment": "small" });
    let made = client(server).call("create_session", &arguments);
    assert_eq!(made["structuredContent"]["environment"], "small", "{made}");
    let ran = client(server).code("by-tool", "import woma_marker\nprint(woma_marker.NAME)");
    assert_eq!(out(&ran), "small\n");
    let info = client(server).call("get_sandbox_info", &json!({}));
    let info = info["structuredContent"]["environments"].as_array().unwrap().clone();
    let named = |name: &str| info.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(named("tight")["timeout_max"], 5.0, "{info:?}");
    assert_eq!(named("tight")["memory_limit_max"], "300m", "{info:?}");
    assert_eq!(named("strict")["policy"], "power-interpreter", "{info:?}");
    assert!(named("absent")["unavailable"].as_str().unwrap().contains("not been made"), "{info:?}");
    let rest = client(server).get("/api/v1/environments").json();
    assert_eq!(rest["environments"].as_array().unwrap().len(), info.len(), "{rest}");
}

#[test]
fn unknown_environments_are_refused_with_near_names() {
    let (_, server) = here();
    let ask = |name: &str| client(server).post("/api/v1/sessions", &json!({ "environment": name }));
    let answer = ask("smal");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let text = answer.text();
    assert!(text.contains("`smal` does not exist") && text.contains("`small`"), "{text}");
    assert!(text.contains("absent, small, strict, tight"), "{text}");
    let answer = ask("absent");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("woma env create NAME"), "{}", answer.text());
    let made = create(server, "of-default", "default");
    assert_eq!(made.get("environment"), None, "{made}");
    create(server, "taken", "small");
    let put = |environment: &str| {
        let body = json!({ "environment": environment });
        client(server).send("PUT", "/api/v1/sessions/taken", &[], &body).answer(false).status
    };
    assert_eq!((put("small"), put("strict"), put("default")), (200, 409, 409));
}

#[test]
fn limits_and_rules_of_an_environment_hold() {
    let (_, server) = here();
    create(server, "limited", "tight");
    let code = "while True: pass";
    let body = json!({ "code": code, "session_id": "limited", "timeout": 60 });
    let ran = server.run(&body);
    assert_eq!(ran["error"]["category"], "timeout", "{ran}");
    let warnings = ran["warnings"].to_string();
    assert!(warnings.contains("60 s is more than the environment `tight` has; 5 s"), "{ran}");
    let ran = server.code("limited", "x = bytearray(400 * 1024 * 1024)");
    assert_eq!(ran["error"]["type"], "MemoryError", "{ran}");
    let code = "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        \
                time.sleep(30)\n        os._exit(0)";
    let ran = server.code("limited", code);
    assert_eq!(ran["error"]["type"], "BlockingIOError", "{ran}");
    // Rules of the environment, and stricter ones that the session chooses within them.
    let made = create(server, "strict", "strict");
    assert_eq!(made["policy"], "power-interpreter", "{made}");
    let ran = server.code("strict", "import socket");
    assert_eq!(ran["success"], false, "{ran}");
    assert_eq!(server.code("limited", "import socket")["success"], true);
}

#[test]
fn a_session_keeps_its_environment_and_packages() {
    let place = Place::new();
    let settings = [("MAX_KERNELS", "1"), ("ENVIRONMENT_IDLE", "1")];
    let server = place.start(&settings);
    create(&server, "kept", "small");
    let code = "%pip install -q woma_two\nimport woma_two, woma_marker\nkept = 7";
    out(&server.code("kept", code));
    // Another session takes the only kernel; nothing uses the environment any more, and it ends.
    assert_eq!(out(&server.code("other", "print(1)")), "1\n");
    let running = || {
        let all = client(&server).get("/api/v1/environments").json();
        let all = all["environments"].as_array().unwrap().clone();
        all.iter().find(|one| one["name"] == "small").unwrap()["running"] == true
    };
    until("the environment is ended when it is idle", || !running());
    let uses = |server: &Server| {
        let code = "import woma_two, woma_marker\nprint(woma_marker.NAME, woma_two.VERSION, kept)";
        assert_eq!(out(&server.code("kept", code)), "small 0.3 7\n");
    };
    uses(&server);
    assert!(running());
    server.stop();
    let server = place.start(&settings);
    uses(&server);
    server.kill();
    let server = place.start(&settings);
    uses(&server);
    server.stop();
    // The operator has taken the template away: the session is not moved elsewhere.
    fs::remove_file(place.folder.join("environments/small.toml")).unwrap();
    let server = place.start(&settings);
    let body = json!({ "code": "print(1)", "session_id": "kept" });
    let answer = client(&server).post("/api/v1/execute", &body);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("the environment `small` does not exist"), "{}", answer.text());
}

#[test]
fn a_session_is_frozen_into_a_lock_with_hashes() {
    let place = Place::new();
    let server = place.start(&[]);
    create(&server, "frozen", "small");
    out(&server.code("frozen", "%pip install -q woma_two"));
    let path = "/api/v1/sessions/frozen/packages/lock";
    let lock = client(&server).get(path).text().to_owned();
    let kept = "# Made by `woma env freeze`, for Python ";
    assert!(lock.starts_with(kept), "{lock}");
    assert!(
        lock.contains("ipython==9 \\\n    --hash=sha256:aa\nwoma-one==1.0 \\\n    --hash"),
        "{lock}"
    );
    let told = place.command(&["env", "freeze", "frozen"]);
    assert_eq!(String::from_utf8(told.stdout).unwrap(), lock);
    let told = place.command(&["env", "freeze", "nobody"]);
    let text = String::from_utf8(told.stderr).unwrap();
    assert!(!told.status.success() && text.contains("session `nobody` does not exist"), "{text}");
}

#[test]
fn templates_are_listed_and_mistakes_in_them_are_named() {
    let place = Place::new();
    let listed = place.command(&["env", "list"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("absent").contains("not made: `woma env create absent` makes it"), "{text}");
    assert!(line("small").contains("Python 3."), "{text}");
    assert!(line("strict").contains("a template with the default environment"), "{text}");
    fs::write(place.folder.join("environments/bad.toml"), "lok = 'x'\n").unwrap();
    let refused = place.command(&["env", "list"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("bad.toml is wrong") && text.contains("unknown field `lok`"), "{text}");
}

#[test]
fn a_program_runs_in_a_named_environment() {
    let place = Place::new();
    let code = "import woma_marker\nprint(woma_marker.NAME)";
    let ran = place.command(&["run", "--environment", "small", "-c", code]);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "small\n", "{text}");
    let ran = place.command(&["run", "--environment", "smal", "-c", code]);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(!ran.status.success() && text.contains("`smal` does not exist"), "{text}");
    let ran = place.command(&["run", "--environment", "tight", "-c", "while True: pass"]);
    assert_eq!(ran.status.code(), Some(124), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn only_roots_templates_are_believed_by_root() {
    use std::os::unix::fs::MetadataExt as _;
    let place = Place::new();
    let template = place.folder.join("environments/small.toml");
    fs::set_permissions(&template, fs::Permissions::from_mode(0o666)).unwrap();
    let listed = place.command(&["env", "list"]);
    let text = String::from_utf8(listed.stderr).unwrap();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    assert_eq!(listed.status.success(), !is_root, "{text}");
    assert_eq!(
        text.contains("must belong to root and be writable by nobody else"),
        is_root,
        "{text}"
    );
}

/// A program with a header.
fn program(header: &[&str], code: &str) -> String {
    format!("# /// script\n# {}\n# ///\n{code}", header.join("\n# "))
}

#[test]
fn headers_of_programs_install_what_they_name() {
    let (place, server) = here();
    let code = "import woma_two, woma_one\nprint(woma_two.VERSION, woma_one.VERSION)";
    let with_header = program(&["dependencies = ['woma_two']", "requires-python = '>=3.10'"], code);
    let ran = server.code("header", &with_header);
    assert_eq!(out(&ran), "0.3 1.0\n");
    let told = "installed for the header of the program: woma-one==1.0 woma-two==0.3";
    assert!(ran.to_string().contains(told), "{ran}");
    // They are the session's from then on.
    assert_eq!(out(&server.code("header", code)), "0.3 1.0\n");
    assert!(!server.code("header", &with_header).to_string().contains("installed for the header"));
    // A run without a session has them for its own time, and the same download.
    let alone = json!({ "code": with_header, "stateless": true });
    assert_eq!(out(&server.run(&alone)), "0.3 1.0\n");
    let ran = server.run(&json!({ "code": code, "stateless": true }));
    assert_eq!(ran["error"]["type"], "ModuleNotFoundError", "{ran}");
    assert_eq!(place.index.requests("/files/woma-two/").len(), 1);
    // Names are checked, and rules that allow no packages hold.
    let body = |dependency: &str, session: &str| {
        let header = format!("dependencies = ['{dependency}']");
        json!({ "code": program(&[&header], "print(1)"), "session_id": session })
    };
    let answer = server.post("/api/v1/execute", &body("requests @ file:///x", "header"));
    assert_eq!(answer.status, 400, "{}", answer.text());
    create(server, "header-strict", "strict");
    let answer = server.post("/api/v1/execute", &body("woma_one", "header-strict"));
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("allow no packages"), "{}", answer.text());
}

#[test]
fn headers_of_programs_are_held_to_their_python() {
    let (_, server) = here();
    let ask = |header: &str| {
        let code = program(&[header], "print(1)");
        server.post("/api/v1/execute", &json!({ "code": code, "session_id": "python" }))
    };
    let answer = ask("requires-python = '>=4'");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let text = answer.text();
    assert!(text.contains("requires Python >=4") && text.contains("no environment"), "{text}");
    let answer = ask("requires-python = 'new'");
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("requires-python is `new`"), "{}", answer.text());
}

#[test]
fn woma_run_installs_what_a_header_names() {
    let place = Place::new();
    let code = "import sys, woma_two\nprint(woma_two.VERSION, sys.argv[1])";
    let file = place.folder.join("program.py");
    fs::write(&file, program(&["dependencies = ['woma_two']"], code)).unwrap();
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_woma"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("PACKAGE_INDEX_URL", place.index.url()).env("WOMA_ENV", harness::environment());
        command.args(["--data-dir", place.data(), "run"]).arg(&file).arg("x").output().unwrap()
    };
    for _ in 0..2 {
        let ran = run();
        let text = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), "0.3 x\n", "{text}");
    }
    // The second run has the files already.
    assert_eq!(place.index.requests("/files/woma-two/").len(), 1);
    fs::write(&file, program(&["requires-python = '<3'"], "print(1)")).unwrap();
    let ran = run();
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(!ran.status.success() && text.contains("requires Python <3"), "{text}");
}
