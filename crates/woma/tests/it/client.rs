//! An MCP client for each transport: direct JSON-RPC, streamable HTTP of both eras, HTTP+SSE,
//! and standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::harness::{Answer, BASE, Connection, EVERYTHING, Server, environment};

const VERSION: &str = "2026-07-28";
const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");

/// A server with enough kernels for all MCP tests at once, so that no session is evicted.
pub(crate) fn roomy() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start_with(&[], &[("MAX_KERNELS", "200"), EVERYTHING]))
}

/// A client of a server whose replies have every field.
pub(crate) fn full() -> Client<'static> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let start = || Server::start_with(&[], &[("MAX_KERNELS", "50"), ("REPLY", "full")]);
    client(SERVER.get_or_init(start))
}

/// A client with this key, or without one.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) server: &'a Server,
    pub(crate) key: Option<&'a str>,
}

pub(crate) fn client(server: &Server) -> Client<'_> {
    Client { server, key: None }
}

/// A client of [`roomy`].
pub(crate) fn here() -> Client<'static> {
    client(roomy())
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn initialize(version: &str) -> Value {
    let who = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": who });
    request(1, "initialize", &params)
}

pub(crate) fn initialized() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}

impl Client<'_> {
    fn authorization(&self) -> Vec<(String, String)> {
        let bearer = |key| ("Authorization".to_owned(), format!("Bearer {key}"));
        self.key.map(bearer).into_iter().collect()
    }

    /// A request of this client, with these headers too.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> Connection {
        let own = self.authorization();
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = own.chain(more.iter().copied()).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = self.server.connect();
        connection.send(method, path, &headers, body.as_bytes());
        connection
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], &Value::Null).answer(false)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], body).answer(false)
    }

    /// Direct JSON-RPC: the whole answer.
    pub(crate) fn rpc(&self, method: &str, params: &Value) -> Value {
        let answer = self.post("/", &request(1, method, params));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The result of a method that must have one.
    pub(crate) fn result(&self, method: &str, params: &Value) -> Value {
        let mut answer = self.rpc(method, params);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].take()
    }

    /// The result of a tool, which may be an error of the tool.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.result("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Error text of a call that must be rejected.
    pub(crate) fn refused(&self, tool: &str, arguments: &Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert!(result.get("structuredContent").is_none(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Runs code and returns the reply.
    pub(crate) fn run(&self, arguments: &Value) -> Value {
        let mut result = self.call("execute_code", arguments);
        let reply = result["structuredContent"].take();
        assert!(reply.is_object(), "{result}");
        assert_eq!(result["isError"], !reply["success"].as_bool().unwrap(), "{reply}");
        reply
    }

    pub(crate) fn code(&self, session: &str, code: &str) -> Value {
        self.run(&json!({ "code": code, "session_id": session }))
    }

    /// Sends a request of 2026-07-28; the caller reads the answer.
    pub(crate) fn modern(&self, method: &str, params: &Value, meta: &Value) -> Connection {
        let name =
            ["name", "uri", "taskId"].into_iter().find_map(|field| params.get(field)?.as_str());
        let headers = modern_headers(method, name);
        self.send("POST", "/mcp", &headers, &modern_request(method, params, meta))
    }

    /// Opens a session of the older kind and returns its id.
    pub(crate) fn open(&self, version: &str) -> String {
        let answer = self.send("POST", "/mcp", &[BOTH], &initialize(version)).answer(false);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.get("mcp-session-id").unwrap().to_owned();
        assert_eq!(message(&answer)["result"]["protocolVersion"], version);
        assert_eq!(self.legacy(&id, &initialized()).answer(false).status, 202);
        id
    }

    /// Sends a message within a session; the caller reads the answer.
    pub(crate) fn legacy(&self, id: &str, message: &Value) -> Connection {
        let headers = [BOTH, ("Content-Type", "application/json"), ("Mcp-Session-Id", id)];
        self.send("POST", "/mcp", &headers, message)
    }

    /// Opens a stream of events; returns it and where to post.
    pub(crate) fn stream(&self, path: &str) -> (Events, String) {
        let mut events = Events::new(self.send("GET", path, &[], &Value::Null));
        let (kind, address) = events.next_event().unwrap();
        assert_eq!(kind, "endpoint");
        (events, address)
    }
}

/// The headers of a request of 2026-07-28.
pub(crate) fn modern_headers<'a>(
    method: &'a str,
    name: Option<&'a str>,
) -> Vec<(&'static str, &'a str)> {
    let mut headers = vec![BOTH, ("Content-Type", "application/json")];
    headers.extend([("Mcp-Protocol-Version", VERSION), ("Mcp-Method", method)]);
    headers.extend(name.map(|name| ("Mcp-Name", name)));
    headers
}

/// The body of one.
pub(crate) fn modern_request(method: &str, params: &Value, meta: &Value) -> Value {
    let mut params = params.as_object().cloned().unwrap_or_default();
    params.insert("_meta".to_owned(), modern_meta(meta));
    request(1, method, &Value::Object(params))
}

fn modern_meta(more: &Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    let fields: &mut Map<String, Value> = meta.as_object_mut().unwrap();
    fields.extend(more.as_object().cloned().unwrap_or_default());
    meta
}

/// The answer in a response: its body, or the last message of a stream.
pub(crate) fn message(answer: &Answer) -> Value {
    let is_stream = answer.get("content-type").is_some_and(|kind| kind.contains("event-stream"));
    if !is_stream {
        return answer.json();
    }
    let data = answer.text().lines().filter_map(|line| line.strip_prefix("data:"));
    let mut objects = data.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    objects.rfind(|object| object.get("id").is_some()).unwrap()
}

/// Expected output of a counting program, one number a line.
pub(crate) fn numbers(count: u32) -> String {
    (0..count).fold(String::new(), |text, n| text + &n.to_string() + "\n")
}

/// The events of a response, one by one.
pub(crate) struct Events {
    connection: Connection,
    text: String,
}

impl Events {
    pub(crate) fn new(mut connection: Connection) -> Self {
        let head = connection.head().unwrap();
        assert_eq!(head.status, 200, "{head:?}");
        assert!(head.get("content-type").unwrap().starts_with("text/event-stream"), "{head:?}");
        Self { connection, text: String::new() }
    }

    /// The kind and the data of the next event that has data; `None` at the end.
    pub(crate) fn next_event(&mut self) -> Option<(String, String)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let value = event.lines().find_map(|line| line.strip_prefix(name));
                    value.map(|value| value.trim().to_owned()).unwrap_or_default()
                };
                let found = (field("event:"), field("data:"));
                self.text = rest.to_owned();
                if !found.1.is_empty() {
                    return Some(found);
                }
            }
            let chunk = self.connection.chunk().unwrap()?;
            self.text.push_str(str::from_utf8(&chunk).unwrap());
        }
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        let (_, data) = self.next_event()?;
        Some(serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}")))
    }
}

/// A server that speaks on its standard input and output.
pub(crate) struct Spoken {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Working directory of the server, removed with it.
    _folder: tempfile::TempDir,
}

impl Spoken {
    pub(crate) fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_woma"));
        if !arguments.contains(&"--data-dir") {
            command.arg("--data-dir").arg(folder.path());
        }
        let mut child = command
            .arg("--env")
            .arg(environment())
            .args(arguments)
            .envs([BASE])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The receiver is dropped: the test is over.
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, lines, _folder: folder }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next line, which must be a message of JSON-RPC.
    pub(crate) fn next(&self) -> Value {
        let line = self.lines.recv_timeout(Duration::from_secs(60)).unwrap();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    pub(crate) fn begin(&mut self) {
        self.send(&initialize("2025-06-18"));
        assert!(self.next()["result"]["capabilities"].is_object());
        self.send(&initialized());
    }

    /// Closes standard input, like a client that disconnects.
    pub(crate) fn hang_up(&mut self) {
        drop(self.stdin.take());
    }

    /// The rest of the output, after the process has ended.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }
}

impl Drop for Spoken {
    fn drop(&mut self) {
        self.hang_up();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
