//! File tools: descriptions, calls, and files in a form that a model can use.

use base64::Engine as _;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use serde::Serialize;
use serde_json::json;
use woma_core::{Caller, Picture, SessionId};

use super::call::Refusal;
use super::catalogue::ToolKind;
use super::pages::{self, Range, Row};
use super::schemas::{object, paged, schema_of};
use super::{content, slim};
use crate::api::arguments::{Arguments, Problem};
use crate::api::files::{self, FileDeleted, FileReply, Files, ListedFile, human};
use crate::api::state::AppState;
use crate::config::types::{ReplyForm, StateWithoutSession};
use crate::mcp::resources::file_uri;

/// Largest picture that is shown, in bytes.
const PICTURE_BYTES_MAX: u64 = 5 * 1024 * 1024;
/// Bytes of a character, at most.
const CHAR_BYTES_MAX: u64 = 4;

/// A file of a session, for a model.
#[derive(Debug, Serialize)]
struct Fetched {
    success: bool,
    filename: String,
    path: String,
    size_bytes: u64,
    size_human: String,
    mime_type: String,
    session_id: String,
    /// Encoding of `content`: `text` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// Whether `content` is only the beginning.
    truncated: bool,
    /// Download link that needs no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    download_url: Option<String>,
    /// Path of a copy on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Limits that the descriptions state.
pub(crate) struct FileFacts {
    pub(crate) file_bytes_max: u64,
    pub(crate) fetch_bytes_max: u64,
    pub(crate) has_addresses: bool,
    pub(crate) state: StateWithoutSession,
}

impl FileFacts {
    pub(crate) fn new(state: &AppState) -> Self {
        let storage = state.service.settings().storage.as_ref();
        Self {
            file_bytes_max: storage.map_or(0, |storage| storage.file_bytes_max),
            fetch_bytes_max: storage.map_or(0, |storage| storage.fetch.bytes_max),
            has_addresses: state.presentation.base_url.is_some(),
            state: state.state_without_session(),
        }
    }

    /// Schema of `session_id`.
    fn session(&self) -> serde_json::Value {
        match self.state {
            StateWithoutSession::Own => {
                json!({"type": "string", "description": "The session whose files are meant; without it, your own."})
            }
            StateWithoutSession::New => {
                json!({"type": "string", "description": "The session whose files are meant."})
            }
            StateWithoutSession::Default | StateWithoutSession::Ephemeral => {
                json!({"type": "string", "description": "The session whose files are meant.", "default": SessionId::shared_default().as_str()})
            }
        }
    }

    /// Description, input and output of a tool; `None` if it has nothing to do with files.
    pub(crate) fn describe(&self, kind: ToolKind) -> Option<(String, JsonObject, JsonObject)> {
        let session = || self.session();
        let name = |what: &str| json!({"type": "string", "description": what});
        Some(match kind {
            ToolKind::ListFiles => (
                "List the files in a session's working directory: path, size, type, when changed, and the download link where a file has one.".to_owned(),
                object(
                    &json!({
                        "session_id": session(),
                        "offset": {"type": "integer", "minimum": 0, "description": "Files to skip: the next_offset of the page before."},
                        "limit": {"type": "integer", "minimum": 1, "description": "Files to return at most."},
                    }),
                    &[],
                ),
                paged(schema_of::<Files>()),
            ),
            ToolKind::UploadFile => (
                format!("Put a file into a session's working directory, where code can open it by its name. Up to {}. A file of the same name is replaced; the session is made if it does not exist.", human(self.file_bytes_max)),
                object(
                    &json!({
                        "filename": name("A name, or a path below the working directory."),
                        "content": name("The file's content, if it is text."),
                        "content_base64": name("The file's bytes in base64, instead of `content`."),
                        "session_id": session(),
                    }),
                    &["filename"],
                ),
                schema_of::<FileReply>(),
            ),
            ToolKind::FetchFile => (
                format!("Get a file out of a session: text as text, pictures as images, small other files in base64{}. With `url` instead of a path it does what fetch_from_url does.", if self.has_addresses { ", and a download link for people" } else { ", and the path of a copy on the host" }),
                object(
                    &json!({
                        "path": name("The file, below the working directory."),
                        "filename": name("Another name for `path`; with `url`, the name that the file gets."),
                        "url": name("Fetch this address into the session instead."),
                        "session_id": session(),
                    }),
                    &[],
                ),
                fetched_schema(),
            ),
            ToolKind::DeleteFile => (
                "Delete a file from a session's working directory. Download links that it has stay.".to_owned(),
                object(
                    &json!({"path": name("The file, below the working directory."), "session_id": session()}),
                    &["path"],
                ),
                schema_of::<FileDeleted>(),
            ),
            ToolKind::FetchFromUrl => (
                format!("Download a file from a public http or https address into a session's working directory, where code can open it. The session itself has no network. Up to {}.", human(self.fetch_bytes_max)),
                object(
                    &json!({
                        "url": name("The address of the file."),
                        "filename": name("The name that it gets; without it, the one of the address."),
                        "session_id": session(),
                    }),
                    &["url"],
                ),
                schema_of::<FileReply>(),
            ),
            _ => return None,
        })
    }
}

/// Output schema of `fetch_file`.
fn fetched_schema() -> JsonObject {
    object(
        &json!({
            "success": {"type": "boolean"},
            "filename": {"type": "string"},
            "path": {"type": "string"},
            "size_bytes": {"type": "integer"},
            "size_human": {"type": "string"},
            "mime_type": {"type": "string"},
            "session_id": {"type": "string"},
            "encoding": {"type": "string", "description": "Encoding of `content`: text or base64."},
            "content": {"type": "string"},
            "truncated": {"type": "boolean", "description": "Whether `content` is only the beginning."},
            "download_url": {"type": "string", "description": "Download link that needs no key."},
            "host_path": {"type": "string", "description": "Path of a copy on the host."},
            "file_id": {"type": "string"},
            "expires_at": {"type": "string"},
            "preview": {"type": "string", "description": "Of a file that came from `url`."},
            "replaced": {"type": "boolean"},
        }),
        &["success", "filename", "path", "size_bytes", "mime_type", "session_id"],
    )
}

/// One of the tools above.
pub(crate) async fn call(
    state: &AppState,
    caller: &Caller,
    kind: ToolKind,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let named = arguments.peek("session_id").map(str::to_owned);
    let named = named.as_deref();
    let (answer, text) = match kind {
        ToolKind::ListFiles => return list(state, caller, arguments).await,
        ToolKind::UploadFile => {
            let reply = files::upload(state, caller, None, &mut arguments).await?;
            written(state, &reply, named)
        }
        ToolKind::DeleteFile => {
            let path = arguments.required(&["path", "filename"], "the file to delete")?;
            let session = state.existing_session(arguments.text(&["session_id"])?.as_deref())?;
            let deleted = files::delete(state, caller, &session, &path).await?;
            (value(state, &deleted, named), format!("{}.", deleted.message))
        }
        ToolKind::FetchFile if !arguments.has("url") => {
            return retrieve(state, caller, arguments).await;
        }
        _ => {
            let reply = files::fetch(state, caller, &mut arguments).await?;
            written(state, &reply, named)
        }
    };
    Ok(content::plain(state, answer, Some(text), arguments.unknown().collect()))
}

/// A file that was put into a session: as data, and as text.
pub(crate) fn written(
    state: &AppState,
    reply: &FileReply,
    named: Option<&str>,
) -> (serde_json::Value, String) {
    let answer = value(state, reply, named);
    let is_known = answer.get("session_id").is_none();
    let session =
        if is_known { String::new() } else { format!(" in session {}", reply.session_id) };
    let replaced = if reply.replaced { ", replaced" } else { "" };
    let mut text = format!("File: {} ({}{replaced}){session}", reply.path, reply.size_human);
    if !reply.preview.is_empty() {
        text = format!("{text}\n{}", reply.preview);
    }
    (answer, text)
}

/// The files of a session, in pages.
async fn list(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let range = Range::read(&mut arguments)?;
    let named = arguments.text(&["session_id"])?;
    let session = state.existing_session(named.as_deref())?;
    let mut list = files::list(state, caller, &session).await?;
    let row = |file: ListedFile| {
        let url = file.download_url.as_ref().map(|url| format!(" {url}")).unwrap_or_default();
        let line = format!("{} ({}){url}", file.path, file.size_human);
        let mut value = value(state, &file, None);
        if let Some(time) = value["modified"].as_str().filter(|_| is_lean(state)) {
            value["modified"] = slim::whole_seconds(time).into();
        }
        Row { line, value }
    };
    let rows = std::mem::take(&mut list.files).into_iter().map(row).collect();
    let page = pages::page(rows, range, state.presentation.context_chars);
    let mut answer = value(state, &list, named.as_deref());
    let mut lines = page.lines;
    if lines.is_empty() {
        lines.push("No files.".to_owned());
    }
    let mut warnings = std::mem::take(&mut list.warnings);
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("files".to_owned(), page.values.into());
        fields.remove("warnings");
        if let Some(next) = page.next_offset {
            fields.insert("next_offset".to_owned(), next.into());
            lines.push(format!("[of {} files; offset {next} reads on]", list.total_count));
            if !is_lean(state) {
                let more = list.total_count - next;
                warnings.push(format!("{more} more files are not listed; offset {next} reads on"));
            }
        }
    }
    warnings.extend(page.warnings);
    warnings.extend(arguments.unknown());
    Ok(content::plain(state, answer, Some(lines.join("\n")), warnings))
}

fn is_lean(state: &AppState) -> bool {
    state.presentation.reply == ReplyForm::Lean
}

/// The answer as data; in a lean reply without the session that the call has `named`.
fn value(state: &AppState, answer: &impl Serialize, named: Option<&str>) -> serde_json::Value {
    let mut value = serde_json::to_value(answer).unwrap_or_default();
    if is_lean(state) {
        slim::fields(&mut value);
        let default = state.known_session();
        let default = default.as_ref().map(SessionId::as_str);
        let named = named.map(str::trim).filter(|named| !named.is_empty());
        slim::known_session(&mut value, named.or(default));
    }
    value
}

/// Returns a file to a model: as text, as a picture, in base64, or as a link.
async fn retrieve(
    state: &AppState,
    caller: &Caller,
    mut arguments: Arguments,
) -> Result<CallToolResult, Refusal> {
    let path = arguments.text(&["path", "filename"])?.ok_or(Problem::Missing {
        name: "path",
        what: "the file to get, or a `url` to fetch it from,",
    })?;
    let named = arguments.text(&["session_id"])?;
    let session = state.existing_session(named.as_deref())?;
    let opened = state.service.open_file(caller, &session, &path).await?;
    let mut fetched = Fetched {
        success: true,
        filename: opened.name.clone(),
        path: opened.path.clone(),
        size_bytes: opened.size_bytes,
        size_human: human(opened.size_bytes),
        mime_type: opened.media_type.to_owned(),
        session_id: session.to_string(),
        encoding: None,
        content: None,
        truncated: false,
        download_url: None,
        host_path: None,
        file_id: None,
        expires_at: None,
        warnings: arguments.unknown().collect(),
    };
    add_address(state, caller, &session, &mut fetched).await;
    let chars = state.presentation.context_chars;
    let is_picture = opened.media_type.starts_with("image/")
        && opened.media_type != "image/svg+xml"
        && opened.size_bytes <= PICTURE_BYTES_MAX;
    let bytes_max = if is_picture { PICTURE_BYTES_MAX } else { chars as u64 * CHAR_BYTES_MAX };
    let bytes = opened.head(bytes_max).await?;
    let mut block = None;
    if is_picture {
        let picture = Picture { media_type: fetched.mime_type.clone(), bytes: bytes.into() };
        match content::picture_block(state, &caller.id, picture).await {
            Ok(picture) => block = Some(picture),
            Err(reason) => fetched.warnings.push(format!("the picture is not shown: {reason}")),
        }
    } else {
        fetched.fill(&bytes, chars);
    }
    let link = Resource::new(file_uri(&session, &fetched.path), fetched.filename.clone())
        .with_mime_type(fetched.mime_type.clone())
        .with_size(fetched.size_bytes);
    let answer = value(state, &fetched, named.as_deref());
    let mut result = content::plain(state, answer, Some(fetched.text()), Vec::new());
    result.content.extend(block);
    result.content.push(ContentBlock::resource_link(link));
    Ok(result)
}

/// Adds a download link, or the path of a copy where there is no server to download from; a failure
/// becomes a warning.
async fn add_address(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    fetched: &mut Fetched,
) {
    let Some(base) = state.base_url() else {
        match state.service.export_file(caller, session, &fetched.path).await {
            Ok(copy) => fetched.host_path = copy.map(|copy| copy.host_path),
            Err(error) => fetched.warnings.push(error.to_string()),
        }
        return;
    };
    match state.service.make_address(caller, session, &fetched.path).await {
        Ok(stored) => {
            let link = files::link(stored, Some(base));
            fetched.expires_at = link.as_ref().and_then(|link| link.expires_at.clone());
            fetched.file_id = link.as_ref().map(|link| link.file_id.clone());
            fetched.download_url = link.map(|link| link.url);
        }
        Err(error) => fetched.warnings.push(format!("no download link: {error}")),
    }
}

impl Fetched {
    /// The content, with a line about the file before it.
    fn text(&self) -> String {
        let mut facts = vec![self.mime_type.clone(), self.size_human.clone()];
        facts.extend(self.encoding.filter(|encoding| *encoding != "text").map(str::to_owned));
        if self.truncated {
            facts.push("only the beginning is shown".to_owned());
        }
        let place = self.download_url.as_ref().or(self.host_path.as_ref());
        let url = place.map(|place| format!(" {place}")).unwrap_or_default();
        let mut text = format!("File: {} ({}){url}", self.path, facts.join(", "));
        text.extend(self.warnings.iter().map(|warning| format!("\nNote: {warning}")));
        text.extend(self.content.iter().map(|content| format!("\n{content}")));
        text
    }

    /// Sets the content: as text if it is UTF-8, else as base64 if all of it fits.
    fn fill(&mut self, bytes: &[u8], chars_max: usize) {
        let is_whole = bytes.len() as u64 >= self.size_bytes;
        let text = match str::from_utf8(bytes) {
            Ok(text) => Some(text),
            // The last character may be incomplete.
            Err(error) if !is_whole && bytes.len() - error.valid_up_to() < 4 => {
                str::from_utf8(bytes.get(..error.valid_up_to()).unwrap_or_default()).ok()
            }
            Err(_) => None,
        };
        match text.filter(|text| !text.contains('\0')) {
            Some(text) => {
                let shown: String = text.chars().take(chars_max).collect();
                self.truncated = !is_whole || shown.len() < text.len();
                (self.encoding, self.content) = (Some("text"), Some(shown));
            }
            None if is_whole && bytes.len().div_ceil(3) * 4 <= chars_max => {
                let data = base64::engine::general_purpose::STANDARD.encode(bytes);
                (self.encoding, self.content) = (Some("base64"), Some(data));
            }
            None => self.warnings.push(
                "the content is not shown: it is not text, and too long for base64".to_owned(),
            ),
        }
    }
}
