//! Running code over REST: one request, and the forms in which its end is told.

use axum::Json;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Caller, Code, Running, SessionChoice};

use super::given::{Asked, CallerOf, DoorsOf, Given};
use super::{fit, stream};
use crate::doors::Doors;
use crate::error::Envelope;
use crate::request::Call;
use crate::wire::Reply;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
pub(crate) const EXECUTION_ID: HeaderName = HeaderName::from_static("x-execution-id");

/// The envelope of the older routes.
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

/// As it happens: lines of JSON, server-sent events, or one reply at the end.
pub(crate) async fn streamed(
    DoorsOf(doors): DoorsOf,
    CallerOf(caller): CallerOf,
    headers: HeaderMap,
    Asked(mut query): Asked,
    Given(arguments): Given,
) -> Result<Response, Envelope> {
    let form = accepted(&headers)?;
    let is_full = query.text(&["events"])?.is_some_and(|events| events == "full");
    let call = Call::read(&doors, arguments)?;
    let framing = match form {
        Form::Json => {
            return reply(&doors, &caller, call, |reply| Json(reply).into_response()).await;
        }
        Form::Lines => stream::Framing::Lines { is_full },
        Form::Events => stream::Framing::Events { is_full },
    };
    let Call { request, warnings } = call;
    let (session, captures) = (named(&request.session), request.capture_output);
    let running = doors.service.execute(&caller, request, true).await?;
    let execution = running.execution_id().to_string();
    let response = stream::respond(doors, running, framing, captures, warnings).await?;
    Ok(marked(response, session.as_deref(), &execution))
}

/// One reply at the end, in the envelope of an older system.
pub(crate) async fn enveloped(
    DoorsOf(doors): DoorsOf,
    CallerOf(caller): CallerOf,
    Given(arguments): Given,
) -> Result<Response, Envelope> {
    let call = Call::read(&doors, arguments)?;
    reply(&doors, &caller, call, |reply| Json(Enveloped::new(reply)).into_response()).await
}

/// One reply at the end.
pub(crate) async fn plain(
    DoorsOf(doors): DoorsOf,
    CallerOf(caller): CallerOf,
    Given(arguments): Given,
) -> Result<Response, Envelope> {
    let call = Call::read(&doors, arguments)?;
    reply(&doors, &caller, call, |reply| Json(reply).into_response()).await
}

/// Waits for the end. A client that hangs up drops this future, and with it what runs.
async fn reply(
    doors: &Doors,
    caller: &Caller,
    call: Call,
    respond: impl FnOnce(Reply) -> Response,
) -> Result<Response, Envelope> {
    let Call { request, warnings } = call;
    let mut running: Running = doors.service.execute(caller, request, false).await?;
    let reply = Reply::new(running.finish().await?);
    let mut reply = reply.with_base(doors.base_url());
    reply.warnings.extend(warnings);
    fit::fit(&mut reply);
    let (session, execution) = (reply.session_id.clone(), reply.execution_id.clone());
    Ok(marked(respond(reply), session.as_deref(), &execution))
}

fn marked(mut response: Response, session: Option<&str>, execution: &str) -> Response {
    // A session's name may hold what no header can.
    let values = [(SESSION_ID, session), (EXECUTION_ID, Some(execution))];
    for (name, text) in values {
        if let Some(Ok(value)) = text.map(HeaderValue::from_str) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn named(session: &SessionChoice) -> Option<String> {
    match session {
        SessionChoice::Named(id) => Some(id.to_string()),
        SessionChoice::Default => Some("default".to_owned()),
        SessionChoice::New | SessionChoice::Ephemeral => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Events,
    Json,
}

/// What the client wants most of what there is; the first of equals.
fn accepted(headers: &HeaderMap) -> Result<Form, Envelope> {
    let mut best: Option<(Form, f32)> = None;
    let mut is_asked = false;
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in ranges.flat_map(|value| value.split(',')).map(str::trim) {
        let mut parts = range.split(';').map(str::trim);
        let Some(media) = parts.next().filter(|media| !media.is_empty()) else { continue };
        is_asked = true;
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, weight);
        let form = match media.to_ascii_lowercase().as_str() {
            "*/*" | "application/*" | "application/x-ndjson" | "application/ndjson" => Form::Lines,
            "text/event-stream" | "text/*" => Form::Events,
            "application/json" => Form::Json,
            _ => continue,
        };
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((form, weight));
        }
    }
    match best {
        Some((form, _)) => Ok(form),
        None if !is_asked => Ok(Form::Lines),
        None => {
            let message = "the answer cannot be given in any of the accepted forms";
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

    use super::{Form, accepted};

    #[test]
    fn the_form_is_the_one_that_is_wanted_most() {
        for (accept, form) in [
            ("*/*", Some(Form::Lines)),
            ("", Some(Form::Lines)),
            ("application/json", Some(Form::Json)),
            ("text/event-stream", Some(Form::Events)),
            ("application/json, text/event-stream", Some(Form::Json)),
            ("application/json;q=0.5, text/event-stream", Some(Form::Events)),
            ("text/html, */*;q=0.8", Some(Form::Lines)),
            ("text/html", None),
            ("application/json;q=0", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepted(&headers).ok(), form, "{accept:?}");
        }
        assert_eq!(accepted(&HeaderMap::new()).ok(), Some(Form::Lines));
    }
}
