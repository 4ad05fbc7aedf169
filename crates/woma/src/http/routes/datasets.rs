//! Datasets over REST: load, query, describe, list, drop.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use woma_core::{Content, QueryOutput, QueryResult};

use crate::api::arguments::Arguments;
use crate::api::datasets::{
    self, DatasetBody, DatasetDropped, DatasetList, DescriptionReply, LoadReply, QueryReply,
};
use crate::api::error::Envelope;
use crate::api::listing::PageRequest;
use crate::api::state::AppState;
use crate::http::extract::{BodyArguments, CallerOf, PathParams, QueryArguments};

const ROW_COUNT: HeaderName = HeaderName::from_static("x-row-count");
const HAS_MORE: HeaderName = HeaderName::from_static("x-has-more");

pub(crate) async fn load(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<LoadReply>, Envelope> {
    datasets::load(&state, &caller, arguments).await.map(Json)
}

pub(crate) async fn create(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<(StatusCode, Json<LoadReply>), Envelope> {
    let loaded = datasets::load(&state, &caller, arguments).await?;
    let status = if loaded.replaced { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(loaded)))
}

pub(crate) async fn query(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let (request, warnings) = datasets::read_query(&state, arguments)?;
    let format = request.format.unwrap_or_default();
    let QueryResult { info, output } = state.service.query_datasets(&caller, request).await?;
    let mut reply = QueryReply::new(info, &output);
    reply.warnings.extend(warnings);
    Ok(match output {
        QueryOutput::Rows(rows) => Json(reply.with_objects(rows)).into_response(),
        QueryOutput::Saved { .. } => Json(reply).into_response(),
        QueryOutput::File { file, size_bytes } => {
            let headers = [
                (CONTENT_TYPE, format.media_type().to_owned()),
                (CONTENT_LENGTH, size_bytes.to_string()),
                (CONTENT_DISPOSITION, format!("attachment; filename=\"result.{}\"", format.name())),
                (ROW_COUNT, reply.row_count.to_string()),
                (HAS_MORE, reply.has_more.to_string()),
            ];
            let body = Body::from_stream(Content::File(file).pieces(0, size_bytes));
            (headers, body).into_response()
        }
    })
}

pub(crate) async fn list(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(query): QueryArguments,
) -> Result<Json<DatasetList>, Envelope> {
    page(&state, &caller, query).await.map(Json)
}

/// As an older system listed them, under the name `datasets` too.
async fn page(
    state: &AppState,
    caller: &woma_core::Caller,
    mut query: Arguments,
) -> Result<DatasetList, Envelope> {
    let PageRequest { limit, cursor } = PageRequest::read(&mut query)?;
    datasets::list(state, caller, cursor.as_deref(), limit).await
}

pub(crate) async fn show(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(name): PathParams<String>,
) -> Result<Json<DatasetBody>, Envelope> {
    Ok(Json(state.service.dataset(&caller, &name).await?.into()))
}

pub(crate) async fn describe(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(name): PathParams<String>,
) -> Result<Json<DescriptionReply>, Envelope> {
    Ok(Json(state.service.describe_dataset(&caller, &name).await?.into()))
}

pub(crate) async fn delete(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(name): PathParams<String>,
) -> Result<Json<DatasetDropped>, Envelope> {
    datasets::drop_dataset(&state, &caller, &name).await.map(Json)
}
