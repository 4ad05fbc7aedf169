//! Named API keys: created, listed and revoked by the operator, checked at every request.
//!
//! A key has the form `woma_<id>_<secret>`. The file stores the SHA-256 of the secret: 256 random
//! bits cannot be guessed, so a slow password hash would only cost time at each request. A file
//! that cannot be read or parsed is an error, never an empty key ring.

mod authenticator;
mod file;
mod sharing;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

pub use self::authenticator::{
    AuthError, Authenticator, EXPOSED_KEY_BYTES_MIN, FixedKey, InvalidFixedKey,
};
use self::file::{Snapshot, Stored};
pub(crate) use self::sharing::keep_sharing;
use crate::model::caller::{Caller, CallerId, Quota, Scopes};
use crate::model::hex;
use crate::net::egress::NetworkRules;
use crate::storage::db::StoreError;

/// Interval of checks for changes by other processes.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
const PREFIX: &str = "woma_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;
/// Placeholder with the length of a digest, equal to no digest.
const NO_DIGEST: &str = "----------------------------------------------------------------";
const NAME_BYTES_MAX: usize = 64;
const KEYS_MAX: usize = 10_000;

/// Public data of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    pub id: String,
    pub name: String,
    pub scopes: Scopes,
    #[serde(default)]
    pub quota: Quota,
    /// Policy of its callers, instead of the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Rules of the network of its callers, instead of the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkRules>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Key {
    pub fn is_usable(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    fn caller(&self) -> Caller {
        Caller {
            id: CallerId::new(format!("key:{}", self.id)),
            name: self.name.clone(),
            scopes: self.scopes,
            quota: self.quota,
            policy: self.policy.as_deref().map(Arc::from),
            network: self.network.as_ref().map(|rules| rules.to_string().into()),
        }
    }
}

/// Settings of a new key.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Letters, digits, `.`, `_` and `-`; unique among keys that are not revoked.
    pub name: String,
    pub scopes: Scopes,
    pub quota: Quota,
    pub policy: Option<String>,
    pub network: Option<NetworkRules>,
    pub expires_at: Option<Timestamp>,
}

/// Complete key, shown once. It is not stored, and `Debug` omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct Plaintext(String);

impl Plaintext {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Plaintext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Plaintext(…)")
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "the key file {} cannot be trusted: {reason}; restore it, or remove it and create new keys",
        path.display()
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{name}` cannot be the name of a key: {reason}")]
    Name { name: String, reason: &'static str },
    #[error("a key named `{0}` exists: revoke it first, or choose another name")]
    NameTaken(String),
    #[error("the key could not be printed, and is not stored")]
    NotTold,
    #[error("the key `{0}` does not exist: `woma keys list` shows all keys")]
    Unknown(String),
    #[error("the key `{0}` is revoked already")]
    AlreadyRevoked(String),
    #[error("a key needs a scope: give it execute, read or admin")]
    NoScope,
    #[error("the expiry of the key is not in the future")]
    ExpiryPassed,
    #[error("the limit of {KEYS_MAX} keys is reached")]
    TooMany,
    #[error("the system returned no random bytes: {0}")]
    Random(getrandom::Error),
    #[error("the keys of the database cannot be used: {0}")]
    Store(#[from] StoreError),
}

impl Error {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// Keys of one file; changes by other processes are visible within 250 ms.
#[derive(Debug)]
pub struct KeyRing {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    checked: Instant,
    snapshot: Snapshot,
    /// Reason why the file cannot be used now.
    failure: Option<String>,
}

impl KeyRing {
    /// Opens a key file. A missing file is an empty ring; the first key creates it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let snapshot = file::read(&path)?;
        let state = State { checked: Instant::now(), snapshot, failure: None };
        Ok(Self { path, state: Mutex::new(state) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All keys, including revoked ones, in order of creation.
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        let keys = self.keys(true)?;
        Ok(keys.iter().map(|stored| stored.key.clone()).collect())
    }

    /// Whether no key was ever created. Revoked keys count: revoking the last one must not open the
    /// server.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.keys(false)?.is_empty())
    }

    /// Creates a key. Its plaintext is returned once and stored nowhere.
    pub fn create(&self, wanted: NewKey) -> Result<(Key, Plaintext), Error> {
        self.create_told(wanted, |_, _| true)
    }

    /// As [`KeyRing::create`], and tells it before it is stored; a key that could not be told is not
    /// stored.
    pub fn create_told(
        &self,
        wanted: NewKey,
        tell: impl FnOnce(&Key, &Plaintext) -> bool,
    ) -> Result<(Key, Plaintext), Error> {
        check_name(&wanted.name)?;
        if wanted.scopes == Scopes::none() {
            return Err(Error::NoScope);
        }
        let created_at = now();
        if wanted.expires_at.is_some_and(|end| end <= created_at) {
            return Err(Error::ExpiryPassed);
        }
        let secret = random_hex::<SECRET_BYTES>()?;
        self.change(|keys| {
            if keys
                .iter()
                .any(|Stored { key, .. }| key.name == wanted.name && key.revoked_at.is_none())
            {
                return Err(Error::NameTaken(wanted.name));
            }
            if keys.len() >= KEYS_MAX {
                return Err(Error::TooMany);
            }
            let id = unused_id(keys)?;
            let plaintext = Plaintext(format!("{PREFIX}{id}_{secret}"));
            let key = Key {
                id,
                name: wanted.name,
                scopes: wanted.scopes,
                quota: wanted.quota,
                policy: wanted.policy,
                network: wanted.network,
                created_at,
                expires_at: wanted.expires_at,
                revoked_at: None,
            };
            if !tell(&key, &plaintext) {
                return Err(Error::NotTold);
            }
            keys.push(Stored { sha256: hex(&digest(&secret)), key: key.clone() });
            Ok((key, plaintext))
        })
    }

    /// Revokes a key, given by its name, its id or its plaintext.
    pub fn revoke(&self, name_or_id: &str) -> Result<Key, Error> {
        // A pasted key must not appear in an error message.
        let wanted = match name_or_id.strip_prefix(PREFIX) {
            Some(rest) => rest.split('_').next().unwrap_or_default(),
            None => name_or_id,
        };
        self.change(|keys| {
            let matches = |key: &Key| key.id == wanted || key.name == wanted;
            let mut matching = keys.iter_mut().filter(|stored| matches(&stored.key));
            let live = matching.find(|stored| stored.key.revoked_at.is_none());
            if let Some(stored) = live {
                stored.key.revoked_at = Some(now());
                return Ok(stored.key.clone());
            }
            let known = keys.iter().any(|stored| matches(&stored.key));
            let wanted = wanted.to_owned();
            Err(if known { Error::AlreadyRevoked(wanted) } else { Error::Unknown(wanted) })
        })
    }

    /// Caller of a presented key, if the key is known and usable now.
    pub fn authenticate(&self, presented: &str) -> Result<Option<Caller>, Error> {
        let keys = self.keys(false)?;
        Ok(find(&keys, presented, Timestamp::now()).map(Key::caller))
    }

    fn change<T>(
        &self,
        edit: impl FnOnce(&mut Vec<Stored>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let held = file::lock(&self.path)?;
        // Read again under the lock: the cached keys may be older than the file.
        let mut keys = file::read(&self.path)?.keys.to_vec();
        let result = edit(&mut keys)?;
        file::replace(&self.path, &keys)?;
        drop(held);
        self.keys(true)?;
        Ok(result)
    }

    /// Keys of the file, read again with `force` or after [`CHECK_INTERVAL`].
    fn keys(&self, force: bool) -> Result<Arc<[Stored]>, Error> {
        let mut state = self.lock();
        if force || state.checked.elapsed() >= CHECK_INTERVAL {
            state.checked = Instant::now();
            state.refresh(&self.path);
        }
        match &state.failure {
            None => Ok(Arc::clone(&state.snapshot.keys)),
            Some(reason) => Err(Error::Damaged { path: self.path.clone(), reason: reason.clone() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refresh(&mut self, path: &Path) {
        if self.failure.is_none() && self.snapshot.is_current(path) {
            return;
        }
        self.failure = match file::read(path) {
            // A key file that disappears at run time must not open the server to everyone.
            Ok(read) if read.is_missing() && !self.snapshot.keys.is_empty() => {
                Some("it has disappeared".to_owned())
            }
            Ok(read) => {
                self.snapshot = read;
                None
            }
            Err(Error::Damaged { reason, .. }) => Some(reason),
            Err(Error::Io { action, source, .. }) => Some(format!("cannot {action} it: {source}")),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = &self.failure {
            tracing::error!(path = %path.display(), reason, "Named keys are refused");
        }
    }
}

/// Finds a key in constant time with respect to the secret. The id is not secret.
fn find<'keys>(keys: &'keys [Stored], presented: &str, now: Timestamp) -> Option<&'keys Key> {
    let (id, secret) = parse(presented)?;
    let presented = hex(&digest(secret));
    let stored = keys.iter().find(|stored| stored.key.id == id);
    // An unknown id costs the same comparison as a known one.
    let expected = stored.map_or(NO_DIGEST, |stored| &*stored.sha256);
    let same = bool::from(presented.as_bytes().ct_eq(expected.as_bytes()));
    stored.map(|stored| &stored.key).filter(|key| same && key.is_usable(now))
}

/// Splits a key into id and secret; `None` if it does not have the exact form.
fn parse(presented: &str) -> Option<(&str, &str)> {
    let (id, secret) = presented.strip_prefix(PREFIX)?.split_once('_')?;
    (is_id(id) && is_hex(secret, SECRET_BYTES)).then_some((id, secret))
}

fn is_id(text: &str) -> bool {
    is_hex(text, ID_BYTES)
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

fn random_hex<const BYTES: usize>() -> Result<String, Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    Ok(hex(&bytes))
}

fn unused_id(keys: &[Stored]) -> Result<String, Error> {
    loop {
        let id = random_hex::<ID_BYTES>()?;
        if keys.iter().all(|stored| stored.key.id != id) {
            return Ok(id);
        }
    }
}

/// Current time in whole seconds, to keep the file readable.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn check_name(name: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = if name.starts_with(PREFIX) {
        // The text may be a key that was pasted by mistake.
        let name = format!("{PREFIX}…");
        return Err(Error::Name { name, reason: "it begins like a key" });
    } else if name.is_empty() || name.len() > NAME_BYTES_MAX {
        "a name has 1 to 64 characters"
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(allowed) {
        "use letters, digits, `.`, `_` and `-`, and begin with a letter or a digit"
    } else if is_id(name) {
        "it looks like the id of a key"
    } else if name == "default" {
        "it is reserved for the caller with the server's API_KEY"
    } else {
        return Ok(());
    };
    Err(Error::Name { name: name.escape_debug().take(80).collect(), reason })
}

#[cfg(test)]
mod tests;
