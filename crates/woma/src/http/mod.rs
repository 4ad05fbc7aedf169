//! The HTTP server: listener, layers and routes. Calls `mcp` for the MCP routes and `api` for the
//! rest; decides nothing that `woma-core` decides, and knows nothing of the command line.

mod auth_config;
mod body;
mod extract;
mod idempotency;
mod job_routes;
mod layers;
mod listen;
pub(crate) mod openapi;
mod package_routes;
mod query;
mod routes;
mod table;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use woma_core::{CallerId, RefusedRequest};

use crate::api::error::{Refused, refusal_code};
use crate::api::state::AppState;
use layers::{auth, basic, client, cors, guard, headers, open_downloads, panic, shares, trace};
use routes::{fallback, mcp, ports};

pub(crate) use auth_config::AuthConfig;
pub(crate) use listen::Listener;

/// All routes with their layers. A request passes the layers from the first to the last: the
/// client's address, request id, metrics, headers, panics, downloads for any origin, host and
/// origin, CORS, a key in the address, authentication, a place among the requests.
pub(crate) fn router(
    state: &AppState,
    auth_config: &AuthConfig,
    bound: SocketAddr,
    cut: &CancellationToken,
) -> Result<Router, Box<dyn Error>> {
    let guard = auth_config.guard(bound)?;
    let (auth_state, proxies) = (Arc::clone(&auth_config.auth_state), auth_config.proxies());
    let routes = mcp::routes(state, cut).merge(table::routes(state)).merge(ports::routes(state));
    let routes = routes
        .merge(auth::metadata_routes(&auth_state))
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed);
    // One stack: each `Router::layer` boxes the route again, and a request would clone every box.
    let layers = ServiceBuilder::new()
        .map_request(move |request| client::identify(&proxies, request))
        .layer(from_fn(trace::trace))
        .layer(from_fn_with_state(state.clone(), count_rejections))
        .layer(from_fn(headers::protect))
        .layer(CatchPanicLayer::custom(panic::panicked))
        .layer(from_fn(open_downloads::allow_any_origin))
        .layer(from_fn_with_state(Arc::clone(&guard), guard::guard))
        .layer(cors::layer(guard))
        .map_request(basic::password_as_key)
        .layer(from_fn_with_state(auth_state, auth::authenticate))
        .layer(Extension(Arc::clone(auth_config.key_ring())))
        .layer(Extension(auth_config.tokens().cloned()))
        .layer(from_fn_with_state(Arc::clone(&state.pools), shares::share_out));
    Ok(routes.layer(layers))
}

/// Counts rejections that never reached the service, and records refusals.
async fn count_rejections(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    // The route's template: a path may hold names, and there are as many as one likes.
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let response = next.run(request).await;
    if let Some(reason) = refusal_code(response.status()) {
        let route = route.as_ref().map_or("unknown", MatchedPath::as_str);
        let caller = response.extensions().get::<CallerId>().cloned();
        let request = format!("{method} {route}");
        state.service.note_refusal(&RefusedRequest { caller, request, reason, peer });
    }
    if let Some(Refused(code)) = response.extensions().get() {
        state.service.metrics().reject(code);
    }
    response
}
