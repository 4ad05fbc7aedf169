//! Checkpoints, notebooks, executions and the audit trail over REST.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use woma_core::{LeftOut, SessionId};

use super::downloads::disposition;
use crate::api::error::Envelope;
use crate::api::history::{self, AuditTrail, CheckpointReply, ExecutionBody, Executions};
use crate::api::reply::Revived;
use crate::api::state::AppState;
use crate::http::extract::{CallerOf, PathParams, QueryArguments};

/// Headers that count the parts of a session that its notebook omits.
const CELLS_LEFT_OUT: HeaderName = HeaderName::from_static("x-notebook-cells-left-out");
const OUTPUTS_CUT: HeaderName = HeaderName::from_static("x-notebook-outputs-cut");
const PICTURES_LEFT_OUT: HeaderName = HeaderName::from_static("x-notebook-pictures-left-out");

pub(crate) async fn checkpoint(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<CheckpointReply>, Envelope> {
    let id = SessionId::parse(&id)?;
    let made = state.service.checkpoint_session(&caller, &id).await?;
    Ok(Json(CheckpointReply::new(&id, made)))
}

pub(crate) async fn restore(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<Revived>, Envelope> {
    let revival = state.service.restore_session(&caller, &SessionId::parse(&id)?).await?;
    Ok(Json(revival.into()))
}

pub(crate) async fn notebook(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Response, Envelope> {
    let id = SessionId::parse(&id)?;
    let notebook = state.service.notebook(&caller, &id).await?;
    let LeftOut { cells, cut, pictures } = notebook.left_out;
    let headers = [
        (CONTENT_TYPE, "application/x-ipynb+json".to_owned()),
        (CONTENT_DISPOSITION, disposition(&format!("{id}.ipynb"), false)),
        (CELLS_LEFT_OUT, cells.to_string()),
        (OUTPUTS_CUT, cut.to_string()),
        (PICTURES_LEFT_OUT, pictures.to_string()),
    ];
    Ok((headers, notebook.content.to_string()).into_response())
}

pub(crate) async fn audit(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(query): QueryArguments,
) -> Result<Json<AuditTrail>, Envelope> {
    history::audit(&state, &caller, query).await.map(Json)
}

pub(crate) async fn execution(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<ExecutionBody>, Envelope> {
    history::execution(&state, &caller, &id).await.map(Json)
}

pub(crate) async fn executions(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(query): QueryArguments,
) -> Result<Json<Executions>, Envelope> {
    history::executions(&state, &caller, query).await.map(Json)
}
