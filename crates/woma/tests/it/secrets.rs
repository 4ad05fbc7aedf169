//! Secrets that are bound to hosts: programs use them without seeing them, and hosts that would give
//! them away.

mod kept;
mod site;

use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use self::site::Site;
use crate::authority::Authority;
use crate::client::client;
use crate::harness::{BASE, Server, unique};

/// A value that no reply, file or message may have. It needs escapes in addresses and in JSON.
const VALUE: &str = "sk-live-7Jq/2+Zx\"40bQ=vT9wLm";
const OTHER_VALUE: &str = "other-secret-value-81723";

/// A server whose sessions may reach the site.
struct World {
    server: Server,
    site: Site,
    /// The data folder.
    data: TempDir,
    _authority: Authority,
}

const RULES: &str = "site.test:80+443+8081+9443, other.test, wrong.test";

impl World {
    fn start(settings: &[(&str, &str)]) -> Self {
        let authority = Authority::new();
        let site = Site::start(&authority.sign("DNS:site.test,DNS:other.test"));
        let data = TempDir::new().unwrap();
        let (plain, secure) = (site.plain, site.secure);
        let hosts = format!(
            "site.test:80={plain},site.test:443={secure},site.test:8081={plain},site.test:9443={secure},\
             other.test:80={plain},other.test:443={secure},wrong.test:443={secure}"
        );
        let trusted = authority.certificate();
        let own: &[(&str, &str)] = &[
            ("NETWORK", RULES),
            ("NETWORK_HOSTS", &hosts),
            ("NETWORK_CA_FILE", trusted.to_str().unwrap()),
            ("MAX_KERNELS", "50"),
            BASE,
        ];
        let arguments = ["--data-dir", data.path().to_str().unwrap()];
        let server = Server::start_with(&arguments, &[own, settings].concat());
        Self { server, site, data, _authority: authority }
    }

    fn shared() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| Self::start(&[("LOG_LEVEL", "trace"), ("LOG_CODE", "true")]))
    }

    /// A session with a secret of this name.
    fn session(&self, name: &str, hosts: &Value, places: &Value) -> String {
        let session = unique(name);
        let secrets = json!([{ "name": "KEY", "value": VALUE, "hosts": hosts, "places": places }]);
        let made = self
            .server
            .post("/api/v1/sessions", &json!({ "session_id": session, "secrets": secrets }));
        assert_eq!(made.status, 200, "{}", made.text());
        assert_eq!(made.json()["data"]["secrets"], json!(["KEY"]));
        assert!(!made.text().contains(VALUE), "{}", made.text());
        session
    }

    /// The reply to code that must succeed, which has no value in any form.
    fn run(&self, session: &str, code: &str) -> Value {
        let reply = self.server.code(session, code);
        assert_eq!(reply["success"], true, "{reply:#}");
        assert_hidden(&reply.to_string());
        reply
    }
}

fn stdout(reply: &Value) -> &str {
    reply["stdout"].as_str().unwrap()
}

fn events<'a>(reply: &'a Value, kind: &str) -> Vec<&'a str> {
    let events = reply["security_events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let events = events.iter().filter(|event| event["security_event"] == kind);
    events.map(|event| event["message"].as_str().unwrap()).collect()
}

/// Checks that a text has the value in no form.
fn assert_hidden(text: &str) {
    for form in [VALUE, &VALUE[..20], "7Jq/2+Zx", "7Jq%2F2%2BZx", "7Jq\\/2+Zx", OTHER_VALUE] {
        assert!(!text.contains(form), "{form}: {text}");
    }
}

const BEARER: &str = "import os\nheaders = {'Authorization': 'Bearer ' + os.environ['KEY']}\n";

/// Ways to send `headers` to a path of their own: /a0, /a1 and so on.
const PROGRAMS: [(&str, &str); 13] = [
    (
        "requests",
        "import requests\nprint(requests.get('https://site.test/a0', headers=headers).text)",
    ),
    (
        "requests, another port",
        "import requests\nprint(requests.get('https://site.test:9443/a1', headers=headers).text)",
    ),
    ("plain", "import requests\nprint(requests.get('http://site.test/a2', headers=headers).text)"),
    (
        "plain, another port",
        "import requests\nprint(requests.get('http://site.test:8081/a3', headers=headers).text)",
    ),
    ("httpx", "import httpx\nprint(httpx.get('https://site.test/a4', headers=headers).text)"),
    (
        "urllib",
        "import urllib.request as u\n\
      print(u.urlopen(u.Request('https://site.test/a5', headers=headers)).read().decode())",
    ),
    (
        "certifi",
        "import certifi, ssl, urllib.request as u\n\
      trust = ssl.create_default_context(cafile=certifi.where())\n\
      print(u.urlopen(u.Request('https://site.test/a6', headers=headers), context=trust).read().decode())",
    ),
    (
        "aiohttp",
        "import aiohttp\n\
      async with aiohttp.ClientSession(headers=headers) as http:\n    \
          async with http.get('https://site.test/a7') as reply:\n        print(await reply.text())",
    ),
    (
        "pandas",
        "import pandas as pd\nprint(pd.read_csv('https://site.test/a8', storage_options=headers, \
      sep='\\0', engine='python').to_string())",
    ),
    (
        "curl",
        "import subprocess\nprint(subprocess.check_output(['curl', '-sS', '-H', \
      'Authorization: ' + headers['Authorization'], 'https://site.test/a9'], text=True))",
    ),
    (
        "curl without an environment",
        "import subprocess\nprint(subprocess.check_output(['env', '-i', 'curl', \
      '-sS', '-H', 'Authorization: ' + headers['Authorization'], 'https://site.test/a10'], text=True))",
    ),
    (
        "the proxy",
        "import requests\nprint(requests.get('https://site.test/a11', headers=headers, \
      proxies={'https': 'http://127.0.0.1:880'}).text)",
    ),
    (
        "SOCKS",
        "import subprocess\nprint(subprocess.check_output(['curl', '-sS', '--socks5-hostname', \
      '127.0.0.1:880', '-H', 'Authorization: ' + headers['Authorization'], 'https://site.test/a12'], text=True))",
    ),
];

#[test]
fn the_usual_programs_send_a_secret_that_they_never_see() {
    let world = World::shared();
    let hosts = json!(["site.test", "site.test:80+8081+9443"]);
    let session = world.session("usual", &hosts, &json!([]));
    for (place, code) in PROGRAMS {
        let reply = world.run(&session, &format!("{BEARER}{code}"));
        assert!(stdout(&reply).contains("woma-secret-"), "{place}: {reply:#}");
        assert_eq!(events(&reply, "misplaced_secret"), Vec::<&str>::new(), "{place}");
    }
    for number in 0..13 {
        let request = world.site.request(&format!("GET /a{number} "));
        assert!(request.contains(&format!("Bearer {VALUE}")), "{request}");
    }
    // A name and a password.
    let code = "import os, requests\nprint(requests.get('https://site.test/basic', \
                auth=('user', os.environ['KEY'])).status_code)";
    assert_eq!(stdout(&world.run(&session, code)), "200\n");
    let basic = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("user:{VALUE}"))
    };
    assert!(world.site.request("GET /basic ").contains(&basic));
}

#[test]
fn git_clones_with_a_token_and_without_configuration() {
    let world = World::shared();
    let session = world.session("git", &json!(["site.test"]), &json!([]));
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@t.test"]).args(arguments);
        let output = git.current_dir(world.site.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q", "repo"]);
    git(&["-C", "repo", "commit", "-q", "--allow-empty", "-m", "a commit of the test"]);
    git(&["-C", "repo", "update-server-info"]);
    let code = "import os, subprocess\nprint(subprocess.run(['git', '-c', \
                'http.extraHeader=Authorization: Bearer ' + os.environ['KEY'], 'clone', '-q', \
                'https://site.test/repo/.git', 'clone'], capture_output=True, text=True))\n\
                print(subprocess.check_output(['git', '-C', 'clone', 'log', '--oneline'], text=True))";
    let reply = world.run(&session, code);
    assert!(stdout(&reply).contains("a commit of the test"), "{reply:#}");
    let asked = world.site.request("GET /repo/.git/info/refs");
    assert!(asked.contains(&format!("Bearer {VALUE}")), "{asked}");
}

#[test]
fn a_value_stands_only_where_its_secret_says() {
    let world = World::shared();
    let places = json!(["path", "query", "body"]);
    let session = world.session("places", &json!(["site.test"]), &places);
    let code = "import os, requests\nkey = os.environ['KEY']\nsite = 'https://site.test'\n\
                print(requests.get(f'{site}/p1/bot{key}/me').text)\n\
                print(requests.get(f'{site}/p2', params={'key': key}).text)\n\
                print(requests.post(f'{site}/p3', data={'key': key}).text)\n\
                print(requests.post(f'{site}/p4', json={'key': key}).text)\n\
                print(requests.post(f'{site}/p5', data=key.encode()).text)\n\
                print(len(requests.post(f'{site}/p6', data=b'x' * 300_000 + key.encode()).text))\n\
                print(requests.get(f'{site}/p7', headers={'X-Key': key}).text)";
    let reply = world.run(&session, code);
    let of = |name: &str| {
        let mut found = world.site.requests(&format!("GET /p{name}"));
        found.extend(world.site.requests(&format!("POST /p{name}")));
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found.concat()
    };
    let percent = "sk%2Dlive%2D7Jq%2F2%2BZx%2240bQ%3DvT9wLm";
    assert!(of("1/").starts_with(&format!("GET /p1/bot{percent}/me ")), "{}", of("1/"));
    assert!(of("2?").starts_with(&format!("GET /p2?key={percent} ")), "{}", of("2?"));
    assert!(of("3 ").contains(&format!("key={percent}")), "{}", of("3 "));
    assert!(of("4 ").contains(&serde_json::to_string(VALUE).unwrap()), "{}", of("4 "));
    assert!(of("5 ").ends_with(&format!("\n{VALUE}")), "{}", of("5 "));
    // A longer body is not looked through.
    assert!(of("6 ").contains("xwoma-secret-") && !of("6 ").contains(VALUE));
    // A header is not among its places.
    assert!(of("7 ").contains("woma-secret-") && !of("7 ").contains(VALUE), "{}", of("7 "));
    assert_eq!(events(&reply, "misplaced_secret").len(), 1, "{reply:#}");
}

#[test]
fn a_host_that_gives_a_value_away_gives_a_placeholder() {
    let world = World::shared();
    let session = world.session("echo", &json!(["site.test"]), &json!([]));
    let code = format!(
        "{BEARER}import requests\nSTART = {:?}\n{}",
        &VALUE[..8],
        include_str!("secrets/echo.py")
    );
    let reply = world.run(&session, &code);
    assert!(stdout(&reply).ends_with("held\n"), "{reply:#}");
    let said = events(&reply, "blocked_host");
    assert!(said.iter().any(|said| said.contains("only gzip and deflate")), "{reply:#}");
    // Every program had the value sent.
    for path in [
        "/echo", "/header", "/reason", "/chunks", "/trailer", "/large", "/gzip", "/gzips",
        "/deflate",
    ] {
        let request = world.site.requests(&format!("GET {path} ")).concat();
        assert!(request.contains(VALUE), "{path}: {request}");
    }
    // What it was redirected to had the placeholder.
    let redirected = world.site.request("GET /echo?told=");
    assert!(
        redirected.contains("told=woma-secret-") && !redirected.contains(VALUE),
        "{redirected}"
    );
}

#[test]
fn a_placeholder_elsewhere_stays_one() {
    let world = World::shared();
    let session = world.session("elsewhere", &json!(["site.test"]), &json!([]));
    let other = world.session("another", &json!(["site.test"]), &json!([]));
    let theirs =
        stdout(&world.run(&other, "import os\nprint(os.environ['KEY'])")).trim().to_owned();
    let own = stdout(&world.run(&session, "import os\nprint(os.environ['KEY'])")).trim().to_owned();
    assert!(own.starts_with("woma-secret-") && own != theirs);
    let code = format!("{BEARER}THEIRS = '{theirs}'\n{}", include_str!("secrets/elsewhere.py"));
    let reply = world.run(&session, &code);
    assert_eq!(stdout(&reply), "held\n", "{reply:#}");
    let sent = world.site.requests("GET /else");
    for request in &sent {
        assert!(!request.contains(VALUE), "{request}");
    }
    world.site.request("GET /else-other ");
    assert!(sent.len() >= 5, "{sent:?}");
    let said = events(&reply, "misplaced_secret");
    assert!(said.iter().any(|said| said.contains("site.test:80")), "{reply:#}");
    assert!(said.iter().any(|said| said.contains("other.test:80")), "{reply:#}");
}

#[test]
fn an_opened_connection_has_one_host_and_a_good_certificate() {
    let world = World::shared();
    let hosts = json!(["site.test", "wrong.test"]);
    let session = world.session("opened", &hosts, &json!([]));
    let reply = world.run(&session, &format!("{BEARER}{}", include_str!("secrets/opened.py")));
    assert_eq!(stdout(&reply), "held\n", "{reply:#}");
    assert!(world.site.requests("GET /wrong").is_empty(), "a bad certificate was accepted");
    assert_eq!(world.site.requests("GET /smuggled"), Vec::<String>::new());
    let said = events(&reply, "blocked_host");
    assert!(said.iter().any(|said| said.contains("made for another name")), "{reply:#}");
}

#[test]
fn protocols_that_are_switched_to_keep_their_lengths() {
    let world = World::shared();
    let session = world.session("switched", &json!(["site.test"]), &json!([]));
    let code = format!("{BEARER}{}", include_str!("secrets/upgrade.py"));
    let reply = world.run(&session, &code);
    assert_eq!(
        stdout(&reply),
        format!("you sent Bearer {}\n", "*".repeat(VALUE.len())),
        "{reply:#}"
    );
}

#[test]
fn a_live_session_s_secrets_change() {
    let world = World::shared();
    let session = world.session("changes", &json!(["site.test"]), &json!([]));
    let path = format!("/api/v1/sessions/{session}");
    let patch = |secrets: &Value| {
        let body = json!({ "secrets": secrets }).to_string();
        let headers = [("Content-Type", "application/json")];
        world.server.request("PATCH", &path, &headers, body.as_bytes())
    };
    let get = "import os, requests\ndef get(n):\n    return requests.get(f'https://site.test/{n}', \
               headers={'X-Key': os.environ.get('KEY', 'none')}).status_code\nprint(get('c1'))";
    assert_eq!(stdout(&world.run(&session, get)), "200\n");
    let changed = patch(&json!([{ "name": "KEY", "value": OTHER_VALUE, "hosts": ["site.test"] }]));
    assert_eq!(
        (changed.status, &changed.json()["secrets"]),
        (200, &json!(["KEY"])),
        "{}",
        changed.text()
    );
    assert_eq!(stdout(&world.run(&session, "print(get('c2'))")), "200\n");
    assert_eq!(patch(&json!([])).json().get("secrets"), None);
    assert_eq!(stdout(&world.run(&session, "print(get('c3'))")), "200\n");
    let of = |beginning: &str| world.site.request(beginning);
    assert!(of("GET /c1 ").contains(VALUE));
    assert!(of("GET /c2 ").contains(OTHER_VALUE));
    assert!(of("GET /c3 ").contains("none"), "{}", of("GET /c3 "));
    for (secrets, status, part) in [
        (json!([{ "name": "KEY", "value": "short", "hosts": ["site.test"] }]), 400, "8 to 4096"),
        (json!([{ "name": "PATH", "value": VALUE, "hosts": ["site.test"] }]), 400, "something else"),
        (json!([{ "name": "KEY", "value": VALUE, "hosts": ["evil.example"] }]), 403, "beyond"),
        (json!([{ "name": "KEY", "value": VALUE, "hosts": ["site.test:*"] }]), 403, "beyond"),
        (json!([{ "name": "KEY", "value": VALUE }]), 400, "list of secrets"),
        (json!({ "KEY": VALUE }), 400, "list of secrets"),
        (json!((0..33).map(|n| json!({ "name": format!("K{n}"), "value": VALUE, "hosts": ["site.test"] }))
            .collect::<Vec<_>>()), 400, "32 secrets"),
    ] {
        let answer = patch(&secrets);
        assert_hidden(answer.text());
        let message = answer.refused(status);
        assert!(message.contains(part), "{part}: {message}");
    }
    // A tool shows their names, and none of their values.
    let session = world.session("tool", &json!(["site.test"]), &json!([]));
    let shown = client(&world.server).call("list_sessions", &json!({}));
    assert_hidden(&shown.to_string());
    let deleted = world.server.request("DELETE", &format!("/api/v1/sessions/{session}"), &[], b"");
    assert_eq!(deleted.status, 200);
    let again = "import os\nprint(os.environ.get('KEY'))";
    assert_eq!(stdout(&world.run(&session, again)), "None\n");
}
