//! Values of secrets taken out of what a host sends back.

use std::collections::VecDeque;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http::{Body, BoxError, full, passed};
use super::refusal::Why;
use crate::net::secrets::{Covered, Mask};

/// Longest body that is read whole, so that it keeps its length.
const WHOLE_BYTES_MAX: u64 = 64 * 1024;
/// Compressed bytes that are decompressed at once. The most that can come of them is a thousandfold.
const COMPRESSED_BYTES: usize = 4 * 1024;
/// Bytes that are read at once after a change of protocols.
const READ_BYTES: usize = 16 * 1024;

/// A response without values.
pub(super) async fn response(
    mask: &Arc<Mask>,
    is_head: bool,
    response: Response<Incoming>,
) -> Result<Response<Body>, Why> {
    let (mut head, body) = response.into_parts();
    head.extensions.remove::<ReasonPhrase>();
    headers(mask, &mut head.headers);
    let has_no_body = is_head
        || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || head.status.is_informational();
    if has_no_body {
        return Ok(Response::from_parts(head, passed(body)));
    }
    let decoder = Decoder::of(&head.headers)?;
    let is_short = body.size_hint().upper().is_some_and(|bytes| bytes <= WHOLE_BYTES_MAX);
    if decoder.is_none() && is_short {
        let whole =
            body.collect().await.map_err(|error| Why::Connect(std::io::Error::other(error)));
        let bytes = whole?.to_bytes();
        let bytes = mask.bytes(&bytes).map_or(bytes, Bytes::from);
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        return Ok(Response::from_parts(head, full(bytes)));
    }
    head.headers.remove(header::CONTENT_LENGTH);
    if decoder.is_some() {
        head.headers.remove(header::CONTENT_ENCODING);
    }
    let covered = Covered::new(Arc::clone(mask));
    let (compressed, ready) = (Bytes::new(), VecDeque::new());
    let body = CoveredBody { body, decoder, covered, compressed, ready, is_over: false };
    Ok(Response::from_parts(head, body.boxed()))
}

/// Headers without values, also in their names.
pub(super) fn headers(mask: &Mask, headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        headers.keys().filter(|name| mask.is_in_name(name.as_str())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(covered) = mask.bytes(value.as_bytes()) {
            // A placeholder is text that every header may have.
            *value = HeaderValue::from_bytes(&covered).unwrap_or(HeaderValue::from_static(""));
        }
    }
}

/// Undoes what a host has compressed, although it was asked not to.
enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    Zlib(ZlibDecoder<Vec<u8>>),
}

impl Decoder {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, Why> {
        let mut named = headers.get_all(header::CONTENT_ENCODING).iter();
        let (first, second) = (named.next(), named.next());
        let name = first.and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
        match (first, name.as_deref().map(str::trim), second) {
            (None, ..) | (_, Some("identity" | ""), None) => Ok(None),
            (_, Some("gzip" | "x-gzip"), None) => {
                Ok(Some(Self::Gzip(MultiGzDecoder::new(Vec::new()))))
            }
            (_, Some("deflate"), None) => Ok(Some(Self::Zlib(ZlibDecoder::new(Vec::new())))),
            _ => Err(Why::Protocol(
                "it answered in an encoding that cannot be read here, so that secrets could come back \
                 in it; only gzip and deflate can",
            )),
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let out = match self {
            Self::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                decoder.get_mut()
            }
            Self::Zlib(decoder) => {
                decoder.write_all(bytes)?;
                decoder.flush()?;
                decoder.get_mut()
            }
        };
        Ok(std::mem::take(out))
    }

    fn finish(&mut self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Gzip(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Zlib(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }
}

/// A body without values, however it is cut.
struct CoveredBody {
    body: Incoming,
    decoder: Option<Decoder>,
    covered: Covered,
    /// Bytes that are not decompressed yet.
    compressed: Bytes,
    ready: VecDeque<Frame<Bytes>>,
    is_over: bool,
}

impl CoveredBody {
    fn add(&mut self, bytes: Bytes) {
        let passed = self.covered.push(bytes);
        if !passed.is_empty() {
            self.ready.push_back(Frame::data(passed));
        }
    }

    /// Passes on the rest after the last bytes.
    fn end(&mut self) -> std::io::Result<()> {
        self.is_over = true;
        if let Some(decoder) = &mut self.decoder {
            let last = decoder.finish()?;
            self.add(last.into());
        }
        let last = self.covered.finish();
        if !last.is_empty() {
            self.ready.push_back(Frame::data(last));
        }
        Ok(())
    }
}

impl hyper::body::Body for CoveredBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some(frame) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            if let (false, Some(decoder)) = (this.compressed.is_empty(), &mut this.decoder) {
                let length = this.compressed.len().min(COMPRESSED_BYTES);
                let part = this.compressed.split_to(length);
                match decoder.decode(&part) {
                    Ok(bytes) => this.add(bytes.into()),
                    Err(error) => return Poll::Ready(Some(Err(error.into()))),
                }
                continue;
            }
            if this.is_over {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut this.body).poll_frame(context)).transpose()? {
                Some(frame) => match frame.into_data() {
                    Ok(data) if this.decoder.is_some() => this.compressed = data,
                    Ok(data) => this.add(data),
                    Err(frame) => {
                        this.end()?;
                        if let Ok(mut trailers) = frame.into_trailers() {
                            headers(this.covered.mask(), &mut trailers);
                            this.ready.push_back(Frame::trailers(trailers));
                        }
                    }
                },
                None => this.end()?,
            }
        }
    }
}

/// Bytes of a host after a change of protocols. Every byte of a value becomes another one, because
/// the lengths of frames must stay.
#[derive(Debug)]
pub(super) struct CoveredStream<S> {
    inner: S,
    covered: Covered,
    ready: Bytes,
    buffer: BytesMut,
    is_over: bool,
}

impl<S> CoveredStream<S> {
    pub(super) fn new(mask: Arc<Mask>, inner: S) -> Self {
        let covered = Covered::of_equal_length(mask);
        let (ready, buffer) = (Bytes::new(), BytesMut::zeroed(READ_BYTES));
        Self { inner, covered, ready, buffer, is_over: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoveredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        while this.ready.is_empty() && !this.is_over {
            let mut buffer = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut buffer))?;
            let read = Bytes::copy_from_slice(buffer.filled());
            if read.is_empty() {
                this.is_over = true;
                this.ready = this.covered.finish();
            } else {
                this.ready = this.covered.push(read);
            }
        }
        let length = this.ready.len().min(out.remaining());
        out.put_slice(this.ready.get(..length).unwrap_or_default());
        this.ready.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoveredStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
