//! HTTP+SSE, the transport of 2024-11-05: a stream of events to the client, and posts from it. Two of
//! the systems whose users we serve have nothing else.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use woma_core::{Caller, CallerId, Code};

use super::direct::BATCH_MAX;
use super::{Arrival, Mcp};
use crate::doors::BaseUrl;
use crate::error::Envelope;

/// Streams that may be open at once.
const STREAMS_MAX: usize = 1_000;
/// Messages that wait for a client that reads slowly, each way.
const WAITING_MAX: usize = 64;
/// Requests of one stream that are being answered at once.
const IN_HAND_MAX: usize = 64;
/// How long a message may wait to be taken in.
const TAKE_TIME_MAX: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct SseDoor {
    mcp: Mcp,
    streams: Arc<Mutex<BTreeMap<String, Stream>>>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Stream {
    owner: CallerId,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    /// Requests that have no answer yet.
    in_hand: Arc<AtomicUsize>,
    /// Held by the request that is on its way to its place in a queue.
    order: Arc<Semaphore>,
}

/// Takes a stream out of the table, and ends what it serves, when its client is gone.
struct Open {
    id: String,
    streams: Arc<Mutex<BTreeMap<String, Stream>>>,
    stop: CancellationToken,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.stop.cancel();
        lock(&self.streams).remove(&self.id);
    }
}

impl SseDoor {
    pub(crate) fn new(mcp: Mcp, stop: CancellationToken) -> Self {
        Self { mcp, streams: Arc::default(), stop }
    }

    /// `GET /sse`: tells where to post, then every message as it comes.
    pub(crate) fn open(&self, caller: &Caller, base: BaseUrl) -> Result<Response, Envelope> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let in_hand = Arc::new(AtomicUsize::new(0));
        let (to_server, from_client) = mpsc::channel(WAITING_MAX);
        let (to_client, from_server) = mpsc::channel::<ServerJsonRpcMessage>(WAITING_MAX);
        {
            let mut streams = lock(&self.streams);
            if streams.len() >= STREAMS_MAX {
                let busy = format!("{STREAMS_MAX} event streams are open");
                return Err(Envelope::new(Code::Busy, busy));
            }
            let owner = caller.id.clone();
            let in_hand = Arc::clone(&in_hand);
            let order = Arc::new(Semaphore::new(1));
            streams.insert(id.clone(), Stream { owner, messages: to_server, in_hand, order });
        }
        let stop = self.stop.child_token();
        let open = Open { id: id.clone(), streams: Arc::clone(&self.streams), stop: stop.clone() };
        let handler = self.mcp.reached_by(Some(base)).of(caller.clone(), stop.clone());
        tokio::spawn(serve(handler, from_client, to_client, stop.clone()));
        let endpoint =
            Event::default().event("endpoint").data(format!("/messages/?session_id={id}"));
        let first = stream::once(async move { Ok::<_, Infallible>(endpoint) });
        let state = (from_server, open, in_hand);
        let messages = stream::unfold(state, |(mut from_server, open, in_hand)| async move {
            let message = from_server.recv().await?;
            if matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) {
                in_hand.fetch_sub(1, Ordering::Relaxed);
            }
            let text = serde_json::to_string(&message).unwrap_or_default();
            let event = Event::default().event("message").data(text);
            Some((Ok(event), (from_server, open, in_hand)))
        });
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive");
        let events = Sse::new(first.chain(messages).take_until(stop.cancelled_owned()));
        let headers = [("cache-control", "no-cache, no-transform"), ("x-accel-buffering", "no")];
        Ok((headers, events.keep_alive(keep_alive)).into_response())
    }

    /// `POST /messages/?session_id=…`: one message, or several in a list.
    pub(crate) async fn post(
        &self,
        caller: &Caller,
        id: &str,
        body: &Bytes,
    ) -> Result<Response, Envelope> {
        let found = {
            let streams = lock(&self.streams);
            // To another key, a stream does not exist.
            let stream = streams.get(id).filter(|stream| stream.owner == caller.id);
            stream.map(|Stream { messages, in_hand, order, .. }| {
                (messages.clone(), Arc::clone(in_hand), Arc::clone(order))
            })
        };
        let missing = || {
            Envelope::new(Code::NotFound, "there is no such event stream")
                .with_hint("open one with GET /sse and post to the address that it tells")
        };
        let (sender, in_hand, order) = found.ok_or_else(missing)?;
        let busy =
            || Envelope::new(Code::Busy, "this stream has too many requests without an answer");
        for mut message in parse(body)? {
            if let JsonRpcMessage::Request(request) = &mut message {
                // Who posts, as it is now: its key may allow less than that of the stream did.
                request.request.extensions_mut().insert(caller.clone());
                if in_hand.fetch_add(1, Ordering::Relaxed) >= IN_HAND_MAX {
                    in_hand.fetch_sub(1, Ordering::Relaxed);
                    return Err(busy());
                }
                let turn = Arc::clone(&order).acquire_owned();
                let turn = tokio::time::timeout(TAKE_TIME_MAX, turn).await.map_err(|_| busy())?;
                let turn = Arc::new(Mutex::new(turn.ok()));
                request.request.extensions_mut().insert(Arrival(turn));
            }
            let sent = tokio::time::timeout(TAKE_TIME_MAX, sender.send(message)).await;
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
                tracing::warn!(%error, "An event stream's task failed");
            }
        }
        Err(error) => tracing::debug!(%error, "An event stream ended before it had begun"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
