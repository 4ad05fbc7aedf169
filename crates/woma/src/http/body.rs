//! Reading a request's body: whole, bounded, and not for ever.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONNECTION;
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use woma_core::Code;

use crate::error::Envelope;

/// A body must be complete after this long.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

pub(super) async fn whole(
    request: Request<Body>,
    bytes_max: usize,
) -> Result<(Parts, Bytes), Envelope> {
    let (parts, body) = request.into_parts();
    // One that says itself that it is too long is not read at all.
    if body.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        return Err(too_large(bytes_max));
    }
    let collected = Limited::new(body, bytes_max).collect();
    let collected = tokio::time::timeout(BODY_TIME_MAX, collected).await.map_err(|_| {
        let text = format!("the body was not complete after {} s", BODY_TIME_MAX.as_secs());
        let envelope = Envelope::new(Code::InvalidArgument, text);
        let envelope = envelope.with_status(StatusCode::REQUEST_TIMEOUT);
        Envelope { code: "request_timeout", ..envelope.with_header(CONNECTION, "close") }
    })?;
    match collected {
        Ok(collected) => Ok((parts, collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
        Err(error) => {
            let text = format!("the body could not be read: {error}");
            Err(Envelope::new(Code::InvalidArgument, text))
        }
    }
}

fn too_large(bytes_max: usize) -> Envelope {
    let text = format!("the body has more than {bytes_max} bytes");
    Envelope::new(Code::TooLarge, text)
        .with_hint("MAX_BODY_MB sets the limit")
        .with_header(CONNECTION, "close")
}
