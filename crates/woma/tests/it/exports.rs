//! Files of runs over standard input and output: there is no server to download from, so they
//! appear in a folder of the host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Spoken, request};
use crate::files::base64;
use crate::harness::{Server, until};

/// A client of a server with these settings, over standard input and output.
struct Stdio(Spoken);

impl Stdio {
    fn start(data: &Path, variables: &[(&str, &str)]) -> Self {
        let mut spoken = Spoken::start(&["--data-dir", data.to_str().unwrap(), "stdio"], variables);
        spoken.begin();
        Self(spoken)
    }

    /// The result of a tool.
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.0.send(&request(2, "tools/call", &params));
        self.0.next()["result"].take()
    }

    fn code(&mut self, session: &str, code: &str) -> Value {
        self.call("execute_code", &json!({ "code": code, "session_id": session }))
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// The copy of the first file of a reply.
fn copy(result: &Value) -> &Path {
    let file = &result["structuredContent"]["files"][0];
    Path::new(file["host_path"].as_str().unwrap_or_else(|| panic!("{result}")))
}

#[test]
fn uploads_and_fetches_over_stdio_have_paths_instead_of_links() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Stdio::start(folder.path(), &[]);
    let list = client.call("list_files", &json!({}));
    assert_eq!(list["structuredContent"]["total_count"], 0);
    let content = json!({ "filename": "a.txt", "content_base64": base64(b"hi") });
    let up = &client.call("upload_file", &content)["structuredContent"];
    let told = json!({ "success": true, "path": "a.txt", "size_bytes": 2, "preview": "hi" });
    assert_eq!(up, &told);
    let run = client.call("execute_code", &json!({ "code": "open('a.txt').read()" }));
    assert_eq!(run["structuredContent"]["result"], "hi");
    let got = client.call("fetch_file", &json!({ "path": "a.txt" }));
    let fields = &got["structuredContent"];
    assert_eq!((&fields["content"], fields.get("download_url")), (&json!("hi"), None), "{got}");
    let path = fields["host_path"].as_str().unwrap();
    let root = folder.path().join("exports/default-");
    assert!(path.starts_with(root.to_str().unwrap()) && path.ends_with("/a.txt"), "{path}");
    assert_eq!(fs::read_to_string(path).unwrap(), "hi");
    assert!(text(&got).contains(path), "{got}");
}

#[test]
fn files_of_a_run_appear_on_the_host_until_their_session_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Stdio::start(folder.path(), &[]);
    let code = "import os\nos.makedirs('out')\n\
                open('out/report.docx', 'wb').write(b'PK')\n\
                os.symlink('/etc/passwd', 'link.txt')";
    let made = client.code("work", code);
    let path = copy(&made).to_owned();
    assert_eq!(path, folder.path().join("exports/work/out/report.docx"));
    assert_eq!(fs::read(&path).unwrap(), b"PK");
    let line = format!("File: out/report.docx (2 B) {}", path.display());
    assert!(text(&made).lines().any(|own| own == line), "{made}");
    assert!(!folder.path().join("exports/work/link.txt").exists());
    // Private to the user of the server; root reads it too.
    let exports = fs::metadata(folder.path().join("exports")).unwrap();
    assert_eq!(exports.permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&path).unwrap().uid(), exports.uid());
    let changed = client.code("work", "open('out/report.docx', 'ab').write(b'more')");
    assert_eq!((copy(&changed), fs::read(&path).unwrap()), (&*path, b"PKmore".to_vec()));
    client.code("work", "os.remove('out/report.docx'); open('b.csv', 'w').write('1')");
    let second = folder.path().join("exports/work/b.csv");
    assert!(!path.exists() && second.exists());
    client.call("delete_file", &json!({ "path": "b.csv", "session_id": "work" }));
    assert!(!second.exists());
    client.code("work", "open('c.csv', 'w').write('1')");
    let gone = client.call("delete_session", &json!({ "session_id": "work" }));
    assert_eq!(gone["isError"], false, "{gone}");
    assert!(!folder.path().join("exports/work").exists());
}

#[test]
fn a_folder_of_the_users_choice_gets_the_copies() {
    let (data, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // As another user, the server must be able to reach it.
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let chosen = home.path().join("files of woma");
    let variables = [
        ("EXPORT_DIR", chosen.to_str().unwrap()),
        ("REPLY", "full"),
        ("TEXT_FORMAT", "plain"),
        ("STATE_WITHOUT_SESSION", "ephemeral"),
    ];
    let mut client = Stdio::start(data.path(), &variables);
    let made = client.code("größe 1", "open('a.csv', 'w').write('1')");
    let path = chosen.join("größe 1/a.csv");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    let host_path = path.to_str().unwrap();
    let copy = json!({ "path": "a.csv", "host_path": host_path, "size": 1 });
    assert_eq!(made["structuredContent"]["files_exported"], json!([copy]), "{made}");
    let lines = format!("File: a.csv (1 B)\nHost path: {host_path}");
    assert!(text(&made).contains(&lines), "{made}");
    let once = client.call("execute_code", &json!({ "code": "open('b.csv', 'w').write('2')" }));
    let path = once["structuredContent"]["files_exported"][0]["host_path"].as_str().unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "2", "{once}");
    assert!(!data.path().join("exports").exists());
}

#[test]
fn a_file_beyond_the_limit_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Stdio::start(folder.path(), &[("SANDBOX_FILE_MAX_MB", "1")]);
    let code = "with open('large.bin', 'wb') as file: file.truncate((1 << 20) + 1)";
    let made = client.code("work", code);
    assert!(text(&made).contains("File: large.bin"), "{made}");
    assert!(text(&made).contains("large.bin is not copied to the host"), "{made}");
    assert!(!folder.path().join("exports/work/large.bin").exists());
}

#[test]
fn a_server_over_http_says_that_it_copies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let chosen = folder.path().join("out");
    let server = Server::start_with(&[], &[("EXPORT_DIR", chosen.to_str().unwrap())]);
    until("the server has said so", || server.log().contains("EXPORT_DIR has no effect here"));
    let made = server.code("work", "open('a.csv', 'w').write('1')");
    assert_eq!((made.get("files_exported"), chosen.exists()), (None, false), "{made}");
}
