//! Sessions as tools tell of them: one that was made or emptied, and the list of them.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::{Value, json};
use woma_core::{Caller, SessionId, SessionInfo};

use super::call::{Refusal, to_value};
use super::catalogue::ToolKind;
use super::pages::{self, Range, Row};
use super::schemas::{change_input, done_schema, object, paged, session_input, session_schema};
use super::{content, slim};
use crate::api::arguments::Arguments;
use crate::api::new_session::{self, CreatedSession};
use crate::api::sessions::Session;
use crate::api::state::{AppState, Client};
use crate::config::types::ReplyForm;

/// Description, input and output of the tools that list, delete, interrupt and reset sessions.
pub(super) fn describe(kind: ToolKind) -> (String, JsonObject, JsonObject) {
    match kind {
        ToolKind::ListSessions | ToolKind::ListActiveSessions => (
            "List your sessions: id, when last used, whether code runs in it, how many runs, and when its variables expire.".to_owned(),
            object(
                &json!({
                    "offset": {"type": "integer", "minimum": 0, "description": "Sessions to skip: the next_offset of the page before."},
                    "limit": {"type": "integer", "minimum": 1, "description": "Sessions to return at most."},
                }),
                &[],
            ),
            paged(object(
                &json!({
                    "sessions": {"type": "array", "items": session_schema()},
                    "total": {"type": "integer"},
                }),
                &["sessions", "total"],
            )),
        ),
        ToolKind::DeleteSession => (
            "Delete a session: running code is stopped, its variables and files are lost.".to_owned(),
            session_input("The session to end", true),
            done_schema(),
        ),
        ToolKind::ChangeSession => (
            "Change the network, the name, the description, the labels or the lifetime of a session; code and variables stay as they are.".to_owned(),
            change_input(),
            session_schema(),
        ),
        ToolKind::InterruptSession => (
            "Interrupt the running code of a session, like Ctrl-C. Variables are kept.".to_owned(),
            session_input("The session whose code is to be stopped", false),
            done_schema(),
        ),
        _ => (
            "Empty a session: stops running code and clears its variables and files. The id stays valid.".to_owned(),
            session_input("The session to empty", false),
            session_schema(),
        ),
    }
}

/// A session that was made or emptied: as data, and as text.
pub(crate) fn made(state: &AppState, session: SessionInfo, what: &str) -> (Value, Option<String>) {
    let text = format!("Session {} is {what}.", session.id);
    (value(state, session), Some(text))
}

/// Changes a session as the arguments say.
pub(crate) async fn change(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let id = arguments.required(&["session_id"], "the session to change")?;
    let change = new_session::change(&mut arguments)?;
    let changed = state.service.change_session(caller, &SessionId::parse(&id)?, change).await?;
    let (value, text) = made(state, changed, "changed");
    Ok(content::plain(state, value, text, arguments.unknown().collect()))
}

/// A session that was created, with the files that were downloaded into it.
pub(crate) fn created(state: &AppState, mut created: CreatedSession) -> CallToolResult {
    let mut text = format!("Session {} is ready.", created.session.session_id);
    if !created.downloaded_files.is_empty() {
        text = format!("{text}\nDownloaded: {}", created.downloaded_files.join(", "));
    }
    for error in &created.errors {
        text = format!("{text}\nNot downloaded: {error}");
    }
    let warnings = std::mem::take(&mut created.warnings);
    let mut value = to_value(&created);
    if state.presentation.reply == ReplyForm::Lean {
        slim::fields(&mut value);
        if let Some(fields) = value.as_object_mut() {
            fields.remove("working_directory");
            fields.remove("last_activity");
        }
    }
    content::plain(state, value, Some(text), warnings)
}

/// The caller's sessions, in pages.
pub(crate) async fn list(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
    is_active_only: bool,
) -> Result<CallToolResult, Refusal> {
    let range = Range::read(&mut arguments)?;
    let mut sessions = state.service.sessions(caller).await?;
    sessions.retain(|session| session.is_live || !is_active_only);
    let total = sessions.len();
    let own = match &state.client {
        Client::Connected(own) => Some(own),
        Client::Rest | Client::Stateless => None,
    };
    let row = |session: SessionInfo| {
        let is_own = own == Some(&session.id);
        let mut line = line(&session);
        let mut value = value(state, session);
        if let (true, Some(fields)) = (is_own, value.as_object_mut()) {
            line.push_str(", your own");
            fields.insert("is_own".to_owned(), true.into());
        }
        Row { line, value }
    };
    let rows = sessions.into_iter().map(row).collect();
    let page = pages::page(rows, range, state.presentation.context_chars);
    let mut answer = json!({"total": total, "sessions": page.values});
    let mut lines = page.lines;
    if lines.is_empty() {
        lines.push("No sessions.".to_owned());
    }
    if let (Some(next), Some(fields)) = (page.next_offset, answer.as_object_mut()) {
        fields.insert("next_offset".to_owned(), next.into());
        lines.push(format!("[of {total} sessions; offset {next} reads on]"));
    }
    let warnings = page.warnings.into_iter().chain(arguments.unknown()).collect();
    Ok(content::plain(state, answer, Some(lines.join("\n")), warnings))
}

fn value(state: &AppState, session: SessionInfo) -> Value {
    let mut value = to_value(&Session::from(session));
    if state.presentation.reply == ReplyForm::Lean {
        slim::fields(&mut value);
        if let Some(time) = value["last_activity"].as_str().map(slim::whole_seconds) {
            value["last_activity"] = time.into();
        }
        if let Some(left) = value.get("expires_in").and_then(Value::as_f64) {
            value["expires_in"] = left.round().into();
        }
    }
    value
}

fn line(session: &SessionInfo) -> String {
    let id = session.id.as_str();
    let mut facts = vec![format!("{} runs", session.execution_count)];
    if session.is_busy {
        facts.push("running".to_owned());
    }
    facts.push(match session.expires_in {
        Some(left) => format!("variables expire in {} s", left.as_secs()),
        None => {
            let time = slim::whole_seconds(&session.last_activity.to_string());
            format!("last used {time}")
        }
    });
    let name = match session.name.as_str() {
        name if name == id || name.is_empty() => String::new(),
        name => format!(" ({name})"),
    };
    format!("{id}{name}: {}", facts.join(", "))
}
