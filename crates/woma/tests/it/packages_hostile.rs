//! Packages and indexes that mean harm: nothing of them runs or is seen outside of a sandbox.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::client;
use crate::harness::{Server, until};
use crate::package_index::{Index, sdist};

struct Here {
    index: Index,
    server: Server,
}

fn start(more: &[(&str, &str)]) -> Here {
    let index = Index::start();
    index.add("woma_good", "1.0", &[]);
    let url = index.url();
    let settings = [("PACKAGE_INDEX_URL", url.as_str()), ("REPLY", "full")];
    let settings: Vec<_> = settings.iter().chain(more).copied().collect();
    Here { server: Server::start_with(&[], &settings), index }
}

impl Here {
    fn install(&self, packages: &str) -> (u16, Value) {
        let body = json!({ "packages": packages });
        let answer = client(&self.server).post("/api/v1/sessions/it/packages", &body);
        (answer.status, answer.json())
    }

    /// The message of a refusal with this status.
    fn refused(&self, packages: &str, status: u16) -> String {
        let (got, reply) = self.install(packages);
        assert_eq!(got, status, "{packages}: {reply}");
        format!(
            "{} {}",
            reply["message"].as_str().unwrap(),
            reply["hint"].as_str().unwrap_or_default()
        )
    }

    /// The session still works, and so does the installer.
    fn goes_on(&self) {
        let (status, reply) = self.install("woma_good");
        assert_eq!(status, 200, "{reply}");
        let ran = self.server.code("it", "import woma_good\nprint(woma_good.VERSION)");
        assert_eq!(ran["stdout"], "1.0\n", "{ran}");
    }
}

const SETUP: &str = "import os, pathlib\n\
    for place in ('/var/tmp/woma-breach', '/tmp/woma-breach', '/opt/woma-breach'):\n    \
        try:\n        pathlib.Path(place).write_text('x')\n    except OSError:\n        pass\n\
    print('SETUP RAN', os.listdir('/'), file=__import__('sys').stderr)\n\
    raise SystemExit('SETUP RAN')\n";

#[test]
fn source_archives_are_not_run() {
    let here = start(&[]);
    let archive = sdist(
        "woma_source",
        "1.0",
        &[
            ("setup.py", SETUP),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: woma_source\nVersion: 1.0\n"),
        ],
    );
    here.index.add_file("woma-source", "woma_source-1.0.tar.gz", archive);
    let said = here.refused("woma-source", 400);
    assert!(said.contains("no wheel") && !said.contains("SETUP RAN"), "{said}");
    assert!(here.index.requests("/files/woma-source/").is_empty(), "it was not even fetched");
    here.goes_on();
}

#[test]
fn source_archives_that_are_allowed_run_in_a_cell_only() {
    let here = start(&[("PACKAGE_ALLOW_SOURCE", "true")]);
    let backend = "import os, pathlib, socket\n\
        def build_wheel(folder, settings=None, metadata=None):\n    \
            found = []\n    \
            for place in ('/var/tmp/woma-breach', '/packages/x', '/opt/x', '/usr/x'):\n        \
                try:\n            pathlib.Path(place).write_text('x'); found.append(place)\n        \
                except OSError:\n            pass\n    \
            try:\n        socket.create_connection(('192.0.2.1', 80), 1); found.append('network')\n    \
            except OSError:\n        pass\n    \
            found += [name for name in os.environ if 'TOKEN' in name or 'INDEX' in name]\n    \
            raise RuntimeError(f'BUILT AS {os.getuid()} {found}')\n";
    let archive = sdist(
        "woma_source",
        "1.0",
        &[
            ("backend.py", backend),
            (
                "pyproject.toml",
                "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
            ),
            ("PKG-INFO", "Metadata-Version: 2.1\nName: woma_source\nVersion: 1.0\n"),
        ],
    );
    here.index.add_file("woma-source", "woma_source-1.0.tar.gz", archive);
    let said = here.refused("woma-source", 400);
    assert!(said.contains("BUILT AS") && !said.contains("BUILT AS 0 "), "{said}");
    // `/var/tmp` is the cell's own folder.
    assert!(said.contains("['/var/tmp/woma-breach']"), "{said}");
    assert!(!Path::new("/var/tmp/woma-breach").exists());
    here.goes_on();
}

#[test]
fn wheels_cannot_write_outside_of_their_layer() {
    let here = start(&[]);
    let evil: &[(&str, &[u8])] = &[("../../../../evil.py", b"x = 1\n"), ("woma_evil.py", b"")];
    here.index.add_wheel("woma_evil", "1.0", evil, &[]);
    let rooted: &[(&str, &[u8])] = &[("/var/tmp/woma-breach", b"x"), ("woma_root.py", b"")];
    here.index.add_wheel("woma_root", "1.0", rooted, &[]);
    for name in ["woma_evil", "woma_root"] {
        let (status, reply) = here.install(name);
        if status == 200 {
            let code =
                "import os\nprint([name for name in os.listdir('/packages') if 'evil.py' in name])";
            let ran = here.server.code("it", code);
            assert!(!ran["stdout"].as_str().unwrap().contains("'evil.py'"), "{ran}");
        } else {
            assert_eq!(status, 400, "{reply}");
        }
    }
    assert!(!Path::new("/var/tmp/woma-breach").exists());
    here.goes_on();
}

#[test]
fn what_a_package_runs_at_the_start_of_python_is_not_run() {
    let here = start(&[]);
    let files: &[(&str, &[u8])] = &[
        ("woma_start.pth", b"import os; os.environ['WOMA_STARTED'] = '1'\n"),
        ("sitecustomize.py", b"import os; os.environ['WOMA_STARTED'] = '2'\n"),
        ("usercustomize.py", b"import os; os.environ['WOMA_STARTED'] = '3'\n"),
        ("woma_start.py", b"VERSION = 'x'\n"),
    ];
    here.index.add_wheel("woma_start", "1.0", files, &[]);
    assert_eq!(here.install("woma_start").0, 200);
    let code = "import os, subprocess, sys\nprint(os.environ.get('WOMA_STARTED'))\n\
                subprocess.run([sys.executable, '-c', 'import os, woma_start; print(os.environ.get(\"WOMA_STARTED\"))'])";
    let ran = here.server.code("it", code);
    assert_eq!(ran["stdout"], "None\nNone\n", "{ran}");
    // Nor in a session that starts with it, nor in its neighbours.
    here.server.code("it", "import os; os.kill(os.getpid(), 9)");
    let ran = here.server.code("it", "import os; print(os.environ.get('WOMA_STARTED'))");
    assert_eq!(ran["stdout"], "None\n", "{ran}");
    here.goes_on();
}

#[test]
fn an_index_that_lies_or_stalls_or_floods_is_told() {
    let here = start(&[("PACKAGE_TIMEOUT", "6")]);
    here.index.add("woma_lie", "1.0", &[]);
    here.index.lie("woma_lie");
    let said = here.refused("woma_lie", 502);
    assert!(said.contains("SHA-256 differs"), "{said}");
    here.index.add("woma_stall", "1.0", &[]);
    here.index.stall("woma_stall", true);
    let began = Instant::now();
    let (status, reply) = here.install("woma_stall");
    assert!(matches!(status, 502 | 504), "{reply}");
    assert!(began.elapsed() < Duration::from_secs(60), "{reply}");
    let link = "<a href='x'>x</a>";
    here.index.set_page("woma-flood", link.repeat((70 << 20) / link.len()).into_bytes());
    let said = here.refused("woma_flood", 413);
    assert!(said.contains("larger than"), "{said}");
    here.index.set_page("woma-strange", b"\xff\xfe<a href=".to_vec());
    let said = here.refused("woma_strange", 400);
    assert!(said.contains("not found"), "{said}");
    // A file of another project under this name is not taken.
    here.index.set_page(
        "woma-other",
        b"<a href='/files/woma-good/woma_good-1.0-py3-none-any.whl'>x</a>".to_vec(),
    );
    assert!(here.refused("woma_other", 400).contains("not found"));
    // A link to a private address elsewhere goes through the guard.
    here.index.set_page(
        "woma-inner",
        b"<a href='http://127.0.0.1:1/woma_inner-1.0-py3-none-any.whl'>x</a>".to_vec(),
    );
    let said = here.refused("woma_inner", 502);
    assert!(said.contains("not allowed"), "{said}");
    here.goes_on();
}

#[test]
fn limits_of_size_count_and_rate_hold() {
    let here =
        start(&[("PACKAGE_MAX_MB", "2"), ("PACKAGE_MAX_COUNT", "2"), ("PACKAGE_RATE_LIMIT", "6")]);
    let big = vec![b'#'; 3 << 20];
    here.index.add_wheel("woma_big", "1.0", &[("woma_big.py", &big)], &[]);
    let said = here.refused("woma_big", 413);
    assert!(said.contains("larger than"), "{said}");
    here.index.add("woma_a", "1.0", &[]);
    here.index.add("woma_b", "1.0", &["woma_a", "woma_good"]);
    let said = here.refused("woma_b", 429);
    assert!(said.contains("2 packages (PACKAGE_MAX_COUNT)"), "{said}");
    here.goes_on();
    let mut last = (200, Value::Null);
    for number in 0..20 {
        last = here.install(&format!("woma_absent{number}"));
        if last.0 == 429 {
            break;
        }
    }
    assert!(last.1["message"].as_str().unwrap().contains("too many installations"), "{last:?}");
    // What is there needs no installation.
    assert_eq!(here.install("woma_good").0, 200);
}

#[test]
fn names_that_are_blocked_or_imitate_others_are_refused() {
    let here = start(&[("BLOCKED_PACKAGES", "woma-good,ctypes")]);
    here.index.add("woma_needs", "1.0", &["woma_good"]);
    here.index.add("reqeusts", "1.0", &[]);
    assert!(here.refused("woma_good", 403).contains("is blocked for security reasons"));
    // As a dependency too.
    assert!(here.refused("woma_needs", 403).contains("woma-good is blocked for security reasons"));
    assert!(here.refused("os", 403).contains("part of Python"));
    assert!(here.refused("reqeusts", 403).contains("misspelling of `requests`"));
    assert_eq!(here.install("reqeusts==1.0").0, 200);
    for strange in ["--index-url=http://x", "../x", "http://x/y.whl", "x;y@z", "-e ."] {
        here.refused(strange, 400);
    }
}

#[test]
fn sessions_never_see_the_index_or_its_credentials() {
    let index = Index::start();
    index.add("woma_good", "1.0", &[]);
    let url = index.url_with("ann:opensesame");
    let settings = [("PACKAGE_INDEX_URL", url.as_str()), ("REPLY", "full")];
    let here = Here { server: Server::start_with(&[], &settings), index };
    here.goes_on();
    assert!(!here.index.requests("Basic YW5uOm9wZW5zZXNhbWU=").is_empty());
    let code = "import os, glob\nfound = [text for text in map(str, [dict(os.environ)]) if 'opensesame' in text]\n\
                for path in glob.glob('/packages/**/*', recursive=True) + glob.glob('/proc/*/environ'):\n    \
                    try:\n        \
                        if b'opensesame' in open(path, 'rb').read() or b'127.0.0.1' in open(path, 'rb').read(): found.append(path)\n    \
                    except OSError:\n        pass\nprint(found)";
    assert_eq!(here.server.code("it", code)["stdout"], "[]\n");
    assert!(!here.server.log().contains("opensesame"), "{}", here.server.log());
}

#[test]
fn a_server_that_is_killed_while_it_installs_leaves_nothing() {
    let (index, folder) = (Index::start(), tempfile::tempdir().unwrap());
    index.add("woma_good", "1.0", &[]);
    index.add("woma_slow", "1.0", &[]);
    index.stall("woma_slow", true);
    let (url, data) = (index.url(), folder.path().to_str().unwrap().to_owned());
    let settings = [("PACKAGE_INDEX_URL", url.as_str()), ("REPLY", "full")];
    let start = || Server::start_with(&["--data-dir", &data], &settings);
    let server = start();
    let body = json!({ "packages": "woma_slow" });
    let link = client(&server).send("POST", "/api/v1/sessions/it/packages", &[], &body);
    until("the file is asked for", || !index.requests("/files/woma-slow/").is_empty());
    server.kill();
    drop(link);
    index.stall("woma_slow", false);
    let here = Here { server: start(), index };
    let listed = client(&here.server).get("/api/v1/sessions/it/packages").json();
    assert_eq!(listed["session"], json!([]), "{listed}");
    assert_eq!(here.install("woma_slow").0, 200);
    here.goes_on();
}

#[test]
fn a_server_without_installs_says_what_to_do() {
    let here = start(&[("INSTALLS", "off")]);
    let said = here.refused("woma_good", 503);
    assert!(said.contains("installs no packages") && said.contains("INSTALLS=on"), "{said}");
    let ran =
        here.server.code("it", "%pip install woma_good\n!pip install woma_good\nprint(_exit_code)");
    assert!(ran["stderr"].as_str().unwrap().contains("has no package installer"), "{ran}");
    assert_eq!(ran["stdout"], "1\n", "{ran}");
}
