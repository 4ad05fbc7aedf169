//! Streaming of a run as NDJSON or server-sent events. The response body owns the run: a client
//! that disconnects drops it, which interrupts the code.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior};
use woma_core::{
    Execution, ProgressReader, Representation, Role, RunEvent, Running, Shown, Stream,
};

use super::fit::{self, Room};
use crate::api::error::Envelope;
use crate::api::jobs::JobProgress;
use crate::api::reply::{Reply, extension};
use crate::api::state::AppState;

/// Interval of heartbeats, in formats that have them.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Delay of the response's start: a failure within it still gets its own HTTP status.
const EARLY_FAILURE_WINDOW: Duration = Duration::from_millis(50);
/// Longest wait for the end of a line that has begun.
const LINE_END: Duration = Duration::from_millis(100);
/// Size up to which pending text is merged into one event.
const TEXT_BYTES: usize = 64 * 1024;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Wire format of the stream. `is_full` adds events that older clients do not know: HTML and figures
/// of Plotly as they are, progress, heartbeats, notes, the whole reply.
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

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Lines { .. } => "application/x-ndjson; charset=utf-8",
            Self::Events { .. } => "text/event-stream; charset=utf-8",
        }
    }

    /// Encodes one event; `kind` is the object's first key.
    pub(super) fn frame(self, kind: &str, object: &impl Serialize) -> String {
        // Serialized directly: a tree of values would multiply the size of hostile data.
        let object = serde_json::to_string(object).unwrap_or_default();
        match self {
            Self::Lines { .. } => format!("{object}\n"),
            // Serialized JSON has no newline, so one `data` line is enough.
            Self::Events { .. } => format!("event: {kind}\ndata: {object}\n\n"),
        }
    }
}

struct RunStream {
    state: AppState,
    running: Running,
    framing: Framing,
    /// If false, printed text is dropped.
    captures: bool,
    warnings: Vec<String>,
    /// Readers of progress, of standard output and of standard error.
    bars: [ProgressReader; 2],
    held: Option<RunEvent>,
    has_ended: bool,
    heartbeat: Interval,
    started: Instant,
}

/// Response of an admitted run; its body ends with the run.
pub(crate) async fn respond(
    state: AppState,
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
    let mut run = RunStream {
        state,
        running,
        framing,
        captures,
        warnings,
        bars: Default::default(),
        held,
        has_ended,
        heartbeat,
        started,
    };
    let mut end = None;
    match tokio::time::timeout(EARLY_FAILURE_WINDOW, run.running.next()).await {
        Ok(Some(happening)) => run.held = Some(happening),
        Ok(None) => {
            run.has_ended = true;
            end = Some(run.running.finish().await?);
        }
        Err(_) => {}
    }
    let end = end.map(|execution| run.ending(Ok(execution)));
    let frames = futures_util::stream::unfold((run, end), |(mut run, end)| async move {
        let frames = match end {
            Some(frames) => frames,
            None => run.next().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(frames)), (run, None)))
    });
    let mut response = Response::new(Body::from_stream(Box::pin(frames) as Pin<Box<_>>));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(framing.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

impl RunStream {
    /// Next events to send; `None` after the end.
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
                Some(RunEvent::Text { stream, text }) => self.text(stream, text).await,
                Some(RunEvent::Shown(shown)) => self.shown(shown).await,
                Some(RunEvent::Note(note)) if self.framing.is_full() => {
                    self.framing.frame("note", &json!({ "note": note }))
                }
                Some(RunEvent::Note(_)) => String::new(),
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
                let seconds = crate::api::reply::round(self.started.elapsed().as_secs_f64());
                Some(self.framing.frame("heartbeat", &json!({ "heartbeat": seconds })))
            }
            Framing::Lines { is_full: false } => None,
        }
    }

    /// Merges pending text of the same stream. Waits briefly for the end of a line, which Python
    /// writes separately.
    async fn text(&mut self, stream: Stream, mut text: String) -> String {
        let deadline = tokio::time::Instant::now() + LINE_END;
        while text.len() < TEXT_BYTES {
            let next = if text.ends_with('\n') {
                self.running.next().now_or_never()
            } else {
                tokio::time::timeout_at(deadline, self.running.next()).await.ok()
            };
            match next.flatten() {
                Some(RunEvent::Text { stream: of, text: more }) if of == stream => {
                    text.push_str(&more);
                }
                other => {
                    self.held = other;
                    break;
                }
            }
        }
        let progress = self.progress_frame(stream, &text);
        if !self.captures {
            return progress;
        }
        let object = match (self.framing.is_full(), stream) {
            (false, _) => json!({ "text": text }),
            (true, Stream::Stdout) => json!({ "text": text, "stream": "stdout" }),
            (true, Stream::Stderr) => json!({ "text": text, "stream": "stderr" }),
        };
        self.framing.frame("text", &object) + &progress
    }

    /// Event of the progress that a text tells, in formats that have it; else nothing.
    fn progress_frame(&mut self, stream: Stream, text: &str) -> String {
        if !self.framing.is_full() {
            return String::new();
        }
        let bars = self.bars.get_mut(usize::from(stream == Stream::Stderr));
        let progress = bars.and_then(|bars| bars.read(text)).map(JobProgress::from);
        let frame = |progress| self.framing.frame("progress", &json!({ "progress": progress }));
        progress.map_or_else(String::new, frame)
    }

    /// Events of a displayed object; a large one is encoded on a blocking thread.
    async fn shown(&self, shown: Shown) -> String {
        let framing = self.framing;
        let bytes: usize = shown.data.values().map(Representation::bytes_least).sum();
        if bytes <= TEXT_BYTES {
            return shown_frames(framing, &shown);
        }
        let written = tokio::task::spawn_blocking(move || shown_frames(framing, &shown)).await;
        // An object that could not be encoded is in the final reply.
        written.unwrap_or_default()
    }

    /// Final events: the error if there was one, and the whole reply in full formats.
    fn ending(&mut self, end: Result<Execution, Envelope>) -> String {
        let framing = self.framing;
        let has_done = framing.is_full() || matches!(framing, Framing::Events { .. });
        let (error, done) = match end {
            Ok(execution) => {
                let base = self.state.base_url();
                let mut reply = Reply::new(execution).with_base(base);
                reply.warnings.append(&mut self.warnings);
                self.state.presentation.shape.complete(&mut reply);
                fit::fit(&mut reply, Room::Whole);
                let error = error_object(&reply);
                (error, has_done.then(|| framing.frame("done", &Done { done: reply })))
            }
            Err(envelope) => {
                let error = json!({ "error": envelope.message, "traceback": [] });
                (Some(error), has_done.then(|| framing.frame("done", &Done { done: envelope })))
            }
        };
        let mut frames = error.map_or_else(String::new, |error| framing.frame("error", &error));
        frames.extend(done);
        frames
    }
}

/// Events of a displayed object: its pictures, or else its text.
fn shown_frames(framing: Framing, shown: &Shown) -> String {
    let mut frames = String::new();
    for picture in &shown.pictures {
        let image = Representation::Binary(picture.bytes.clone());
        let object = Image { image, format: extension(&picture.media_type) };
        frames.push_str(&framing.frame("image", &object));
    }
    if let Some(text) = shown.text().filter(|_| frames.is_empty()) {
        let name = if shown.role == Role::Result { "result" } else { "display" };
        let object = Text { text, stream: framing.is_full().then_some(name) };
        frames.push_str(&framing.frame("text", &object));
    }
    if framing.is_full() {
        frames.push_str(&rich_frames(framing, shown));
    }
    frames
}

/// Events of the richer forms of a displayed object, which older clients do not know.
fn rich_frames(framing: Framing, shown: &Shown) -> String {
    let mut frames = String::new();
    if let Some(html) = shown.data.get("text/html") {
        frames.push_str(&framing.frame("html", &Html { html }));
    }
    if let Some(plotly) = shown.data.get("application/vnd.plotly.v1+json") {
        frames.push_str(&framing.frame("plotly", &Plotly { plotly }));
    }
    frames
}

#[derive(Serialize)]
struct Html<'a> {
    html: &'a Representation,
}

#[derive(Serialize)]
struct Plotly<'a> {
    plotly: &'a Representation,
}

#[derive(Serialize)]
struct Image<'a> {
    image: Representation,
    format: &'a str,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'static str>,
}

#[derive(Serialize)]
struct Done<T> {
    done: T,
}

fn error_object(reply: &Reply) -> Option<Value> {
    let (message, traceback) = failure(reply)?;
    Some(json!({ "error": message, "traceback": traceback.collect::<Vec<_>>() }))
}

/// Error of a failed run, and the lines of its traceback.
pub(super) fn failure(reply: &Reply) -> Option<(String, impl Iterator<Item = &str>)> {
    if reply.success {
        return None;
    }
    let status = || format!("the program ended with status {}", reply.exit_code);
    let message = reply.error_message.clone().unwrap_or_else(status);
    Some((message, reply.error_traceback.as_deref().unwrap_or_default().lines()))
}
