//! Sessions over REST: list, create, interrupt, reset, delete.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Caller, Code, NewSession, SessionChange, SessionId};

use super::execute::Enveloped;
use crate::api::arguments::Arguments;
use crate::api::error::Envelope;
use crate::api::listing::PageRequest;
use crate::api::new_session::{self, CreatedSession, SecretBody};
use crate::api::reply::encoded;
use crate::api::schema::network_field;
use crate::api::sessions::Session;
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, PathParams, QueryArguments};

/// Properties of a session; its id is in the path.
#[derive(Debug, JsonSchema)]
#[schemars(transform = nothing_is_required)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct SessionChangeBody {
    /// Display name.
    #[schemars(with = "String", extend("maxLength" = 1000))]
    name: Option<String>,
    #[schemars(with = "String", extend("maxLength" = 1000))]
    description: Option<String>,
    /// Up to 32 names and values, to find sessions by. They replace those that are there.
    #[schemars(with = "BTreeMap<String, String>", extend("maxProperties" = 32))]
    labels: Option<BTreeMap<String, String>>,
    /// Seconds without a call after which the session is deleted; 0 for the server's
    /// `SESSION_TTL_HOURS`.
    #[schemars(with = "u64")]
    lifetime: Option<u64>,
    /// Network of its code, within that of the server or the key: `off`, `open`, or hosts, as a text
    /// or a list; `default` for as much as they allow. Connections that are open end.
    #[schemars(schema_with = "network_field")]
    network: Option<String>,
    /// Secrets of its own, 32 at most, in place of those that it has; an empty list takes them away.
    /// Connections that are open end.
    #[schemars(with = "Vec<SecretBody>", extend("maxItems" = 32))]
    secrets: Option<Vec<SecretBody>>,
}

/// As a change, with the policy and the environment, which only a new session can choose.
#[derive(Debug, JsonSchema)]
#[schemars(transform = nothing_is_required)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct SessionPutBody {
    #[serde(flatten)]
    change: SessionChangeBody,
    /// Policy for the code of a new session; it can only narrow the policy of the server or the key.
    #[schemars(with = "String")]
    policy: Option<String>,
    /// Environment of a new session.
    #[schemars(with = "String")]
    environment: Option<String>,
}

fn nothing_is_required(schema: &mut schemars::Schema) {
    schema.remove("required");
}

/// The caller's sessions by id.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SessionTable {
    sessions: BTreeMap<String, Session>,
    /// Number of all of them, on this page and others.
    total: usize,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    next: Option<String>,
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

/// The caller's sessions; with `active=true`, those whose variables are in memory.
pub(crate) async fn table(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<SessionTable>, Envelope> {
    let page = PageRequest::read(&mut query)?;
    let label = query.text(&["label"])?;
    let is_active_only = query.flag(&["active"])?.unwrap_or(false);
    let mut sessions = all(&state, &caller).await?;
    sessions.retain(|session| label.as_deref().is_none_or(|label| has_label(session, label)));
    sessions.retain(|session| session.is_live || !is_active_only);
    sessions.sort_by(|one, other| one.session_id.cmp(&other.session_id));
    let total = sessions.len();
    let (sessions, next) = page.of(sessions, |session| &session.session_id);
    let sessions = sessions.into_iter().map(|info| (info.session_id.clone(), info)).collect();
    Ok(Json(SessionTable { sessions, total, next }))
}

/// Whether a session has the label `name`, or `name=value`.
fn has_label(session: &Session, label: &str) -> bool {
    match label.split_once('=') {
        Some((name, value)) => session.labels.get(name).is_some_and(|found| found == value),
        None => session.labels.contains_key(label),
    }
}

/// Creates the session, or replaces what is said of it.
pub(crate) async fn put(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    BodyArguments(mut arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let id = SessionId::parse(&id)?;
    let policy = arguments.text(&["policy"])?;
    let environment = arguments.text(&["environment"])?;
    let change = new_session::change(&mut arguments)?;
    all_known(&arguments)?;
    let wanted = NewSession {
        id: Some(id.clone()),
        name: change.name.clone(),
        description: change.description.clone().unwrap_or_default(),
        policy: policy.clone(),
        environment: environment.clone(),
        labels: change.labels.clone().unwrap_or_default(),
        lifetime: change.lifetime.flatten(),
        network: change.network.clone().flatten(),
        secrets: change.secrets.clone().unwrap_or_default(),
        ..NewSession::default()
    };
    match state.service.create_session(&caller, wanted).await {
        Ok(made) => {
            let location = format!("/api/v1/sessions/{}", encoded(id.as_str()));
            let made = Json(Session::from(made));
            return Ok((StatusCode::CREATED, [(LOCATION, location)], made).into_response());
        }
        Err(woma_core::Error::SessionExists(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let present = state.service.session(&caller, &id).await?;
    if policy.is_some_and(|policy| present.policy.as_deref() != Some(&policy)) {
        let message = format!("session `{id}` exists already, with another policy");
        return Err(Envelope::new(Code::Conflict, message)
            .with_hint("delete it first, or leave `policy` out: it cannot be changed"));
    }
    let is_default = |name: &&String| name.as_str() == "default";
    if environment
        .is_some_and(|name| present.environment != Some(name).filter(|name| !is_default(&name)))
    {
        let message = format!("session `{id}` exists already, with another environment");
        return Err(Envelope::new(Code::Conflict, message)
            .with_hint("delete it first, or leave `environment` out: it cannot be changed"));
    }
    // What the body leaves out is as in a new session.
    let change = SessionChange {
        name: Some(change.name.unwrap_or_else(|| id.to_string())),
        description: Some(change.description.unwrap_or_default()),
        labels: Some(change.labels.unwrap_or_default()),
        lifetime: Some(change.lifetime.flatten()),
        network: Some(change.network.flatten()),
        secrets: Some(change.secrets.unwrap_or_default()),
    };
    let changed = state.service.change_session(&caller, &id, change).await?;
    Ok(Json(Session::from(changed)).into_response())
}

/// Changes what the body names, and nothing else.
pub(crate) async fn patch(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    BodyArguments(mut arguments): BodyArguments,
) -> Result<Json<Session>, Envelope> {
    let id = SessionId::parse(&id)?;
    let change = new_session::change(&mut arguments)?;
    all_known(&arguments)?;
    let changed = state.service.change_session(&caller, &id, change).await?;
    Ok(Json(changed.into()))
}

/// Rejects fields that would have no effect.
fn all_known(arguments: &Arguments) -> Result<(), Envelope> {
    match arguments.names().next() {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(64).collect();
            let message = format!("`{name}` is not a field of a session that can be set");
            let hint = "the fields are name, description, labels, lifetime, network and secrets; a new session \
                        also takes policy";
            Err(Envelope::new(Code::InvalidArgument, message).with_hint(hint))
        }
    }
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
) -> Result<Json<CreatedSession>, Envelope> {
    new_session::create(&state, &caller, arguments).await.map(Json)
}

pub(crate) async fn create_enveloped(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<Enveloped<CreatedSession>>, Envelope> {
    let created = new_session::create(&state, &caller, arguments).await?;
    Ok(Json(Enveloped::new(created)))
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
