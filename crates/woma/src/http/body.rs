//! Reading of request bodies, bounded in size, time and memory.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use bytes::BytesMut;
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use woma_core::Code;

use crate::api::error::Envelope;

/// Time limit for a whole body.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// Limits for draining an oversized body: in total, and for a pause.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Bodies up to this size need no share of the memory budget.
const SMALL_KIB: u64 = 1024;
/// Memory budget of all larger bodies in flight.
const COLLECTING_KIB: u64 = 256 * 1024;
static COLLECTING: Semaphore = Semaphore::const_new(256 * 1024);

pub(super) async fn whole(
    request: Request<Body>,
    bytes_max: usize,
) -> Result<(Parts, Bytes), Envelope> {
    let (parts, mut body) = request.into_parts();
    if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        // With `Expect: 100-continue` the client has sent nothing yet.
        if !parts.headers.contains_key(EXPECT) {
            drain(&mut body).await;
        }
        return Err(too_large(bytes_max));
    }
    let collected = timeout(BODY_TIME_MAX, collect_in_turn(&mut body, bytes_max)).await;
    match collected {
        Ok(Ok(Some(bytes))) => Ok((parts, bytes)),
        Ok(Ok(None)) => {
            drain(&mut body).await;
            Err(too_large(bytes_max))
        }
        Ok(Err(error)) => {
            let text = format!("the body could not be read: {error}");
            Err(Envelope::new(Code::InvalidArgument, text))
        }
        Err(_) => {
            let text = format!("the body was not complete after {} s", BODY_TIME_MAX.as_secs());
            let envelope = Envelope::new(Code::InvalidArgument, text);
            let envelope = envelope.with_status(StatusCode::REQUEST_TIMEOUT);
            Err(Envelope { code: "request_timeout", ..envelope.with_header(CONNECTION, "close") })
        }
    }
}

/// Reads a body within the memory budget; waits while the budget is used up.
async fn collect_in_turn(body: &mut Body, bytes_max: usize) -> Result<Option<Bytes>, axum::Error> {
    let hint = body.size_hint();
    let expected = hint.upper().unwrap_or(bytes_max as u64).div_ceil(1024);
    if expected <= SMALL_KIB {
        return collect(body, bytes_max).await;
    }
    let share = u32::try_from(expected.min(COLLECTING_KIB)).unwrap_or(u32::MAX);
    let permit = COLLECTING.acquire_many(share).await.map_err(axum::Error::new)?;
    let collected = collect(body, bytes_max).await;
    drop(permit);
    collected
}

/// Collects a body; `None` if it exceeds the limit.
async fn collect(body: &mut Body, bytes_max: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers are ignored.
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() > bytes_max - collected.len() {
            return Ok(None);
        }
        collected.extend_from_slice(&data);
    }
    Ok(Some(collected.freeze()))
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
