//! `GET /`: a page for browsers, JSON for programs.

use std::process::Command;

use serde_json::Value;

use crate::auth::{KEY, Keyed};
use crate::harness::{Answer, Server, shared};

const BROWSER: (&str, &str) =
    ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");

fn page(server: &Server) -> Answer {
    let answer = server.request("GET", "/", &[BROWSER], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.get("content-type"), Some("text/html; charset=utf-8"));
    answer
}

/// The text of a snippet, as a browser shows it.
fn snippet(page: &Answer, id: &str) -> String {
    let (_, rest) = page.text().split_once(&format!("<pre id=\"{id}\" tabindex=\"0\">")).unwrap();
    let (text, _) = rest.split_once("</pre>").unwrap();
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#123;", "{"),
        ("&amp;", "&"),
    ];
    entities.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

/// Runs the snippet for a shell.
fn run(command: &str) -> Value {
    let output =
        Command::new("/bin/sh").args(["-c", command]).env("NO_PROXY", "*").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {command}: {text}"))
}

#[test]
fn browsers_see_a_page_and_programs_see_json() {
    let browser = page(shared());
    assert!(browser.text().contains("No key is needed."), "{}", browser.text());
    assert!(browser.text().contains(concat!("version ", env!("CARGO_PKG_VERSION"))));
    assert!(browser.text().contains("running</span>"), "{}", browser.text());
    for headers in [&[][..], &[("Accept", "*/*")], &[("Accept", "application/json, text/html")]] {
        let answer = shared().request("GET", "/", headers, b"");
        assert_eq!(answer.json()["service"], "woma", "{headers:?}");
        assert_eq!(answer.get("vary"), browser.get("vary"));
    }
    assert!(browser.get("vary").unwrap().contains("Accept"));
    let head = shared().request("HEAD", "/", &[BROWSER], b"");
    assert_eq!((head.status, head.get("content-type")), (200, browser.get("content-type")));
}

#[test]
fn the_page_loads_nothing_and_runs_only_its_own_script() {
    let answer = page(shared());
    let policy = answer.get("content-security-policy").unwrap();
    let (_, rest) = policy.split_once("script-src 'nonce-").unwrap();
    let nonce = rest.split('\'').next().unwrap();
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    let text = answer.text();
    assert_eq!(text.matches("<script").count(), 1, "{text}");
    assert!(text.contains(&format!("<script nonce=\"{nonce}\">")), "{text}");
    assert!(!text.contains("{{"), "{text}");
    for outside in ["src=", "<link", "@import", "url(", " style=", " onclick", "fetch("] {
        assert!(!text.contains(outside), "{outside}: {text}");
    }
    let other = page(shared());
    assert_ne!(other.get("content-security-policy"), Some(policy), "a nonce is used once");
    // Every link is a route of this server that needs no key.
    for part in text.split("href=\"").skip(1) {
        let path = part.split('"').next().unwrap();
        assert_eq!(shared().get(&format!("/{path}")).status, 200, "{path}");
    }
}

#[test]
fn snippets_are_for_this_server() {
    let server = Server::start_with(&[], &[("PUBLIC_BASE_URL", "https://woma.example/lab/")]);
    let named = page(&server);
    let here = page(shared());
    // The harness sends `Host: localhost`.
    for (page, base) in [(&named, "https://woma.example/lab"), (&here, "http://localhost")] {
        for (id, list, address, path) in [
            ("cursor", "mcpServers", "url", "/mcp"),
            ("vscode", "servers", "url", "/mcp"),
            ("gemini", "mcpServers", "httpUrl", "/mcp"),
            ("sse", "mcpServers", "url", "/sse"),
        ] {
            let snippet: Value = serde_json::from_str(&snippet(page, id)).unwrap();
            assert_eq!(snippet[list]["woma"][address], format!("{base}{path}"), "{snippet}");
        }
        let own: Value = serde_json::from_str(&snippet(page, "stdio")).unwrap();
        assert_eq!(own["mcpServers"]["woma"]["command"], "woma");
        let claude = snippet(page, "claude-code");
        assert_eq!(claude, format!("claude mcp add --transport http woma {base}/mcp"));
    }
    let address = format!("http://{}", shared().address);
    let command = snippet(&here, "curl").replace("http://localhost", &address);
    assert_eq!(run(&command)["stdout"], "42\n");
}

#[test]
fn a_server_with_keys_shows_the_page_and_nothing_else() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    let answer = page(&keyed.server);
    let text = answer.text();
    assert!(text.contains("A key is needed") && !text.contains(KEY), "{text}");
    for private in [keyed.folder().to_str().unwrap(), "python3", "kernels", "sessions\":"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
    let snippet_text = snippet(&answer, "cursor");
    let cursor: Value = serde_json::from_str(&snippet_text).unwrap();
    let headers = &cursor["mcpServers"]["woma"]["headers"];
    assert_eq!(headers["Authorization"], "Bearer YOUR_KEY", "{snippet_text}");
    let address = format!("http://{}", keyed.server.address);
    let command = snippet(&answer, "curl").replace("http://localhost", &address);
    assert_eq!(run(&command)["code"], "unauthenticated");
    assert_eq!(run(&command.replace("YOUR_KEY", KEY))["stdout"], "42\n");
    // `Accept` opens nothing but the page.
    for (method, path) in
        [("POST", "/"), ("GET", "/api/v1/sessions"), ("GET", "/metrics"), ("GET", "//")]
    {
        let answer = keyed.server.request(method, path, &[BROWSER], b"{}");
        assert_eq!(answer.status, 401, "{method} {path}");
    }
    assert_eq!(keyed.server.get("/").status, 401);
    let mut connection = keyed.server.connect();
    let hostile = "GET / HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\n\r\n";
    connection.write(hostile.as_bytes()).unwrap();
    assert!(!connection.answer(false).text().contains("<html"));
}
