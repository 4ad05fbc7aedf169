//! The tools for files: what they promise, and one that gives a file to a model in the form that it
//! can use.

use base64::Engine as _;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use serde::Serialize;
use serde_json::json;
use woma_core::{Caller, Picture, SessionId};

use super::call::Refusal;
use super::content;
use super::resources::file_uri;
use super::tools::{Kind, object, schema_of};
use crate::arguments::{Arguments, Problem};
use crate::doors::Doors;
use crate::files::{self, FileDeleted, FileReply, Files, human};

/// Pictures up to this size are looked at.
const PICTURE_BYTES_MAX: u64 = 5 * 1024 * 1024;
/// Files that a model is shown in a list.
const LISTED_MAX: usize = 200;
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
    /// How `content` is written: `text` or `base64`; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// The content is longer than what is shown of it.
    truncated: bool,
    /// Where it can be fetched without a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    download_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// What descriptions tell of the limits in force.
pub(super) struct FileFacts {
    pub(super) file_bytes_max: u64,
    pub(super) fetch_bytes_max: u64,
    pub(super) has_addresses: bool,
}

impl FileFacts {
    pub(super) fn new(doors: &Doors) -> Self {
        let vault = doors.service.settings().vault.as_ref();
        Self {
            file_bytes_max: vault.map_or(0, |vault| vault.file_bytes_max),
            fetch_bytes_max: vault.map_or(0, |vault| vault.fetch.bytes_max),
            has_addresses: doors.manner.base_url.is_some(),
        }
    }

    /// Description, input and output of a tool; `None` if it has nothing to do with files.
    pub(super) fn describe(&self, kind: Kind) -> Option<(String, JsonObject, JsonObject)> {
        let session = || json!({"type": "string", "description": "The session whose files are meant.", "default": "default"});
        let name = |what: &str| json!({"type": "string", "description": what});
        Some(match kind {
            Kind::ListFiles => (
                "List the files in a session's working directory: path, size, type, when changed, and the download link where a file has one.".to_owned(),
                object(&json!({"session_id": session()}), &[]),
                schema_of::<Files>(),
            ),
            Kind::UploadFile => (
                format!("Put a file into a session's working directory, where code can open it by its name. Up to {}. A file of the same name is replaced; the session is made if it does not exist.", human(self.file_bytes_max)),
                object(
                    &json!({
                        "filename": name("A name, or a path below the working directory."),
                        "content_base64": name("The file's bytes in base64."),
                        "session_id": session(),
                    }),
                    &["filename", "content_base64"],
                ),
                schema_of::<FileReply>(),
            ),
            Kind::FetchFile => (
                format!("Get a file out of a session: text as text, pictures as images, small other files in base64{}. With `url` instead of a path it does what fetch_from_url does.", if self.has_addresses { ", and a download link for people" } else { "" }),
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
            Kind::DeleteFile => (
                "Delete a file from a session's working directory. Download links that it has stay.".to_owned(),
                object(
                    &json!({"path": name("The file, below the working directory."), "session_id": session()}),
                    &["path"],
                ),
                schema_of::<FileDeleted>(),
            ),
            Kind::FetchFromUrl => (
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

/// Of a file that was got out of a session, or put into it.
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
            "encoding": {"type": "string", "description": "How `content` is written: text or base64."},
            "content": {"type": "string"},
            "truncated": {"type": "boolean", "description": "The content is longer than what is shown of it."},
            "download_url": {"type": "string", "description": "Where it can be fetched without a key."},
            "file_id": {"type": "string"},
            "expires_at": {"type": "string"},
            "preview": {"type": "string", "description": "Of a file that came from `url`."},
            "replaced": {"type": "boolean"},
        }),
        &["success", "filename", "path", "size_bytes", "mime_type", "session_id"],
    )
}

/// One of the tools above.
pub(super) async fn call(
    doors: &Doors,
    caller: &Caller,
    kind: Kind,
    mut given: Arguments,
) -> Result<CallToolResult, Refusal> {
    let answer = match kind {
        Kind::ListFiles => {
            let session = files::session(doors, given.text(&["session_id"])?.as_deref())?;
            value(&shortened(files::list(doors, caller, &session).await?))
        }
        Kind::UploadFile => value(&files::upload(doors, caller, None, &mut given).await?),
        Kind::DeleteFile => {
            let path = given.required(&["path", "filename"], "the file to delete")?;
            let session = files::session(doors, given.text(&["session_id"])?.as_deref())?;
            value(&files::delete(doors, caller, &session, &path).await?)
        }
        Kind::FetchFile if !given.has("url") => return retrieve(doors, caller, given).await,
        _ => value(&files::fetch(doors, caller, &mut given).await?),
    };
    Ok(content::plain(answer, given.unknown().collect()))
}

/// A folder of thousands of files must not fill the answer with them.
fn shortened(mut list: Files) -> Files {
    if list.files.len() > LISTED_MAX {
        list.files.truncate(LISTED_MAX);
        let more = list.total_count - LISTED_MAX;
        list.warnings.push(format!("{more} more files are not listed; code can list them all"));
    }
    list
}

fn value(answer: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(answer).unwrap_or_default()
}

/// Out of a session, to a model: as text, as a picture, in base64, or as a link.
async fn retrieve(
    doors: &Doors,
    caller: &Caller,
    mut given: Arguments,
) -> Result<CallToolResult, Refusal> {
    let path = given.text(&["path", "filename"])?.ok_or(Problem::Missing {
        name: "path",
        what: "the file to get, or a `url` to fetch it from,",
    })?;
    let session = files::session(doors, given.text(&["session_id"])?.as_deref())?;
    let opened = doors.service.open_file(caller, &session, &path).await?;
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
        file_id: None,
        expires_at: None,
        warnings: given.unknown().collect(),
    };
    add_address(doors, caller, &session, &mut fetched).await;
    let chars = doors.manner.context_chars;
    let is_picture = opened.media_type.starts_with("image/")
        && opened.media_type != "image/svg+xml"
        && opened.size_bytes <= PICTURE_BYTES_MAX;
    let bytes_max = if is_picture { PICTURE_BYTES_MAX } else { chars as u64 * CHAR_BYTES_MAX };
    let bytes = opened.head(bytes_max).await?;
    let mut block = None;
    if is_picture {
        let picture = Picture { media_type: fetched.mime_type.clone(), bytes: bytes.into() };
        match content::picture_block(picture).await {
            Ok(picture) => block = Some(picture),
            Err(reason) => fetched.warnings.push(format!("the picture is not shown: {reason}")),
        }
    } else {
        fetched.fill(&bytes, chars);
    }
    let link = Resource::new(file_uri(&session, &fetched.path), fetched.filename.clone())
        .with_mime_type(fetched.mime_type.clone())
        .with_size(fetched.size_bytes);
    let mut result = content::plain(value(&fetched), Vec::new());
    result.content.extend(block);
    result.content.push(ContentBlock::resource_link(link));
    Ok(result)
}

/// A file without an address is still a file: what is in the way is told.
async fn add_address(doors: &Doors, caller: &Caller, session: &SessionId, fetched: &mut Fetched) {
    let Some(base) = doors.base_url() else { return };
    match doors.service.make_address(caller, session, &fetched.path).await {
        Ok(stored) => {
            let link = files::link(stored, Some(base));
            fetched.expires_at = link.as_ref().and_then(|link| link.expires_at.clone());
            fetched.file_id = link.as_ref().map(|link| link.file_id.clone());
            fetched.download_url = link.map(|link| link.url);
        }
        Err(error) => fetched.warnings.push(format!("there is no download link: {error}")),
    }
}

impl Fetched {
    /// As text if it is that, else in base64 if all of it fits.
    fn fill(&mut self, bytes: &[u8], chars_max: usize) {
        let is_whole = bytes.len() as u64 >= self.size_bytes;
        let text = match str::from_utf8(bytes) {
            Ok(text) => Some(text),
            // The last character may be cut in two.
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
                "the content is not shown: it is no text, and too long for base64".to_owned(),
            ),
        }
    }
}
