//! Packages: installed by tools, by REST and by `pip` in code, kept with their session, and shown to
//! nobody else.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, client};
use crate::harness::{Server, unique, until};
use crate::package_index::{Index, wheel};

/// An index with a few packages, and a server that uses it.
struct Here {
    index: Index,
    server: Server,
}

fn here() -> &'static Here {
    static HERE: OnceLock<Here> = OnceLock::new();
    HERE.get_or_init(|| start(&[]))
}

fn start(more: &[(&str, &str)]) -> Here {
    let index = index();
    let url = index.url();
    let settings = [
        ("PACKAGE_INDEX_URL", url.as_str()),
        ("PACKAGE_RATE_LIMIT", "1000"),
        ("MAX_KERNELS", "40"),
        ("REPLY", "full"),
    ];
    let settings: Vec<_> = settings.iter().chain(more).copied().collect();
    Here { server: Server::start_with(&[], &settings), index }
}

fn index() -> Index {
    let index = Index::start();
    index.add("woma_one", "1.0", &[]);
    index.add("woma_one", "2.0", &[]);
    index.add("woma_two", "0.3", &["woma_one<2", "numpy"]);
    index.add("woma_three", "3.0", &[]);
    // Another version of a package of the environment.
    index.add("tabulate", "0.0.1", &[]);
    let script: &[(&str, &[u8])] = &[
        ("woma_tool.py", b"def main(): print('the tool runs')\n"),
        (
            "woma_tool-1.0.dist-info/entry_points.txt",
            b"[console_scripts]\nwoma-tool = woma_tool:main\n",
        ),
    ];
    index.add_wheel("woma_tool", "1.0", script, &[]);
    index
}

impl Here {
    fn client(&self) -> Client<'_> {
        client(&self.server)
    }

    fn code(&self, session: &str, code: &str) -> Value {
        self.server.code(session, code)
    }

    fn install(&self, session: &str, packages: &str) -> Value {
        let path = format!("/api/v1/sessions/{session}/packages");
        let answer = self.client().post(&path, &json!({ "packages": packages }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }
}

/// Standard output of code that must succeed.
fn out(reply: &Value) -> &str {
    assert_eq!(reply["success"], true, "{reply}");
    reply["stdout"].as_str().unwrap()
}

fn names(list: &Value) -> Vec<String> {
    let name = |one: &Value| {
        format!("{}=={}", one["name"].as_str().unwrap(), one["version"].as_str().unwrap())
    };
    list.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_model_installs_lists_uses_and_removes_packages() {
    let (here, session) = (here(), unique("model"));
    // The session runs already, and goes on with its variables.
    here.code(&session, "x = 41\ntry:\n    import woma_two\nexcept ImportError:\n    pass");
    let asked = json!({ "package_names": "woma_two woma_three", "session_id": session });
    let said = here.client().call("install_package", &asked);
    let reply = &said["structuredContent"];
    assert_eq!(reply["success"], true, "{said}");
    assert_eq!(names(&reply["installed"]), ["woma-one==1.0", "woma-three==3.0", "woma-two==0.3"]);
    assert_eq!(reply["installed"][0]["sha256"].as_str().unwrap().len(), 64);
    let ran = here.code(
        &session,
        "import woma_one, woma_two, woma_three\nprint(x + 1, woma_one.VERSION, woma_two.VERSION, woma_two.__file__)",
    );
    assert_eq!(out(&ran), "42 1.0 0.3 /packages/woma_two.py\n");
    let listed = here.client().call("list_installed_packages", &json!({ "session_id": session }));
    let listed = &listed["structuredContent"];
    assert_eq!(names(&listed["session"]).len(), 3, "{listed}");
    assert!(names(&listed["environment"]).iter().any(|name| name.starts_with("numpy==")));
    // Again: nothing is asked of the index.
    let (before, began) = (here.index.requests("").len(), Instant::now());
    let again = here.client().call("install_package", &asked);
    assert_eq!(again["structuredContent"]["installed"], json!([]), "{again}");
    assert_eq!(again["structuredContent"]["already_installed"].as_array().unwrap().len(), 2);
    assert_eq!(here.index.requests("").len(), before);
    assert!(began.elapsed() < Duration::from_secs(10));
    let asked = json!({ "packages": ["woma_two"], "session_id": session });
    let removed = here.client().call("uninstall_package", &asked);
    assert_eq!(names(&removed["structuredContent"]["removed"]), ["woma-two==0.3"], "{removed}");
    let ran =
        here.code(&session, "import os\nprint(os.listdir('/packages').count('woma_two.py'), x)");
    assert_eq!(out(&ran), "0 41\n");
    let refused = here
        .client()
        .refused("uninstall_package", &json!({ "packages": "numpy", "session_id": session }));
    assert!(refused.contains("belongs to the environment"), "{refused}");
}

#[test]
fn versions_are_followed_and_a_version_that_differs_is_not_installed_already() {
    let (here, session) = (here(), unique("versions"));
    let version = |packages: &str| {
        let installed = here.install(&session, packages);
        installed["installed_version"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(version("woma_one==1.0"), "1.0");
    assert_eq!(version("woma_one"), "1.0");
    assert_eq!(version("woma_one >= 1.5"), "2.0");
    assert_eq!(version("woma_one==1.0"), "1.0");
    let asked = json!({ "package": "woma_one", "version": "2.0", "session_id": session });
    let said = here.client().call("pip_install", &asked);
    assert_eq!(said["structuredContent"]["installed_version"], "2.0", "{said}");
    let asked = json!({ "package": "woma_one", "version": "9.9", "session_id": session });
    let refused = here.client().refused("pip_install", &asked);
    assert!(refused.contains("9.9") && refused.lines().count() < 12, "{refused}");
    let asked = json!({ "packages": "woma_nowhere", "session_id": session });
    let refused = here.client().refused("install_package", &asked);
    assert!(refused.contains("was not found"), "{refused}");
    // What was refused has changed nothing.
    assert_eq!(out(&here.code(&session, "import woma_one; print(woma_one.VERSION)")), "2.0\n");
}

#[test]
fn the_older_route_has_its_four_fields() {
    let here = here();
    let installed = here
        .client()
        .post("/pip_install", &json!({ "package": "woma_three", "version": "latest" }));
    let reply = installed.json();
    assert_eq!((installed.status, &reply["success"]), (200, &json!(true)), "{reply}");
    assert_eq!(reply["installed_version"], "3.0");
    assert!(reply["installation_time"].is_number() && reply["message"].is_string(), "{reply}");
    let refused = here.client().post("/pip/install", &json!({ "package": "ctypes" }));
    let reply = refused.json();
    assert_eq!((refused.status, &reply["success"]), (200, &json!(false)), "{reply}");
    assert_eq!(reply["message"], "Package ctypes is blocked for security reasons");
}

#[test]
fn code_installs_by_every_spelling() {
    let here = here();
    let spellings = [
        "%pip install woma_two",
        "pip install woma_two",
        "!pip install -q woma_two && echo ok > done.txt",
        "!pip3 install woma_two",
        "!python -m pip install woma_two",
        "!uv pip install --system woma_two",
        "%uv pip install woma_two",
        "import os\nassert os.system('pip install woma_two') == 0",
        "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', 'woma_two'])",
        "import subprocess\nsubprocess.run(['pip', 'install', '-U', 'woma_two'], check=True)",
        "open('requirements.txt', 'w').write('# needed\\nwoma_two==0.3  # this one\\n-r more.txt\\n')\n\
         open('more.txt', 'w').write('woma_three>=2\\n')\n!pip install -r requirements.txt",
    ];
    for spelling in spellings {
        let session = unique("spelling");
        let code =
            format!("{spelling}\nimport woma_two, woma_one\nprint('found', woma_two.VERSION)");
        let ran = here.code(&session, &code);
        assert!(out(&ran).contains("found 0.3"), "{spelling}: {ran}");
    }
}

#[test]
fn pip_speaks_and_ends_as_pip_does() {
    let (here, session) = (here(), unique("pip"));
    let ran = here.code(
        &session,
        "import subprocess, sys\n\
         def pip(*words):\n    \
             done = subprocess.run([sys.executable, '-m', 'pip', *words], capture_output=True, text=True)\n    \
             print(words[0], done.returncode, done.stdout.strip()[-300:], '|', done.stderr.strip()[-300:])\n\
         pip('install', 'woma_two==0.3')\n\
         pip('install', 'woma_two')\n\
         pip('install', '-q', 'numpy')\n\
         pip('show', 'woma_two')\n\
         pip('install', 'woma_two==7')\n\
         pip('install', 'git+https://example.org/x')\n\
         pip('install', 'reqeusts')\n\
         pip('uninstall', '-y', 'woma_two', 'woma_absent')\n\
         pip('uninstall', '-y', 'numpy')\n\
         pip('download', 'x')\n\
         pip('install')",
    );
    let text = out(&ran);
    for part in [
        "install 0 Successfully installed woma-one-1.0 woma-two-0.3",
        "install 0 Requirement already satisfied: woma_two in /packages (0.3)",
        "install 0  |",
        "show 0 Name: woma_two\nVersion: 0.3",
        "install 1  | ERROR: ",
        "is not the name of a package: addresses and paths are not accepted",
        "looks like a misspelling of `requests`",
        "uninstall 0 Successfully uninstalled woma-two-0.3 | WARNING: Skipping woma-absent",
        "uninstall 1  | ERROR: `numpy` belongs to the environment",
        "download 1  | ERROR: `pip download` is not available",
        "install 1  | ERROR: You must give at least one requirement",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let listed = here.code(&session, "%pip list\n%pip freeze");
    assert!(out(&listed).contains("woma_one==1.0") && out(&listed).contains("Package"), "{listed}");
}

#[test]
fn programs_of_packages_run_and_replaced_packages_are_found() {
    let (here, session) = (here(), unique("programs"));
    here.code(&session, "pass");
    here.install(&session, "woma_tool");
    let ran = here.code(&session, "!woma-tool");
    assert_eq!(out(&ran), "the tool runs\n");
    let replaced = here.install(&session, "tabulate==0.0.1");
    assert!(replaced["installed"][0]["replaces"].is_string(), "{replaced}");
    assert!(replaced["warnings"][0].as_str().unwrap().contains("of the environment"), "{replaced}");
    let ran = here.code(
        &session,
        "import subprocess, sys, tabulate\nprint(tabulate.VERSION)\n\
         print(subprocess.run([sys.executable, '-c', 'import tabulate; print(tabulate.VERSION)'], \
         capture_output=True, text=True).stdout)",
    );
    assert_eq!(out(&ran), "0.0.1\n0.0.1\n\n");
    let other = here.code(&unique("other"), "import tabulate\nprint(hasattr(tabulate, 'VERSION'))");
    assert_eq!(out(&other), "False\n");
}

#[test]
fn ten_sessions_install_at_once_and_a_file_is_fetched_once() {
    let here = start(&[]);
    thread::scope(|scope| {
        let installs: Vec<_> = (0..10)
            .map(|number| {
                let here = &here;
                scope.spawn(move || {
                    let code = "!pip install woma_two\nimport woma_two\nprint(woma_two.VERSION)";
                    here.code(&format!("at-once-{number}"), code)
                })
            })
            .collect();
        for install in installs {
            let ran = install.join().unwrap();
            assert!(out(&ran).ends_with("0.3\n"), "{ran}");
        }
    });
    assert_eq!(here.index.requests("/files/woma-two/").len(), 1);
    assert_eq!(here.index.requests("/files/woma-one/").len(), 1);
}

#[test]
fn packages_outlive_eviction_restart_and_kill() {
    let (index, folder) = (index(), tempfile::tempdir().unwrap());
    let (url, data) = (index.url(), folder.path().to_str().unwrap().to_owned());
    let settings = [("PACKAGE_INDEX_URL", url.as_str()), ("MAX_KERNELS", "1"), ("REPLY", "full")];
    let start = || Server::start_with(&["--data-dir", &data], &settings);
    let uses = |server: &Server| {
        let ran = server.code("kept", "import woma_two\nprint(woma_two.VERSION)");
        assert_eq!(out(&ran), "0.3\n");
    };
    let server = start();
    let ran = server.code("kept", "%pip install -q woma_two");
    assert_eq!(ran["success"], true, "{ran}");
    server.code("other", "pass");
    uses(&server);
    server.stop();
    let server = start();
    uses(&server);
    server.kill();
    let server = start();
    uses(&server);
    // A reset is for good.
    let reset = client(&server).call("reset_sandbox", &json!({ "session_id": "kept" }));
    assert_ne!(reset["isError"], true, "{reset}");
    let ran = server.code("kept", "import woma_two");
    assert_eq!(ran["success"], false, "{ran}");
    server.kill();
    let server = start();
    let ran = server.code("kept", "import woma_two");
    assert!(ran["error_message"].as_str().unwrap().contains("woma_two"), "{ran}");
}

#[test]
fn a_folder_of_wheels_is_an_index_by_itself() {
    let folder = TempDir::new().unwrap();
    // The server's user must be able to reach it.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let module: &[(&str, &[u8])] = &[("woma_house.py", b"VERSION = '1.0'\n")];
    let content = wheel("woma_house", "1.0", module, &[]);
    fs::write(folder.path().join("woma_house-1.0-py3-none-any.whl"), content).unwrap();
    let path = folder.path().to_str().unwrap();
    let server = Server::start_with(&[], &[("PACKAGE_WHEELHOUSE", path), ("REPLY", "full")]);
    let install = |name: &str| {
        client(&server).post("/api/v1/sessions/s/packages", &json!({ "packages": name }))
    };
    let installed = install("woma_house");
    assert_eq!(installed.status, 200, "{}", installed.text());
    assert_eq!(out(&server.code("s", "import woma_house\nprint(woma_house.VERSION)")), "1.0\n");
    let absent = install("woma_absent");
    assert!(absent.status >= 400, "{}", absent.text());
    assert!(absent.text().contains("woma-absent was not found"), "{}", absent.text());
}

#[test]
fn a_session_whose_layer_is_gone_says_what_it_has_lost() {
    let (index, folder) = (index(), tempfile::tempdir().unwrap());
    let (url, data) = (index.url(), folder.path().to_str().unwrap().to_owned());
    let settings = [("PACKAGE_INDEX_URL", url.as_str()), ("REPLY", "full")];
    let server = Server::start_with(&["--data-dir", &data], &settings);
    let ran = server.code("lost", "%pip install -q woma_two\nimport woma_two");
    assert_eq!(ran["success"], true, "{ran}");
    server.stop();
    std::fs::remove_dir_all(folder.path().join("sessions/packages")).unwrap();
    let server = Server::start_with(&["--data-dir", &data], &settings);
    let ran = server.code("lost", "print(1)");
    assert!(ran.to_string().contains("pip install woma-one==1.0 woma-two==0.3"), "{ran}");
    let ran = server.code("lost", "%pip install -q woma_two\nimport woma_two\nprint(2)");
    assert_eq!(out(&ran), "2\n");
}

#[test]
fn runs_without_a_session_have_the_packages_of_default() {
    let here = start(&[
        ("COMPAT_PROFILE", "python-executor"),
        ("ALLOW_OPEN", "true"),
        ("HOST", "127.0.0.1"),
    ]);
    let run =
        |code: &str| here.client().call("execute_python", &json!({ "code": code })).to_string();
    assert!(run("import woma_two").contains("ModuleNotFoundError"));
    let said = here.client().call("install_package", &json!({ "package_names": "woma_two" }));
    assert_ne!(said["isError"], true, "{said}");
    assert!(run("import woma_two; print('has', woma_two.VERSION)").contains("has 0.3"));
    let ran =
        run("!pip install -q woma_three\nimport woma_three; print('has', woma_three.VERSION)");
    assert!(ran.contains("has 3.0"), "{ran}");
    assert!(run("import woma_three; print('has', woma_three.VERSION)").contains("has 3.0"));
    let reset = here.client().call("reset_sandbox", &json!({}));
    assert_ne!(reset["isError"], true, "{reset}");
    assert!(run("import woma_two").contains("ModuleNotFoundError"));
}

#[test]
fn callers_share_nothing_but_downloads() {
    let admin = "an-admin-key-0123456789";
    let here = start(&[("API_KEY", admin)]);
    let key = |name: &str| {
        let made = Client { server: &here.server, key: Some(admin) }
            .post("/api/v1/keys", &json!({ "name": name, "scopes": ["execute", "read"] }));
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let (ann, bob) = (key("ann"), key("bob"));
    let of = |key| Client { server: &here.server, key: Some(key) };
    let install = |key, session: &str| {
        let path = format!("/api/v1/sessions/{session}/packages");
        of(key).post(&path, &json!({ "packages": "woma_three" })).json()
    };
    assert_eq!(install(&ann, "mine")["success"], true);
    let ran = of(&bob).run(&json!({ "code": "import woma_three", "session_id": "mine" }));
    assert_eq!(ran["success"], false, "{ran}");
    let listed = of(&bob).get("/api/v1/sessions/mine/packages").json();
    assert_eq!(listed["session"], json!([]), "{listed}");
    assert_eq!(install(&bob, "mine")["success"], true);
    let owners = std::fs::read_dir(here.server_folder().join("sessions/packages")).unwrap().count();
    assert_eq!(owners, 2);
    assert_eq!(here.index.requests("/files/woma-three/").len(), 1);
}

impl Here {
    /// The data folder, which the server says at its start.
    fn server_folder(&self) -> std::path::PathBuf {
        let log = self.server.log();
        let (_, after) = log.split_once("data in ").unwrap();
        after.split(',').next().unwrap().into()
    }
}

#[test]
fn a_client_that_leaves_stops_its_installation() {
    let here = start(&[]);
    here.index.add("woma_slow", "1.0", &[]);
    here.index.stall("woma_slow", true);
    let body = json!({ "packages": "woma_slow" });
    let link = here.client().send("POST", "/api/v1/sessions/slow/packages", &[], &body);
    until("the file is asked for", || !here.index.requests("/files/woma-slow/").is_empty());
    drop(link);
    here.index.stall("woma_slow", false);
    // Its turn in the session is free at once.
    let began = Instant::now();
    assert_eq!(here.install("slow", "woma_three")["success"], true);
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn constraints_hold_for_what_is_installed() {
    let (here, session) = (here(), unique("constrained"));
    let code = "open('c.txt', 'w').write('woma_one<2\\nwoma_three==9\\n')\n\
                open('r.txt', 'w').write('-c c.txt\\nwoma_one\\n')\n\
                %pip install -q -r r.txt\nimport woma_one\nprint(woma_one.VERSION)";
    assert_eq!(out(&here.code(&session, code)), "1.0\n");
    // A version that is there and is not within them is not enough.
    let code = "open('c.txt', 'w').write('woma_one>=2\\n')\n!pip install -q -c c.txt woma_one\n\
                !pip list | grep woma";
    let ran = here.code(&session, code);
    assert!(out(&ran).contains("2.0"), "{ran}");
    let ran = here
        .code(&session, "open('c.txt', 'w').write('woma_one==7')\n!pip install -c c.txt woma_one");
    assert!(ran.to_string().contains("woma-one==7"), "{ran}");
}
