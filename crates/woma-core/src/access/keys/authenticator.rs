//! Authentication of requests by the key that they present.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Error, KeyRing};
use crate::model::caller::{Caller, CallerId, Quota, Scopes};

/// Length from which guessing a key over the network is infeasible.
const UNGUESSABLE_BYTES: usize = 24;
/// Least length of the configured key of a server that other machines reach.
pub const EXPOSED_KEY_BYTES_MIN: usize = 16;

/// Key of the configuration (`API_KEY`). Only its digest is stored.
#[derive(Clone)]
pub struct FixedKey {
    sha256: [u8; 32],
    length: usize,
}

impl fmt::Debug for FixedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FixedKey(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFixedKey {
    #[error("the API key is empty: set a value, or remove the setting")]
    Empty,
    #[error(
        "the API key has a space, a control or a non-ASCII character, which a header cannot hold"
    )]
    NotPresentable,
}

impl FixedKey {
    pub fn new(text: &str) -> Result<Self, InvalidFixedKey> {
        if text.is_empty() {
            return Err(InvalidFixedKey::Empty);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidFixedKey::NotPresentable);
        }
        Ok(Self { sha256: digest(text), length: text.len() })
    }

    /// Compares digests in constant time, so that timing reveals neither length nor content.
    fn matches(&self, presented: &str) -> bool {
        self.sha256.ct_eq(&digest(presented)).into()
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("this server needs a key")]
    Missing,
    /// Unknown, expired and revoked keys give the same error, so that keys cannot be enumerated.
    #[error("the key is not valid")]
    Invalid,
    /// Fails closed: the key might have been revoked.
    #[error("keys cannot be checked now")]
    Unavailable(#[source] Error),
}

/// All keys of this server: the fixed one and the named ones.
#[derive(Debug)]
pub struct Authenticator {
    fixed: Option<FixedKey>,
    ring: Arc<KeyRing>,
    never_open: bool,
}

impl Authenticator {
    /// With `never_open` a key is required even if none exists, because the server accepts tokens
    /// or the operator requires keys.
    pub fn new(fixed: Option<FixedKey>, ring: impl Into<Arc<KeyRing>>, never_open: bool) -> Self {
        Self { fixed, ring: ring.into(), never_open }
    }

    pub fn ring(&self) -> &Arc<KeyRing> {
        &self.ring
    }

    /// Whether requests need no key. The first named key ends this, also if another process creates
    /// it at run time.
    pub fn is_open(&self) -> Result<bool, Error> {
        Ok(!self.never_open && self.fixed.is_none() && self.ring.is_empty()?)
    }

    /// Whether the key of the configuration is short enough to be guessed.
    pub fn has_guessable_key(&self) -> bool {
        self.fixed.as_ref().is_some_and(|fixed| fixed.length < UNGUESSABLE_BYTES)
    }

    /// Whether the key of the configuration is too short for a server that other machines reach.
    pub fn has_short_key(&self) -> bool {
        self.fixed.as_ref().is_some_and(|fixed| fixed.length < EXPOSED_KEY_BYTES_MIN)
    }

    pub fn authenticate(&self, presented: Option<&str>) -> Result<Caller, AuthError> {
        if let (Some(fixed), Some(presented)) = (&self.fixed, presented)
            && fixed.matches(presented)
        {
            return Ok(default_caller());
        }
        if self.is_open().map_err(AuthError::Unavailable)? {
            return Ok(Caller::local());
        }
        let presented = presented.ok_or(AuthError::Missing)?;
        let found = self.ring.authenticate(presented).map_err(AuthError::Unavailable)?;
        found.ok_or(AuthError::Invalid)
    }
}

/// Caller with the key of the configuration.
fn default_caller() -> Caller {
    Caller {
        policy: None,
        network: None,
        id: CallerId::default_key(),
        name: "default".to_owned(),
        scopes: Scopes::all(),
        quota: Quota::default(),
    }
}
