//! The network of sessions: programs that need no configuration, rules through every door, and ways
//! around them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::Keyed;
use crate::authority::Authority;
use crate::client::client;
use crate::harness::{BASE, Server, unique, until};

/// Lets the libraries trust the authority of the test, which is in the session's folder.
const TRUST: &str = "import os\nos.environ.update(SSL_CERT_FILE='/mnt/data/ca.pem', \
                     REQUESTS_CA_BUNDLE='/mnt/data/ca.pem', CURL_CA_BUNDLE='/mnt/data/ca.pem')\n";

/// A web server on loopback, in plain text and over TLS, for the names of [`World`].
struct Site {
    plain: SocketAddr,
    secure: SocketAddr,
    /// First lines and hosts of the requests.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn start(authority: &Authority, folder: &TempDir) -> Self {
        let signed = authority.sign("DNS:site.test");
        let certificates = CertificateDer::pem_file_iter(signed.certificate).unwrap();
        let certificates = certificates.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(signed.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .unwrap();
        let (config, requests) = (Arc::new(config), Arc::default());
        let folder = Arc::new(folder.path().to_owned());
        let listen = |is_secure: bool| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (config, folder) = (Arc::clone(&config), Arc::clone(&folder));
            let requests: Arc<Mutex<Vec<String>>> = Arc::clone(&requests);
            thread::spawn(move || {
                for socket in listener.incoming() {
                    let Ok(socket) = socket else { continue };
                    let (config, folder) = (Arc::clone(&config), Arc::clone(&folder));
                    let requests = Arc::clone(&requests);
                    thread::spawn(move || match is_secure {
                        true => {
                            let connection = ServerConnection::new(config).unwrap();
                            serve(StreamOwned::new(connection, socket), &folder, &requests);
                        }
                        false => serve(socket, &folder, &requests),
                    });
                }
            });
            address
        };
        Self { plain: listen(false), secure: listen(true), requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Serves the files of a folder; `/size/N` has N bytes, and what is posted comes back.
fn serve(stream: impl Read + Write, folder: &std::path::Path, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut host, mut length) = (String::new(), String::new(), 0);
        if !matches!(reader.read_line(&mut first), Ok(1..)) {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "host" => value.trim().clone_into(&mut host),
                "content-length" => length = value.trim().parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        requests.lock().unwrap().push(format!("{} {host}", first.trim()));
        let path = path.split('?').next().unwrap_or_default();
        let (status, content) = match path.strip_prefix("/size/") {
            Some(size) => (200, vec![b'x'; size.parse().unwrap()]),
            None if length > 0 => (200, body),
            None => match fs::read(folder.join(path.trim_start_matches('/'))) {
                Ok(content) => (200, content),
                Err(_) => (404, b"there is no such file".to_vec()),
            },
        };
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", content.len());
        let stream = reader.get_mut();
        if stream.write_all(&[head.into_bytes(), content].concat()).is_err()
            || stream.flush().is_err()
        {
            return;
        }
    }
}

/// Servers that the tests share: one with a network, and the site that it leads to.
struct World {
    server: Server,
    site: Site,
    authority: Authority,
    folder: TempDir,
}

/// Places of the names of the tests, as the setting has them.
fn placed(site: &Site) -> String {
    let (plain, secure) = (site.plain, site.secure);
    format!(
        "site.test:80={plain},site.test:443={secure},site.test:8081={plain},site.test:9000={plain},\
         other.test:80={plain},other.test:443={secure}"
    )
}

impl World {
    fn start(settings: &[(&str, &str)]) -> Self {
        let authority = Authority::new();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("data.csv"), "a,b\n1,2\n").unwrap();
        let site = Site::start(&authority, &folder);
        let hosts = placed(&site);
        let settings = [settings, &[("NETWORK_HOSTS", &*hosts), BASE]].concat();
        let server = Server::start_with(&[], &settings);
        Self { server, site, authority, folder }
    }

    fn shared() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let rules = "site.test:80+443+8081, *.below.test";
            Self::start(&[("NETWORK", rules), ("MAX_KERNELS", "50")])
        })
    }

    /// A session that trusts the site.
    fn session(&self, name: &str) -> String {
        let session = unique(name);
        let authority = fs::read_to_string(self.authority.certificate()).unwrap();
        let write = format!("open('ca.pem', 'w').write({})", json!(authority));
        assert_eq!(self.server.code(&session, &write)["success"], true);
        session
    }

    /// The reply to code that must succeed.
    fn run(&self, session: &str, code: &str) -> Value {
        let reply = self.server.code(session, &format!("{TRUST}{code}"));
        assert_eq!(reply["success"], true, "{reply:#}");
        reply
    }
}

fn stdout(reply: &Value) -> &str {
    reply["stdout"].as_str().unwrap()
}

/// Subjects of the hosts that were blocked.
fn blocked(reply: &Value) -> Vec<&str> {
    let events = reply["security_events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let blocked = events.iter().filter(|event| event["security_event"] == "blocked_host");
    blocked.map(|event| event["subject"].as_str().unwrap()).collect()
}

#[test]
fn the_usual_programs_reach_an_allowed_host_without_configuration() {
    let world = World::shared();
    let session = world.session("usual");
    for code in [
        "import requests\nprint(requests.get('https://site.test/data.csv').text)",
        "import requests\nprint(requests.get('http://site.test/data.csv').text)",
        "import requests\nprint(requests.get('http://site.test:8081/data.csv').text)",
        "import httpx\nprint(httpx.get('https://site.test/data.csv').text)",
        "import urllib.request\n\
         print(urllib.request.urlopen('https://site.test/data.csv').read().decode())",
        "import pandas as pd\nprint(pd.read_csv('https://site.test/data.csv').to_csv(index=False))",
        "import subprocess\nprint(subprocess.check_output(\
         ['curl', '-sS', 'https://site.test/data.csv'], text=True))",
        "import subprocess\nprint(subprocess.check_output(['curl', '-sS', '-x', \
         'http://127.0.0.1:880', 'https://site.test/data.csv'], text=True))",
        "import subprocess\nprint(subprocess.check_output(['curl', '-sS', \
         '--socks5-hostname', '127.0.0.1:880', 'https://site.test/data.csv'], text=True))",
        "import aiohttp, ssl\n\
         async with aiohttp.ClientSession() as http:\n    \
             async with http.get('https://site.test/data.csv', \
         ssl=ssl.create_default_context(cafile='ca.pem')) as reply:\n        \
                 print(await reply.text())",
    ] {
        let reply = world.run(&session, code);
        assert_eq!(stdout(&reply).trim(), "a,b\n1,2", "{code}");
        assert_eq!(blocked(&reply), Vec::<&str>::new());
    }
}

#[test]
fn git_clones_over_https() {
    let world = World::shared();
    let session = world.session("git");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@t.test"]).args(arguments);
        let output = git.current_dir(world.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q", "repo"]);
    git(&["-C", "repo", "commit", "-q", "--allow-empty", "-m", "a commit of the test"]);
    git(&["-C", "repo", "update-server-info"]);
    let code = "import subprocess\nprint(subprocess.run('git -c http.sslCAInfo=/mnt/data/ca.pem clone -q \
                https://site.test/repo/.git clone && git -C clone log --oneline', shell=True, \
                capture_output=True, text=True))";
    let reply = world.run(&session, code);
    assert!(stdout(&reply).contains("a commit of the test"), "{reply:#}");
}

#[test]
fn a_blocked_call_fails_at_once_and_the_reply_says_what_to_do() {
    let world = World::shared();
    let session = world.session("blocked");
    let code = "import time, requests\nbegan = time.monotonic()\ntry:\n    \
                requests.get('https://evil.example/data')\nexcept requests.ConnectionError:\n    \
                print(time.monotonic() - began)";
    world.run(&session, "import requests");
    let reply = world.run(&session, code);
    let took: f64 = stdout(&reply).trim().parse().unwrap();
    // One second is the promise.
    assert!(took < 10.0, "{took}");
    assert_eq!(blocked(&reply), ["evil.example"]);
    let said = reply["security_events"][0]["message"].as_str().unwrap();
    for part in ["site.test", "NETWORK", "woma keys create --network", "create_session"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A model that reads the text alone reads it too.
    let reply = client(&world.server).call("execute_code", &json!({ "code": code }));
    let text = reply["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("`evil.example` was blocked"), "{text}");
    // In the log, the metrics and the audit trail.
    assert!(world.server.log().contains("`evil.example` was blocked"), "{}", world.server.log());
    let metrics = world.server.get("/metrics");
    let counted = "woma_security_events_total{event=\"blocked_host\",action=\"blocked\"}";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
    assert!(metrics.text().contains("woma_egress_refused_total{reason=\"rules\"}"));
    until("the trail has it", || {
        let trail = world.server.get("/api/v1/audit?action=security_event&limit=100");
        trail.text().contains("evil.example")
    });
    let hint = world.server.code(&session, "requests.get('https://evil.example/data')");
    assert!(!hint["hint"].as_str().unwrap_or_default().contains("disabled"), "{hint:#}");
}

#[test]
fn a_session_without_a_network_has_nothing_that_listens() {
    let world = World::shared();
    let off = json!({ "network": "off" });
    let made = world.server.post("/api/v1/sessions", &off).json()["data"].take();
    assert_eq!(made["network"], "off");
    let session = made["session_id"].as_str().unwrap();
    let code = "import socket\nfor port in (53, 80, 443, 880):\n    s = socket.socket()\n    \
                print(s.connect_ex(('127.0.0.1', port)))\n\
                try:\n    socket.getaddrinfo('site.test', 80)\nexcept OSError as error:\n    \
                print(error)\nprint(len(open('/proc/net/tcp').readlines()))";
    let reply = world.server.code(session, code);
    assert_eq!(stdout(&reply).matches("111\n").count(), 4, "{reply:#}");
    assert!(stdout(&reply).contains("[Errno"), "{reply:#}");
}

#[test]
fn the_network_of_a_live_session_changes() {
    let world = World::shared();
    let session = world.session("changes");
    let get = "import requests\ntry:\n    print(requests.get('http://site.test/data.csv').status_code)\n\
               except OSError as error:\n    print('blocked')\nkept = 1";
    let path = format!("/api/v1/sessions/{session}");
    let patch = |network: &Value| {
        let body = json!({ "network": network }).to_string();
        let headers = [("Content-Type", "application/json")];
        world.server.request("PATCH", &path, &headers, body.as_bytes())
    };
    assert_eq!(stdout(&world.run(&session, get)), "200\n");
    for (network, shown, expected) in [
        (json!("off"), json!("off"), "blocked\n"),
        (json!(["site.test:443"]), json!("site.test:443"), "403\n"),
        (json!([]), json!(""), "blocked\n"),
        (json!("site.test"), json!("site.test"), "200\n"),
        (json!("default"), Value::Null, "200\n"),
    ] {
        let changed = patch(&network);
        assert_eq!(changed.status, 200, "{}", changed.text());
        assert_eq!(changed.json()["network"], shown);
        assert_eq!(stdout(&world.run(&session, get)), expected, "{network}");
    }
    // A tool does the same.
    let arguments = json!({ "session_id": session, "network": "off" });
    let changed = client(&world.server).call("change_session", &arguments);
    assert_eq!(changed["structuredContent"]["network"], "off", "{changed}");
    assert_eq!(stdout(&world.run(&session, get)), "blocked\n");
    assert_eq!(patch(&json!("default")).status, 200);
    assert_eq!(stdout(&world.run(&session, "print(kept)")), "1\n");
    for beyond in ["open", "other.test", "site.test:*", "*.test"] {
        let message = patch(&json!(beyond)).refused(403);
        assert!(message.contains("beyond"), "{message}");
    }
    let message = patch(&json!("https://site.test")).refused(400);
    assert!(message.contains("is no rule of a network"), "{message}");
}

#[test]
fn a_change_ends_what_a_program_has_open() {
    let world = World::shared();
    let session = world.session("open");
    let code = "import socket\ns = socket.create_connection(('site.test', 8081))\n\
                s.sendall(b'GET /data.csv HTTP/1.1\\r\\nHost: site.test:8081\\r\\n\\r\\n')\n\
                print(s.recv(12))\nopen('ready', 'w').close()\nprint(s.recv(9999), s.recv(1))";
    thread::scope(|scope| {
        let running = scope.spawn(|| world.run(&session, code));
        let path = format!("/api/v1/sessions/{session}");
        until("it has its connection", || {
            world.server.get(&format!("{path}/files/ready")).status == 200
        });
        let headers = [("Content-Type", "application/json")];
        world.server.request("PATCH", &path, &headers, br#"{"network": "off"}"#);
        let reply = running.join().unwrap();
        assert!(stdout(&reply).ends_with(" b''\n"), "{reply:#}");
    });
}

#[test]
fn keys_and_sessions_have_networks_within_each_other() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("data.csv"), "a,b\n").unwrap();
    let site = Site::start(&authority, &folder);
    let hosts = placed(&site);
    let keyed = Keyed::start(&[("NETWORK_HOSTS", &hosts), BASE]);
    let wide = keyed.key("wide", &["--network", "site.test"]);
    let none = keyed.key("none", &[]);
    let get = "import urllib.request\ntry:\n    \
               print(urllib.request.urlopen('http://site.test/data.csv').status)\n\
               except OSError as error:\n    print('blocked')";
    for (key, network, expected) in [
        (&wide, None, "200\n"),
        (&wide, Some("off"), "blocked\n"),
        (&wide, Some("site.test:80"), "200\n"),
        (&none, None, "blocked\n"),
        (&none, Some(""), "blocked\n"),
    ] {
        let client = keyed.client(key);
        let mut arguments = json!({});
        if let Some(network) = network {
            arguments["network"] = network.into();
        }
        let made = client.call("create_session", &arguments);
        let session = made["structuredContent"]["session_id"].as_str().unwrap().to_owned();
        let ran = client.post("/execute", &json!({ "code": get, "session_id": session }));
        assert_eq!(ran.json()["stdout"], expected, "{network:?}");
    }
    for (key, network) in [(&none, "site.test"), (&none, "open"), (&wide, "other.test")] {
        let made = keyed.client(key).post("/api/v1/sessions", &json!({ "network": network }));
        made.refused(403);
    }
    assert_eq!(site.requests().len(), 2);
}

#[test]
fn the_ways_around_the_rules_lead_nowhere() {
    let world = World::start(&[("NETWORK", "site.test:80+443+9000, *.below.test, 127.0.0.1:*")]);
    let session = world.session("around");
    let host = world.server.address.port();
    let before = world.site.requests().len();
    let code = format!(
        "import socket, ssl\nHOST = {host}\nSITE = {}\n{}",
        world.site.plain.port(),
        include_str!("network/around.py")
    );
    let reply = world.run(&session, &code);
    assert_eq!(stdout(&reply), "held\n", "{reply:#}");
    let seen = world.site.requests();
    assert!(seen[before..].iter().all(|request| request.starts_with("GET /data.csv ")), "{seen:?}");
}

#[test]
fn a_thousand_connections_and_a_flood_of_queries_harm_nobody() {
    let world = World::start(&[("NETWORK", "site.test"), ("NETWORK_SESSION_CONNECTIONS", "40")]);
    let (session, other) = (world.session("many"), world.session("other"));
    let reply = world.run(&session, include_str!("network/many.py"));
    let numbers: Value = serde_json::from_str(stdout(&reply)).unwrap();
    assert_eq!(numbers["made"], 1_000, "{numbers}");
    assert!(numbers["open"].as_u64().unwrap() <= 40, "{numbers}");
    assert_eq!(numbers["after"], 200, "{numbers}");
    let said = reply["warnings"].to_string();
    assert!(said.contains("40 connections of this session are open"), "{reply:#}");
    let get =
        "import urllib.request\nprint(urllib.request.urlopen('http://site.test/data.csv').status)";
    assert_eq!(stdout(&world.run(&other, get)), "200\n");
    drop(world.server.get("/health"));
}

#[test]
fn a_room_has_a_number_of_listeners() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("data.csv"), "a,b\n").unwrap();
    let site = Site::start(&authority, &folder);
    // Ten names with eight ports each.
    let ports: Vec<_> = (9_001..9_009).map(|port| port.to_string()).collect();
    let rules: Vec<_> = (0..10).map(|name| format!("n{name}.test:{}", ports.join("+"))).collect();
    let place = |name| ports.iter().map(move |port| format!("n{name}.test:{port}={}", site.plain));
    let hosts: Vec<_> = (0..10).flat_map(place).collect();
    let settings = [("NETWORK", &*rules.join(",")), ("NETWORK_HOSTS", &*hosts.join(",")), BASE];
    let server = Server::start_with(&[], &settings);
    let code = "import socket\nreached = 0\nfor name in range(10):\n    \
                at = socket.gethostbyname(f'n{name}.test')\n    for port in range(9001, 9009):\n        \
                with socket.socket() as s:\n            reached += s.connect_ex((at, port)) == 0\n\
                print(reached)\ns = socket.create_connection(('127.0.0.1', 880))\n\
                s.sendall(b'CONNECT n9.test:9008 HTTP/1.1\\r\\nHost: n9.test:9008\\r\\n\\r\\n')\n\
                print(s.recv(12))";
    assert_eq!(stdout(&server.code("a", code)), "64\nb'HTTP/1.1 200'\n");
}

#[test]
fn a_job_and_an_ephemeral_run_have_the_network_too() {
    let world = World::shared();
    let get =
        "import urllib.request\nprint(urllib.request.urlopen('http://site.test/data.csv').status)";
    let ran = world.server.run(&json!({ "code": get, "ephemeral": true }));
    assert_eq!(stdout(&ran), "200\n", "{ran:#}");
    let session = world.session("job");
    let submitted =
        world.server.post("/api/v1/jobs", &json!({ "code": get, "session_id": session })).json();
    let id = submitted["job_id"].as_str().unwrap().to_owned();
    let ended = crate::jobs::ended(&world.server, &id);
    assert_eq!(ended["output_tail"], "200", "{ended:#}");
}

#[test]
fn a_session_keeps_its_network_over_a_restart() {
    let folder = TempDir::new().unwrap();
    let arguments = ["--data-dir", folder.path().to_str().unwrap()];
    let settings = [("NETWORK", "site.test, other.test")];
    let server = Server::start_with(&arguments, &settings);
    let made = server.post("/api/v1/sessions", &json!({ "network": "other.test" }));
    let made = made.json()["data"].take();
    let session = made["session_id"].as_str().unwrap().to_owned();
    server.code(&session, "x = 1");
    server.stop();
    let server = Server::start_with(&arguments, &settings);
    let ran = server.code(
        &session,
        "import socket\ntry:\n    socket.gethostbyname('site.test')\n\
                                     except OSError as error:\n    print('blocked')",
    );
    assert_eq!((stdout(&ran), blocked(&ran)), ("blocked\n", vec!["site.test"]), "{ran:#}");
    let shown = server.get(&format!("/api/v1/sessions/{session}")).json();
    assert_eq!(shown["network"], "other.test");
}
