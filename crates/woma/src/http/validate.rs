//! Checking code over REST, without running it.

use axum::Json;
use axum::extract::State;

use super::given::{CallerOf, Given};
use crate::doors::Doors;
use crate::error::Envelope;
use crate::validation::{self, Validation};

pub(crate) async fn validate(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Given(arguments): Given,
) -> Result<Json<Validation>, Envelope> {
    let (mut validation, warnings) = validation::validate(&doors, &caller, arguments).await?;
    validation.validation.warnings.extend(warnings);
    Ok(Json(validation))
}
