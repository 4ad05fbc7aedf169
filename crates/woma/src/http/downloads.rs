//! Files on their way out: whole or in part, as what they are, and so that nothing in them can act
//! in our name. `/dl/…` needs no key: who knows the address may have the file.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT_RANGES, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, ORIGIN, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use woma_core::{Caller, Chart, Code, Content, SessionId};

use super::given::{CallerOf, PathOf};
use crate::doors::Doors;
use crate::error::Envelope;
use crate::wire::encoded;

const CACHED: &str = "private, max-age=3600";
/// What hostile code has written may be looked at, but nothing in it runs.
const INERT: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// What is sent, and how it is told of.
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) size_bytes: u64,
    pub(super) etag: String,
    pub(super) is_inline: bool,
    pub(super) cache: &'static str,
    pub(super) content: Content,
}

impl Sent {
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

    /// The whole, the part that is asked for, or the word that nothing has changed.
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
        set(CONTENT_SECURITY_POLICY, INERT);
        if text(asked, &IF_NONE_MATCH).is_some_and(|tags| matches(tags, &self.etag)) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        // A part of something else is of no use to who has the beginning of this.
        let is_same = text(asked, &IF_RANGE).is_none_or(|tag| tag == self.etag);
        let range = text(asked, &RANGE).filter(|_| is_same);
        let (status, start, length) = match range.map(|range| part(range, self.size_bytes)) {
            None | Some(Part::Ignored) => (StatusCode::OK, 0, self.size_bytes),
            Some(Part::Of { start, length }) => {
                let range = format!("bytes {start}-{}/{}", start + length - 1, self.size_bytes);
                set(CONTENT_RANGE, &range);
                (StatusCode::PARTIAL_CONTENT, start, length)
            }
            Some(Part::Outside) => return outside(self.size_bytes),
        };
        set(CONTENT_TYPE, &with_charset(&self.media_type));
        set(CONTENT_LENGTH, &length.to_string());
        set(CONTENT_DISPOSITION, &disposition(&self.name, self.is_inline));
        let body = Body::from_stream(self.content.pieces(start, length));
        (status, headers, body).into_response()
    }
}

pub(crate) async fn download(
    State(doors): State<Doors>,
    PathOf((id, _name)): PathOf<(String, String)>,
    request: Request,
) -> Result<Response, Envelope> {
    send(&doors, &id, &request.into_parts().0).await
}

pub(crate) async fn download_by_id(
    State(doors): State<Doors>,
    PathOf(id): PathOf<String>,
    request: Request,
) -> Result<Response, Envelope> {
    send(&doors, &id, &request.into_parts().0).await
}

async fn send(doors: &Doors, id: &str, request: &Parts) -> Result<Response, Envelope> {
    // There is a caller where the operator wants a key for downloads, too.
    let owner = request.extensions.get::<Caller>();
    let downloaded = doors.service.download(id, owner).await?;
    let id = downloaded.file.id;
    let answer = Sent::stored(downloaded.into(), false).answer(&request.headers);
    if request.method == Method::GET && answer.status() == StatusCode::OK {
        doors.service.count_download(id);
    }
    Ok(answer)
}

pub(crate) async fn chart(
    State(doors): State<Doors>,
    CallerOf(caller): CallerOf,
    PathOf((session, name)): PathOf<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Envelope> {
    let session = SessionId::parse(&session)?;
    let found = doors.service.chart(&caller, &session, &name).await.map_err(|error| {
        let hint = "plt.savefig(name) saves a chart under a name; list_files shows what there is";
        match error {
            woma_core::Error::NoFile(_) => Envelope::from(error).with_hint(hint),
            other => other.into(),
        }
    })?;
    Ok(Sent::stored(found, true).answer(&headers))
}

/// A page of any origin may read what it has an address of. It stands outside of the layer that
/// checks origins, and hides from it that there is one; the host is checked all the same.
pub(crate) async fn open_to_pages(mut request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_read || !request.uri().path().starts_with("/dl/") {
        return next.run(request).await;
    }
    let mut response = if request.method() == Method::OPTIONS {
        let headers = [
            (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
            (ACCESS_CONTROL_ALLOW_HEADERS, "authorization, x-api-key, range, if-none-match"),
            (ACCESS_CONTROL_MAX_AGE, "600"),
        ];
        (StatusCode::NO_CONTENT, headers).into_response()
    } else {
        request.headers_mut().remove(ORIGIN);
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    let shown = "content-disposition, content-length, content-type, content-range, accept-ranges, \
                 etag, x-session-id, x-request-id";
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(shown));
    response
}

/// With a name that every client can read, and the real one for those that can.
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
enum Part {
    Of {
        start: u64,
        length: u64,
    },
    /// Not understood, or several at once: the whole is as good an answer.
    Ignored,
    Outside,
}

fn part(range: &str, size: u64) -> Part {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    let Some(("bytes", set)) = range.split_once('=') else { return Part::Ignored };
    let Some((first, last)) = set.trim().split_once('-') else { return Part::Ignored };
    let (start, end) = match (number(first), number(last), first, last) {
        (Some(first), Some(last), ..) if first <= last => (first, last.min(size.saturating_sub(1))),
        (Some(first), None, _, "") => (first, size.saturating_sub(1)),
        (None, Some(0), "", _) => return Part::Outside,
        (None, Some(count), "", _) => (size.saturating_sub(count), size.saturating_sub(1)),
        _ => return Part::Ignored,
    };
    match start < size {
        true => Part::Of { start, length: end - start + 1 },
        false => Part::Outside,
    }
}

fn outside(size: u64) -> Response {
    let message = format!("the file has {size} bytes, and the range begins beyond them");
    let envelope = Envelope::new(Code::InvalidArgument, message);
    let envelope = envelope.with_status(StatusCode::RANGE_NOT_SATISFIABLE);
    envelope.with_header(CONTENT_RANGE, &format!("bytes */{size}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::{Part, disposition, part};

    #[test]
    fn one_range_is_understood() {
        let of = |start, length| Part::Of { start, length };
        for (range, expected) in [
            ("bytes=0-0", of(0, 1)),
            ("bytes=2-5", of(2, 4)),
            ("bytes=5-", of(5, 5)),
            ("bytes=-3", of(7, 3)),
            ("bytes=-99", of(0, 10)),
            ("bytes=8-99999999999999999999999", of(8, 2)),
            ("bytes=10-", Part::Outside),
            ("bytes=-0", Part::Outside),
            ("bytes=99999999999999999999999-", Part::Outside),
            ("bytes=5-2", Part::Ignored),
            ("bytes=0-1,3-4", Part::Ignored),
            ("bytes=a-b", Part::Ignored),
            ("bytes=+1-2", Part::Ignored),
            ("bytes=-", Part::Ignored),
            ("lines=1-2", Part::Ignored),
            ("", Part::Ignored),
        ] {
            assert_eq!(part(range, 10), expected, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Outside);
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
