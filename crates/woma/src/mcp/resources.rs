//! MCP resources: sessions, their files and logs, and whole outputs of executions.

use std::fmt::Write as _;

use base64::Engine as _;
use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};
use serde_json::json;
use woma_core::{Caller, OutputStream, SessionId};

use crate::api::sessions::Session;
use crate::api::state::AppState;

const STREAMS: [&str; 4] = ["stdout", "stderr", "traceback", "result"];
/// Longest output, in characters; the server stores no longer ones.
const CHARS_MAX: usize = 1024 * 1024;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Characters of a session's two entries in the list, besides its id and name.
const ENTRIES_CHARS: usize = 320;

/// Sessions and their logs, in pages of as many as a reply may tell of. The cursor is the number
/// of sessions before the page.
pub(super) async fn list(
    state: &AppState,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let wrong = |_| ErrorData::invalid_params("the cursor is not one of this list", None);
    let start: usize = cursor.map_or(Ok(0), str::parse).map_err(wrong)?;
    let (mut resources, mut next, mut chars) = (Vec::new(), None, 0);
    // A key without the scope sees an empty list.
    let sessions = state.service.sessions(caller).await.unwrap_or_default();
    for (index, session) in sessions.into_iter().enumerate().skip(start) {
        // Id and name are in both entries of a session.
        let more =
            2 * (encode(session.id.as_str()).len() + session.name.chars().count()) + ENTRIES_CHARS;
        if index > start && chars + more > state.presentation.context_chars {
            next = Some(index.to_string());
            break;
        }
        chars += more;
        let id = encode(session.id.as_str());
        let name = format!("session {}", session.name);
        let resource = Resource::new(format!("session://{id}"), name)
            .with_description("State of a session")
            .with_mime_type("application/json");
        resources.push(resource);
        let name = format!("log of session {}", session.name);
        let log = Resource::new(format!("session://{id}/log"), name)
            .with_description("Output that threads and processes wrote after their run had ended")
            .with_mime_type("text/plain");
        resources.push(log);
    }
    let mut listed = ListResourcesResult::with_all_items(resources);
    listed.next_cursor = next;
    Ok(listed.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, what: &str, media_type: &str| {
        ResourceTemplate::new(uri, name).with_description(what).with_mime_type(media_type)
    };
    vec![
        template("session://{session_id}", "session", "State of a session", "application/json"),
        template(
            "session://{session_id}/log",
            "session log",
            "Output that threads and processes wrote after their run had ended",
            "text/plain",
        ),
        template(
            "session://{session_id}/files/{path}",
            "file",
            "A file of a session, up to a megabyte; list_files names them",
            "application/octet-stream",
        ),
        template(
            "execution://{execution_id}/{stream}",
            "output",
            "The whole stdout, stderr, traceback or result of an execution",
            "text/plain",
        ),
        template(
            "execution://{execution_id}/images/{number}",
            "picture",
            "A picture that an execution drew, in full size",
            "image/png",
        ),
    ]
}

pub(super) async fn read(
    state: &AppState,
    caller: &Caller,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let missing = |why: String| ErrorData::resource_not_found(why, Some(json!({ "uri": uri })));
    let contents = match parse(uri) {
        Some(Address::Session(id)) => {
            let session = state.service.session(caller, &id).await;
            let session = session.map_err(|error| missing(error.to_string()))?;
            let text = serde_json::to_string(&Session::from(session)).unwrap_or_default();
            ResourceContents::text(text, uri).with_mime_type("application/json")
        }
        Some(Address::File(id, path)) => {
            let (bytes, media_type) = file(state, caller, &id, &path).await.map_err(missing)?;
            match String::from_utf8(bytes) {
                Ok(text) => ResourceContents::text(text, uri).with_mime_type(media_type),
                Err(error) => {
                    let data = base64::engine::general_purpose::STANDARD.encode(error.as_bytes());
                    ResourceContents::blob(data, uri).with_mime_type(media_type)
                }
            }
        }
        Some(Address::Log(id)) => {
            let log = state.service.session_log(caller, &id);
            let log = log.map_err(|error| missing(error.to_string()))?;
            ResourceContents::text(log, uri).with_mime_type("text/plain")
        }
        Some(Address::Output(id, stream)) => {
            let page = state.service.read_output(caller, &id, stream, 0, CHARS_MAX).await;
            let page = page.map_err(|error| missing(error.to_string()))?;
            ResourceContents::text(page.text, uri).with_mime_type("text/plain")
        }
        Some(Address::Picture(id, number)) => {
            let picture = state.service.picture(caller, &id, number);
            let picture = picture.map_err(|error| missing(error.to_string()))?;
            let data = base64::engine::general_purpose::STANDARD.encode(&picture.bytes);
            ResourceContents::blob(data, uri).with_mime_type(picture.media_type)
        }
        None => return Err(missing("the resource does not exist".to_owned())),
    };
    let read = ReadResourceResult::new(vec![contents]);
    Ok(read.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

/// Reads a file within the size limit of a message.
async fn file(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    path: &str,
) -> Result<(Vec<u8>, &'static str), String> {
    let opened = state.service.open_file(caller, session, path).await;
    let opened = opened.map_err(|error| error.to_string())?;
    if opened.size_bytes > FILE_BYTES_MAX {
        return Err(format!(
            "the file has more than {FILE_BYTES_MAX} bytes; use its download link"
        ));
    }
    let media_type = opened.media_type;
    let bytes = opened.head(FILE_BYTES_MAX).await.map_err(|error| error.to_string())?;
    Ok((bytes, media_type))
}

/// URI of a session's file.
pub(super) fn file_uri(session: &SessionId, path: &str) -> String {
    let path: Vec<String> = path.split('/').map(encode).collect();
    format!("session://{}/files/{}", encode(session.as_str()), path.join("/"))
}

pub(super) async fn complete(
    state: &AppState,
    caller: &Caller,
    template: &str,
    argument: &str,
) -> Vec<String> {
    match argument {
        "session_id" if template.starts_with("session://") => {
            let sessions = state.service.sessions(caller).await.unwrap_or_default().into_iter();
            sessions.map(|session| session.id.to_string()).collect()
        }
        "stream" => STREAMS.iter().map(|stream| (*stream).to_owned()).collect(),
        _ => Vec::new(),
    }
}

enum Address {
    Session(SessionId),
    Log(SessionId),
    File(SessionId, String),
    Output(String, OutputStream),
    Picture(String, usize),
}

fn parse(uri: &str) -> Option<Address> {
    if let Some(rest) = uri.strip_prefix("session://") {
        if let Some((id, path)) = rest.split_once("/files/") {
            return Some(Address::File(SessionId::parse(&decode(id)?).ok()?, decode(path)?));
        }
        let (id, is_log) = match rest.strip_suffix("/log") {
            Some(id) => (id, true),
            None => (rest, false),
        };
        let id = SessionId::parse(&decode(id)?).ok()?;
        return Some(if is_log { Address::Log(id) } else { Address::Session(id) });
    }
    let (id, what) = uri.strip_prefix("execution://")?.split_once('/')?;
    if let Some(number) = what.strip_prefix("images/") {
        return Some(Address::Picture(id.to_owned(), number.parse().ok()?));
    }
    let stream = serde_json::from_value(what.into()).ok()?;
    Some(Address::Output(id.to_owned(), stream))
}

/// Percent-encodes a session id for a URI.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            write!(encoded, "%{byte:02X}").unwrap_or_default();
        }
    }
    encoded
}

fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn names_survive_an_address() {
        for name in ["default", "a b", "größe/1", "100%", "~.-_"] {
            assert_eq!(decode(&encode(name)).unwrap(), name);
        }
        assert_eq!(decode("%"), None);
        assert_eq!(decode("%zz"), None);
        assert_eq!(decode("%ff"), None);
    }
}
