//! The tools for what a session keeps: its checkpoint, and its story as a notebook.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::json;
use woma_core::{Caller, Notebook, Place};

use super::call::{Refusal, session_or_default, to_value};
use super::content;
use super::tools::{Kind, object, schema_of, session_input};
use crate::arguments::Arguments;
use crate::doors::Doors;
use crate::files::{self, FileReply};
use crate::history::CheckpointReply;
use crate::wire::Revived;

/// Description, input, output.
pub(super) fn describe(kind: Kind) -> (String, JsonObject, JsonObject) {
    match kind {
        Kind::CheckpointSession => (
            "Save a session's variables now, so that restore_session can bring them back. Sessions are also saved by themselves while they are idle, and come back after a restart or an eviction.".to_owned(),
            session_input("The session to save", false),
            schema_of::<CheckpointReply>(),
        ),
        Kind::RestoreSession => (
            "Take a session back to its last checkpoint: variables that were set or changed since are gone. Files stay as they are. If that fails, the session stays as it was, and the error says why.".to_owned(),
            session_input("The session to take back", false),
            schema_of::<Revived>(),
        ),
        _ => (
            "Write what was run in a session, with its outputs and charts, as a Jupyter notebook into the session's folder, and get a link to it. It has the latest 16 MiB of runs; what is left out or cut is said in its first cell and in `warnings`.".to_owned(),
            object(
                &json!({
                    "session_id": {"type": "string", "description": "The session to export"},
                    "filename": {"type": "string", "description": "Name of the notebook.", "default": "session.ipynb"},
                }),
                &[],
            ),
            schema_of::<FileReply>(),
        ),
    }
}

pub(super) async fn call(
    doors: &Doors,
    caller: &Caller,
    kind: Kind,
    mut given: Arguments,
) -> Result<CallToolResult, Refusal> {
    let service = &doors.service;
    let id = session_or_default(&mut given)?;
    let mut warnings = Vec::new();
    let answer = match kind {
        Kind::CheckpointSession => {
            let made = service.checkpoint_session(caller, &id).await?;
            to_value(&CheckpointReply::new(&id, made))
        }
        Kind::RestoreSession => {
            to_value(&Revived::from(service.restore_session(caller, &id).await?))
        }
        _ => {
            let name = given.text(&["filename"])?;
            let name = name.unwrap_or_else(|| "session.ipynb".to_owned());
            let Notebook { content, left_out } = service.notebook(caller, &id).await?;
            if !left_out.is_nothing() {
                warnings.push(left_out.sentence());
            }
            let (content, place) = (content.to_string().into_bytes(), Place::Named(&name));
            to_value(&files::put(doors, caller, &id, place, content.into()).await?)
        }
    };
    warnings.extend(given.unknown());
    Ok(content::plain(answer, warnings))
}
