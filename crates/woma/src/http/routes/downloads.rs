//! Downloads, whole or by range, with headers that keep browsers from running their content.
//! `/dl/…` needs no key: the address is the capability.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use woma_core::{Caller, Chart, Code, Content, SessionId};

use crate::api::error::Envelope;
use crate::api::reply::encoded;
use crate::api::state::AppState;
use crate::http::extract::{CallerOf, PathParams};
use crate::http::layers::headers::RESOURCE_POLICY;

const CACHED: &str = "private, max-age=3600";
/// Of contents that may be others the next time.
const REVALIDATED: &str = "private, no-cache";
/// Content policy that lets browsers show hostile content but run nothing in it.
const INERT_CONTENT_POLICY: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A file to send, with its metadata.
pub(super) struct FileResponse {
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) size_bytes: u64,
    pub(super) etag: String,
    pub(super) is_inline: bool,
    pub(super) cache: &'static str,
    pub(super) content: Content,
}

impl FileResponse {
    fn stored(file: Chart, is_inline: bool) -> Self {
        let Chart { name, media_type, size_bytes, digest, content } = file;
        Self {
            name,
            media_type,
            size_bytes,
            etag: format!("\"{digest}\""),
            is_inline,
            cache: CACHED,
            content,
        }
    }

    /// Response with the whole file, the requested range, or 304.
    pub(super) fn answer(self, asked: &HeaderMap) -> Response {
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        set(ETAG, &self.etag);
        set(CACHE_CONTROL, self.cache);
        set(ACCEPT_RANGES, "bytes");
        set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(CONTENT_SECURITY_POLICY, INERT_CONTENT_POLICY);
        if text(asked, &IF_NONE_MATCH).is_some_and(|tags| matches(tags, &self.etag)) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        // `If-Range`: a range of changed content would not fit what the client has.
        let is_same = text(asked, &IF_RANGE).is_none_or(|tag| tag == self.etag);
        let range = text(asked, &RANGE).filter(|_| is_same);
        let (status, start, length) = match range.map(|range| part(range, self.size_bytes)) {
            None | Some(ByteRange::Ignored) => (StatusCode::OK, 0, self.size_bytes),
            Some(ByteRange::Of { start, length }) => {
                let range = format!("bytes {start}-{}/{}", start + length - 1, self.size_bytes);
                set(CONTENT_RANGE, &range);
                (StatusCode::PARTIAL_CONTENT, start, length)
            }
            Some(ByteRange::Outside) => return outside(self.size_bytes),
        };
        set(CONTENT_TYPE, &with_charset(&self.media_type));
        set(CONTENT_LENGTH, &length.to_string());
        set(CONTENT_DISPOSITION, &disposition(&self.name, self.is_inline));
        let body = Body::from_stream(self.content.pieces(start, length));
        (status, headers, body).into_response()
    }
}

pub(crate) async fn download(
    State(state): State<AppState>,
    PathParams((id, _name)): PathParams<(String, String)>,
    request: Request,
) -> Result<Response, Envelope> {
    send(&state, &id, &request.into_parts().0).await
}

pub(crate) async fn download_by_id(
    State(state): State<AppState>,
    PathParams(id): PathParams<String>,
    request: Request,
) -> Result<Response, Envelope> {
    send(&state, &id, &request.into_parts().0).await
}

async fn send(state: &AppState, id: &str, request: &Parts) -> Result<Response, Envelope> {
    // A caller is present only if the operator requires a key for downloads.
    let owner = request.extensions.get::<Caller>();
    let downloaded = state.service.download(id, owner).await?;
    let id = downloaded.file.id;
    let answer = FileResponse::stored(downloaded.into(), false).answer(&request.headers);
    if request.method == Method::GET && answer.status() == StatusCode::OK {
        state.service.count_download(id);
    }
    Ok(answer)
}

pub(crate) async fn chart(
    State(state): State<AppState>,
    CallerOf(caller): CallerOf,
    PathParams((session, name)): PathParams<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Envelope> {
    let session = SessionId::parse(&session)?;
    let found = state.service.chart(&caller, &session, &name).await.map_err(|error| {
        let hint = "plt.savefig(name) saves a chart under a name; list_files lists the files";
        match error {
            woma_core::Error::NoFile { .. } => Envelope::from(error).with_hint(hint),
            other => other.into(),
        }
    })?;
    // The next chart of this name is another one.
    let found = FileResponse { cache: REVALIDATED, ..FileResponse::stored(found, true) };
    let mut response = found.answer(&headers);
    // Chat clients on another port of this host show it.
    response.headers_mut().insert(RESOURCE_POLICY, HeaderValue::from_static("same-site"));
    Ok(response)
}

/// `Content-Disposition` with an ASCII fallback and the encoded real name.
pub(super) fn disposition(name: &str, is_inline: bool) -> String {
    let kind = if is_inline { "inline" } else { "attachment" };
    let plain = |c: char| c == ' ' || (c.is_ascii_graphic() && !"\"\\%;".contains(c));
    let fallback: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    format!("{kind}; filename=\"{fallback}\"; filename*=UTF-8''{}", encoded(name))
}

fn with_charset(media_type: &str) -> String {
    match media_type.starts_with("text/") {
        true => format!("{media_type}; charset=utf-8"),
        false => media_type.to_owned(),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn matches(tags: &str, etag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    tags == "*" || tags.split(',').any(|tag| bare(tag) == bare(etag))
}

#[derive(Debug, PartialEq, Eq)]
enum ByteRange {
    Of {
        start: u64,
        length: u64,
    },
    /// Invalid, or several ranges: the whole file is sent.
    Ignored,
    Outside,
}

fn part(range: &str, size: u64) -> ByteRange {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let Some(("bytes", set)) = range.split_once('=') else { return ByteRange::Ignored };
    let Some((first, last)) = set.trim().split_once('-') else { return ByteRange::Ignored };
    let (start, end) = match (number(first), number(last), first, last) {
        (Some(first), Some(last), ..) if first <= last => (first, last.min(size.saturating_sub(1))),
        (Some(first), None, _, "") => (first, size.saturating_sub(1)),
        (None, Some(0), "", _) => return ByteRange::Outside,
        (None, Some(count), "", _) => (size.saturating_sub(count), size.saturating_sub(1)),
        _ => return ByteRange::Ignored,
    };
    match start < size {
        true => ByteRange::Of { start, length: end - start + 1 },
        false => ByteRange::Outside,
    }
}

fn outside(size: u64) -> Response {
    let message = format!("the range begins after the end of the file, which has {size} bytes");
    let envelope = Envelope::new(Code::InvalidArgument, message);
    let envelope = envelope.with_status(StatusCode::RANGE_NOT_SATISFIABLE);
    envelope.with_header(CONTENT_RANGE, &format!("bytes */{size}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, disposition, part};

    #[test]
    fn parses_single_ranges() {
        let of = |start, length| ByteRange::Of { start, length };
        for (range, expected) in [
            ("bytes=0-0", of(0, 1)),
            ("bytes=2-5", of(2, 4)),
            ("bytes=5-", of(5, 5)),
            ("bytes=-3", of(7, 3)),
            ("bytes=-99", of(0, 10)),
            ("bytes=8-99999999999999999999999", of(8, 2)),
            ("bytes=10-", ByteRange::Outside),
            ("bytes=-0", ByteRange::Outside),
            ("bytes=99999999999999999999999-", ByteRange::Outside),
            ("bytes=5-2", ByteRange::Ignored),
            ("bytes=0-1,3-4", ByteRange::Ignored),
            ("bytes=a-b", ByteRange::Ignored),
            ("bytes=+1-2", ByteRange::Ignored),
            ("bytes=-", ByteRange::Ignored),
            ("lines=1-2", ByteRange::Ignored),
            ("", ByteRange::Ignored),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), ByteRange::Outside);
    }

    #[test]
    fn a_name_cannot_break_out_of_its_header() {
        for (name, expected) in [
            ("a.csv", "attachment; filename=\"a.csv\"; filename*=UTF-8''a.csv"),
            ("a\"b;c.csv", "attachment; filename=\"a_b_c.csv\"; filename*=UTF-8''a%22b%3Bc.csv"),
            ("é\r\n", "attachment; filename=\"___\"; filename*=UTF-8''%C3%A9%0D%0A"),
        ] {
            assert_eq!(disposition(name, false), expected);
        }
    }
}
