//! Output and pictures of earlier executions, for replies that were truncated.

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

use crate::api::error::Envelope;
use crate::api::reply::extension;
use crate::api::state::AppState;
use crate::http::extract::{CallerOf, PathParams, QueryArguments};
use crate::http::layers::headers::RESOURCE_POLICY;

/// Largest page, in characters; escaped, each may take six bytes.
const PAGE_CHARS_MAX: u64 = 150_000;

/// One page of a text. All numbers count characters.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutputPage {
    execution_id: String,
    stream: OutputStream,
    text: String,
    offset: u64,
    /// Offset of the next page; null at the end.
    next_offset: Option<u64>,
    total_chars: u64,
}

pub(crate) async fn output(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(execution_id): PathParams<String>,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<OutputPage>, Envelope> {
    let stream = stream(query.text(&["stream"])?.as_deref())?;
    let offset = query.count(&["offset"])?.unwrap_or(0);
    let limit = query.count(&["limit"])?.unwrap_or(PAGE_CHARS_MAX).min(PAGE_CHARS_MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page = state.service.read_output(&caller, &execution_id, stream, offset, limit).await?;
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
    use OutputStream::{Late, Result, Stderr, Stdout, Traceback};
    let name = name.unwrap_or("stdout");
    let known = [Stdout, Stderr, Traceback, Result, Late];
    known.into_iter().find(|stream| stream.name() == name).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        let message =
            format!("`stream` must be stdout, stderr, traceback, result or late, not {name:?}");
        Envelope::new(Code::InvalidArgument, message)
    })
}

/// A picture. Hostile code drew it, so the headers keep browsers from running anything in it.
pub(crate) async fn picture(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((execution_id, number)): PathParams<(String, usize)>,
) -> Result<Response, Envelope> {
    let picture = state.service.picture(&caller, &execution_id, number)?;
    let ending = extension(&picture.media_type);
    // The code chose the media type; an unknown one is replaced.
    let media_type = match ending {
        "bin" => "application/octet-stream".to_owned(),
        _ => picture.media_type,
    };
    let headers: [(HeaderName, String); 6] = [
        // Chat clients on another port of this host show it.
        (RESOURCE_POLICY, "same-site".to_owned()),
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
