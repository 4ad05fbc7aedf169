//! Files of a session: the replies that describe them, and the session that a request names.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{
    Caller, Code, Destination, FileInfo, FileList, SessionChoice, SessionId, StoredFile, Upload,
    Written,
};

use super::arguments::Arguments;
use super::error::Envelope;
use super::listing::PageRequest;
use super::reply::Download;
use super::schema::{COUNT_MAX, session_id_field};
use super::state::AppState;

/// Preview of a file: bytes read, lines shown, characters of a line.
const PREVIEW_BYTES_MAX: u64 = 16 * 1024;
const PREVIEW_LINES_MAX: usize = 5;
const PREVIEW_LINE_CHARS_MAX: usize = 500;

/// A file in a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ListedFile {
    pub(crate) filename: String,
    /// Below the working directory.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) size_human: String,
    pub(crate) mime_type: String,
    pub(crate) modified: String,
    /// Id of the stored copy, if one matches the current content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) file_id: Option<String>,
    /// Link to that copy; it needs no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) download_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) expires_at: Option<String>,
}

/// The files of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Files {
    pub(crate) session_id: String,
    pub(crate) files: Vec<ListedFile>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) next: Option<String>,
    /// Of all files of the session.
    pub(crate) total_count: usize,
    pub(crate) total_size_bytes: u64,
    pub(crate) total_size_human: String,
    /// Files that are not listed, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// A file that was put into a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FileReply {
    pub(crate) success: bool,
    pub(crate) filename: String,
    /// Below the working directory, as code in the session can open it.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) size_human: String,
    pub(crate) mime_type: String,
    pub(crate) session_id: String,
    /// The first lines of a text, or what kind of file it is.
    pub(crate) preview: String,
    /// A file of that name was there before.
    pub(crate) replaced: bool,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FileDeleted {
    pub(crate) success: bool,
    pub(crate) session_id: String,
    pub(crate) path: String,
    pub(crate) message: String,
}

/// State of an upload in parts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct UploadReply {
    pub(crate) upload_id: String,
    pub(crate) session_id: String,
    pub(crate) path: String,
    pub(crate) size: u64,
    /// Offset of the next part.
    pub(crate) offset: u64,
    /// True once the file is in its session.
    pub(crate) complete: bool,
    /// Deadline of the next part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) expires_at: Option<String>,
}

impl From<Upload> for UploadReply {
    fn from(upload: Upload) -> Self {
        Self {
            upload_id: upload.id.to_string(),
            session_id: upload.session.to_string(),
            path: upload.path,
            size: upload.size_bytes,
            offset: upload.offset,
            complete: false,
            expires_at: Some(upload.expires_at.to_string()),
        }
    }
}

/// A file to be put into a session, as JSON.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct UploadBody {
    /// A name, or a path below the working directory.
    #[schemars(extend("minLength" = 1, "maxLength" = 4096))]
    filename: String,
    /// The content as plain text. Either this or `content_base64` is needed.
    #[schemars(with = "String")]
    content: Option<String>,
    /// The content in base64.
    #[schemars(with = "String")]
    content_base64: Option<String>,
    /// `default`, if it is left out.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
}

/// A file to be fetched from elsewhere.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct FetchBody {
    /// Address of the file: http or https, on a public host.
    #[schemars(extend("minLength" = 1, "format" = "uri"))]
    url: String,
    /// Its name in the session; that of the address, if it is left out.
    #[schemars(with = "String")]
    filename: Option<String>,
    /// `default`, if it is left out.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
}

/// An upload in parts to be begun.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct BeginBody {
    /// Path of the file, below the working directory.
    #[schemars(extend("minLength" = 1, "maxLength" = 4096))]
    path: String,
    /// Size of the whole file, in bytes.
    #[schemars(extend("maximum" = COUNT_MAX))]
    size: u64,
    /// `default`, if it is left out.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
}

/// Session of a file to write: a new one where calls without a session id start a new session.
pub(crate) fn session_to_write(state: &AppState, id: Option<&str>) -> Result<SessionId, Envelope> {
    match state.session(id)? {
        SessionChoice::New => Ok(SessionId::mint()),
        _ => state.existing_session(id),
    }
}

pub(crate) async fn list(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
) -> Result<Files, Envelope> {
    let FileList { files, total_bytes, notes } = state.service.list_files(caller, session).await?;
    let base = state.base_url();
    Ok(Files {
        session_id: session.to_string(),
        total_count: files.len(),
        files: files.into_iter().map(|file| listed(file, base)).collect(),
        next: None,
        total_size_bytes: total_bytes,
        total_size_human: human(total_bytes),
        warnings: notes,
    })
}

impl Files {
    /// One page of them, in the order of their paths.
    pub(crate) fn page(mut self, page: &PageRequest) -> Self {
        self.files.sort_by(|one, other| one.path.cmp(&other.path));
        (self.files, self.next) = page.of(self.files, |file| &file.path);
        self
    }
}

fn listed(file: FileInfo, base: Option<&str>) -> ListedFile {
    let stored = file.stored.and_then(|stored| link(stored, base));
    let (file_id, download_url, expires_at) = match stored {
        Some(link) => (Some(link.file_id), Some(link.url), link.expires_at),
        None => (None, None, None),
    };
    ListedFile {
        filename: file.path.rsplit('/').next().unwrap_or_default().to_owned(),
        path: file.path,
        size_bytes: file.size_bytes,
        size_human: human(file.size_bytes),
        mime_type: file.media_type.to_owned(),
        modified: file.modified.to_string(),
        file_id,
        download_url,
        expires_at,
    }
}

/// Download link; `None` if the server has no base URL.
pub(crate) fn link(stored: StoredFile, base: Option<&str>) -> Option<Download> {
    let base = base?;
    let mut link = Download::from(stored);
    link.url.insert_str(0, base);
    Some(link)
}

/// Writes a file that was sent as plain text or as base64.
pub(crate) async fn upload(
    state: &AppState,
    caller: &Caller,
    in_session: Option<&str>,
    arguments: &mut Arguments,
) -> Result<FileReply, Envelope> {
    let name = arguments.required(&["filename", "path"], "a name for the file")?;
    let content = UploadedContent::read(arguments)?;
    let id = arguments.text(&["session_id"])?;
    let session = session_to_write(state, in_session.or(id.as_deref()))?;
    let content = content.bytes().await?;
    put(state, caller, &session, Destination::Named(&name), content).await
}

/// Content of an uploaded file, as it was sent.
#[derive(Debug)]
enum UploadedContent {
    Text(String),
    Base64(String),
}

impl UploadedContent {
    /// Reads `content` or `content_base64`; both or neither is an error.
    fn read(arguments: &mut Arguments) -> Result<Self, Envelope> {
        let text = arguments.text(&["content"])?;
        let encoded = arguments.text(&["content_base64"])?;
        let message = match (text, encoded) {
            (Some(text), None) => return Ok(Self::Text(text)),
            (None, Some(encoded)) => return Ok(Self::Base64(encoded)),
            (None, None) => "`content` is missing: the file's content is needed",
            (Some(_), Some(_)) => "`content` and `content_base64` exclude each other",
        };
        let envelope = Envelope::new(Code::InvalidArgument, message);
        Err(envelope.with_hint("send text as `content`, or any bytes as `content_base64`"))
    }

    async fn bytes(self) -> Result<Bytes, Envelope> {
        match self {
            Self::Text(text) => Ok(Bytes::from(text)),
            Self::Base64(encoded) => {
                let decoded = tokio::task::spawn_blocking(move || decoded(&encoded)).await;
                decoded.map_err(|_| woma_core::Error::Lost)?
            }
        }
    }
}

/// Writes a file whose content is in memory.
pub(crate) async fn put(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    place: Destination<'_>,
    content: Bytes,
) -> Result<FileReply, Envelope> {
    let content = Box::pin(futures_util::stream::once(async { Ok(content) }));
    let written = state.service.write_file(caller, session, place, content).await?;
    Ok(file_reply(state, caller, session, written).await)
}

/// Downloads a file from a URL into the session.
pub(crate) async fn fetch(
    state: &AppState,
    caller: &Caller,
    arguments: &mut Arguments,
) -> Result<FileReply, Envelope> {
    let url = arguments.required(&["url"], "the address of the file")?;
    let name = arguments.text(&["filename"])?.filter(|name| !name.trim().is_empty());
    let id = arguments.text(&["session_id"])?;
    let session = session_to_write(state, id.as_deref())?;
    let written = state.service.fetch_from_url(caller, &session, &url, name.as_deref()).await?;
    Ok(file_reply(state, caller, &session, written).await)
}

pub(crate) async fn delete(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    path: &str,
) -> Result<FileDeleted, Envelope> {
    let path = state.service.delete_file(caller, session, path).await?;
    let message = format!("{path} is deleted");
    Ok(FileDeleted { success: true, session_id: session.to_string(), path, message })
}

pub(crate) async fn file_reply(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    written: Written,
) -> FileReply {
    let preview = preview(state, caller, session, &written).await;
    FileReply {
        success: true,
        filename: written.name,
        path: written.path,
        size_bytes: written.size_bytes,
        size_human: human(written.size_bytes),
        mime_type: written.media_type.to_owned(),
        session_id: session.to_string(),
        preview,
        replaced: written.replaced,
    }
}

/// Decodes base64 leniently: line breaks, a data URL prefix, the URL-safe alphabet, no padding.
fn decoded(text: &str) -> Result<Bytes, Envelope> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let text = match text.split_once(";base64,") {
        Some((head, rest)) if head.starts_with("data:") => rest,
        _ => text,
    };
    let is_url_safe = text.contains(['-', '_']);
    let alphabet = if is_url_safe { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let engine = GeneralPurpose::new(alphabet, CONFIG);
    let decoded = match text.contains(|c: char| c.is_ascii_whitespace()) {
        true => engine.decode(text.split_ascii_whitespace().collect::<String>()),
        false => engine.decode(text),
    };
    decoded.map(Bytes::from).map_err(|error| {
        let message = format!("`content_base64` is not base64: {error}");
        Envelope::new(Code::InvalidArgument, message)
            .with_hint("encode the bytes of the file with base64, or send plain text as `content`")
    })
}

async fn preview(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    written: &Written,
) -> String {
    let ending = written.name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "csv" | "tsv" | "txt" | "json" | "md" | "log" => {
            let opened = state.service.open_file(caller, session, &written.path).await;
            let Ok(opened) = opened else { return String::new() };
            let head = opened.head(PREVIEW_BYTES_MAX).await.unwrap_or_default();
            first_lines(&String::from_utf8_lossy(&head))
        }
        "xlsx" | "xls" => {
            format!("[Excel file: {}; read it with pandas.read_excel]", human(written.size_bytes))
        }
        "pdf" => format!("[PDF file: {}]", human(written.size_bytes)),
        "" => "[Binary file]".to_owned(),
        ending => format!("[Binary file: .{}]", ending.chars().take(16).collect::<String>()),
    }
}

fn first_lines(text: &str) -> String {
    let lines = text.lines().take(PREVIEW_LINES_MAX);
    let lines: Vec<String> =
        lines.map(|line| line.chars().take(PREVIEW_LINE_CHARS_MAX).collect()).collect();
    lines.join("\n")
}

/// Size in readable units, such as `1.5 MB`.
pub(crate) fn human(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let mut size = bytes as f64;
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, next);
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::{decoded, first_lines, human};

    #[test]
    fn decodes_base64_leniently() {
        for text in ["aGk/Pz4+", "aGk_Pz4-", "aGk/\nPz4+\r\n", "data:text/plain;base64,aGk/Pz4+"] {
            assert_eq!(decoded(text).unwrap(), &b"hi??>>"[..], "{text}");
        }
        assert_eq!(decoded("aGk").unwrap(), &b"hi"[..]);
        assert_eq!(decoded("aGk=").unwrap(), &b"hi"[..]);
        assert_eq!(decoded("").unwrap(), &b""[..]);
        for bad in ["a", "héllo", "a,b,c\n1,2,3", "====", "aGk=aGk="] {
            assert_eq!(decoded(bad).unwrap_err().code, "invalid_argument", "{bad}");
        }
    }

    #[test]
    fn formats_sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KB"),
            (50 << 20, "50.0 MB"),
            (3 << 40, "3.0 TB"),
        ] {
            assert_eq!(human(bytes), text);
        }
        assert_eq!(first_lines("1\n2\n3\n4\n5\n6"), "1\n2\n3\n4\n5");
    }
}
