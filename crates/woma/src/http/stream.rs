//! A run as it happens: lines of JSON, or the same as server-sent events. The body of the response
//! owns the run: a client that goes away drops it, and that stops the code.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};
use woma_core::{Execution, Happening, Role, Running, Shown, Stream};

use super::fit;
use crate::doors::Doors;
use crate::error::Envelope;
use crate::wire::{Reply, extension};

/// Silence longer than this is broken, where the form has something to break it with.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a run is watched for a failure before its response begins: until then, such a failure
/// still has a status of its own.
const PEEK: Duration = Duration::from_millis(50);
/// How long the end of a line that has begun is waited for.
const LINE_END: Duration = Duration::from_millis(100);
/// Pieces of text that wait together are one line, up to about this size.
const TEXT_BYTES: usize = 64 * 1024;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `is_full` adds what clients of the older system do not know: heartbeats, notes, the whole reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    Lines { is_full: bool },
    Events { is_full: bool },
}

impl Framing {
    fn is_full(self) -> bool {
        match self {
            Self::Lines { is_full } | Self::Events { is_full } => is_full,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Lines { .. } => "application/x-ndjson; charset=utf-8",
            Self::Events { .. } => "text/event-stream; charset=utf-8",
        }
    }

    /// One object with its kind as its first key.
    fn frame(self, kind: &str, object: &Value) -> String {
        match self {
            Self::Lines { .. } => format!("{object}\n"),
            // JSON has no newline of its own, so that one line of data is enough.
            Self::Events { .. } => format!("event: {kind}\ndata: {object}\n\n"),
        }
    }
}

struct Follower {
    doors: Doors,
    running: Running,
    framing: Framing,
    /// False: what is printed is not shown.
    captures: bool,
    warnings: Vec<String>,
    held: Option<Happening>,
    has_ended: bool,
    heartbeat: Interval,
    started: Instant,
}

/// The response to a run that was admitted; its body goes on until the run has ended.
pub(crate) async fn respond(
    doors: Doors,
    running: Running,
    framing: Framing,
    captures: bool,
    warnings: Vec<String>,
) -> Result<Response, Envelope> {
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let started = Instant::now();
    let (held, has_ended) = (None, false);
    let mut follower = Follower {
        doors,
        running,
        framing,
        captures,
        warnings,
        held,
        has_ended,
        heartbeat,
        started,
    };
    let mut end = None;
    match tokio::time::timeout(PEEK, follower.running.next()).await {
        Ok(Some(happening)) => follower.held = Some(happening),
        Ok(None) => {
            follower.has_ended = true;
            end = Some(follower.running.finish().await?);
        }
        Err(_) => {}
    }
    let end = end.map(|execution| follower.ending(Ok(execution)));
    let frames = futures_util::stream::unfold((follower, end), |(mut follower, end)| async move {
        let frames = match end {
            Some(frames) => frames,
            None => follower.next().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(frames)), (follower, None)))
    });
    let mut response = Response::new(Body::from_stream(Box::pin(frames) as Pin<Box<_>>));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(framing.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

impl Follower {
    /// What to send next; `None` after the end.
    async fn next(&mut self) -> Option<String> {
        while !self.has_ended {
            let happening = match self.held.take() {
                Some(happening) => Some(happening),
                None => tokio::select! {
                    biased;
                    happening = self.running.next() => happening,
                    _ = self.heartbeat.tick() => match self.heartbeat_frame() {
                        Some(frame) => return Some(frame),
                        None => continue,
                    },
                },
            };
            let frames = match happening {
                Some(Happening::Text { stream, text }) => self.text(stream, text).await,
                Some(Happening::Shown(shown)) => self.shown(&shown),
                Some(Happening::Note(note)) if self.framing.is_full() => {
                    self.framing.frame("note", &json!({ "note": note }))
                }
                Some(Happening::Note(_)) => String::new(),
                None => {
                    self.has_ended = true;
                    let end = self.running.finish().await.map_err(Envelope::from);
                    self.ending(end)
                }
            };
            if !frames.is_empty() {
                self.heartbeat.reset();
                return Some(frames);
            }
        }
        None
    }

    fn heartbeat_frame(&self) -> Option<String> {
        match self.framing {
            Framing::Events { .. } => Some(": keep-alive\n\n".to_owned()),
            Framing::Lines { is_full: true } => {
                let seconds = crate::wire::round(self.started.elapsed().as_secs_f64());
                Some(self.framing.frame("heartbeat", &json!({ "heartbeat": seconds })))
            }
            Framing::Lines { is_full: false } => None,
        }
    }

    /// A piece of text, with those of the same stream that have come meanwhile. Python writes the end
    /// of a line apart from the line: it is waited for, for a moment.
    async fn text(&mut self, stream: Stream, mut text: String) -> String {
        let deadline = tokio::time::Instant::now() + LINE_END;
        while text.len() < TEXT_BYTES {
            let next = if text.ends_with('\n') {
                self.running.next().now_or_never()
            } else {
                tokio::time::timeout_at(deadline, self.running.next()).await.ok()
            };
            match next.flatten() {
                Some(Happening::Text { stream: of, text: more }) if of == stream => {
                    text.push_str(&more);
                }
                other => {
                    self.held = other;
                    break;
                }
            }
        }
        if !self.captures {
            return String::new();
        }
        let object = match (self.framing.is_full(), stream) {
            (false, _) => json!({ "text": text }),
            (true, Stream::Stdout) => json!({ "text": text, "stream": "stdout" }),
            (true, Stream::Stderr) => json!({ "text": text, "stream": "stderr" }),
        };
        self.framing.frame("text", &object)
    }

    /// A displayed object: its pictures, or else its text.
    fn shown(&self, shown: &Shown) -> String {
        let mut frames = String::new();
        for picture in &shown.pictures {
            let image = base64::engine::general_purpose::STANDARD.encode(&picture.bytes);
            let object = json!({ "image": image, "format": extension(&picture.media_type) });
            frames.push_str(&self.framing.frame("image", &object));
        }
        if let Some(text) = shown.text().filter(|_| frames.is_empty()) {
            let mut object = json!({ "text": text });
            if self.framing.is_full() {
                let stream = if shown.role == Role::Result { "result" } else { "display" };
                object["stream"] = json!(stream);
            }
            frames.push_str(&self.framing.frame("text", &object));
        }
        frames
    }

    /// How it ended: an error if it did so badly, and where it is wanted the whole reply.
    fn ending(&mut self, end: Result<Execution, Envelope>) -> String {
        let (error, done) = match end {
            Ok(execution) => {
                let base = self.doors.base_url();
                let mut reply = Reply::new(execution).with_base(base);
                reply.warnings.append(&mut self.warnings);
                fit::fit(&mut reply);
                (error_object(&reply), json!({ "done": reply }))
            }
            Err(envelope) => {
                let error = json!({ "error": envelope.message, "traceback": [] });
                (Some(error), json!({ "done": envelope }))
            }
        };
        let framing = self.framing;
        let mut frames = error.map_or_else(String::new, |error| framing.frame("error", &error));
        if framing.is_full() || matches!(framing, Framing::Events { .. }) {
            frames.push_str(&framing.frame("done", &done));
        }
        frames
    }
}

fn error_object(reply: &Reply) -> Option<Value> {
    if reply.success {
        return None;
    }
    let status = || format!("the program ended with status {}", reply.exit_code);
    let message = reply.error_message.clone().unwrap_or_else(status);
    let traceback: Vec<&str> =
        reply.error_traceback.as_deref().unwrap_or_default().lines().collect();
    Some(json!({ "error": message, "traceback": traceback }))
}
