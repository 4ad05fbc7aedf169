//! Who a request comes from, by the key that it presents.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Error, KeyRing};
use crate::caller::{Caller, CallerId, Quota, Scopes};

/// From this length on, guessing a key over the network is hopeless for practical purposes.
const UNGUESSABLE_BYTES: usize = 24;

/// The one key of the configuration (`API_KEY`). Only its digest is kept.
#[derive(Clone)]
pub struct FixedKey {
    sha256: [u8; 32],
    guessable: bool,
}

impl fmt::Debug for FixedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FixedKey(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFixedKey {
    #[error("the API key is empty: set a value, or leave the setting out")]
    Empty,
    #[error(
        "the API key holds a space, a control or a non-ASCII character, which no header carries"
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
        Ok(Self { sha256: digest(text), guessable: text.len() < UNGUESSABLE_BYTES })
    }

    /// Digests are compared, so that neither length nor content shows in the time that it takes.
    fn is(&self, presented: &str) -> bool {
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
    /// Unknown, expired and revoked keys are not told apart: that would help to guess them.
    #[error("the key is not valid")]
    Invalid,
    /// Nobody is let in who might have been locked out.
    #[error("keys cannot be checked now")]
    Unavailable(#[source] Error),
}

/// All that this server knows about keys.
#[derive(Debug)]
pub struct Authenticator {
    fixed: Option<FixedKey>,
    ring: Arc<KeyRing>,
    never_open: bool,
}

impl Authenticator {
    /// `never_open`: a key is demanded although none exists, because tokens are accepted elsewhere
    /// or the operator requires keys.
    pub fn new(fixed: Option<FixedKey>, ring: impl Into<Arc<KeyRing>>, never_open: bool) -> Self {
        Self { fixed, ring: ring.into(), never_open }
    }

    pub fn ring(&self) -> &Arc<KeyRing> {
        &self.ring
    }

    /// Whether everybody is let in. The first named key, also one that another process makes while
    /// we run, ends that.
    pub fn is_open(&self) -> Result<bool, Error> {
        Ok(!self.never_open && self.fixed.is_none() && self.ring.is_empty()?)
    }

    /// Whether a patient stranger could find the key of the configuration by trying.
    pub fn has_guessable_key(&self) -> bool {
        self.fixed.as_ref().is_some_and(|fixed| fixed.guessable)
    }

    pub fn authenticate(&self, presented: Option<&str>) -> Result<Caller, AuthError> {
        if let (Some(fixed), Some(presented)) = (&self.fixed, presented)
            && fixed.is(presented)
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

/// Whoever has the key of the configuration.
fn default_caller() -> Caller {
    Caller {
        policy: None,
        id: CallerId::new("key:default"),
        name: "default".to_owned(),
        scopes: Scopes::all(),
        quota: Quota::default(),
    }
}
