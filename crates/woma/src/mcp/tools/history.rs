//! Tools for checkpoints and notebooks of a session.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::json;
use woma_core::{Caller, Destination, Notebook};

use super::call::{Refusal, session, to_value};
use super::catalogue::ToolKind;
use super::content;
use super::schemas::{object, schema_of, session_input};
use crate::api::arguments::Arguments;
use crate::api::files::{self, FileReply};
use crate::api::history::CheckpointReply;
use crate::api::reply::Revived;
use crate::api::state::AppState;

/// Description, input, output.
pub(crate) fn describe(kind: ToolKind) -> (String, JsonObject, JsonObject) {
    match kind {
        ToolKind::CheckpointSession => (
            "Save a session's variables now, so that restore_session can bring them back. Sessions are also saved by themselves while they are idle, and come back after a restart or an eviction.".to_owned(),
            session_input("The session to save", false),
            schema_of::<CheckpointReply>(),
        ),
        ToolKind::RestoreSession => (
            "Restore a session's last checkpoint: later changes of variables are lost. Files stay as they are. On failure the session is unchanged, and the error says why.".to_owned(),
            session_input("The session to take back", false),
            schema_of::<Revived>(),
        ),
        _ => (
            "Write what was run in a session, with its outputs and charts, as a Jupyter notebook into the session's folder, and get a link to it. It has the latest 16 MiB of runs; its first cell and `warnings` list omissions.".to_owned(),
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

pub(crate) async fn call(
    state: &AppState,
    caller: &Caller,
    kind: ToolKind,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let service = &state.service;
    let id = session(state, &mut arguments)?;
    let (mut warnings, mut text) = (Vec::new(), None);
    let answer = match kind {
        ToolKind::CheckpointSession => {
            let made = service.checkpoint_session(caller, &id).await?;
            to_value(&CheckpointReply::new(&id, made))
        }
        ToolKind::RestoreSession => {
            to_value(&Revived::from(service.restore_session(caller, &id).await?))
        }
        _ => {
            let name = arguments.text(&["filename"])?;
            let name = name.unwrap_or_else(|| "session.ipynb".to_owned());
            let Notebook { content, left_out } = service.notebook(caller, &id).await?;
            if !left_out.is_nothing() {
                warnings.push(left_out.sentence());
            }
            let (content, place) = (content.to_string().into_bytes(), Destination::Named(&name));
            let written = files::put(state, caller, &id, place, content.into()).await?;
            let (answer, told) = super::files::written(state, &written, Some(id.as_str()));
            text = Some(told);
            answer
        }
    };
    warnings.extend(arguments.unknown());
    Ok(content::plain(state, answer, text, warnings))
}
