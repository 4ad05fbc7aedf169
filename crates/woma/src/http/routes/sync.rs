//! Execution in the envelope of an older API, whose fields `texts`, `images` and `errors` are beside
//! those of every other reply.

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::Representation;

use super::execute::{Enveloped, reply};
use super::fit::Room;
use super::stream;
use crate::api::error::Envelope;
use crate::api::reply::Reply;
use crate::api::request::Call;
use crate::http::extract::{BodyArguments, CallerOf, RequestState};

/// Reply of a run, with its output in the lists of an older API.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SyncReply {
    #[serde(flatten)]
    reply: Reply,
    /// Standard output, standard error, displayed texts and the value of the last expression.
    texts: Vec<String>,
    /// Pictures in base64.
    #[schemars(with = "Vec<String>")]
    images: Vec<Representation>,
    /// The error of the run, if there was one.
    errors: Vec<SyncError>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SyncError {
    error: String,
    /// Lines.
    traceback: Vec<String>,
}

/// Sends one reply at the end.
pub(crate) async fn execute(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    BodyArguments(arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let call = Call::read(&state, arguments)?;
    let respond = |reply| Json(Enveloped::new(SyncReply::new(reply))).into_response();
    reply(&state, &caller, call, Room::Halved, respond).await
}

impl SyncReply {
    /// Displayed objects move into the lists; text streams are in both places.
    fn new(mut reply: Reply) -> Self {
        let streams = [&reply.stdout, &reply.stderr].into_iter();
        let mut texts: Vec<String> = streams.filter(|text| !text.is_empty()).cloned().collect();
        let mut images = Vec::new();
        for shown in std::mem::take(&mut reply.displays) {
            let pictures = shown.data.iter().filter(|(kind, _)| kind.starts_with("image/"));
            let pictures: Vec<_> = pictures.map(|(_, picture)| picture.clone()).collect();
            match shown.text() {
                Some(text) if pictures.is_empty() => texts.push(text.to_owned()),
                _ => images.extend(pictures),
            }
        }
        let errors = stream::failure(&reply).map(|(error, traceback)| SyncError {
            error,
            traceback: traceback.map(str::to_owned).collect(),
        });
        let errors = errors.into_iter().collect();
        Self { reply, texts, images, errors }
    }
}
