//! Uploads: forms, JSON, in parts, too large, interrupted, and from URLs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::json;

use crate::client::{client, here};
use crate::files::{base64, listed, names, path, put};
use crate::harness::{Server, shared, unique};

#[test]
fn uploads_files_by_form_and_json() {
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
        ("name=\"filename\"", "c.txt"),
        ("name=\"folder\"", "data"),
    ]);
    let answer = shared().request("POST", &here, &kind, two.as_bytes()).json();
    assert_eq!(answer["files"].as_array().unwrap().len(), 2, "{answer}");
    let notes = json!([
        "the field `folder` is not known and was ignored",
        "the name was ignored: the form has several files, which have their own",
    ]);
    assert_eq!(answer["warnings"], notes);
    let body = json!({ "filename": "d.bin", "content_base64": base64(&[0, 255]), "mode": 7 });
    let answer = shared().post(&here, &body);
    assert_eq!((answer.status, &answer.json()["preview"]), (201, &json!("[Binary file: .bin]")));
    let notes = json!(["the argument `mode` is not known and was ignored"]);
    assert_eq!(answer.json()["warnings"], notes);
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
fn accepts_a_file_as_large_as_the_limit() {
    let server = Server::start_with(&[], &[("SANDBOX_FILE_MAX_MB", "1")]);
    let full = vec![b'x'; 1 << 20];
    assert_eq!(put(&server, "s", "full.txt", &full).status, 201);
    let more = [&full[..], b"x"].concat();
    put(&server, "s", "more.txt", &more).refused(413);
    // The same without a length.
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
    // A file that code makes stays, and is reported without an address.
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
fn an_aborted_upload_leaves_nothing() {
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
fn an_upload_in_parts_resumes() {
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
            // A client that rejects a large reply has disconnected by then.
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap_or_default();
        }
    });
    format!("http://{address}")
}

#[test]
fn downloads_files_from_a_url() {
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
fn fetch_cannot_reach_private_addresses() {
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
