//! Sessions over REST: list, create, interrupt, reset, delete.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Caller, NewSession, SessionId};

use super::execute::Enveloped;
use crate::api::arguments::Arguments;
use crate::api::error::Envelope;
use crate::api::reply::{Noted, Session};
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, PathParams};

/// A session to create. Every field is optional.
#[derive(Debug, JsonSchema)]
#[schemars(transform = nothing_is_required)]
pub(crate) struct SessionBody {
    /// Default: a random id.
    #[schemars(with = "String")]
    session_id: Option<String>,
    /// Display name.
    #[schemars(with = "String")]
    name: Option<String>,
    #[schemars(with = "String")]
    description: Option<String>,
    /// Policy for the session's code; it can only narrow the policy of the server or the key.
    #[schemars(with = "String")]
    policy: Option<String>,
}

fn nothing_is_required(schema: &mut schemars::Schema) {
    schema.remove("required");
}

/// The caller's sessions by id.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionTable {
    sessions: BTreeMap<String, Session>,
    total: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Deleted {
    success: bool,
    session_id: String,
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Interruption {
    success: bool,
    session_id: String,
    /// Whether code was running.
    interrupted: bool,
}

pub(crate) async fn table(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
) -> Result<Json<SessionTable>, Envelope> {
    let sessions = all(&state, &caller).await?.into_iter();
    let sessions: BTreeMap<_, _> = sessions.map(|info| (info.session_id.clone(), info)).collect();
    let total = sessions.len();
    Ok(Json(SessionTable { sessions, total }))
}

pub(crate) async fn list(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
) -> Result<Json<Vec<Session>>, Envelope> {
    all(&state, &caller).await.map(Json)
}

async fn all(state: &AppState, caller: &Caller) -> Result<Vec<Session>, Envelope> {
    let sessions = state.service.sessions(caller).await?;
    Ok(sessions.into_iter().map(Session::from).collect())
}

pub(crate) async fn create(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<Noted<Session>>, Envelope> {
    make(&state, &caller, arguments).await.map(Json)
}

pub(crate) async fn create_enveloped(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<Enveloped<Noted<Session>>>, Envelope> {
    make(&state, &caller, arguments).await.map(|session| Json(Enveloped::new(session)))
}

async fn make(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<Noted<Session>, Envelope> {
    let body = SessionBody {
        session_id: arguments.text(&["session_id"])?,
        name: arguments.text(&["name"])?,
        description: arguments.text(&["description"])?,
        policy: arguments.text(&["policy"])?,
    };
    let wanted = NewSession {
        id: body.session_id.as_deref().map(SessionId::parse).transpose()?,
        name: body.name,
        description: body.description.unwrap_or_default(),
        policy: body.policy,
    };
    let made = state.service.create_session(caller, wanted).await?;
    Ok(Noted { reply: made.into(), warnings: arguments.unknown().collect() })
}

pub(crate) async fn show(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<Session>, Envelope> {
    let info = state.service.session(&caller, &SessionId::parse(&id)?).await?;
    Ok(Json(info.into()))
}

pub(crate) async fn delete(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<Deleted>, Envelope> {
    let id = SessionId::parse(&id)?;
    state.service.delete_session(&caller, &id).await?;
    let message = format!("Session {id} is deleted");
    Ok(Json(Deleted { success: true, session_id: id.to_string(), message }))
}

pub(crate) async fn interrupt(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<Interruption>, Envelope> {
    let id = SessionId::parse(&id)?;
    let interrupted = state.service.interrupt_session(&caller, &id)?;
    Ok(Json(Interruption { success: true, session_id: id.to_string(), interrupted }))
}

pub(crate) async fn reset(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<Session>, Envelope> {
    let info = state.service.reset_session(&caller, &SessionId::parse(&id)?).await?;
    Ok(Json(info.into()))
}
