//! The files of a session, through every door: what was put in is there for code, what code leaves
//! can be fetched, and nothing leads out of the session.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::client::{Client, Spoken, client, here, request};
use crate::harness::{Answer, Server, shared, unique, until};

const KEY: &str = "a-key-that-nobody-guesses-0123456789";

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(crate) fn path(session: &str, path: &str) -> String {
    format!("/api/v1/sessions/{session}/files/{path}")
}

pub(crate) fn put(server: &Server, session: &str, name: &str, content: &[u8]) -> Answer {
    server.request("PUT", &path(session, name), &[], content)
}

fn names(list: &Value) -> Vec<&str> {
    list["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}

fn listed(server: &Server, session: &str) -> Value {
    let answer = server.get(&format!("/api/v1/sessions/{session}/files"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn what_is_put_in_is_there_for_code_and_comes_out_again() {
    let session = unique("files");
    let made = put(shared(), &session, "sub/data.csv", b"a,b\n1,2\n");
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    assert_eq!((&made["path"], &made["filename"]), (&json!("sub/data.csv"), &json!("data.csv")));
    assert_eq!((&made["size_bytes"], &made["size_human"]), (&json!(8), &json!("8 B")));
    assert_eq!((&made["mime_type"], &made["replaced"]), (&json!("text/csv"), &json!(false)));
    assert_eq!((&made["preview"], &made["session_id"]), (&json!("a,b\n1,2"), &json!(session)));
    assert_eq!(shared().code(&session, "open('sub/data.csv').read()")["result"], "a,b\n1,2\n");
    // While its kernel lives, too, and what replaces it is whole.
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
    assert_eq!((gone.status, &gone.json()["path"]), (200, &json!("out.txt")));
    shared().get(&path(&session, "out.txt")).refused(404);
    shared().request("DELETE", &path(&session, "out.txt"), &[], b"").refused(404);
    let reply = shared().code(&session, "import os\nos.remove('sub/data.csv')");
    assert_eq!(reply["files_deleted"], json!(["sub/data.csv"]), "{reply}");
}

#[test]
fn one_file_has_many_names() {
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
fn the_same_name_again_is_told_and_gets_an_address_of_its_own() {
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
fn paths_that_lead_elsewhere_are_refused() {
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
fn what_a_session_plants_is_not_followed() {
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
    assert_eq!(shared().request("DELETE", &path(&session, "fifo"), &[], b"").status, 200);
}

#[test]
fn forms_and_json_bring_files_too() {
    let session = unique("forms");
    let form = |parts: &[(&str, &str)]| {
        let part = |(head, content): &(&str, &str)| {
            format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
        };
        parts.iter().map(part).collect::<String>() + "--b--\r\n"
    };
    let kind = [("Content-Type", "multipart/form-data; boundary=b")];
    let here = format!("/api/v1/sessions/{session}/files");
    let one = form(&[("name=\"file\"; filename=\"a.csv\"", "1,2")]);
    let answer = shared().request("POST", &here, &kind, one.as_bytes());
    assert_eq!((answer.status, &answer.json()["path"]), (201, &json!("a.csv")));
    // The session may come after the file.
    let file = ("name=\"file\"; filename=\"../../b.txt\"", "b");
    let older = form(&[file, ("name=\"session_id\"", &session)]);
    let answer = shared().request("POST", "/api/files/upload", &kind, older.as_bytes());
    assert_eq!((answer.status, &answer.json()["path"]), (201, &json!("b.txt")));
    let two = form(&[
        ("name=\"files\"; filename=\"c1.txt\"", "1"),
        ("name=\"files\"; filename=\"c2.txt\"", ""),
    ]);
    let answer = shared().request("POST", &here, &kind, two.as_bytes()).json();
    assert_eq!(answer["files"].as_array().unwrap().len(), 2, "{answer}");
    let body = json!({ "filename": "d.bin", "content_base64": base64(&[0, 255]) });
    let answer = shared().post(&here, &body);
    assert_eq!((answer.status, &answer.json()["preview"]), (201, &json!("[Binary file: .bin]")));
    let body = json!({ "filename": ".e", "content_base64": "", "session_id": session });
    let hidden = shared().post("/api/files/upload", &body).json();
    assert!(hidden["path"].as_str().unwrap().starts_with("file_"), "{hidden}");
    let list = shared().get(&format!("/api/files?session_id={session}")).json();
    assert_eq!(list["total_count"], 6, "{list}");
    let gone = shared().request("DELETE", &format!("/api/files/{session}/a.csv"), &[], b"");
    assert_eq!(gone.status, 200);
    for (body, kind) in [
        (form(&[("name=\"x\"", "no file")]), Some(kind[0])),
        ("--b\r\nnot a form".to_owned(), Some(kind[0])),
        (json!({ "filename": "x" }).to_string(), None),
        (json!({ "content_base64": "" }).to_string(), None),
        (json!({ "filename": "x", "content_base64": "no base64!" }).to_string(), None),
        ("[]".to_owned(), None),
        (String::new(), None),
    ] {
        let headers: Vec<_> = kind.into_iter().collect();
        shared().request("POST", &here, &headers, body.as_bytes()).refused(400);
    }
    assert_eq!(listed(shared(), &session)["total_count"], 5);
}

#[test]
fn a_file_may_be_as_large_as_the_limit() {
    let server = Server::start_with(&[], &[("SANDBOX_FILE_MAX_MB", "1")]);
    let full = vec![b'x'; 1 << 20];
    assert_eq!(put(&server, "s", "full.txt", &full).status, 201);
    let more = [&full[..], b"x"].concat();
    put(&server, "s", "more.txt", &more).refused(413);
    // Without a length said before, too.
    let mut connection = server.connect();
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        path("s", "more.txt")
    );
    connection.write(head.as_bytes()).unwrap();
    connection.write(format!("{:x}\r\n", more.len()).as_bytes()).unwrap();
    connection.write(&more).unwrap();
    connection.write(b"\r\n0\r\n\r\n").unwrap();
    connection.answer(false).refused(413);
    let body = json!({ "filename": "more.txt", "content_base64": base64(&more) });
    server.post("/api/v1/sessions/s/files", &body).refused(413);
    client(&server).refused("upload_file", &body);
    let begun = json!({ "path": "more.txt", "size": more.len(), "session_id": "s" });
    server.post("/api/v1/uploads", &begun).refused(413);
    assert_eq!(names(&listed(&server, "s")), ["full.txt"]);
    // What code makes stays, and is told to have no address.
    let reply = server.code("s", "open('big.csv', 'w').write('x' * (2 << 20))");
    assert_eq!(reply["files_created"], json!(["big.csv"]));
    assert_eq!(reply["download_urls"], json!([]));
    assert!(reply["warnings"].to_string().contains("big.csv has no download address"), "{reply}");
    let fetched =
        client(&server).call("fetch_file", &json!({ "path": "big.csv", "session_id": "s" }));
    let fetched = &fetched["structuredContent"];
    assert_eq!((&fetched["truncated"], fetched.get("download_url")), (&json!(true), None));
    assert!(fetched["warnings"].to_string().contains("too large"), "{fetched}");
    assert_eq!(server.get(&path("s", "big.csv")).body.len(), 2 << 20);
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let session = unique("broken");
    put(shared(), &session, "old.txt", b"old");
    let mut connection = shared().connect();
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
        path(&session, "old.txt")
    );
    connection.write(head.as_bytes()).unwrap();
    drop(connection);
    let id = session.clone();
    shared().until_busy(&id, false);
    assert_eq!(shared().get(&path(&session, "old.txt")).text(), "old");
    assert_eq!(shared().code(&session, "__import__('os').listdir()")["result"], json!(["old.txt"]));
}

#[test]
fn an_upload_in_parts_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", folder.path().to_str().unwrap()];
    let server = Server::start(&arguments);
    let body = json!({ "path": "sub/parts.txt", "size": 10, "session_id": "s" });
    let begun = server.post("/api/v1/uploads", &body);
    assert_eq!(begun.status, 201);
    let begun = begun.json();
    assert_eq!((&begun["offset"], &begun["path"]), (&json!(0), &json!("sub/parts.txt")));
    let target = format!("/api/v1/uploads/{}", begun["upload_id"].as_str().unwrap());
    let part = |server: &Server, offset: &str, bytes: &[u8]| {
        server.request("PATCH", &target, &[("Upload-Offset", offset)], bytes)
    };
    let first = part(&server, "0", b"01234");
    assert_eq!((first.status, first.get("upload-offset")), (200, Some("5")));
    assert_eq!(first.json()["complete"], false);
    part(&server, "0", b"01234").refused(409);
    part(&server, "", b"x").refused(400);
    part(&server, "5", b"567890123").refused(413);
    server.get(&path("s", "sub/parts.txt")).refused(404);
    drop(server);
    let server = Server::start(&arguments);
    assert_eq!(server.request("HEAD", &target, &[], b"").get("upload-offset"), Some("5"));
    assert_eq!(server.get(&target).json()["offset"], 5);
    let last = part(&server, "5", b"56789").json();
    assert_eq!((&last["complete"], &last["offset"]), (&json!(true), &json!(10)));
    assert_eq!(server.get(&path("s", "sub/parts.txt")).text(), "0123456789");
    server.get(&target).refused(404);
    let begun = server.post("/api/v1/uploads", &body).json();
    let target = format!("/api/v1/uploads/{}", begun["upload_id"].as_str().unwrap());
    assert_eq!(server.request("DELETE", &target, &[], b"").status, 204);
    server.get(&target).refused(404);
    for bad in [json!({}), json!({ "path": "x" }), json!({ "path": "x", "size": -1 })] {
        server.post("/api/v1/uploads", &bad).refused(400);
    }
    for n in 0..16 {
        let body = json!({ "path": format!("{n}"), "size": 1 });
        assert_eq!(server.post("/api/v1/uploads", &body).status, 201);
    }
    server.post("/api/v1/uploads", &json!({ "path": "x", "size": 1 })).refused(429);
}

/// What Python's own reader makes of an archive: names and contents.
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
fn a_folder_comes_as_one_archive() {
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
fn a_small_folder_is_an_archive_in_however_large_a_session() {
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
fn the_tools_do_the_same() {
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
    assert_eq!(got["truncated"], false);
    let url = got["download_url"].as_str().unwrap();
    assert_eq!(url, reply["download_urls"][0]["url"].as_str().unwrap(), "the same is kept once");
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
        ("upload_file", json!({ "filename": "x" }), "`content_base64` is missing"),
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
fn on_standard_input_there_are_files_and_no_links() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut spoken = Spoken::start(&["--data-dir", data, "stdio"], &[]);
    spoken.begin();
    let mut call = |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        spoken.send(&request(2, "tools/call", &params));
        spoken.next()["result"]["structuredContent"].take()
    };
    assert_eq!(call("list_files", json!({}))["total_count"], 0);
    let up = call("upload_file", json!({ "filename": "a.txt", "content_base64": base64(b"hi") }));
    assert_eq!(up["session_id"], "default");
    assert_eq!(call("execute_code", json!({ "code": "open('a.txt').read()" }))["result"], "hi");
    let got = call("fetch_file", json!({ "path": "a.txt" }));
    assert_eq!((&got["content"], got.get("download_url")), (&json!("hi"), None), "{got}");
}

/// One answer to each connection, by its path.
fn web() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap() == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let answer = match head.split(' ').nth(1).unwrap_or_default() {
                "/sub/data.csv" => "200 OK\r\nContent-Length: 8\r\n\r\na,b\n1,2\n".to_owned(),
                "/" => "200 OK\r\nContent-Length: 1\r\n\r\nx".to_owned(),
                "/moved" => {
                    "302 Found\r\nLocation: /sub/data.csv\r\nContent-Length: 0\r\n\r\n".to_owned()
                }
                "/inner" => {
                    "302 Found\r\nLocation: http://169.254.169.254/x\r\nContent-Length: 0\r\n\r\n"
                        .to_owned()
                }
                "/short" => "200 OK\r\nContent-Length: 100\r\n\r\nshort".to_owned(),
                "/large" => format!("200 OK\r\n\r\n{}", "x".repeat((1 << 20) + 1)),
                _ => "404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            // A client that refuses what is too large has hung up by then.
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap_or_default();
        }
    });
    format!("http://{address}")
}

#[test]
fn files_come_from_elsewhere() {
    let variables = [("FETCH_ALLOW_PRIVATE", "true"), ("MAX_FILE_SIZE_MB", "1")];
    let server = Server::start_with(&[], &variables);
    let (here, web) = (client(&server), web());
    let url = |path: &str| json!({ "url": format!("{web}{path}"), "session_id": "s" });
    let got = here.call("fetch_from_url", &url("/sub/data.csv"));
    let got = &got["structuredContent"];
    assert_eq!((&got["path"], &got["preview"]), (&json!("data.csv"), &json!("a,b\n1,2")), "{got}");
    assert_eq!(server.code("s", "open('data.csv').read()")["result"], "a,b\n1,2\n");
    let mut moved = url("/moved");
    moved["filename"] = json!("sub/other.csv");
    let answer = server.post("/api/files/fetch", &moved);
    assert_eq!((answer.status, &answer.json()["path"]), (201, &json!("sub/other.csv")));
    let got = here.call("fetch_file", &url("/"));
    assert_eq!(got["structuredContent"]["path"], "downloaded_file", "{got}");
    let before = listed(&server, "s")["total_count"].clone();
    for (target, status, words) in [
        ("/nowhere", 502, "status 404"),
        ("/inner", 403, "169.254.169.254"),
        ("/short", 502, "broken"),
        ("/large", 413, "larger than"),
    ] {
        let answer = server.post("/api/files/fetch", &url(target));
        let text = answer.refused(status);
        assert!(text.contains(words), "{target}: {text}");
        assert!(answer.json()["hint"].is_string());
    }
    assert_eq!(listed(&server, "s")["total_count"], before);
}

#[test]
fn nobody_reaches_through_us_what_only_we_can() {
    let here = here();
    for url in [
        "http://127.0.0.1/x",
        "http://localhost:8080/health",
        "http://[::1]/",
        "http://0x7f.1/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://metadata.google.internal/",
    ] {
        let text = here.refused("fetch_from_url", &json!({ "url": url }));
        assert!(text.contains("Hint: only public addresses can be fetched"), "{url}: {text}");
        let answer = here.post("/api/files/fetch", &json!({ "url": url }));
        answer.refused(403);
    }
    for url in ["file:///etc/passwd", "", "example.org/x", "http://user:pw@example.org/"] {
        here.post("/api/files/fetch", &json!({ "url": url })).refused(400);
    }
}

#[test]
fn a_key_keeps_as_much_as_its_quota_says() {
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
    assert_eq!(gone.status, 200);
    assert_eq!(up("two", 600_000).status, 201);
}

#[test]
fn another_key_finds_nothing() {
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
    // Who may only look, may not write.
    looks.post("/api/v1/sessions/s/files", &body).refused(403);
    looks.post("/api/v1/uploads", &begun).refused(403);
    looks.post("/api/files/fetch", &json!({ "url": "http://example.org" })).refused(403);
    looks.send("DELETE", &path("s", "a.txt"), &[], &Value::Null).answer(false).refused(403);
    assert_eq!(looks.get("/api/files").json()["total_count"], 0);
    let nobody = Client { server: &keyed.server, key: None };
    nobody.get(&path("s", "a.txt")).refused(401);
    nobody.get("/charts/s/a.txt").refused(401);
}
