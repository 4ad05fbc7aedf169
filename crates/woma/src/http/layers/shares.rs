//! Requests in progress, divided among callers. A place is held until the reply is sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::Frame;
use woma_core::shares::Permit;
use woma_core::{Caller, CallerId, Code};

use super::auth::network;
use super::client::ClientInfo;
use super::is_probe;
use crate::api::error::Envelope;
use crate::api::pools::{BodyMemory, Pools};

/// Pools and the caller that a request counts for.
#[derive(Debug, Clone)]
pub(crate) struct RequestShare {
    pools: Arc<Pools>,
    caller: CallerId,
}

impl RequestShare {
    pub(crate) fn body_memory(&self) -> BodyMemory {
        BodyMemory::new(Arc::clone(&self.pools), self.caller.clone())
    }
}

/// Gives a request its place, or refuses it. Must be inside authentication; requests for public
/// paths count for the address of their client.
pub(crate) async fn share_out(
    State(pools): State<Arc<Pools>>,
    mut request: Request,
    next: Next,
) -> Response {
    // A full server must not look like a dead one.
    if is_probe(request.uri().path()) {
        return next.run(request).await;
    }
    let caller = match request.extensions().get::<Caller>() {
        Some(caller) => caller.id.clone(),
        None => public_caller(&request),
    };
    let Some(place) = pools.requests.take(&caller) else {
        let most = pools.requests.most(&caller);
        let text = format!("the server is busy: a caller may have {most} requests in progress");
        return Envelope::new(Code::Busy, text)
            .with_hint("try again when some of them are done, or raise MAX_CONNECTIONS")
            .into_response();
    };
    request.extensions_mut().insert(RequestShare { pools, caller });
    let response = next.run(request).await;
    response.map(|body| Body::new(PlacedBody { body, _place: place }))
}

fn public_caller(request: &Request) -> CallerId {
    let network = network(ClientInfo::of(request).address);
    CallerId::new(format!("address:{network}"))
}

/// Body of a reply, which keeps the place of its request.
struct PlacedBody {
    body: Body,
    _place: Permit,
}

impl http_body::Body for PlacedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
