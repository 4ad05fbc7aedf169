//! Downloads by capability URL: valid until expiry, and inert in browsers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::client::{Client, client};
use crate::harness::{Server, shared, unique, until};

const KEY: &str = "a-key-that-nobody-guesses-0123456789";

/// The path of the first address in a reply.
fn address(reply: &Value) -> String {
    // Over REST, and over MCP.
    let url = reply["download_urls"][0]["url"].as_str().or(reply["files"][0]["url"].as_str());
    let url = url.unwrap_or_else(|| panic!("{reply}"));
    format!("/dl/{}", url.split_once("/dl/").unwrap().1)
}

fn made(server: &Server, session: &str, name: &str, content: &str) -> String {
    let code = format!("open({name:?}, 'w').write({content:?})");
    address(&server.code(session, &code))
}

#[test]
fn downloads_a_file_by_its_address_without_a_key() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let owner = keyed.client(KEY);
    let target = address(&owner.code("s", "open('größe 1.csv', 'w').write('a,b')"));
    assert!(target.ends_with("/gr%C3%B6%C3%9Fe%201.csv"), "{target}");
    let nobody = &keyed.server;
    let answer = nobody.get(&target);
    assert_eq!((answer.status, answer.text()), (200, "a,b"));
    for (name, value) in [
        ("content-type", "text/csv; charset=utf-8"),
        (
            "content-disposition",
            "attachment; filename=\"gr__e 1.csv\"; filename*=UTF-8''gr%C3%B6%C3%9Fe%201.csv",
        ),
        ("cache-control", "private, max-age=3600"),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "bytes"),
        ("content-length", "3"),
        ("access-control-allow-origin", "*"),
    ] {
        assert_eq!(answer.get(name), Some(value), "{name}");
    }
    let id = target.split('/').nth(2).unwrap();
    assert_eq!(nobody.get(&format!("/dl/{id}")).text(), "a,b");
    assert_eq!(nobody.get(&format!("/dl/{id}/another-name")).text(), "a,b");
    let head = nobody.request("HEAD", &target, &[], b"");
    assert_eq!((head.status, head.get("content-length"), head.body.len()), (200, Some("3"), 0));
    let page = [("Origin", "https://elsewhere.example")];
    assert_eq!(nobody.request("GET", &target, &page, b"").status, 200);
    let options = nobody.request("OPTIONS", &target, &page, b"");
    assert_eq!((options.status, options.get("access-control-allow-origin")), (204, Some("*")));
    // On other routes, pages of other origins are rejected.
    nobody.request("GET", "/health", &page, b"").refused(403);
    let host = [("Host", "rebound.example")];
    assert!(nobody.request("GET", &target, &host, b"").status >= 400);
    for (bad, status) in [
        ("/dl/not-an-id/x", 400),
        ("/dl/00000000-0000-4000-8000-000000000000/x", 404),
        ("/dl/00000000-0000-4000-8000-000000000000", 404),
    ] {
        nobody.get(bad).refused(status);
        nobody.request("GET", bad, &[("X-API-Key", KEY)], b"").refused(status);
    }
    nobody.request("POST", &target, &[("X-API-Key", KEY)], b"").refused(405);
    // An ambiguous path needs a key.
    nobody.get(&format!("/dl/{id}/..%2f..%2fmetrics")).refused(401);
}

#[test]
fn serves_ranges_of_a_file() {
    let target = made(shared(), &unique("ranges"), "digits.txt", "0123456789");
    let get = |range: &str| shared().request("GET", &target, &[("Range", range)], b"");
    for (range, text, told) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=4-400", "456789", "bytes 4-9/10"),
    ] {
        let answer = get(range);
        assert_eq!((answer.status, answer.text()), (206, text), "{range}");
        assert_eq!(answer.get("content-range"), Some(told));
    }
    let beyond = get("bytes=10-");
    beyond.refused(416);
    assert_eq!(beyond.get("content-range"), Some("bytes */10"));
    for whole in ["bytes=0-1,3-4", "bytes=x", "lines=1-2"] {
        let answer = get(whole);
        assert_eq!((answer.status, answer.text()), (200, "0123456789"), "{whole}");
    }
    let etag = shared().get(&target).get("etag").unwrap().to_owned();
    let sha = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";
    assert_eq!(etag, format!("\"{sha}\""), "it is the digest");
    let ask = |headers: &[(&str, &str)]| shared().request("GET", &target, headers, b"").status;
    assert_eq!(ask(&[("If-None-Match", "\"other\"")]), 200);
    assert_eq!(ask(&[("Range", "bytes=0-1"), ("If-Range", &etag)]), 206);
    assert_eq!(ask(&[("Range", "bytes=0-1"), ("If-Range", "\"other\"")]), 200);
    let mut connection = shared().connect();
    connection.send("GET", &target, &[("If-None-Match", &etag)], b"");
    assert_eq!(connection.head().unwrap().status, 304);
}

#[test]
fn downloads_do_not_run_in_the_servers_origin() {
    let session = unique("inert");
    for (name, kind) in [
        ("page.html", "text/html; charset=utf-8"),
        ("drawing.svg", "image/svg+xml"),
        ("data.json", "application/json"),
    ] {
        let target = made(shared(), &session, name, "<script>alert(1)</script>");
        let chart = format!("/charts/{session}/{name}");
        let own = format!("/api/v1/sessions/{session}/files/{name}");
        for (target, how) in [(target, "attachment"), (chart, "inline"), (own, "attachment")] {
            let answer = shared().get(&target);
            assert_eq!((answer.status, answer.get("content-type")), (200, Some(kind)), "{target}");
            let policy = answer.get("content-security-policy").unwrap();
            assert!(policy.starts_with("sandbox; default-src 'none'"), "{policy}");
            assert!(!policy.contains("allow-scripts"), "{policy}");
            assert_eq!(answer.get("x-content-type-options"), Some("nosniff"));
            let disposition = answer.get("content-disposition").unwrap();
            assert!(disposition.starts_with(how), "{target}: {disposition}");
        }
    }
}

#[test]
fn serves_the_latest_chart_of_a_name() {
    let session = unique("charts");
    let code = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('c.png')\nplt.close()";
    shared().code(&session, code);
    let first = shared().get(&format!("/charts/{session}/c.png"));
    assert_eq!((first.status, first.get("content-type")), (200, Some("image/png")));
    shared().code(&session, "plt.plot([3, 1])\nplt.savefig('c.png')\nplt.close()");
    let second = shared().get(&format!("/charts/{session}/c.png"));
    assert!(second.body != first.body);
    // A picture that was shown and never saved has the name in the reply.
    let shown = shared().code(&session, "plt.plot([2, 1])\nplt.show()");
    let name = shown["inline_images"][0]["filename"].as_str().unwrap();
    let chart = shared().get(&format!("/charts/{session}/{name}"));
    assert_eq!((chart.status, chart.get("content-type")), (200, Some("image/png")));
    let url = shown["inline_images"][0]["url"].as_str().unwrap();
    let (_, path) = url.split_once("/dl/").unwrap();
    assert!(chart.body == shared().get(&format!("/dl/{path}")).body);
    let missing = shared().get(&format!("/charts/{session}/d.png"));
    missing.refused(404);
    assert!(missing.json()["hint"].as_str().unwrap().contains("savefig"));
    shared().get(&format!("/charts/{}/c.png", unique("nobody"))).refused(404);
}

#[test]
fn addresses_expire() {
    let server = Server::start_with(&[], &[("SANDBOX_FILE_TTL_HOURS", "1500ms")]);
    let target = made(&server, "s", "a.csv", "1");
    assert_eq!(server.get(&target).text(), "1");
    until("it has expired", || server.get(&target).status != 200);
    let gone = server.get(&target);
    gone.refused(410);
    assert_eq!(gone.json()["code"], "gone");
    assert_eq!(server.get("/api/v1/sessions/s/files/a.csv").text(), "1", "the file itself stays");
    let fetched =
        client(&server).call("fetch_file", &json!({ "path": "a.csv", "session_id": "s" }));
    let url = fetched["structuredContent"]["download_url"].as_str().unwrap();
    assert!(!url.contains(&target), "{url}");
    assert_eq!(server.get(&format!("/dl/{}", url.split_once("/dl/").unwrap().1)).text(), "1");
}

#[test]
fn addresses_and_files_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--data-dir", folder.path().to_str().unwrap()];
    let server = Server::start(&arguments);
    let target = made(&server, "s", "a.csv", "kept");
    server.request("PUT", "/api/v1/sessions/s/files/b.bin", &[], b"uploaded");
    drop(server);
    let server = Server::start(&arguments);
    assert_eq!(server.get(&target).text(), "kept");
    assert_eq!(server.get("/charts/s/a.csv").text(), "kept");
    let list = server.get("/api/v1/sessions/s/files").json();
    assert_eq!(list["total_count"], 2, "{list}");
    assert!(list["files"][0]["download_url"].is_string(), "{list}");
    assert_eq!(
        server.code("s", "open('a.csv').read() + open('b.bin').read()")["result"],
        "keptuploaded"
    );
}

#[test]
fn downloads_may_need_the_key_of_their_owner() {
    let keyed = Keyed::start(&[("API_KEY", KEY), ("PRIVATE_DOWNLOADS", "true")]);
    let bob = keyed.key("bob", &[]);
    let (owner, bob) = (keyed.client(KEY), keyed.client(&bob));
    until("the key is known", || bob.get("/api/v1/sessions").status == 200);
    let target = address(&owner.code("s", "open('a.csv', 'w').write('1')"));
    assert_eq!(owner.get(&target).text(), "1");
    bob.get(&target).refused(404);
    Client { server: &keyed.server, key: None }.get(&target).refused(401);
}

#[test]
fn serves_a_large_file_fast_and_complete() {
    let session = unique("large");
    let code = "import os\nopen('big.parquet', 'wb').write(os.urandom(1 << 20) * 45)";
    let target = address(&shared().code(&session, code));
    let started = Instant::now();
    let answer = shared().get(&target);
    assert_eq!((answer.status, answer.body.len()), (200, 45 << 20));
    assert!(answer.body[..1 << 20] == answer.body[44 << 20..]);
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
}

#[test]
fn a_file_beyond_the_limit_has_no_address() {
    let session = unique("beyond");
    let reply = shared().code(&session, "open('big.csv', 'wb').write(b'x' * (60 << 20))");
    assert_eq!(reply["files_created"], json!(["big.csv"]));
    assert_eq!(reply["download_urls"], json!([]));
    assert!(reply["warnings"].to_string().contains("60 MB, the limit is 50 MB"), "{reply}");
    let head = format!("/api/v1/sessions/{session}/files/big.csv");
    let head = shared().request("HEAD", &head, &[], b"");
    assert_eq!(head.get("content-length"), Some((60_u64 << 20).to_string().as_str()));
}

/// Names of the files with an address after a run that writes all kinds of files.
fn linked(server: &Server, session: &str) -> Vec<String> {
    let code = "import os\n\
        os.makedirs('__pycache__', exist_ok=True)\n\
        for name in ('a.docx', 'b.pptx', 'c.gif', 'd.mp4', 'e.ipynb', 'f.jsonl', 'g.py', 'h.db', 'i.npz',\n\
        \x20            'j.tar.gz', 'k', 'l.csv', '.hidden', '__pycache__/m.pyc'):\n\
        \x20   open(name, 'w').write(name)";
    let reply = server.code(session, code);
    assert_eq!(reply["success"], true, "{reply}");
    let urls = reply["download_urls"].as_array().unwrap();
    let mut names = Vec::new();
    for url in urls {
        let path = url["url"].as_str().unwrap();
        let answer = server.get(&format!("/{}", path.splitn(4, '/').last().unwrap()));
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.get("content-disposition").unwrap().starts_with("attachment"), "{path}");
        names.push(answer.text().to_owned());
    }
    names.sort();
    names
}

#[test]
fn every_kind_of_file_has_an_address() {
    let all = ["a.docx", "b.pptx", "c.gif", "d.mp4", "e.ipynb", "f.jsonl", "g.py", "h.db", "i.npz"];
    let more = ["j.tar.gz", "k", "l.csv"];
    assert_eq!(linked(shared(), &unique("kinds")), [all.as_slice(), &more].concat());
}

#[test]
fn a_list_of_extensions_limits_the_addresses() {
    let server = Server::start_with(&[], &[("LINKED_EXTENSIONS", ".CSV,docx")]);
    assert_eq!(linked(&server, "s"), ["a.docx", "l.csv"]);
}
