//! Files of a session over REST: list, read, write, delete, archive, upload in parts.

use std::io;
use std::time::UNIX_EPOCH;

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
use woma_core::pace::Pace;
use woma_core::{Caller, Code, Content, Destination, OpenedFile, SessionId, UploadState};

use super::downloads::{FileResponse, disposition};
use crate::api::arguments::Arguments;
use crate::api::error::Envelope;
use crate::api::files::{self, FileDeleted, FileReply, Files, UploadReply};
use crate::api::listing::PageRequest;
use crate::api::reply::Noted;
use crate::api::state::AppState;
use crate::http::body::{self, UPLOAD_PACE, drain};
use crate::http::extract::{
    BodyArguments, CallerOf, PathParams, QueryArguments, RequestState, parse,
};

/// Limit of files in one form.
const FORM_FILES_MAX: usize = 32;
pub(crate) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");

pub(crate) async fn list(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    PathParams(session): PathParams<String>,
    QueryArguments(mut query): QueryArguments,
) -> Result<Response, Envelope> {
    let session = SessionId::parse(&session)?;
    let is_archive = wants_archive(&mut query)?;
    let page = PageRequest::read(&mut query)?;
    let is_paged = page.limit.is_some() || page.cursor.is_some();
    if is_archive && is_paged {
        let message = "`limit` and `cursor` do not go with `archive`: an archive has all files";
        return Err(Envelope::new(Code::InvalidArgument, message));
    }
    if is_archive {
        return archive(&state, &caller, &session, None).await;
    }
    let files = files::list(&state, &caller, &session).await?;
    Ok(Json(if is_paged { files.page(&page) } else { files }).into_response())
}

/// As [`list`], with the session in the query.
pub(crate) async fn list_legacy(
    RequestState(state): RequestState,
    CallerOf(caller): CallerOf,
    QueryArguments(mut query): QueryArguments,
) -> Result<Json<Files>, Envelope> {
    let session = state.existing_session(query.text(&["session_id"])?.as_deref())?;
    files::list(&state, &caller, &session).await.map(Json)
}

pub(crate) async fn read(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((session, path)): PathParams<(String, String)>,
    QueryArguments(mut query): QueryArguments,
    headers: HeaderMap,
) -> Result<Response, Envelope> {
    let session = SessionId::parse(&session)?;
    if wants_archive(&mut query)? {
        return archive(&state, &caller, &session, Some(&path)).await;
    }
    let opened = state.service.open_file(&caller, &session, &path).await?;
    Ok(sent(opened).answer(&headers))
}

fn sent(opened: OpenedFile) -> FileResponse {
    let modified = opened.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    FileResponse {
        name: opened.name,
        media_type: opened.media_type.to_owned(),
        size_bytes: opened.size_bytes,
        // A weak validator: code in the session can set any modification time.
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
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
    below: Option<&str>,
) -> Result<Response, Envelope> {
    let archive = state.service.archive(caller, session, below).await?;
    let headers = [
        (CONTENT_TYPE, "application/zip".to_owned()),
        (CONTENT_DISPOSITION, disposition(&archive.name, false)),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, Body::from_stream(archive.pieces)).into_response())
}

/// Writes a file; the body is its content.
pub(crate) async fn write(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((session, path)): PathParams<(String, String)>,
    request: Request,
) -> Result<(StatusCode, Json<FileReply>), Envelope> {
    let session = SessionId::parse(&session)?;
    let is_asking = request.headers().contains_key(EXPECT);
    let mut body = request.into_body();
    let is_too_large = body.size_hint().lower() > file_bytes_max(&state);
    if is_too_large && is_asking {
        // With `Expect: 100-continue` the client has sent nothing yet.
        let refusal = Envelope::from(woma_core::Error::FileTooLarge);
        return Err(refusal.with_header(CONNECTION, "close"));
    }
    let place = Destination::Path(&path);
    let written = if is_too_large {
        Err(woma_core::Error::FileTooLarge)
    } else {
        state.service.write_file(&caller, &session, place, body_stream(&mut body)).await
    };
    let written = drain_on_error(written, &mut body).await?;
    let status = if written.replaced { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(files::file_reply(&state, &caller, &session, written).await)))
}

/// Drains the body before an error: a client that is still sending would not see the reply.
async fn drain_on_error<T>(
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

fn file_bytes_max(state: &AppState) -> u64 {
    state.service.settings().storage.as_ref().map_or(0, |storage| storage.file_bytes_max)
}

/// The body as a stream, which must not be too slow.
fn body_stream(body: &mut Body) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin {
    let pace = Pace::new(UPLOAD_PACE);
    Box::pin(unfold((body, pace), |(body, mut pace)| async {
        loop {
            let next = match pace.wait(body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        pace.count(bytes.len());
                        Ok(bytes)
                    }
                    // Trailers are ignored.
                    Err(_) => continue,
                },
                Ok(Some(Err(error))) => Err(io::Error::other(error)),
                Ok(None) => return None,
                Err(slow) => Err(io::Error::new(io::ErrorKind::TimedOut, slow)),
            };
            return Some((next, (body, pace)));
        }
    }))
}

/// Upload into the session that the path names.
pub(crate) async fn upload(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(session): PathParams<String>,
    request: Request,
) -> Result<Response, Envelope> {
    SessionId::parse(&session)?;
    receive_upload(&state, &caller, Some(&session), request).await
}

/// Upload into the session that the body or the query names.
pub(crate) async fn upload_legacy(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    QueryArguments(mut query): QueryArguments,
    request: Request,
) -> Result<Response, Envelope> {
    let session = query.text(&["session_id"])?;
    receive_upload(&state, &caller, session.as_deref(), request).await
}

/// Reads a form with files, or JSON with one file in base64.
async fn receive_upload(
    state: &AppState,
    caller: &Caller,
    session: Option<&str>,
    request: Request,
) -> Result<Response, Envelope> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_form = kind.is_some_and(|kind| {
        kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data")
    });
    let (parts, bytes) = body::whole(request, state.presentation.body_bytes_max).await?;
    if !is_form {
        let mut arguments = Arguments::new(parse(&bytes)?);
        let reply = files::upload(state, caller, session, &mut arguments).await?;
        let warnings = arguments.unknown().collect();
        return Ok(created(Json(Noted { reply, warnings })));
    }
    let form = UploadForm::read(Request::from_parts(parts, Body::from(bytes))).await?;
    let session = session.or(form.session.as_deref());
    let session = files::session_to_write(state, session)?;
    let mut replies = Vec::new();
    for (name, content) in form.files {
        let place = Destination::Named(form.name.as_deref().unwrap_or(&name));
        replies.push(files::put(state, caller, &session, place, content).await?);
    }
    let warnings = form.warnings;
    match (replies.pop(), replies.is_empty()) {
        (None, _) => {
            let envelope = Envelope::new(Code::InvalidArgument, "the form contains no file");
            Err(envelope.with_hint("send it as a part with a filename: curl -F file=@data.csv"))
        }
        (Some(reply), true) => Ok(created(Json(Noted { reply, warnings }))),
        (Some(last), false) => {
            replies.push(last);
            let reply = serde_json::json!({ "success": true, "files": replies });
            Ok(created(Json(Noted { reply, warnings })))
        }
    }
}

fn created(response: impl IntoResponse) -> Response {
    (StatusCode::CREATED, response).into_response()
}

/// Upload form; its fields may come in any order.
#[derive(Default)]
struct UploadForm {
    session: Option<String>,
    /// File name, used only if the form has one file.
    name: Option<String>,
    files: Vec<(String, Bytes)>,
    /// Fields that were not used.
    warnings: Vec<String>,
}

impl UploadForm {
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
                (None, unknown) => {
                    let name: String = unknown.chars().take(64).collect();
                    form.warnings.push(format!("the field `{name}` is not known and was ignored"));
                }
            }
            if form.warnings.len() > FORM_FILES_MAX {
                return Err(broken(format!("more than {FORM_FILES_MAX} fields are not known")));
            }
        }
        if form.files.len() > 1 && form.name.take().is_some() {
            let text = "the name was ignored: the form has several files, which have their own";
            form.warnings.push(text.to_owned());
        }
        Ok(form)
    }
}

pub(crate) async fn fetch(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(mut arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let reply = files::fetch(&state, &caller, &mut arguments).await?;
    Ok(created(Json(Noted { reply, warnings: arguments.unknown().collect() })))
}

pub(crate) async fn delete(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((session, path)): PathParams<(String, String)>,
) -> Result<StatusCode, Envelope> {
    let session = SessionId::parse(&session)?;
    files::delete(&state, &caller, &session, &path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// As [`delete`], with a reply that says so.
pub(crate) async fn delete_legacy(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((session, path)): PathParams<(String, String)>,
) -> Result<Json<FileDeleted>, Envelope> {
    let session = SessionId::parse(&session)?;
    files::delete(&state, &caller, &session, &path).await.map(Json)
}

pub(crate) async fn begin_upload(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    BodyArguments(mut arguments): BodyArguments,
) -> Result<Response, Envelope> {
    let path = arguments.required(&["path", "filename"], "the path of the file")?;
    let size = arguments.count(&["size"])?.ok_or_else(|| {
        Envelope::new(
            Code::InvalidArgument,
            "`size` is missing: the size of the file in bytes is needed",
        )
    })?;
    let session = files::session_to_write(&state, arguments.text(&["session_id"])?.as_deref())?;
    let begun =
        state.service.begin_upload(&caller, &session, Destination::Named(&path), size).await?;
    let offset = [(UPLOAD_OFFSET, begun.offset.to_string())];
    let reply = UploadReply::from(begun);
    let noted = Json(Noted { reply, warnings: arguments.unknown().collect() });
    Ok((StatusCode::CREATED, offset, noted).into_response())
}

pub(crate) async fn show_upload(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<Response, Envelope> {
    Ok(upload_response(state.service.upload(&caller, &id).await?.into()))
}

pub(crate) async fn continue_upload(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
    request: Request,
) -> Result<Response, Envelope> {
    let offset = request.headers().get(UPLOAD_OFFSET).and_then(|value| value.to_str().ok());
    let offset = offset.and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
        let message = "the header `Upload-Offset` is missing or not a number";
        Envelope::new(Code::InvalidArgument, message)
            .with_hint("send the offset of this part; GET returns the current offset")
    })?;
    let mut body = request.into_body();
    let added = state.service.continue_upload(&caller, &id, offset, body_stream(&mut body)).await;
    Ok(match drain_on_error(added, &mut body).await? {
        UploadState::Open(upload) => upload_response(upload.into()),
        UploadState::Done(session, written) => upload_response(UploadReply {
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

fn upload_response(reply: UploadReply) -> Response {
    ([(UPLOAD_OFFSET, reply.offset.to_string())], Json(reply)).into_response()
}

pub(crate) async fn cancel_upload(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams(id): PathParams<String>,
) -> Result<StatusCode, Envelope> {
    state.service.give_up_upload(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
