//! Secrets that are bound to hosts: code in a session sees a placeholder, and the way out of its
//! room puts the value in its place in requests to these hosts.
//!
//! Values are in the server's memory only. What knows them is [`Mask`], which takes them out of what
//! comes back, and the request of a host that they are bound to.

mod define;
mod mask;
mod placeholder;
mod shelf;

use std::fmt;
use std::sync::Arc;

pub use self::define::BadSecret;
pub(crate) use self::mask::{Covered, Mask};
pub(crate) use self::placeholder::{KEY_BYTES, Placeholders};
pub use self::shelf::{NotTaken, OperatorSecrets};
pub(crate) use self::shelf::{OF_CALLERS_MAX, SecretShelf};
use super::egress::{Host, NetworkRules};

/// Characters of a placeholder before its random part.
pub(crate) const PLACEHOLDER_START: &str = "woma-secret-";

/// A value that no message shows.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretValue(Arc<str>);

impl fmt::Debug for SecretValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretValue")
    }
}

impl SecretValue {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// Parts of a request in which a value may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four parts of a request, each allowed or not")]
pub(crate) struct Places {
    pub(crate) headers: bool,
    pub(crate) path: bool,
    pub(crate) query: bool,
    pub(crate) body: bool,
}

/// A secret, as it was defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    /// Of the environment variable that has the placeholder.
    pub(crate) name: String,
    pub(crate) value: SecretValue,
    /// Hosts that get the value.
    pub(crate) hosts: NetworkRules,
    pub(crate) places: Places,
}

impl Secret {
    /// Whether a request to a host may have the value. On port 443 it must be encrypted.
    pub(crate) fn is_for(&self, host: &Host, port: u16, is_encrypted: bool) -> bool {
        (is_encrypted || port != 443) && self.hosts.allows(host, port)
    }
}

/// A secret in a session.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) secret: Arc<Secret>,
    pub(crate) placeholder: String,
}

/// The secrets of one session.
#[derive(Debug, Default)]
pub(crate) struct SessionSecrets {
    pub(crate) placed: Vec<Placed>,
    pub(crate) mask: Option<Arc<Mask>>,
}

impl SessionSecrets {
    pub(crate) fn new(placed: Vec<Placed>) -> Self {
        let mask = (!placed.is_empty()).then(|| Arc::new(Mask::new(&placed)));
        Self { placed, mask }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.placed.iter().any(|one| one.secret.name == name)
    }

    /// Whether any is bound to a host.
    pub(crate) fn has_any_for(&self, host: &Host, port: u16, is_encrypted: bool) -> bool {
        self.placed.iter().any(|one| one.secret.is_for(host, port, is_encrypted))
    }

    /// Whether it has these secrets with these values.
    fn is_of(&self, placed: &[Placed]) -> bool {
        self.placed.len() == placed.len()
            && self.placed.iter().zip(placed).all(|(one, other)| {
                one.placeholder == other.placeholder && one.secret == other.secret
            })
    }
}
