//! Checkpoints, notebooks, executions and the audit trail over REST.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use woma_core::SessionId;

use super::downloads::disposition;
use super::given::{Asked, CallerOf, PathOf};
use crate::doors::Doors;
use crate::error::Envelope;
use crate::history::{self, AuditTrail, CheckpointReply, Executions};
use crate::wire::Revived;

pub(crate) async fn checkpoint(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Json<CheckpointReply>, Envelope> {
    let id = SessionId::parse(&id)?;
    let made = doors.service.checkpoint_session(&caller, &id).await?;
    Ok(Json(CheckpointReply::new(&id, made)))
}

pub(crate) async fn restore(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Json<Revived>, Envelope> {
    let revival = doors.service.restore_session(&caller, &SessionId::parse(&id)?).await?;
    Ok(Json(revival.into()))
}

pub(crate) async fn notebook(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Response, Envelope> {
    let id = SessionId::parse(&id)?;
    let notebook = doors.service.notebook(&caller, &id).await?;
    let headers = [
        (CONTENT_TYPE, "application/x-ipynb+json".to_owned()),
        (CONTENT_DISPOSITION, disposition(&format!("{id}.ipynb"), false)),
    ];
    Ok((headers, notebook.to_string()).into_response())
}

pub(crate) async fn audit(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Asked(query): Asked,
) -> Result<Json<AuditTrail>, Envelope> {
    history::audit(&doors, &caller, query).await.map(Json)
}

pub(crate) async fn executions(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Asked(query): Asked,
) -> Result<Json<Executions>, Envelope> {
    history::executions(&doors, &caller, query).await.map(Json)
}
