//! The files of a session as every door tells of them, and how a request names one.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use woma_core::{
    Caller, Code, FileInfo, FileList, Place, SessionChoice, SessionId, StoredFile, Upload, Written,
};

use crate::arguments::Arguments;
use crate::doors::Doors;
use crate::error::Envelope;
use crate::wire::Download;

/// Bytes that are read for a preview, lines of it, and characters of a line.
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
    /// Names the kept copy of it, if there is one of the file as it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) file_id: Option<String>,
    /// Where that copy can be fetched without a key.
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
    pub(crate) total_count: usize,
    pub(crate) total_size_bytes: u64,
    pub(crate) total_size_human: String,
    /// What is not listed, and why.
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

/// Where an upload in parts stands.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct UploadReply {
    pub(crate) upload_id: String,
    pub(crate) session_id: String,
    pub(crate) path: String,
    pub(crate) size: u64,
    /// Where the next part begins.
    pub(crate) offset: u64,
    /// The file is in its session.
    pub(crate) complete: bool,
    /// Until when the next part must have come.
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
    filename: String,
    /// The content in base64.
    content_base64: String,
    /// `default`, if it is left out.
    #[schemars(with = "String")]
    session_id: Option<String>,
}

/// A file to be fetched from elsewhere.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct FetchBody {
    /// Where it is: http or https, on a public host.
    url: String,
    /// Its name in the session; that of the address, if it is left out.
    #[schemars(with = "String")]
    filename: Option<String>,
    /// `default`, if it is left out.
    #[schemars(with = "String")]
    session_id: Option<String>,
}

/// An upload in parts to be begun.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct BeginBody {
    /// Where the file is to be, below the working directory.
    path: String,
    /// All of its bytes.
    size: u64,
    /// `default`, if it is left out.
    #[schemars(with = "String")]
    session_id: Option<String>,
}

/// The session whose files are meant. Where calls without a session leave none behind, files are
/// in `default` all the same: they would be of no use elsewhere.
pub(crate) fn session(doors: &Doors, id: Option<&str>) -> Result<SessionId, Envelope> {
    Ok(match doors.manner.session(id)? {
        SessionChoice::Named(id) => id,
        _ => SessionId::parse("default")?,
    })
}

/// The same for a file to come: where calls without a session begin one, this does too.
pub(crate) fn session_to_write(doors: &Doors, id: Option<&str>) -> Result<SessionId, Envelope> {
    match doors.manner.session(id)? {
        SessionChoice::New => Ok(SessionId::parse(&uuid::Uuid::new_v4().to_string())?),
        _ => session(doors, id),
    }
}

pub(crate) async fn list(
    doors: &Doors,
    caller: &Caller,
    session: &SessionId,
) -> Result<Files, Envelope> {
    let FileList { files, total_bytes, notes } = doors.service.list_files(caller, session).await?;
    let base = doors.base_url();
    Ok(Files {
        session_id: session.to_string(),
        total_count: files.len(),
        files: files.into_iter().map(|file| listed(file, base)).collect(),
        total_size_bytes: total_bytes,
        total_size_human: human(total_bytes),
        warnings: notes,
    })
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

/// An address that can be followed; where nobody could, there is none.
pub(crate) fn link(stored: StoredFile, base: Option<&str>) -> Option<Download> {
    let base = base?;
    let mut link = Download::from(stored);
    link.url.insert_str(0, base);
    Some(link)
}

/// A file that came as text in a call.
pub(crate) async fn upload(
    doors: &Doors,
    caller: &Caller,
    in_session: Option<&str>,
    given: &mut Arguments,
) -> Result<FileReply, Envelope> {
    let name = given.required(&["filename", "path"], "a name for the file")?;
    let content = given.required(&["content_base64"], "the file's content in base64")?;
    let id = given.text(&["session_id"])?;
    let session = session_to_write(doors, in_session.or(id.as_deref()))?;
    let content = tokio::task::spawn_blocking(move || decoded(&content)).await;
    let content = content.map_err(|_| woma_core::Error::Lost)??;
    put(doors, caller, &session, Place::Named(&name), content).await
}

/// A file that is here already.
pub(crate) async fn put(
    doors: &Doors,
    caller: &Caller,
    session: &SessionId,
    place: Place<'_>,
    content: Bytes,
) -> Result<FileReply, Envelope> {
    let content = Box::pin(futures_util::stream::once(async { Ok(content) }));
    let written = doors.service.write_file(caller, session, place, content).await?;
    Ok(told(doors, caller, session, written).await)
}

/// A file that is somewhere else.
pub(crate) async fn fetch(
    doors: &Doors,
    caller: &Caller,
    given: &mut Arguments,
) -> Result<FileReply, Envelope> {
    let url = given.required(&["url"], "the address of the file")?;
    let name = given.text(&["filename"])?.filter(|name| !name.trim().is_empty());
    let id = given.text(&["session_id"])?;
    let session = session_to_write(doors, id.as_deref())?;
    let written = doors.service.fetch_from_url(caller, &session, &url, name.as_deref()).await?;
    Ok(told(doors, caller, &session, written).await)
}

pub(crate) async fn delete(
    doors: &Doors,
    caller: &Caller,
    session: &SessionId,
    path: &str,
) -> Result<FileDeleted, Envelope> {
    let path = doors.service.delete_file(caller, session, path).await?;
    let message = format!("{path} is deleted");
    Ok(FileDeleted { success: true, session_id: session.to_string(), path, message })
}

pub(crate) async fn told(
    doors: &Doors,
    caller: &Caller,
    session: &SessionId,
    written: Written,
) -> FileReply {
    let preview = preview(doors, caller, session, &written).await;
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

/// Forgiving about what carriers add: line breaks, a data URL's head, the other alphabet, padding.
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
            .with_hint("encode the bytes of the file with base64; plain text is not enough")
    })
}

async fn preview(doors: &Doors, caller: &Caller, session: &SessionId, written: &Written) -> String {
    let ending = written.name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "csv" | "tsv" | "txt" | "json" | "md" | "log" => {
            let opened = doors.service.open_file(caller, session, &written.path).await;
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

/// `1.5 MB`, as people say it.
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
    fn base64_is_taken_as_carriers_leave_it() {
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
    fn sizes_are_told_as_people_say_them() {
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
