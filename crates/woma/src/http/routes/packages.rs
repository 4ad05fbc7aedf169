//! Packages of sessions over REST.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use woma_core::{PackageAction, SessionId};

use crate::api::environments::{self, EnvironmentTable};
use crate::api::error::Envelope;
use crate::api::packages::{self, PackageTable, PackagesReply};
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, PathParams, QueryArguments};

pub(crate) async fn list(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Json<PackageTable>, Envelope> {
    let id = SessionId::parse(&id)?;
    packages::list(&state, &caller, &id).await.map(Json)
}

/// A lock of the environment of a session and of its own packages.
pub(crate) async fn lock(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<String, Envelope> {
    let id = SessionId::parse(&id)?;
    Ok(state.service.freeze(&caller, &id).await?)
}

pub(crate) async fn environments(
    State(state): State<AppState>,
    CallerOf(_): CallerOf,
) -> Json<EnvironmentTable> {
    Json(environments::list(&state))
}

pub(crate) async fn install(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<PackagesReply>, Envelope> {
    let (id, action) = (SessionId::parse(&id)?, PackageAction::Install);
    packages::change(&state, &caller, action, arguments, Some(id), None).await.map(Json)
}

pub(crate) async fn uninstall(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((id, name)): PathParams<(String, String)>,
    QueryArguments(mut arguments): QueryArguments,
) -> Result<Json<PackagesReply>, Envelope> {
    let (id, action) = (SessionId::parse(&id)?, PackageAction::Uninstall);
    arguments.add("packages", name)?;
    packages::change(&state, &caller, action, arguments, Some(id), None).await.map(Json)
}

/// As an older system installed packages: a package that cannot be installed is a reply.
pub(crate) async fn pip_install(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<PackagesReply>, Envelope> {
    let action = PackageAction::Install;
    let changed = packages::change(&state, &caller, action, arguments, None, None).await;
    changed.or_else(refused).map(Json)
}

fn refused(error: Envelope) -> Result<PackagesReply, Envelope> {
    let is_refusal = matches!(
        error.status,
        StatusCode::BAD_REQUEST
            | StatusCode::FORBIDDEN
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::BAD_GATEWAY
            | StatusCode::GATEWAY_TIMEOUT
    );
    match is_refusal {
        true => Ok(PackagesReply::refusal(error.message)),
        false => Err(error),
    }
}
