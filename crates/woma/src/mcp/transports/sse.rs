//! HTTP+SSE, the transport of 2024-11-05: an event stream to the client, POSTs from it. rmcp has no
//! server for it, and clients of two older systems use nothing else.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt, stream};
use rmcp::ServiceExt;
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage, ServerJsonRpcMessage};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, PollSender};
use woma_core::{Caller, CallerId, Code, SessionId, share_of_caller};
use woma_sandbox::sync::lock;

use super::direct::BATCH_MAX;
use crate::api::error::Envelope;
use crate::api::state::BaseUrl;
use crate::mcp::{Mcp, OrderPermit};

/// Limit of open streams.
const STREAMS_MAX: usize = 1_000;
/// Limit of one caller's open streams.
const STREAMS_OF_CALLER_MAX: usize = share_of_caller(STREAMS_MAX);
/// Messages buffered for a slow client, in each direction.
const CHANNEL_MESSAGES_MAX: usize = 64;
/// Requests of one stream in flight.
const IN_FLIGHT_MAX: usize = 64;
/// Longest wait of a message for space in the channel.
const SEND_TIME_MAX: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct SseTransport {
    mcp: Mcp,
    streams: Arc<Mutex<BTreeMap<String, Stream>>>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Stream {
    owner: CallerId,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    /// Requests without a reply.
    in_flight: Arc<AtomicUsize>,
    /// Held by the request that is not in its session's queue yet.
    order: Arc<Semaphore>,
}

/// Removes a stream from the table and stops its handler when its client disconnects.
struct StreamGuard {
    id: String,
    streams: Arc<Mutex<BTreeMap<String, Stream>>>,
    stop: CancellationToken,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.stop.cancel();
        lock(&self.streams).remove(&self.id);
    }
}

impl SseTransport {
    pub(crate) fn new(mcp: Mcp, stop: CancellationToken) -> Self {
        Self { mcp, streams: Arc::default(), stop }
    }

    /// `GET /sse`: sends the POST endpoint, then every message.
    pub(crate) fn open(&self, caller: &Caller, base: BaseUrl) -> Result<Response, Envelope> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let in_flight = Arc::new(AtomicUsize::new(0));
        let (to_server, from_client) = mpsc::channel(CHANNEL_MESSAGES_MAX);
        let (to_client, from_server) = mpsc::channel::<ServerJsonRpcMessage>(CHANNEL_MESSAGES_MAX);
        {
            let mut streams = lock(&self.streams);
            let of_caller = streams.values().filter(|stream| stream.owner == caller.id).count();
            if streams.len() >= STREAMS_MAX || of_caller >= STREAMS_OF_CALLER_MAX {
                return Err(Envelope::new(Code::Busy, "too many event streams are open")
                    .with_hint("close streams that are not used any more"));
            }
            let owner = caller.id.clone();
            let in_flight = Arc::clone(&in_flight);
            let order = Arc::new(Semaphore::new(1));
            streams.insert(id.clone(), Stream { owner, messages: to_server, in_flight, order });
        }
        let stop = self.stop.child_token();
        let open =
            StreamGuard { id: id.clone(), streams: Arc::clone(&self.streams), stop: stop.clone() };
        let handler = self.mcp.with_base_url(Some(base)).of(caller.clone(), stop.clone());
        let handler = handler.with_own_session(SessionId::mint_default());
        tokio::spawn(serve(handler, from_client, to_client, stop.clone()));
        let endpoint =
            Event::default().event("endpoint").data(format!("/messages/?session_id={id}"));
        let first = stream::once(async move { Ok::<_, Infallible>(endpoint) });
        let state = (from_server, open, in_flight);
        let messages = stream::unfold(state, |(mut from_server, open, in_flight)| async move {
            let message = from_server.recv().await?;
            if matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
                in_flight.fetch_sub(1, Ordering::Relaxed);
            }
            let text = serde_json::to_string(&message).unwrap_or_default();
            let event = Event::default().event("message").data(text);
            Some((Ok(event), (from_server, open, in_flight)))
        });
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
        let events = Sse::new(first.chain(messages).take_until(stop.cancelled_owned()));
        let headers = [("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no")];
        Ok((headers, events.keep_alive(keep_alive)).into_response())
    }

    /// `POST /messages/?session_id=…`: one message or a batch.
    pub(crate) async fn post(
        &self,
        caller: &Caller,
        id: &str,
        body: &Bytes,
    ) -> Result<Response, Envelope> {
        let found = {
            let streams = lock(&self.streams);
            // Streams of other callers do not exist for this one.
            let stream = streams.get(id).filter(|stream| stream.owner == caller.id);
            stream.map(|Stream { messages, in_flight, order, .. }| {
                (messages.clone(), Arc::clone(in_flight), Arc::clone(order))
            })
        };
        let missing = || {
            Envelope::new(Code::NotFound, "the event stream does not exist")
                .with_hint("open one with GET /sse and post to the endpoint that it sends")
        };
        let (sender, in_flight, order) = found.ok_or_else(missing)?;
        let busy = || Envelope::new(Code::Busy, "too many requests of this stream are in flight");
        for mut message in parse(body)? {
            if let JsonRpcMessage::Request(request) = &mut message {
                // The poster's own rights: its key may allow less than the key of the stream.
                request.request.extensions_mut().insert(caller.clone());
                if in_flight.fetch_add(1, Ordering::Relaxed) >= IN_FLIGHT_MAX {
                    in_flight.fetch_sub(1, Ordering::Relaxed);
                    return Err(busy());
                }
                let turn = Arc::clone(&order).acquire_owned();
                let turn = tokio::time::timeout(SEND_TIME_MAX, turn).await.map_err(|_| busy())?;
                let turn = Arc::new(Mutex::new(turn.ok()));
                request.request.extensions_mut().insert(OrderPermit(turn));
            }
            let sent = tokio::time::timeout(SEND_TIME_MAX, sender.send(message)).await;
            sent.map_err(|_| busy())?.map_err(|_| missing())?;
        }
        Ok((StatusCode::ACCEPTED, "Accepted").into_response())
    }
}

fn parse(body: &Bytes) -> Result<Vec<ClientJsonRpcMessage>, Envelope> {
    let bad = |error: serde_json::Error| {
        Envelope::new(Code::InvalidArgument, format!("not a JSON-RPC message: {error}"))
    };
    let is_list = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_list {
        let batch: Vec<ClientJsonRpcMessage> = serde_json::from_slice(body).map_err(bad)?;
        if batch.len() > BATCH_MAX {
            let text = format!("a batch has 1 to {BATCH_MAX} messages");
            return Err(Envelope::new(Code::InvalidArgument, text));
        }
        return Ok(batch);
    }
    serde_json::from_slice(body).map(|message| vec![message]).map_err(bad)
}

async fn serve(
    handler: Mcp,
    mut from_client: mpsc::Receiver<ClientJsonRpcMessage>,
    to_client: mpsc::Sender<ServerJsonRpcMessage>,
    stop: CancellationToken,
) {
    let incoming = stream::poll_fn(move |context| from_client.poll_recv(context));
    let outgoing = PollSender::new(to_client)
        .sink_map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe));
    let transport = (outgoing, incoming);
    match handler.serve_with_ct(transport, stop).await {
        Ok(service) => {
            if let Err(error) = service.waiting().await {
                tracing::warn!(%error, "Event stream task failed");
            }
        }
        Err(error) => tracing::debug!(%error, "Event stream ended before its handshake"),
    }
}
