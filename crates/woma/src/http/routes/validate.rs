//! Validation of code over REST.

use axum::Json;
use axum::extract::State;

use crate::api::error::Envelope;
use crate::api::state::AppState;
use crate::api::validation::{self, Validation};
use crate::http::extract::{BodyArguments, CallerOf};

pub(crate) async fn validate(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Json<Validation>, Envelope> {
    let (mut validation, warnings) = validation::validate(&state, &caller, arguments).await?;
    validation.validation.warnings.extend(warnings);
    Ok(Json(validation))
}
