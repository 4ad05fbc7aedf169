//! Reading of request bodies, bounded in size, time and memory.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use bytes::BytesMut;
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};
use woma_core::Code;
use woma_core::pace::{Pace, PaceRules, TooSlow};

use super::layers::shares::RequestShare;
use crate::api::error::Envelope;
use crate::api::pools::BodyMemory;

/// Least speed of a body that is read whole, such as one of JSON.
const BODY_PACE: PaceRules = PaceRules {
    grace: Duration::from_secs(30),
    bytes_per_second: 64 * 1024,
    time_max: Duration::from_mins(5),
};
/// Least speed of a body that goes to the disk.
pub(super) const UPLOAD_PACE: PaceRules = PaceRules {
    grace: Duration::from_secs(30),
    bytes_per_second: 16 * 1024,
    time_max: Duration::from_hours(1),
};
/// Limits for draining an oversized body: in total, and for a pause.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Reads a body within its limits. Its memory counts for the caller as long as the bytes are there.
pub(super) async fn whole(
    request: Request<Body>,
    bytes_max: usize,
) -> Result<(Parts, Bytes), Envelope> {
    let (mut parts, mut body) = request.into_parts();
    if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        // With `Expect: 100-continue` the client has sent nothing yet.
        if !parts.headers.contains_key(EXPECT) {
            drain(&mut body).await;
        }
        return Err(too_large(bytes_max));
    }
    let Some(share) = parts.extensions.get::<RequestShare>() else {
        tracing::error!("A body was read outside of the layer that shares out memory");
        return Err(Envelope::new(Code::Internal, "the server failed; its log says why"));
    };
    let memory = match parts.extensions.get::<InMemory>() {
        Some(InMemory) => None,
        None => Some(share.body_memory()),
    };
    match collect(&mut body, bytes_max, memory).await {
        Ok(bytes) => {
            parts.extensions.insert(InMemory);
            Ok((parts, bytes))
        }
        Err(Failure::TooLarge) => {
            drain(&mut body).await;
            Err(too_large(bytes_max))
        }
        Err(Failure::Broken(error)) => {
            let text = format!("the body could not be read: {error}");
            Err(Envelope::new(Code::InvalidArgument, text))
        }
        Err(Failure::TooSlow(slow)) => {
            let envelope = Envelope::new(Code::InvalidArgument, slow.to_string())
                .with_hint("send a smaller body, or upload the file in parts")
                .with_status(StatusCode::REQUEST_TIMEOUT);
            Err(Envelope { code: "request_timeout", ..envelope.with_header(CONNECTION, "close") })
        }
        Err(Failure::NoMemory(envelope)) => {
            drain(&mut body).await;
            Err(envelope.with_header(CONNECTION, "close"))
        }
    }
}

/// Marks a request whose body a layer has read already: its memory is not counted twice.
#[derive(Debug, Clone, Copy)]
struct InMemory;

enum Failure {
    TooLarge,
    TooSlow(TooSlow),
    Broken(axum::Error),
    NoMemory(Envelope),
}

/// Collects a body; memory is reserved as bytes arrive.
async fn collect(
    body: &mut Body,
    bytes_max: usize,
    mut memory: Option<BodyMemory>,
) -> Result<Bytes, Failure> {
    let (mut collected, mut pace) = (BytesMut::new(), Pace::new(BODY_PACE));
    while let Some(frame) = pace.wait(body.frame()).await.map_err(Failure::TooSlow)? {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(Failure::Broken)?.into_data() else { continue };
        pace.count(data.len());
        if data.len() > bytes_max - collected.len() {
            return Err(Failure::TooLarge);
        }
        if let Some(memory) = &mut memory {
            memory.hold(collected.len() + data.len()).await.map_err(Failure::NoMemory)?;
        }
        collected.extend_from_slice(&data);
    }
    let bytes = collected.freeze();
    Ok(match memory.filter(|memory| !memory.is_empty()) {
        Some(memory) => Bytes::from_owner(Accounted { bytes, _memory: memory }),
        None => bytes,
    })
}

/// Bytes whose memory is given back with the last of them.
struct Accounted {
    bytes: Bytes,
    _memory: BodyMemory,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Drains a body briefly: a client that is still sending would otherwise see a reset connection
/// instead of the reply.
pub(super) async fn drain(body: &mut Body) {
    let end = Instant::now() + DRAIN_TIME_MAX;
    loop {
        let pause_end = Instant::now() + DRAIN_PAUSE_MAX;
        let next = timeout_at(pause_end.min(end), body.frame()).await;
        if !matches!(next, Ok(Some(Ok(_)))) || Instant::now() >= end {
            return;
        }
    }
}

fn too_large(bytes_max: usize) -> Envelope {
    let text = format!("the body has more than {bytes_max} bytes");
    Envelope::new(Code::TooLarge, text)
        .with_hint("MAX_BODY_MB sets the limit")
        .with_header(CONNECTION, "close")
}
