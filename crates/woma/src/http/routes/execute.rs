//! Execution over REST: streamed, as one reply, or in the envelope of an older API.

use axum::http::header::{ACCEPT, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Caller, Code, Running, SessionId};

use super::fit::{self, Room};
use super::stream;
use crate::api::error::Envelope;
use crate::api::reply::Reply;
use crate::api::request::Call;
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, QueryArguments, RequestState};
use crate::http::idempotency::Remembered;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
pub(crate) const EXECUTION_ID: HeaderName = HeaderName::from_static("x-execution-id");

/// Reply envelope of the older routes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Enveloped{T}")]
pub(crate) struct Enveloped<T> {
    /// 0.
    result_code: u8,
    /// `success`.
    result_msg: &'static str,
    data: T,
}

impl<T> Enveloped<T> {
    pub(crate) fn new(data: T) -> Self {
        Self { result_code: 0, result_msg: "success", data }
    }
}

/// Runs code as an execution that can be read later: one reply at the end, or a stream with every
/// kind of event, if `Accept` asks for one.
pub(crate) async fn run(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    remembered: Option<Extension<Remembered>>,
    headers: HeaderMap,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let format = accepted(&headers, ReplyFormat::Json)?;
    fits_one_piece(format, remembered.is_some())?;
    let call = Call::read(&state, arguments)?;
    let mut response = in_format(state, &caller, call, format, true).await?;
    *response.status_mut() = StatusCode::CREATED;
    let id = response.headers().get(EXECUTION_ID).and_then(|id| id.to_str().ok());
    let location = id.map(|id| HeaderValue::from_str(&format!("/api/v1/executions/{id}")));
    if let Some(Ok(location)) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Streams NDJSON or server-sent events, or sends one reply at the end, as `Accept` asks.
pub(crate) async fn streamed(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    remembered: Option<Extension<Remembered>>,
    headers: HeaderMap,
    QueryArguments(mut query): QueryArguments,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let format = accepted(&headers, ReplyFormat::Lines)?;
    fits_one_piece(format, remembered.is_some())?;
    let is_full = match query.text(&["events"])?.as_deref() {
        None => false,
        Some("full") => true,
        Some(_) => return Err(Envelope::new(Code::InvalidArgument, "`events` must be full")),
    };
    let call = Call::read(&state, arguments)?;
    in_format(state, &caller, call, format, is_full).await
}

/// A reply that is remembered for its `Idempotency-Key` cannot be a stream.
fn fits_one_piece(format: ReplyFormat, is_remembered: bool) -> Result<(), Envelope> {
    if !is_remembered || format == ReplyFormat::Json {
        return Ok(());
    }
    let message = "a request with an `Idempotency-Key` gets one reply, and no stream";
    let envelope = Envelope::new(Code::InvalidArgument, message);
    Err(envelope.with_hint("send `Accept: application/json`, or leave the key out"))
}

async fn in_format(
    state: AppState,
    caller: &Caller,
    call: Call,
    format: ReplyFormat,
    is_full: bool,
) -> Result<Response, Envelope> {
    let framing = match format {
        ReplyFormat::Json => {
            return one_reply(&state, caller, call).await;
        }
        ReplyFormat::Lines => stream::Framing::Lines { is_full },
        ReplyFormat::Events => stream::Framing::Events { is_full },
    };
    let Call { request, warnings, .. } = call;
    let (session, captures) = (request.session.named(), request.capture_output);
    let running = state.service.execute(caller, request, true).await?;
    let execution = running.execution_id().to_string();
    let response = stream::respond(state, running, framing, captures, warnings).await?;
    Ok(with_ids(response, session.as_ref().map(SessionId::as_str), &execution))
}

/// Sends one reply at the end.
pub(crate) async fn plain(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let call = Call::read(&state, arguments)?;
    one_reply(&state, &caller, call).await
}

/// As [`plain`]; the code may be in the query, where an older system had it.
pub(crate) async fn quick(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    QueryArguments(mut query): QueryArguments,
    BodyArguments(mut arguments): BodyArguments,
) -> Result<Response, Envelope> {
    if let Some(code) = query.text(&["code"])? {
        arguments.add("code", code)?;
    }
    let call = Call::read(&state, arguments)?;
    one_reply(&state, &caller, call).await
}

/// The reply as JSON, in the configured shape.
async fn one_reply(state: &AppState, caller: &Caller, call: Call) -> Result<Response, Envelope> {
    let shape = state.presentation.shape;
    let respond = |reply: Reply| match shape.is_special() {
        false => Json(reply).into_response(),
        true => {
            Json(shape.over_rest(serde_json::to_value(&reply).unwrap_or_default())).into_response()
        }
    };
    reply(state, caller, call, Room::Whole, respond).await
}

/// Waits for the end. A client that disconnects drops this future, which interrupts the code.
pub(super) async fn reply(
    state: &AppState,
    caller: &Caller,
    call: Call,
    room: Room,
    respond: impl FnOnce(Reply) -> Response,
) -> Result<Response, Envelope> {
    let Call { request, warnings, .. } = call;
    let mut running: Running = state.service.execute(caller, request, false).await?;
    let reply = Reply::new(running.finish().await?);
    let mut reply = reply.with_base(state.base_url());
    reply.warnings.extend(warnings);
    state.presentation.shape.complete(&mut reply);
    fit::fit(&mut reply, room);
    let (session, execution) = (reply.session_id.clone(), reply.execution_id.clone());
    Ok(with_ids(respond(reply), session.as_deref(), &execution))
}

fn with_ids(mut response: Response, session: Option<&str>, execution: &str) -> Response {
    // A session id may contain characters that are invalid in a header.
    let values = [(SESSION_ID, session), (EXECUTION_ID, Some(execution))];
    for (name, text) in values {
        if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyFormat {
    Lines,
    Events,
    Json,
}

/// The supported format with the highest weight, the first of equals; `default` if any will do.
pub(super) fn accepted(headers: &HeaderMap, default: ReplyFormat) -> Result<ReplyFormat, Envelope> {
    let mut best: Option<(ReplyFormat, f32)> = None;
    let mut is_asked = false;
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in ranges.flat_map(|value| value.split(',')).map(str::trim) {
        let mut parts = range.split(';').map(str::trim);
        let Some(media) = parts.next().filter(|media| !media.is_empty()) else { continue };
        is_asked = true;
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, weight);
        let format = match media.to_ascii_lowercase().as_str() {
            "*/*" | "application/*" => default,
            "application/x-ndjson" | "application/ndjson" => ReplyFormat::Lines,
            "text/event-stream" | "text/*" => ReplyFormat::Events,
            "application/json" => ReplyFormat::Json,
            _ => continue,
        };
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((format, weight));
        }
    }
    match best {
        Some((format, _)) => Ok(format),
        None if !is_asked => Ok(default),
        None => {
            let message = "no media type in `Accept` is available";
            let hint = "accept application/x-ndjson, text/event-stream or application/json";
            let envelope = Envelope::new(Code::InvalidArgument, message)
                .with_status(StatusCode::NOT_ACCEPTABLE);
            Err(Envelope { code: "not_acceptable", ..envelope.with_hint(hint) })
        }
    }
}

fn weight(text: &str) -> f32 {
    text.parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use axum::http::header::ACCEPT;
    use axum::http::{HeaderMap, HeaderValue};

    use super::{ReplyFormat, accepted};

    #[test]
    fn chooses_the_format_with_the_highest_weight() {
        for (accept, format) in [
            ("*/*", Some(ReplyFormat::Lines)),
            ("", Some(ReplyFormat::Lines)),
            ("application/json", Some(ReplyFormat::Json)),
            ("text/event-stream", Some(ReplyFormat::Events)),
            ("application/json, text/event-stream", Some(ReplyFormat::Json)),
            ("application/json;q=0.5, text/event-stream", Some(ReplyFormat::Events)),
            ("text/html, */*;q=0.8", Some(ReplyFormat::Lines)),
            ("text/html", None),
            ("application/json;q=0", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepted(&headers, ReplyFormat::Lines).ok(), format, "{accept:?}");
        }
        for format in [ReplyFormat::Lines, ReplyFormat::Json] {
            assert_eq!(accepted(&HeaderMap::new(), format).ok(), Some(format));
        }
    }
}
