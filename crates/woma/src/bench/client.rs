//! Minimal HTTP/1.1 client: one connection, one request at a time. Its own cost is in every figure,
//! so it is only a buffer and a socket.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Fallible;

/// Time limit from a request to the end of its reply.
const EXCHANGE_MAX: Duration = Duration::from_secs(15);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Size limit of a reply, head and body.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Read size for a reply that is discarded.
const FETCH_BYTES: usize = 256 * 1024;
const REVISION: &str = "2026-07-28";

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// The reply being read.
    read: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Fallible<Self> {
        let stream = timeout(CONNECT_MAX, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Sends bytes and waits for no reply.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Fallible<()> {
        let sent = timeout(EXCHANGE_MAX, self.stream.write_all(bytes)).await;
        Ok(sent.map_err(|_| format!("nothing was read within {EXCHANGE_MAX:?}"))??)
    }

    /// Sends a request and returns its whole reply.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> Fallible<Answer> {
        let answered = timeout(EXCHANGE_MAX, async {
            self.stream.write_all(request).await?;
            self.answer().await
        });
        answered.await.map_err(|_| format!("no reply within {EXCHANGE_MAX:?}"))?
    }

    /// Sends a request and discards the reply's body; returns its status and length.
    pub(super) async fn fetch(&mut self, request: &[u8]) -> Fallible<(u16, usize)> {
        let fetched = timeout(EXCHANGE_MAX, async {
            self.stream.write_all(request).await?;
            let (status, length, head_end) = self.head().await?;
            let mut left = (head_end + length).saturating_sub(self.read.len());
            self.read.resize(FETCH_BYTES, 0);
            while left > 0 {
                let most = left.min(FETCH_BYTES);
                let piece = self.read.get_mut(..most).unwrap_or_default();
                match self.stream.read(piece).await? {
                    0 => return Err("the server closed the connection".into()),
                    bytes => left -= bytes,
                }
            }
            Ok((status, length))
        });
        fetched.await.map_err(|_| format!("no reply within {EXCHANGE_MAX:?}"))?
    }

    /// Status, length of the body, and its offset.
    async fn head(&mut self) -> Fallible<(u16, usize, usize)> {
        self.read.clear();
        let head_end = loop {
            self.more().await?;
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = std::str::from_utf8(self.read.get(..head_end).unwrap_or_default())?;
        let (status, length) = parse_head(head)?;
        Ok((status, length, head_end))
    }

    async fn answer(&mut self) -> Fallible<Answer> {
        let (status, length, head_end) = self.head().await?;
        while self.read.len() < head_end + length {
            self.more().await?;
        }
        Ok(Answer { status, body: self.read.split_off(head_end) })
    }

    async fn more(&mut self) -> Fallible<()> {
        self.read.reserve(16 * 1024);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the server closed the connection".into()),
            _ if self.read.len() > ANSWER_BYTES_MAX => Err("the reply is too large".into()),
            _ => Ok(()),
        }
    }
}

/// Status and body length from the head of a reply.
fn parse_head(head: &str) -> Fallible<(u16, usize)> {
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status")?;
    let mut length = None;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    let length = length.ok_or("the reply has no length")?;
    Ok((status.parse()?, length))
}

pub(super) fn get(server: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n\r\n").into_bytes()
}

/// A request with a body of JSON; `headers` are whole lines.
pub(super) fn post(server: SocketAddr, path: &str, headers: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/json\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A stateless tool call.
pub(super) fn tool_call(server: SocketAddr, tool: &str, arguments: &Value) -> Vec<u8> {
    let headers = format!(
        "Accept: application/json, text/event-stream\r\nMcp-Protocol-Version: {REVISION}\r\n\
         Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
    );
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "woma-bench", "version": "0"},
        }},
    });
    post(server, "/mcp", &headers, &body)
}

/// `execute_code(print(1))` in this session.
pub(super) fn print_one(server: SocketAddr, session: &str) -> Vec<u8> {
    tool_call(server, "execute_code", &json!({"code": "print(1)", "session_id": session}))
}

/// Fields of a reply that the rows need, from REST or MCP.
#[derive(Debug, Deserialize)]
pub(super) struct Reply {
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    session_created: bool,
    #[serde(default)]
    session_restarted: bool,
    session_restored: Option<Restored>,
    /// Over MCP the files of a lean reply.
    #[serde(default, alias = "files")]
    download_urls: Vec<Download>,
}

#[derive(Debug, Deserialize)]
struct Restored {
    restored: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Download {
    /// Empty if the file has no address.
    #[serde(default)]
    url: String,
    #[serde(default)]
    size: usize,
}

#[derive(Debug, Deserialize)]
struct RpcReply {
    result: RpcResult,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RpcResult {
    structured_content: Reply,
}

impl Reply {
    pub(super) fn of_rpc(body: &[u8]) -> Fallible<Self> {
        let parsed = serde_json::from_slice::<RpcReply>(body);
        Ok(parsed.map_err(|error| unexpected(&error, body))?.result.structured_content)
    }

    pub(super) fn of_rest(body: &[u8]) -> Fallible<Self> {
        Ok(serde_json::from_slice(body).map_err(|error| unexpected(&error, body))?)
    }

    pub(super) fn printed_one(&self) -> Fallible<()> {
        match self.stdout.as_str() {
            "1\n" => Ok(()),
            other => Err(format!("print(1) printed {other:?}").into()),
        }
    }

    /// Restored variables.
    pub(super) fn restored(&self) -> &[String] {
        self.session_restored.as_ref().map_or(&[], |restored| &restored.restored)
    }

    /// URL and size of the file that the run created.
    pub(super) fn download(&self) -> Option<(&str, usize)> {
        let file = self.download_urls.iter().find(|file| !file.url.is_empty());
        file.map(|file| (file.url.as_str(), file.size))
    }

    /// Whether the session existed and kept its state.
    pub(super) fn went_on(&self) -> bool {
        !self.session_created && !self.session_restarted
    }
}

fn unexpected(error: &serde_json::Error, body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).chars().take(300).collect();
    format!("unexpected reply ({error}): {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_head_of_a_reply() {
        let head = "HTTP/1.1 404 Not Found\r\ncontent-LENGTH: 12\r\n\r\n";
        assert_eq!(parse_head(head).unwrap(), (404, 12));
        assert!(parse_head("HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(parse_head("\r\n\r\n").is_err());
    }

    #[test]
    fn headers_of_a_call_match_its_body() {
        let text = String::from_utf8(print_one(([127, 0, 0, 1], 8080).into(), "s")).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Host: 127.0.0.1:8080\r\n"), "{head}");
        assert!(head.contains("Mcp-Name: execute_code"), "{head}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(body.contains(r#""session_id":"s""#), "{body}");
    }

    #[test]
    fn an_error_is_not_a_reply() {
        let error = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no room"}}"#;
        assert!(Reply::of_rpc(error).unwrap_err().to_string().contains("no room"));
        let reply = br#"{"result":{"structuredContent":{"stdout":"2\n","session_created":true}}}"#;
        let reply = Reply::of_rpc(reply).unwrap();
        assert!(reply.printed_one().is_err() && !reply.went_on());
        let reply = br#"{"result":{"structuredContent":{"files":[{"url":"u","size":3}]}}}"#;
        assert_eq!(Reply::of_rpc(reply).unwrap().download(), Some(("u", 3)));
    }
}
