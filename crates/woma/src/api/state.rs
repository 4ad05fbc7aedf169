//! State shared by REST and MCP: the service, and the presentation that the operator has chosen.

use std::sync::Arc;

use woma_core::environments::{Environment, Package};
use woma_core::{Code, Service, SessionChoice, SessionId};

use super::error::Envelope;
use super::pools::Pools;
use super::shape::Shape;
use crate::config::types::{ListedTools, ReplyForm, StateWithoutSession, TextFormat};

/// Service and presentation. Clones share everything but the client and the base URL of the request.
#[derive(Debug, Clone)]
pub(crate) struct AppState {
    pub(crate) service: Service,
    pub(crate) presentation: Arc<Presentation>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) client: Client,
    /// Base URL that the client has used, if the request names one.
    pub(crate) request_base_url: Option<BaseUrl>,
}

/// Base URL of a request, without a trailing slash; the authentication layer inserts it.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl(pub(crate) Arc<str>);

/// Kind of client, which decides the session of a call that names no session.
#[derive(Debug, Clone)]
pub(crate) enum Client {
    /// A program that uses REST, whose replies always name the session.
    Rest,
    /// An MCP client with a process, a connection or an MCP session of its own: it has a default
    /// session of its own.
    Connected(SessionId),
    /// An MCP client with nothing that holds its calls together.
    Stateless,
}

impl AppState {
    /// The same state for a client of this kind.
    pub(crate) fn for_client(&self, client: Client) -> Self {
        Self { client, ..self.clone() }
    }

    /// The same state, in which a call that names no session uses the client's own.
    pub(crate) fn with_own_session(mut self) -> Self {
        let state_without_session = StateWithoutSession::Own;
        self.presentation =
            Arc::new(Presentation { state_without_session, ..(*self.presentation).clone() });
        self
    }

    /// The setting, as it applies to this client.
    pub(crate) fn state_without_session(&self) -> StateWithoutSession {
        match (self.presentation.state_without_session, &self.client) {
            (StateWithoutSession::Own, Client::Rest) => StateWithoutSession::Default,
            (StateWithoutSession::Own, Client::Stateless) => StateWithoutSession::New,
            (setting, _) => setting,
        }
    }

    /// The session of a call: the one it names, else the configured one.
    pub(crate) fn session(&self, id: Option<&str>) -> Result<SessionChoice, woma_core::Error> {
        if let Some(id) = id.map(str::trim).filter(|id| !id.is_empty()) {
            return Ok(SessionChoice::Named(SessionId::parse(id)?));
        }
        Ok(match (self.state_without_session(), &self.client) {
            (StateWithoutSession::Own, Client::Connected(own)) => SessionChoice::Named(own.clone()),
            (StateWithoutSession::Own | StateWithoutSession::Default, _) => SessionChoice::Default,
            (StateWithoutSession::New, _) => SessionChoice::New,
            (StateWithoutSession::Ephemeral, _) => SessionChoice::Ephemeral,
        })
    }

    /// The session that a call without a session id means, if the client knows it.
    pub(crate) fn known_session(&self) -> Option<SessionId> {
        self.session(None).ok()?.named()
    }

    /// The session of a call about what is in a session already.
    pub(crate) fn existing_session(&self, id: Option<&str>) -> Result<SessionId, Envelope> {
        let is_lost = matches!(self.presentation.state_without_session, StateWithoutSession::Own);
        match self.session(id)? {
            SessionChoice::Named(id) => Ok(id),
            SessionChoice::New if is_lost => {
                let message = "`session_id` is missing: this call must name its session";
                Err(Envelope::new(Code::InvalidArgument, message)
                    .with_hint("pass the session_id of an earlier reply; list_sessions has them"))
            }
            // Files of an ephemeral session would be lost.
            _ => Ok(SessionId::shared_default()),
        }
    }

    /// The same state for a request with this base URL.
    pub(crate) fn with_base_url(&self, base: Option<BaseUrl>) -> Self {
        Self { request_base_url: base.or_else(|| self.request_base_url.clone()), ..self.clone() }
    }

    /// Base URL of links in replies; `None` if the server is not reached over HTTP.
    pub(crate) fn base_url(&self) -> Option<&str> {
        let fixed = self.presentation.base_url.as_deref()?;
        Some(self.request_base_url.as_ref().map_or(fixed, |BaseUrl(base)| base))
    }
}

/// Presentation of replies, as configured.
#[derive(Debug, Clone)]
pub(crate) struct Presentation {
    /// Name of the preset.
    pub(crate) preset: String,
    pub(crate) environment: Environment,
    pub(crate) packages: Vec<Package>,
    /// Session of a call that names no session.
    pub(crate) state_without_session: StateWithoutSession,
    /// Characters of text in one reply to a model.
    pub(crate) context_chars: usize,
    /// Longest request, in bytes.
    pub(crate) body_bytes_max: usize,
    pub(crate) reply: ReplyForm,
    /// Text block of a full reply.
    pub(crate) text_format: TextFormat,
    pub(crate) shape: Shape,
    /// Whether failed code is an error of its tool over MCP.
    pub(crate) failure_is_error: bool,
    /// Memory limit of containers, which older clients read.
    pub(crate) container_memory_bytes: Option<u64>,
    /// Base URL of links where the request names no host; `None` if the server has no HTTP.
    pub(crate) base_url: Option<String>,
    /// Tools that `tools/list` shows; all of them can be called.
    pub(crate) listed_tools: ListedTools,
    /// Whether the fixtures of the conformance suite are added.
    pub(crate) conformance: bool,
}
