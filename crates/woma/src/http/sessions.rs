//! Sessions over REST: their list, their making, their end.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{Caller, NewSession, SessionId};

use super::execute::Enveloped;
use super::given::{CallerOf, Given, PathOf};
use crate::arguments::Arguments;
use crate::doors::Doors;
use crate::error::Envelope;
use crate::wire::Session;

/// A session to be made. Everything may be left out.
#[derive(Debug, JsonSchema)]
#[schemars(transform = nothing_is_required)]
pub(crate) struct SessionBody {
    /// Minted and unguessable, if it is left out.
    #[schemars(with = "String")]
    session_id: Option<String>,
    /// For people.
    #[schemars(with = "String")]
    name: Option<String>,
    #[schemars(with = "String")]
    description: Option<String>,
    /// The name of rules for its code; they hold within those of the server or the key.
    #[schemars(with = "String")]
    policy: Option<String>,
}

fn nothing_is_required(schema: &mut schemars::Schema) {
    schema.remove("required");
}

/// The caller's sessions by their ids.
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
    /// Whether anything was running.
    interrupted: bool,
}

pub(crate) async fn table(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
) -> Result<Json<SessionTable>, Envelope> {
    let sessions = all(&doors, &caller).await?.into_iter();
    let sessions: BTreeMap<_, _> = sessions.map(|info| (info.session_id.clone(), info)).collect();
    let total = sessions.len();
    Ok(Json(SessionTable { sessions, total }))
}

pub(crate) async fn list(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
) -> Result<Json<Vec<Session>>, Envelope> {
    all(&doors, &caller).await.map(Json)
}

async fn all(doors: &Doors, caller: &Caller) -> Result<Vec<Session>, Envelope> {
    let sessions = doors.service.sessions(caller).await?;
    Ok(sessions.into_iter().map(Session::from).collect())
}

pub(crate) async fn create(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Given(arguments): Given,
) -> Result<Json<Session>, Envelope> {
    make(&doors, &caller, arguments).await.map(Json)
}

pub(crate) async fn create_enveloped(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Given(arguments): Given,
) -> Result<Json<Enveloped<Session>>, Envelope> {
    make(&doors, &caller, arguments).await.map(|session| Json(Enveloped::new(session)))
}

async fn make(
    doors: &Doors,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<Session, Envelope> {
    let body = SessionBody {
        session_id: arguments.text(&["session_id"])?,
        name: arguments.text(&["name"])?,
        description: arguments.text(&["description"])?,
        policy: arguments.text(&["policy"])?,
    };
    let wanted = NewSession {
        id: body.session_id.as_deref().map(SessionId::parse).transpose()?,
        name: body.name.as_deref().map(short),
        description: body.description.as_deref().map(short).unwrap_or_default(),
        policy: body.policy,
    };
    let made = doors.service.create_session(caller, wanted).await?;
    Ok(made.into())
}

/// Names are shown in lists; a longer one is cut.
fn short(text: &str) -> String {
    text.chars().take(1_000).collect()
}

pub(crate) async fn show(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Json<Session>, Envelope> {
    let info = doors.service.session(&caller, &SessionId::parse(&id)?).await?;
    Ok(Json(info.into()))
}

pub(crate) async fn delete(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Json<Deleted>, Envelope> {
    let id = SessionId::parse(&id)?;
    doors.service.delete_session(&caller, &id).await?;
    let message = format!("Session {id} is deleted");
    Ok(Json(Deleted { success: true, session_id: id.to_string(), message }))
}

pub(crate) async fn interrupt(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Json<Interruption>, Envelope> {
    let id = SessionId::parse(&id)?;
    let interrupted = doors.service.interrupt_session(&caller, &id)?;
    Ok(Json(Interruption { success: true, session_id: id.to_string(), interrupted }))
}

pub(crate) async fn reset(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Json<Session>, Envelope> {
    let info = doors.service.reset_session(&caller, &SessionId::parse(&id)?).await?;
    Ok(Json(info.into()))
}
