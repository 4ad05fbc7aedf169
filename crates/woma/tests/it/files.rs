//! Files of a session over REST and MCP: uploads are visible to code, files of code can be
//! downloaded, and no path leads out of the session.

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::client::{Client, here};
use crate::harness::{Answer, Server, shared, unique, until};

const KEY: &str = "a-key-that-nobody-guesses-0123456789";

pub(crate) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(crate) fn path(session: &str, path: &str) -> String {
    format!("/api/v1/sessions/{session}/files/{path}")
}

pub(crate) fn put(server: &Server, session: &str, name: &str, content: &[u8]) -> Answer {
    server.request("PUT", &path(session, name), &[], content)
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}

pub(crate) fn listed(server: &Server, session: &str) -> Value {
    let answer = server.get(&format!("/api/v1/sessions/{session}/files"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn uploaded_files_are_visible_to_code_and_downloadable() {
    let session = unique("files");
    let made = put(shared(), &session, "sub/data.csv", b"a,b\n1,2\n");
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!((&made["path"], &made["filename"]), (&json!("sub/data.csv"), &json!("data.csv")));
    assert_eq!((&made["size_bytes"], &made["size_human"]), (&json!(8), &json!("8 B")));
    assert_eq!((&made["mime_type"], &made["replaced"]), (&json!("text/csv"), &json!(false)));
    assert_eq!((&made["preview"], &made["session_id"]), (&json!("a,b\n1,2"), &json!(session)));
    assert_eq!(shared().code(&session, "open('sub/data.csv').read()")["result"], "a,b\n1,2\n");
    // The same while its kernel lives; the replacement is complete.
    let again = put(shared(), &session, "sub/data.csv", b"new");
    assert_eq!((again.status, &again.json()["replaced"]), (200, &json!(true)));
    let reply = shared().code(&session, "open('/mnt/data/sub/data.csv').read()");
    assert_eq!(reply["result"], "new");
    assert_eq!(reply["files_created"], json!([]), "it is not the run's doing");
    assert_eq!(reply.get("files_modified"), None, "{reply}");
    let read = shared().get(&path(&session, "sub/data.csv"));
    assert_eq!((read.status, read.text()), (200, "new"));
    let code = "open('sub/data.csv', 'a').write('er')\nopen('out.txt', 'w').write('x')";
    let reply = shared().code(&session, code);
    assert_eq!(reply["files_created"], json!(["out.txt"]));
    assert_eq!(reply["files_modified"], json!(["sub/data.csv"]));
    assert_eq!(shared().get(&path(&session, "sub/data.csv")).text(), "newer");
    let list = listed(shared(), &session);
    assert_eq!(names(&list), ["out.txt", "sub/data.csv"]);
    assert_eq!((&list["total_count"], &list["total_size_bytes"]), (&json!(2), &json!(6)));
    assert_eq!(list["total_size_human"], "6 B");
    let first = &list["files"][0];
    assert_eq!(first["file_id"], reply["download_urls"][0]["file_id"], "{list}");
    assert_eq!(first["download_url"], reply["download_urls"][0]["url"]);
    let gone = shared().request("DELETE", &path(&session, "out.txt"), &[], b"");
    assert_eq!((gone.status, gone.text()), (204, ""));
    shared().get(&path(&session, "out.txt")).refused(404);
    shared().request("DELETE", &path(&session, "out.txt"), &[], b"").refused(404);
    let reply = shared().code(&session, "import os\nos.remove('sub/data.csv')");
    assert_eq!(reply["files_deleted"], json!(["sub/data.csv"]), "{reply}");
}

#[test]
fn all_paths_of_a_file_are_one_file() {
    let session = unique("names");
    put(shared(), &session, "x.csv", b"1");
    for name in ["/tmp/x.csv", "/mnt/data/x.csv", "x.csv", "/var/tmp/x.csv"] {
        let code = format!("open({name:?}).read()");
        assert_eq!(shared().code(&session, &code)["result"], "1", "{name}");
        let encoded = name.replace('/', "%2F");
        assert_eq!(shared().get(&path(&session, &encoded)).text(), "1", "{name}");
    }
    shared().code(&session, "open('/tmp/y.txt', 'w').write('2')");
    assert_eq!(shared().get(&path(&session, "y.txt")).text(), "2");
    assert_eq!(names(&listed(shared(), &session)), ["x.csv", "y.txt"]);
}

#[test]
fn a_replaced_file_is_reported_with_a_new_address() {
    let session = unique("again");
    let first = shared().code(&session, "open('a.csv', 'w').write('one')");
    let second = shared().code(&session, "open('a.csv', 'w').write('two')");
    assert_eq!(first["files_created"], json!(["a.csv"]));
    assert_eq!(second["files_modified"], json!(["a.csv"]));
    for (reply, content) in [(&first, "one"), (&second, "two")] {
        let url = reply["download_urls"][0]["url"].as_str().unwrap();
        let (_, target) = url.split_once("/dl/").unwrap();
        assert_eq!(shared().get(&format!("/dl/{target}")).text(), content);
    }
}

#[test]
fn rejects_paths_that_leave_the_folder() {
    let session = unique("paths");
    put(shared(), &session, "ok.txt", b"ok");
    let long = "x".repeat(256);
    for bad in [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/x",
        "a/..%2f..%2fx",
        "%2Fetc%2Fpasswd",
        "%2Fapp%2Fsandbox_data%2Fother%2Fx",
        "a%00b",
        "a%0Ab",
        "%E2%80%AEx.txt",
        "a%5Cb",
        ".woma-x",
        long.as_str(),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = shared().request(method, &path(&session, bad), &[], b"x");
            let text = answer.refused(400);
            assert!(!text.contains("/var/") && !text.contains("sessions/"), "{text}");
        }
    }
    assert_eq!(names(&listed(shared(), &session)), ["ok.txt"]);
    for good in ["%F0%9F%93%88%20chart.csv", "%D7%A9%D7%9C%D7%95%D7%9D.csv", &"y".repeat(255)] {
        assert_eq!(put(shared(), &session, good, b"1").status, 201, "{good}");
        assert_eq!(shared().get(&path(&session, good)).text(), "1", "{good}");
    }
    let code = "sorted(len(n) for n in __import__('os').listdir())";
    assert_eq!(shared().code(&session, code)["result"], json!([6, 8, 11, 255]));
}

#[test]
fn does_not_follow_links_that_a_session_made() {
    let session = unique("planted");
    let code = "import os
open('plain.txt', 'w').write('plain')
os.symlink('/etc/passwd', 'link')
os.symlink('plain.txt', 'inner')
os.symlink('/', 'root')
os.mkfifo('fifo')
os.mkdir('folder')
open('new\\nline.txt', 'w').write('x')";
    assert_eq!(shared().code(&session, code)["success"], true);
    for (name, status) in
        [("link", 400), ("inner", 400), ("fifo", 400), ("folder", 409), ("root/etc/passwd", 400)]
    {
        shared().get(&path(&session, name)).refused(status);
    }
    let list = listed(shared(), &session);
    assert_eq!(names(&list), ["plain.txt"], "{list}");
    assert!(list["warnings"][0].as_str().unwrap().contains("cannot be used"), "{list}");
    // A link is replaced, not written through; a folder stays.
    assert_eq!(put(shared(), &session, "link", b"mine").status, 200);
    assert_eq!(
        shared().code(&session, "os.path.islink('link'), open('link').read()")["result"],
        json!([false, "mine"])
    );
    put(shared(), &session, "folder", b"x").refused(409);
    put(shared(), &session, "plain.txt/below", b"x").refused(409);
    put(shared(), &session, "root/x", b"x").refused(409);
    shared().request("DELETE", &path(&session, "folder"), &[], b"").refused(409);
    assert_eq!(shared().request("DELETE", &path(&session, "fifo"), &[], b"").status, 204);
}

/// Names and contents of an archive, as Python reads it.
fn unzipped(bytes: &[u8]) -> Value {
    let code = "import io, json, sys, zipfile\n\
                z = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))\n\
                assert z.testzip() is None\n\
                print(json.dumps({n: len(z.read(n)) for n in z.namelist()}))";
    let python = std::path::Path::new(&crate::harness::environment()).join("bin/python");
    let mut child = Command::new(python)
        .args(["-c", code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn serves_a_folder_as_one_archive() {
    let session = unique("zip");
    let code = "import os
os.makedirs('a/b')
open('a/b/größe.txt', 'w').write('x' * 10)
open('a/large.bin', 'wb').write(os.urandom(5 << 20))
open('top.txt', 'w').write('')
os.symlink('/etc/passwd', 'a/link')
os.mkfifo('a/fifo')
os.mkdir('empty')";
    shared().code(&session, code);
    let all = shared().get(&format!("/api/v1/sessions/{session}/files?archive=zip"));
    assert_eq!((all.status, all.get("content-type")), (200, Some("application/zip")));
    assert!(all.get("content-disposition").unwrap().contains(&format!("{session}.zip")));
    let expected = json!({ "a/b/größe.txt": 10, "a/large.bin": 5 << 20, "top.txt": 0 });
    assert_eq!(unzipped(&all.body), expected);
    let some = shared().get(&path(&session, "a/b?archive=zip"));
    assert_eq!(unzipped(&some.body), json!({ "a/b/größe.txt": 10 }));
    assert_eq!(unzipped(&shared().get(&path(&session, "empty?archive=zip")).body), json!({}));
    shared().get(&path(&session, "nowhere?archive=zip")).refused(404);
    shared().get(&path(&session, "top.txt?archive=zip")).refused(404);
    shared().get(&path(&session, "a?archive=tar")).refused(400);
}

#[test]
fn archives_a_small_folder_of_a_large_session() {
    let session = unique("zip");
    let code = "import os
os.makedirs('few/below')
os.mkdir('many')
open('few/a.txt', 'w').write('a')
open('few/below/b.txt', 'w').write('bb')
for n in range(10_001): open(f'many/{n}', 'w').close()
with open('large', 'wb') as file: file.truncate(400 << 20)";
    shared().code(&session, code);
    let few = shared().get(&path(&session, "few?archive=zip"));
    assert_eq!(few.status, 200, "{}", String::from_utf8_lossy(&few.body));
    assert_eq!(unzipped(&few.body), json!({ "few/a.txt": 1, "few/below/b.txt": 2 }));
    shared().get(&path(&session, "many?archive=zip")).refused(413);
    shared().get(&format!("/api/v1/sessions/{session}/files?archive=zip")).refused(413);
    shared().code(&session, "import os\nos.symlink('few', 'link')");
    shared().get(&path(&session, "link?archive=zip")).refused(404);
    shared().get(&path(&session, "few/a.txt?archive=zip")).refused(404);
    shared().get(&path(&session, "few/none?archive=zip")).refused(404);
}

#[test]
fn file_tools_match_the_routes() {
    let (here, session) = (here(), unique("tools"));
    let call = |tool: &str, mut arguments: Value| {
        arguments["session_id"] = json!(session);
        let result = here.call(tool, &arguments);
        assert_eq!(result["isError"], false, "{result}");
        result
    };
    let content = base64("größe\n1\n".as_bytes());
    let up = call("upload_file", json!({ "filename": "a.csv", "content_base64": content }));
    assert_eq!(up["structuredContent"]["preview"], "größe\n1");
    let reply = here.code(&session, "t = open('a.csv').read()\nopen('b.txt', 'w').write(t * 2)\nt");
    assert_eq!(reply["result"], "größe\n1\n");
    let list = &call("list_files", json!({}))["structuredContent"];
    assert_eq!(names(list), ["a.csv", "b.txt"]);
    let text = call("fetch_file", json!({ "path": "/mnt/data/b.txt" }));
    let got = &text["structuredContent"];
    assert_eq!(
        (&got["encoding"], &got["content"]),
        (&json!("text"), &json!("größe\n1\n".repeat(2)))
    );
    assert_eq!(got.get("truncated"), None);
    let url = got["download_url"].as_str().unwrap();
    assert_eq!(reply["files"], json!([{ "path": "b.txt", "size": 20, "url": url }]));
    let link = &text["content"][1];
    assert_eq!(link["type"], "resource_link", "{text}");
    let read = here.result("resources/read", &json!({ "uri": link["uri"] }));
    assert_eq!(read["contents"][0]["text"], "größe\n1\n".repeat(2), "{read}");
    let code = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('c.png')\nplt.close()\n\
                open('d.bin', 'wb').write(bytes([0, 255]))\nopen('e.bin', 'wb').write(b'\\0' * 100_000)\n\
                open('long.txt', 'w').write('é' * 50_000)";
    here.code(&session, code);
    let picture = call("fetch_file", json!({ "filename": "c.png" }));
    assert_eq!(
        (&picture["content"][1]["type"], &picture["content"][1]["mimeType"]),
        (&json!("image"), &json!("image/png"))
    );
    assert_eq!(picture["structuredContent"].get("content"), None);
    let small = call("fetch_file", json!({ "path": "d.bin" }));
    assert_eq!(
        (&small["structuredContent"]["encoding"], &small["structuredContent"]["content"]),
        (&json!("base64"), &json!("AP8="))
    );
    let binary = call("fetch_file", json!({ "path": "e.bin" }));
    assert_eq!(binary["structuredContent"].get("content"), None);
    let long = &call("fetch_file", json!({ "path": "long.txt" }))["structuredContent"];
    assert_eq!(long["content"].as_str().unwrap().chars().count(), 25_000);
    assert_eq!(long["truncated"], true);
    let gone = call("delete_file", json!({ "path": "a.csv" }));
    assert_eq!(gone["structuredContent"]["success"], true);
    for (tool, arguments, words) in [
        ("fetch_file", json!({ "path": "a.csv" }), "there is no file `a.csv`"),
        ("fetch_file", json!({ "path": "../x" }), "has a `..`"),
        ("fetch_file", json!({}), "`path` is missing"),
        ("delete_file", json!({ "path": "a.csv" }), "there is no file"),
        ("delete_file", json!({}), "`path` is missing"),
        ("upload_file", json!({ "filename": "x" }), "`content` is missing"),
        ("upload_file", json!({ "filename": "x", "content_base64": "%" }), "not base64"),
        ("fetch_from_url", json!({}), "`url` is missing"),
        ("fetch_from_url", json!({ "url": "ftp://example.org/x" }), "`ftp` addresses"),
    ] {
        let mut arguments = arguments;
        arguments["session_id"] = json!(session);
        let text = here.refused(tool, &arguments);
        assert!(text.contains(words), "{tool}: {text}");
    }
    let text = here.refused("list_files", &json!({ "session_id": unique("nobody") }));
    assert!(text.contains("does not exist"), "{text}");
}

#[test]
fn a_key_stores_no_more_than_its_quota() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let small = keyed.key("small", &["--storage", "1m"]);
    let small = keyed.client(&small);
    until("the key is known", || small.get("/api/v1/sessions").status == 200);
    let up = |session: &str, bytes: usize| {
        let content = base64(&vec![b'x'; bytes]);
        let body = json!({ "filename": "a.bin", "content_base64": content });
        small.post(&format!("/api/v1/sessions/{session}/files"), &body)
    };
    assert_eq!(up("one", 600_000).status, 201);
    let full = up("two", 600_000);
    full.refused(429);
    assert_eq!(full.json()["code"], "quota_exceeded");
    assert!(full.json()["hint"].as_str().unwrap().contains("delete"), "{}", full.text());
    assert_eq!(up("two", 100_000).status, 201);
    let gone = small.send("DELETE", &path("one", "a.bin"), &[], &Value::Null).answer(false);
    assert_eq!(gone.status, 204);
    assert_eq!(up("two", 600_000).status, 201);
}

#[test]
fn another_key_finds_no_files() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let looks = keyed.key("looks", &["--scope", "read"]);
    let (alice, bob, looks) = (keyed.client(&alice), keyed.client(&bob), keyed.client(&looks));
    until("the keys are known", || looks.get("/api/v1/sessions").status == 200);
    let body = json!({ "filename": "a.txt", "content_base64": base64(b"hers") });
    assert_eq!(alice.post("/api/v1/sessions/s/files", &body).status, 201);
    for answer in [
        bob.get(&path("s", "a.txt")),
        bob.get("/api/v1/sessions/s/files"),
        bob.get("/api/files?session_id=s"),
        bob.get("/charts/s/a.txt"),
        bob.get("/api/v1/sessions/s/files?archive=zip"),
        bob.send("DELETE", &path("s", "a.txt"), &[], &Value::Null).answer(false),
    ] {
        answer.refused(404);
    }
    bob.refused("fetch_file", &json!({ "path": "a.txt", "session_id": "s" }));
    let missing = bob.rpc("resources/read", &json!({ "uri": "session://s/files/a.txt" }));
    assert!(missing["error"].is_object(), "{missing}");
    // The same name is another session to another key.
    bob.post("/api/v1/sessions/s/files", &body);
    assert_eq!(alice.get(&path("s", "a.txt")).text(), "hers");
    let begun = json!({ "path": "x", "size": 1 });
    let upload = alice.post("/api/v1/uploads", &begun).json();
    let target = format!("/api/v1/uploads/{}", upload["upload_id"].as_str().unwrap());
    bob.get(&target).refused(404);
    bob.send("PATCH", &target, &[("Upload-Offset", "0")], &Value::Null).answer(false).refused(404);
    // A key with the scope `read` cannot write.
    looks.post("/api/v1/sessions/s/files", &body).refused(403);
    looks.post("/api/v1/uploads", &begun).refused(403);
    looks.post("/api/files/fetch", &json!({ "url": "http://example.org" })).refused(403);
    looks.send("DELETE", &path("s", "a.txt"), &[], &Value::Null).answer(false).refused(403);
    assert_eq!(looks.get("/api/files").json()["total_count"], 0);
    let nobody = Client { server: &keyed.server, key: None };
    nobody.get(&path("s", "a.txt")).refused(401);
    nobody.get("/charts/s/a.txt").refused(401);
}
