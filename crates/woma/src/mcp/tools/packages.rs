//! Package tools: descriptions, calls and lists.

use rmcp::model::{CallToolResult, JsonObject};
use serde_json::json;
use tokio::sync::mpsc;
use woma_core::{Caller, PackageAction};

use super::call::{Refusal, session, to_value};
use super::catalogue::ToolKind;
use super::content;
use super::schemas::{object, schema_of, session_input};
use crate::api::arguments::Arguments;
use crate::api::packages::{self, PackageTable, PackagesReply};
use crate::api::state::AppState;

/// Description, input and output of a tool.
pub(crate) fn describe(kind: ToolKind) -> (String, JsonObject, JsonObject) {
    let names = |what: &str| {
        json!({
            "description": what,
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        })
    };
    match kind {
        ToolKind::InstallPackage => (
            "Install Python packages into a session; they stay until it is reset. Works although code has no network. `pip install` in code does the same.".to_owned(),
            object(
                &json!({
                    "packages": names("Names as for pip, such as requests>=2.28.0; several with spaces between them, or a list."),
                    "version": {"type": "string", "description": "Version of the one package that is named.", "default": "latest"},
                    "upgrade": {"type": "boolean", "description": "Install the latest version of what is installed already."},
                    "session_id": {"type": "string", "description": "The session."},
                    "timeout": {"type": "number", "description": "Seconds until the installation is stopped."},
                }),
                &["packages"],
            ),
            schema_of::<PackagesReply>(),
        ),
        ToolKind::UninstallPackage => (
            "Remove packages that a session has installed.".to_owned(),
            object(
                &json!({
                    "packages": names("Names of packages."),
                    "session_id": {"type": "string", "description": "The session."},
                }),
                &["packages"],
            ),
            schema_of::<PackagesReply>(),
        ),
        _ => (
            "List the packages of a session with their versions: what it has installed, and what every session has.".to_owned(),
            session_input("The session", false),
            schema_of::<PackageTable>(),
        ),
    }
}

/// One of the tools above.
pub(crate) async fn call(
    state: &AppState,
    caller: &Caller,
    kind: ToolKind,
    arguments: Arguments,
    progress: Option<mpsc::UnboundedSender<String>>,
) -> Result<CallToolResult, Refusal> {
    let action = match kind {
        ToolKind::UninstallPackage => PackageAction::Uninstall,
        ToolKind::InstallPackage => PackageAction::Install,
        _ => return list(state, caller, arguments).await,
    };
    let changed = packages::change(state, caller, action, arguments, None, progress).await;
    let mut reply = changed?;
    let warnings = std::mem::take(&mut reply.warnings);
    let text = reply.message.clone();
    Ok(content::plain(state, to_value(&reply), Some(text), warnings))
}

async fn list(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let id = session(state, &mut arguments)?;
    let table = packages::list(state, caller, &id).await?;
    let lines = |packages: &[packages::PackageBody]| -> Vec<String> {
        packages.iter().map(|one| format!("{}=={}", one.name, one.version)).collect()
    };
    let (own, shared) = (lines(&table.session), lines(&table.environment));
    let text = match own.is_empty() {
        true => format!("Session {id} has installed no packages."),
        false => format!("Installed in session {id}: {}", own.join(", ")),
    };
    let text = format!("{text}\nIn every session ({}): {}", shared.len(), shared.join(", "));
    Ok(content::plain(state, to_value(&table), Some(text), arguments.unknown().collect()))
}
