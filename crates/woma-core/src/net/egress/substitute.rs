//! Values of secrets put into requests in place of their placeholders.

use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::http::{Body, BoxError, full, passed};
use super::reach::Target;
use crate::net::secrets::{PLACEHOLDER_START, Places, SessionSecrets};

/// Longest body that values are put into. A longer one is passed on as it is.
pub(super) const BODY_BYTES_MAX: usize = 256 * 1024;

/// The secrets of a session, for requests to one host.
pub(super) struct Substitution<'a> {
    secrets: &'a SessionSecrets,
    target: &'a Target,
    is_encrypted: bool,
    /// Names of secrets whose placeholders stay, because they stand where the value may not.
    pub(super) misplaced: Vec<String>,
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Percent,
    Json,
}

impl<'a> Substitution<'a> {
    pub(super) fn new(secrets: &'a SessionSecrets, target: &'a Target, is_encrypted: bool) -> Self {
        Self { secrets, target, is_encrypted, misplaced: Vec::new() }
    }

    /// Text with values in place of placeholders; `None` if it stays as it is.
    fn text(&mut self, text: &str, form: Form, may: fn(&Places) -> bool) -> Option<String> {
        if !text.contains(PLACEHOLDER_START) {
            return None;
        }
        let mut written: Option<String> = None;
        for one in &self.secrets.placed {
            let current = written.as_deref().unwrap_or(text);
            if !current.contains(&one.placeholder) {
                continue;
            }
            let secret = &one.secret;
            let is_for = secret.is_for(&self.target.host, self.target.port, self.is_encrypted);
            if is_for && may(&secret.places) {
                let value = form.write(secret.value.expose());
                written = Some(current.replace(&one.placeholder, &value));
            } else if !self.misplaced.contains(&secret.name) {
                self.misplaced.push(secret.name.clone());
            }
        }
        written
    }

    /// The address and the headers of a request.
    pub(super) fn head<B>(&mut self, request: &mut Request<B>) {
        if let Some(uri) = self.uri(request.uri()) {
            *request.uri_mut() = uri;
        }
        self.headers(request.headers_mut());
    }

    fn uri(&mut self, uri: &Uri) -> Option<Uri> {
        let whole = uri.path_and_query()?.as_str();
        let (path, query) = whole.split_once('?').map_or((whole, None), |(p, q)| (p, Some(q)));
        let new_path = self.text(path, Form::Percent, |places| places.path);
        let new_query =
            query.and_then(|query| self.text(query, Form::Percent, |places| places.query));
        if new_path.is_none() && new_query.is_none() {
            return None;
        }
        let path = new_path.as_deref().unwrap_or(path);
        let query = new_query.as_deref().or(query);
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        PathAndQuery::try_from(format!("{path}{query}")).ok().map(Uri::from)
    }

    fn headers(&mut self, headers: &mut HeaderMap) {
        for (name, value) in headers.iter_mut() {
            if *name == header::HOST || *name == header::CONTENT_LENGTH {
                continue;
            }
            let Ok(text) = std::str::from_utf8(value.as_bytes()) else { continue };
            let plain = self.text(text, Form::Plain, |places| places.headers);
            let written = plain.or_else(|| self.basic(text));
            if let Some(Ok(written)) = written.map(|text| HeaderValue::from_str(&text)) {
                *value = written;
                value.set_sensitive(true);
            }
        }
    }

    /// A name and a password, as `Authorization` has them.
    fn basic(&mut self, text: &str) -> Option<String> {
        let (scheme, encoded) = text.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
        let written = self.text(&decoded, Form::Plain, |places| places.headers)?;
        Some(format!("{scheme} {}", STANDARD.encode(written)))
    }

    /// A short body.
    fn body(&mut self, bytes: &[u8], form: Form) -> Option<String> {
        self.text(std::str::from_utf8(bytes).ok()?, form, |places| places.body)
    }

    /// Whether any value may stand in a body.
    fn is_for_bodies(&self) -> bool {
        self.secrets.placed.iter().any(|one| {
            let secret = &one.secret;
            secret.places.body
                && secret.is_for(&self.target.host, self.target.port, self.is_encrypted)
        })
    }

    /// A request whose body has values too, where a secret allows that.
    pub(super) async fn whole(
        &mut self,
        request: Request<Incoming>,
    ) -> Result<Request<Body>, hyper::Error> {
        let is_encoded = request.headers().contains_key(header::CONTENT_ENCODING);
        if is_encoded || request.body().is_end_stream() || !self.is_for_bodies() {
            return Ok(request.map(passed));
        }
        let form = form_of(request.headers());
        let (mut head, mut rest) = request.into_parts();
        let mut first = BytesMut::new();
        while first.len() <= BODY_BYTES_MAX {
            match rest.frame().await.transpose()? {
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        first.extend_from_slice(&data);
                    }
                }
                None => {
                    let bytes = self.body(&first, form).map_or(first.freeze(), Bytes::from);
                    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                    return Ok(Request::from_parts(head, full(bytes)));
                }
            }
        }
        let body = Longer { first: Some(first.freeze()), rest };
        Ok(Request::from_parts(head, body.boxed()))
    }
}

impl Form {
    fn write(self, value: &str) -> String {
        match self {
            Self::Plain => value.to_owned(),
            Self::Percent => utf8_percent_encode(value, NON_ALPHANUMERIC).to_string(),
            Self::Json => {
                let quoted = serde_json::to_string(value).unwrap_or_default();
                let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                inner.unwrap_or_default().to_owned()
            }
        }
    }
}

fn form_of(headers: &HeaderMap) -> Form {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    if kind == "application/x-www-form-urlencoded" {
        Form::Percent
    } else if kind == "application/json" || kind.ends_with("+json") {
        Form::Json
    } else {
        Form::Plain
    }
}

/// A body whose beginning was read.
struct Longer {
    first: Option<Bytes>,
    rest: Incoming,
}

impl hyper::body::Body for Longer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None => Pin::new(&mut self.rest).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (first, mut hint) =
            (self.first.as_ref().map_or(0, |first| first.len() as u64), self.rest.size_hint());
        match hint.exact() {
            Some(rest) => SizeHint::with_exact(first + rest),
            None => {
                hint.set_lower(hint.lower() + first);
                hint
            }
        }
    }
}
