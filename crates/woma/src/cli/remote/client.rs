//! HTTP client of the commands: one request, one reply, no redirects, because a redirect could take
//! the key elsewhere.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::{AsSendBody, Body, SendBody};

use crate::config::remote::RemoteServer;
use crate::terminal::Waiting;

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time until a reply begins. The server answers every request of these commands within a minute.
const RESPONSE_MAX: Duration = Duration::from_secs(120);
/// Time for one read or write of a body.
const SILENCE_MAX: Duration = Duration::from_secs(3600);
const REPLY_BYTES_MAX: u64 = 256 * 1024 * 1024;
const PAGES_MAX: usize = 10_000;
const COPY_BYTES: usize = 64 * 1024;
/// Characters that stay as they are in a part of a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error("cannot reach {base_url}: {cause}")]
    Unreachable { base_url: String, cause: String },
    #[error("{base_url} refuses: {message}")]
    Refused { base_url: String, status: u16, message: String, hint: Option<String> },
    #[error("{base_url} is no woma server: its answer, with status {status}, is not understood")]
    NotWoma { base_url: String, status: u16 },
}

impl RemoteError {
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Refused { status: 401 | 403, hint: None, .. } => {
                Some("set WOMA_API_KEY or --key-file")
            }
            Self::Refused { status: 401, .. } => {
                Some("set WOMA_API_KEY, or name a file with the key by --key-file")
            }
            Self::Refused { hint, .. } => hint.as_deref(),
            Self::Unreachable { .. } => Some("check --url and WOMA_URL"),
            Self::NotWoma { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Client {
    agent: ureq::Agent,
    server: RemoteServer,
}

impl Client {
    pub(crate) fn new(server: RemoteServer) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_recv_response(Some(RESPONSE_MAX))
            .timeout_send_body(Some(SILENCE_MAX))
            .timeout_recv_body(Some(SILENCE_MAX))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("woma/", env!("CARGO_PKG_VERSION")));
        Self { agent: ureq::Agent::new_with_config(config.build()), server }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value, RemoteError> {
        self.exchange("GET", path, ()).map(|(_, value)| value)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, RemoteError> {
        self.exchange("POST", path, body.to_string()).map(|(_, value)| value)
    }

    /// The reply; null if it has none.
    pub(crate) fn delete(&self, path: &str) -> Result<Value, RemoteError> {
        self.exchange("DELETE", path, ()).map(|(_, value)| value)
    }

    /// All rows of a listing whose rows are in `field`, at most `limit` of them.
    pub(crate) fn rows(
        &self,
        path: &str,
        field: &str,
        limit: usize,
    ) -> Result<Vec<Value>, RemoteError> {
        let mut rows: Vec<Value> = Vec::new();
        let mut cursor = String::new();
        let sign = if path.contains('?') { '&' } else { '?' };
        for _ in 0..PAGES_MAX {
            let wanted = (limit - rows.len()).min(1000);
            let mut page = self.get(&format!("{path}{sign}limit={wanted}{cursor}"))?;
            match page[field].take() {
                Value::Array(more) => rows.extend(more),
                // Rows by their ids.
                Value::Object(more) => rows.extend(more.into_iter().map(|(_, row)| row)),
                _ => return Err(self.strange(200)),
            }
            match page["next"].as_str() {
                Some(next) if rows.len() < limit => cursor = format!("&cursor={}", encoded(next)),
                _ => break,
            }
        }
        Ok(rows)
    }

    /// Sends a file as the body, and tells how far it is if that takes long.
    pub(crate) fn upload(
        &self,
        path: &str,
        mut file: File,
        bytes: u64,
    ) -> Result<Value, RemoteError> {
        let sent = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&sent);
        let waiting =
            Waiting::start(move || moved("sent", told.load(Ordering::Relaxed), Some(bytes)));
        let mut counted = Counted { inner: &mut file, count: sent };
        let request = self.request("PUT", path).header("Content-Length", bytes.to_string());
        let reply = self.send(
            request.header("Content-Type", "application/octet-stream"),
            SendBody::from_reader(&mut counted),
        );
        drop(waiting);
        self.read(reply?).map(|(_, value)| value)
    }

    /// Copies the body of a reply; returns its length.
    pub(crate) fn download(&self, path: &str, to: &mut dyn Write) -> Result<u64, Box<dyn Error>> {
        let got = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&got);
        let waiting = Waiting::start(move || moved("received", told.load(Ordering::Relaxed), None));
        let mut reply = self.send(self.request("GET", path), ())?;
        if !reply.status().is_success() {
            self.read(reply)?;
            return Ok(0);
        }
        let mut body = reply.body_mut().as_reader();
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let count = body.read(&mut buffer).map_err(|error| self.broken(&error))?;
            if count == 0 {
                break;
            }
            to.write_all(buffer.get(..count).unwrap_or_default())?;
            got.fetch_add(count as u64, Ordering::Relaxed);
        }
        to.flush()?;
        drop(waiting);
        Ok(got.load(Ordering::Relaxed))
    }

    /// Status and body of a request.
    pub(crate) fn exchange(
        &self,
        method: &str,
        path: &str,
        body: impl AsSendBody,
    ) -> Result<(u16, Value), RemoteError> {
        let waiting = Waiting::start(|| "waiting for the server".to_owned());
        let request = self.request(method, path).header("Content-Type", "application/json");
        let reply = self.send(request, body)?;
        let read = self.read(reply);
        drop(waiting);
        read
    }

    fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        let url = format!("{}{path}", self.server.base_url);
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("Accept", "application/json, */*;q=0.1");
        match &self.server.key {
            Some(key) => request.header("Authorization", format!("Bearer {}", key.expose())),
            None => request,
        }
    }

    fn send(
        &self,
        request: ureq::http::request::Builder,
        body: impl AsSendBody,
    ) -> Result<Response<Body>, RemoteError> {
        let request = request.body(body).map_err(|error| self.broken(&error))?;
        self.agent.run(request).map_err(|error| self.broken(&error))
    }

    fn read(&self, mut reply: Response<Body>) -> Result<(u16, Value), RemoteError> {
        let status = reply.status().as_u16();
        let body = reply.body_mut().with_config().limit(REPLY_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| self.broken(&error))?;
        let base_url = self.server.base_url.clone();
        let value = match body.is_empty() {
            true => Some(Value::Null),
            false => serde_json::from_slice::<Value>(&body).ok(),
        };
        match value {
            Some(value) if (200..300).contains(&status) => Ok((status, value)),
            Some(value) if value["message"].is_string() => Err(RemoteError::Refused {
                base_url,
                status,
                message: value["message"].as_str().unwrap_or_default().to_owned(),
                hint: value["hint"].as_str().map(str::to_owned),
            }),
            _ => Err(self.strange(status)),
        }
    }

    fn strange(&self, status: u16) -> RemoteError {
        RemoteError::NotWoma { base_url: self.server.base_url.clone(), status }
    }

    fn broken(&self, error: &dyn Error) -> RemoteError {
        RemoteError::Unreachable {
            base_url: self.server.base_url.clone(),
            cause: error.to_string(),
        }
    }
}

/// Text as one part of a path, or a value in a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// A path whose parts are encoded one by one.
pub(super) fn encoded_path(path: &str) -> String {
    path.split('/').map(encoded).collect::<Vec<_>>().join("/")
}

fn moved(verb: &str, bytes: u64, of: Option<u64>) -> String {
    const MEGABYTE: f64 = 1e6;
    #[expect(clippy::cast_precision_loss, reason = "it is shown with one digit")]
    let megabytes = |bytes: u64| bytes as f64 / MEGABYTE;
    match of {
        Some(of) => format!("{verb} {:.1} of {:.1} MB", megabytes(bytes), megabytes(of)),
        None => format!("{verb} {:.1} MB", megabytes(bytes)),
    }
}

/// Reader that counts.
struct Counted<'a> {
    inner: &'a mut File,
    count: Arc<AtomicU64>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::{encoded, encoded_path, moved};

    #[test]
    fn parts_of_a_path_are_encoded() {
        assert_eq!(encoded("a/b ?#%ä"), "a%2Fb%20%3F%23%25%C3%A4");
        assert_eq!(encoded_path("out/my file.csv"), "out/my%20file.csv");
        assert_eq!(moved("sent", 1_500_000, Some(3_000_000)), "sent 1.5 of 3.0 MB");
    }
}
