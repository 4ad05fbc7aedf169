//! Reading a request's body: whole, bounded, and not for ever.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode};
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
    let collected = Limited::new(body, bytes_max).collect();
    let collected = tokio::time::timeout(BODY_TIME_MAX, collected).await.map_err(|_| {
        let text = format!("the body was not complete after {} s", BODY_TIME_MAX.as_secs());
        Envelope::new(Code::InvalidArgument, text).with_status(StatusCode::REQUEST_TIMEOUT)
    })?;
    match collected {
        Ok(collected) => Ok((parts, collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("the body has more than {bytes_max} bytes");
            Err(Envelope::new(Code::TooLarge, text).with_hint("MAX_BODY_MB sets the limit"))
        }
        Err(error) => {
            let text = format!("the body could not be read: {error}");
            Err(Envelope::new(Code::InvalidArgument, text))
        }
    }
}
