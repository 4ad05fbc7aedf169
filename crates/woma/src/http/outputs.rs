//! What an earlier execution wrote and drew, for those who got the short form.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Code, OutputStream};

use super::given::{Asked, CallerOf, PathOf};
use crate::doors::Doors;
use crate::error::Envelope;
use crate::wire::extension;

/// Characters of a page, unless fewer are asked for; escaped, they may take six bytes each.
const PAGE_CHARS_MAX: u64 = 150_000;

/// A part of a text, and where it goes on. All numbers are characters.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutputPage {
    execution_id: String,
    stream: OutputStream,
    text: String,
    offset: u64,
    /// Where the next part begins; null at the end.
    next_offset: Option<u64>,
    total_chars: u64,
}

pub(crate) async fn output(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(execution_id): PathOf<String>,
    Asked(mut query): Asked,
) -> Result<Json<OutputPage>, Envelope> {
    let stream = stream(query.text(&["stream"])?.as_deref())?;
    let offset = query.count(&["offset"])?.unwrap_or(0);
    let limit = query.count(&["limit"])?.unwrap_or(PAGE_CHARS_MAX).min(PAGE_CHARS_MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page = doors.service.read_output(&caller, &execution_id, stream, offset, limit)?;
    Ok(Json(OutputPage {
        execution_id,
        stream,
        text: page.text,
        offset: page.offset,
        next_offset: page.next_offset,
        total_chars: page.total_chars,
    }))
}

fn stream(name: Option<&str>) -> Result<OutputStream, Envelope> {
    use OutputStream::{Result, Stderr, Stdout, Traceback};
    let name = name.unwrap_or("stdout");
    let known = [Stdout, Stderr, Traceback, Result];
    known.into_iter().find(|stream| stream.name() == name).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        let message = format!("`stream` must be stdout, stderr, traceback or result, not {name:?}");
        Envelope::new(Code::InvalidArgument, message)
    })
}

/// A picture is what hostile code drew: it may be shown, but nothing in it may run.
pub(crate) async fn picture(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf((execution_id, number)): PathOf<(String, usize)>,
) -> Result<Response, Envelope> {
    let picture = doors.service.picture(&caller, &execution_id, number)?;
    let ending = extension(&picture.media_type);
    // Code names the type too; one that we do not know is not repeated.
    let media_type = match ending {
        "bin" => "application/octet-stream".to_owned(),
        _ => picture.media_type,
    };
    let headers: [(HeaderName, String); 5] = [
        (CONTENT_TYPE, media_type),
        (CACHE_CONTROL, "private, max-age=3600".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (
            CONTENT_SECURITY_POLICY,
            "sandbox; default-src 'none'; style-src 'unsafe-inline'".to_owned(),
        ),
        (CONTENT_DISPOSITION, format!("inline; filename=\"chart_{number:03}.{ending}\"")),
    ];
    Ok((headers, picture.bytes).into_response())
}
