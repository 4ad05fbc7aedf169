//! The files of a session over REST: listed, read, written, deleted, packed, and uploaded in parts.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Multipart, Request, State};
use axum::http::header::{
    CONNECTION, CONTENT_DISPOSITION, CONTENT_TYPE, EXPECT, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use futures_util::stream::unfold;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use woma_core::{Caller, Code, Content, OpenedFile, Place, SessionId, UploadState};

use super::body::{self, drain};
use super::downloads::{Sent, disposition};
use super::given::{Asked, CallerOf, DoorsOf, Given, PathOf, parse};
use crate::arguments::Arguments;
use crate::doors::Doors;
use crate::error::Envelope;
use crate::files::{self, FileDeleted, FileReply, Files, UploadReply};

/// A pause in an upload after which nobody waits for the rest.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Files of one form.
const FORM_FILES_MAX: usize = 32;
pub(super) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");

pub(crate) async fn list(
    DoorsOf(doors): DoorsOf,
    CallerOf(caller): CallerOf,
    PathOf(session): PathOf<String>,
    Asked(mut query): Asked,
) -> Result<Response, Envelope> {
    let session = SessionId::parse(&session)?;
    if wants_archive(&mut query)? {
        return archive(&doors, &caller, &session, None).await;
    }
    Ok(Json(files::list(&doors, &caller, &session).await?).into_response())
}

/// The session is named in the query.
pub(crate) async fn list_older(
    DoorsOf(doors): DoorsOf,
    CallerOf(caller): CallerOf,
    Asked(mut query): Asked,
) -> Result<Json<Files>, Envelope> {
    let session = files::session(&doors, query.text(&["session_id"])?.as_deref())?;
    files::list(&doors, &caller, &session).await.map(Json)
}

pub(crate) async fn read(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf((session, path)): PathOf<(String, String)>,
    Asked(mut query): Asked,
    headers: HeaderMap,
) -> Result<Response, Envelope> {
    let session = SessionId::parse(&session)?;
    if wants_archive(&mut query)? {
        return archive(&doors, &caller, &session, Some(&path)).await;
    }
    let opened = doors.service.open_file(&caller, &session, &path).await?;
    Ok(sent(opened).answer(&headers))
}

fn sent(opened: OpenedFile) -> Sent {
    let modified = opened.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Sent {
        name: opened.name,
        media_type: opened.media_type.to_owned(),
        size_bytes: opened.size_bytes,
        // A weak one: its session sets times as it likes.
        etag: format!("W/\"{:x}-{:x}\"", opened.size_bytes, modified.as_nanos()),
        is_inline: false,
        cache: "private, no-cache",
        content: Content::File(opened.file),
    }
}

fn wants_archive(query: &mut Arguments) -> Result<bool, Envelope> {
    match query.text(&["archive"])?.as_deref() {
        None => Ok(false),
        Some("zip") => Ok(true),
        Some(_) => Err(Envelope::new(Code::InvalidArgument, "`archive` must be zip")),
    }
}

async fn archive(
    doors: &Doors,
    caller: &Caller,
    session: &SessionId,
    below: Option<&str>,
) -> Result<Response, Envelope> {
    let archive = doors.service.archive(caller, session, below).await?;
    let headers = [
        (CONTENT_TYPE, "application/zip".to_owned()),
        (CONTENT_DISPOSITION, disposition(&archive.name, false)),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, Body::from_stream(archive.pieces)).into_response())
}

/// The body is the file.
pub(crate) async fn write(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf((session, path)): PathOf<(String, String)>,
    request: Request,
) -> Result<(StatusCode, Json<FileReply>), Envelope> {
    let session = SessionId::parse(&session)?;
    let is_asking = request.headers().contains_key(EXPECT);
    let mut body = request.into_body();
    let is_too_large = body.size_hint().lower() > file_bytes_max(&doors);
    if is_too_large && is_asking {
        // A client that asks first has not sent anything yet.
        let refusal = Envelope::from(woma_core::Error::FileTooLarge);
        return Err(refusal.with_header(CONNECTION, "close"));
    }
    let place = Place::Path(&path);
    let written = if is_too_large {
        Err(woma_core::Error::FileTooLarge)
    } else {
        doors.service.write_file(&caller, &session, place, pieces(&mut body)).await
    };
    let written = or_drained(written, &mut body).await?;
    let status = if written.replaced { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(files::told(&doors, &caller, &session, written).await)))
}

/// A client that still sends would not see a refusal before it has been listened to.
async fn or_drained<T>(
    result: Result<T, woma_core::Error>,
    body: &mut Body,
) -> Result<T, Envelope> {
    match result {
        Ok(done) => Ok(done),
        Err(error) => {
            drain(body).await;
            Err(Envelope::from(error).with_header(CONNECTION, "close"))
        }
    }
}

fn file_bytes_max(doors: &Doors) -> u64 {
    doors.service.settings().vault.as_ref().map_or(0, |vault| vault.file_bytes_max)
}

/// What a client sends, as it comes.
fn pieces(body: &mut Body) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin {
    Box::pin(unfold(body, |body| async {
        loop {
            let next = match timeout(PAUSE_MAX, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => Ok(bytes),
                    // Trailers are of no use to us.
                    Err(_) => continue,
                },
                Ok(Some(Err(error))) => Err(io::Error::other(error)),
                Ok(None) => return None,
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            };
            return Some((next, body));
        }
    }))
}

/// Of the session that the path names.
pub(crate) async fn upload(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(session): PathOf<String>,
    request: Request,
) -> Result<Response, Envelope> {
    SessionId::parse(&session)?;
    take_in(&doors, &caller, Some(&session), request).await
}

/// Of the session that the body or the query names.
pub(crate) async fn upload_older(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Asked(mut query): Asked,
    request: Request,
) -> Result<Response, Envelope> {
    let session = query.text(&["session_id"])?;
    take_in(&doors, &caller, session.as_deref(), request).await
}

/// A form with files, or JSON with one in base64.
async fn take_in(
    doors: &Doors,
    caller: &Caller,
    session: Option<&str>,
    request: Request,
) -> Result<Response, Envelope> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_some_and(|kind| {
        kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data")
    });
    let (parts, bytes) = body::whole(request, doors.manner.body_bytes_max).await?;
    if !is_form {
        let mut given = Arguments::new(parse(&bytes)?);
        let reply = files::upload(doors, caller, session, &mut given).await?;
        return Ok(created(Json(reply)));
    }
    let form = Form::read(Request::from_parts(parts, Body::from(bytes))).await?;
    let session = session.or(form.session.as_deref());
    let session = files::session_to_write(doors, session)?;
    let mut replies = Vec::new();
    for (name, content) in form.files {
        let place = Place::Named(form.name.as_deref().unwrap_or(&name));
        replies.push(files::put(doors, caller, &session, place, content).await?);
    }
    match replies.len() {
        0 => {
            let envelope = Envelope::new(Code::InvalidArgument, "the form has no file in it");
            Err(envelope.with_hint("send it as a part with a filename: curl -F file=@data.csv"))
        }
        1 => Ok(created(Json(replies.pop()))),
        _ => Ok(created(Json(serde_json::json!({ "success": true, "files": replies })))),
    }
}

fn created(answer: impl IntoResponse) -> Response {
    (StatusCode::CREATED, answer).into_response()
}

/// A form, whose fields come in any order.
#[derive(Default)]
struct Form {
    session: Option<String>,
    /// For the one file that there is.
    name: Option<String>,
    files: Vec<(String, Bytes)>,
}

impl Form {
    async fn read(request: Request) -> Result<Self, Envelope> {
        let broken = |text: String| {
            Envelope::new(Code::InvalidArgument, format!("the form cannot be read: {text}"))
        };
        let parts = Multipart::from_request(request, &()).await;
        let mut parts = parts.map_err(|error| broken(error.body_text()))?;
        let mut form = Self::default();
        while let Some(part) = parts.next_field().await.map_err(|e| broken(e.body_text()))? {
            let field = part.name().unwrap_or_default().to_owned();
            let file_name = part.file_name().map(str::to_owned);
            let content = part.bytes().await.map_err(|error| broken(error.body_text()))?;
            let text = || String::from_utf8_lossy(&content).into_owned();
            match (file_name, field.as_str()) {
                (Some(name), _) if form.files.len() < FORM_FILES_MAX => {
                    form.files.push((name, content));
                }
                (Some(_), _) => return Err(broken(format!("more than {FORM_FILES_MAX} files"))),
                (None, "session_id") => form.session = Some(text()),
                (None, "filename" | "path") => form.name = Some(text()),
                (None, _) => {}
            }
        }
        if form.files.len() > 1 {
            form.name = None;
        }
        Ok(form)
    }
}

pub(crate) async fn fetch(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Given(mut given): Given,
) -> Result<Response, Envelope> {
    Ok(created(Json(files::fetch(&doors, &caller, &mut given).await?)))
}

pub(crate) async fn delete(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf((session, path)): PathOf<(String, String)>,
) -> Result<Json<FileDeleted>, Envelope> {
    let session = SessionId::parse(&session)?;
    files::delete(&doors, &caller, &session, &path).await.map(Json)
}

pub(crate) async fn begin_upload(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    Given(mut given): Given,
) -> Result<Response, Envelope> {
    let path = given.required(&["path", "filename"], "where the file is to be")?;
    let size = given.count(&["size"])?.ok_or_else(|| {
        Envelope::new(Code::InvalidArgument, "`size` is missing: all bytes of the file")
    })?;
    let session = files::session_to_write(&doors, given.text(&["session_id"])?.as_deref())?;
    let begun = doors.service.begin_upload(&caller, &session, Place::Named(&path), size).await?;
    Ok((StatusCode::CREATED, told(begun.into())).into_response())
}

pub(crate) async fn show_upload(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<Response, Envelope> {
    Ok(told(doors.service.upload(&caller, &id).await?.into()))
}

pub(crate) async fn continue_upload(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
    request: Request,
) -> Result<Response, Envelope> {
    let offset = request.headers().get(UPLOAD_OFFSET).and_then(|value| value.to_str().ok());
    let offset = offset.and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        let message = "the header `Upload-Offset` is missing or no number";
        Envelope::new(Code::InvalidArgument, message)
            .with_hint("send where this part begins; GET tells where the last one ended")
    })?;
    let mut body = request.into_body();
    let added = doors.service.continue_upload(&caller, &id, offset, pieces(&mut body)).await;
    Ok(match or_drained(added, &mut body).await? {
        UploadState::Open(upload) => told(upload.into()),
        UploadState::Done(session, written) => told(UploadReply {
            upload_id: id,
            session_id: session.to_string(),
            path: written.path,
            size: written.size_bytes,
            offset: written.size_bytes,
            complete: true,
            expires_at: None,
        }),
    })
}

fn told(reply: UploadReply) -> Response {
    ([(UPLOAD_OFFSET, reply.offset.to_string())], Json(reply)).into_response()
}

pub(crate) async fn give_up_upload(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf(id): PathOf<String>,
) -> Result<StatusCode, Envelope> {
    doors.service.give_up_upload(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
