//! What every door knows: the service, and how the operator wants it presented.

use std::sync::Arc;

use woma_core::environments::{Environment, Package};
use woma_core::{Service, SessionChoice, SessionId};

use crate::config::types::{StateWithoutSession, TextFormat};

/// Clones share everything but the address that they were reached by.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) service: Service,
    pub(crate) manner: Arc<Manner>,
    /// What the client calls us, where it has said so.
    pub(crate) reached_by: Option<BaseUrl>,
}

/// What a client reaches us by, without a slash at the end; the layer that checks keys puts it into
/// each request.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl(pub(crate) Arc<str>);

impl Doors {
    /// The same for a client that reaches us by this address.
    pub(crate) fn reached_by(&self, base: Option<BaseUrl>) -> Self {
        Self { reached_by: base.or_else(|| self.reached_by.clone()), ..self.clone() }
    }

    /// What links in replies begin with; none where nobody could follow them.
    pub(crate) fn base_url(&self) -> Option<&str> {
        let fixed = self.manner.base_url.as_deref()?;
        Some(self.reached_by.as_ref().map_or(fixed, |BaseUrl(base)| base))
    }
}

/// How things are presented.
#[derive(Debug)]
pub(crate) struct Manner {
    /// Whose defaults hold.
    pub(crate) preset: String,
    pub(crate) environment: Environment,
    pub(crate) packages: Vec<Package>,
    /// What a call gets that names no session.
    pub(crate) state_without_session: StateWithoutSession,
    /// Characters of text in one answer to a model.
    pub(crate) context_chars: usize,
    /// Longest request, in bytes.
    pub(crate) body_bytes_max: usize,
    pub(crate) text_format: TextFormat,
    /// What links in replies begin with where the client has not said how it reaches us; none where
    /// nobody could follow them.
    pub(crate) base_url: Option<String>,
    /// Tools that `tools/list` shows; all of them can be called.
    pub(crate) listed_tools: Vec<String>,
    /// Adds the fixtures of the conformance suite.
    pub(crate) conformance: bool,
}

impl Manner {
    /// The session of a call, by what it says and by what the operator wants for those that say
    /// nothing.
    pub(crate) fn session(&self, id: Option<&str>) -> Result<SessionChoice, woma_core::Error> {
        match (id.map(str::trim).filter(|id| !id.is_empty()), self.state_without_session) {
            (Some(id), _) => SessionId::parse(id).map(SessionChoice::Named),
            (None, StateWithoutSession::Default) => Ok(SessionChoice::Default),
            (None, StateWithoutSession::New) => Ok(SessionChoice::New),
            (None, StateWithoutSession::Ephemeral) => Ok(SessionChoice::Ephemeral),
        }
    }
}
