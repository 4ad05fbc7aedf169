//! Places that keep no secret: output, files and logs, over a restart, in the operator's file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use super::{BEARER, OTHER_VALUE, VALUE, World, assert_hidden, stdout};
use crate::auth::Keyed;
use crate::client::client;
use crate::harness::{BASE, Server, until};

#[test]
fn output_that_has_a_value_is_covered_and_nothing_that_is_kept_has_it() {
    let world =
        World::start(&[("LOG_LEVEL", "trace"), ("LOG_CODE", "true"), ("AUDIT_CODE", "false")]);
    let used = world.session("used", &json!(["site.test"]), &json!([]));
    let get =
        "import requests\nkept = requests.get('https://site.test/k', headers=headers).text\nkept";
    world.run(&used, &format!("{BEARER}{get}"));
    let path = format!("/api/v1/sessions/{used}/checkpoint");
    assert_eq!(world.server.post(&path, &json!({})).status, 200);
    assert_eq!(files_with_the_value(world.data.path()), Vec::<PathBuf>::new());
    let session = world.session("kept", &json!(["site.test"]), &json!([]));
    // The program is told the value, as a host would that encodes it in a way of its own.
    let told: Vec<u32> = VALUE.bytes().map(|byte| u32::from(byte) + 1).collect();
    let code = format!(
        "{BEARER}told = bytes(b - 1 for b in {told:?}).decode()\n{}",
        include_str!("output.py")
    );
    let reply = world.run(&session, &code);
    assert!(stdout(&reply).contains("woma-secret-"), "{reply:#}");
    let raised = world.server.code(&session, "raise ValueError(told)");
    assert_hidden(&raised.to_string());
    assert!(raised.to_string().contains("woma-secret-"), "{raised:#}");
    let streamed = world.server.request(
        "POST",
        "/api/v1/execute",
        &[("Content-Type", "application/json"), ("Accept", "application/x-ndjson")],
        json!({ "session_id": session, "code": "for c in told:\n    print(c, end='', flush=True)\nprint()\ntold" })
            .to_string()
            .as_bytes(),
    );
    assert_hidden(streamed.text());
    assert!(streamed.text().contains("woma-secret-"), "{}", streamed.text());
    let called = client(&world.server)
        .call("execute_code", &json!({ "session_id": session, "code": "told" }));
    assert_hidden(&called.to_string());
    assert_hidden(world.server.get("/metrics").text());
    assert_hidden(world.server.get("/api/v1/audit?limit=1000").text());
    until("the log has the end of the run", || world.server.log().contains("Execution completed"));
    world.server.stop();
    assert_hidden(&world.server.log());
    // Variables of a program that has learnt the value are its own.
    let mut kept = files_with_the_value(world.data.path());
    kept.retain(|path| !path.starts_with(world.data.path().join("blobs")));
    assert_eq!(kept, Vec::<PathBuf>::new());
}

fn files_with_the_value(folder: &Path) -> Vec<PathBuf> {
    let has = |content: &[u8]| content.windows(VALUE.len()).any(|part| part == VALUE.as_bytes());
    let files = files_below(folder);
    assert!(files.len() > 3, "{files:?}");
    files.into_iter().filter(|(_, content)| has(content)).map(|(path, _)| path).collect()
}

fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&path)),
            Ok(kind) if kind.is_file() => {
                found.extend(fs::read(&path).ok().map(|content| (path, content)));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn a_reply_says_which_secrets_a_restart_has_taken() {
    let folder = TempDir::new().unwrap();
    let arguments = ["--data-dir", folder.path().to_str().unwrap()];
    let settings = [("NETWORK", "site.test"), BASE];
    let server = Server::start_with(&arguments, &settings);
    let secrets = json!([{ "name": "KEY", "value": VALUE, "hosts": ["site.test"] }]);
    let made = server.post("/api/v1/sessions", &json!({ "session_id": "s", "secrets": secrets }));
    assert_eq!(made.status, 200, "{}", made.text());
    let before = server.code("s", "import os\nkept = os.environ['KEY']\nprint(kept)");
    server.stop();
    let server = Server::start_with(&arguments, &settings);
    let ran = server.code("s", "print(os.environ.get('KEY'))");
    assert_eq!(stdout(&ran), "None\n", "{ran:#}");
    assert!(ran["warnings"].to_string().contains("are gone"), "{ran:#}");
    assert_eq!(server.get("/api/v1/sessions/s").json()["secrets"], json!(["KEY"]));
    let body = json!({ "secrets": secrets }).to_string();
    let headers = [("Content-Type", "application/json")];
    assert_eq!(
        server.request("PATCH", "/api/v1/sessions/s", &headers, body.as_bytes()).status,
        200
    );
    // A variable that has the placeholder is as good as before.
    let ran = server.code("s", "print(kept)\nassert kept == os.environ['KEY']");
    assert_eq!(stdout(&ran), stdout(&before), "{ran:#}");
    assert!(!ran["warnings"].to_string().contains("are gone"), "{ran:#}");
}

#[test]
fn an_operator_s_secrets_are_for_the_keys_that_they_name() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("secrets.toml");
    fs::write(folder.path().join("token"), format!("{OTHER_VALUE}\n")).unwrap();
    let text = format!(
        "[FOR_ALL]\nvalue = '{VALUE}'\nhosts = ['site.test']\n\
         [FOR_TEAM]\nfile = 'token'\nhosts = ['*.site.test']\ncallers = ['team']\n"
    );
    fs::write(&file, text).unwrap();
    let keyed =
        Keyed::start(&[("SECRETS_FILE", file.to_str().unwrap()), ("NETWORK", "site.test"), BASE]);
    let names = "import os\nprint(sorted(n for n in os.environ if n.startswith('FOR_')))";
    for (name, expected) in [("team", "['FOR_ALL', 'FOR_TEAM']\n"), ("other", "['FOR_ALL']\n")] {
        let key = keyed.key(name, &[]);
        let client = keyed.client(&key);
        for session in [json!({ "session_id": "s" }), json!({ "ephemeral": true })] {
            let mut body = session;
            body["code"] = names.into();
            let ran = client.post("/execute", &body).json();
            assert_eq!(ran["stdout"], expected, "{name}: {ran:#}");
        }
    }
    for (text, part) in [
        ("[KEY]\nvalue = 'a-secret-value'\n", "needs `hosts`"),
        ("[KEY]\nvalue = 'a-secret-value'\nhosts = ['*']\n", "open"),
    ] {
        fs::write(&file, text).unwrap();
        let program = env!("CARGO_BIN_EXE_woma");
        let output = Command::new(program)
            .args(["serve", "--port", "0", "--data-dir"])
            .arg(folder.path())
            .env("SECRETS_FILE", &file)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{said}");
        assert!(said.contains("secrets.toml") && !said.contains("a-secret-value"), "{said}");
    }
}
