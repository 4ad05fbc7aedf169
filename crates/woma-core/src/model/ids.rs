//! Names of sessions and executions.

use std::fmt;
use std::sync::Arc;

/// The session of a caller who names none.
const DEFAULT_SESSION: &str = "default";
/// Digits after it in the name of a client's own default session.
const OWN_DEFAULT_DIGITS: usize = 10;
/// Longest name of a session, in bytes.
pub(crate) const SESSION_ID_BYTES_MAX: usize = 128;

/// A session's name in its owner's space: chosen by the caller, or minted here and unguessable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

impl SessionId {
    pub fn parse(text: &str) -> Result<Self, BadSessionId> {
        let text = text.trim();
        let reason = if text.is_empty() {
            "it is empty"
        } else if text.len() > SESSION_ID_BYTES_MAX {
            "it is longer than 128 bytes"
        } else if text.chars().any(char::is_control) {
            "it has control characters"
        } else if text.contains(['/', '\\']) {
            "it has a slash"
        } else if text == "." || text == ".." {
            "it is a folder's name"
        } else {
            return Ok(Self(text.into()));
        };
        Err(BadSessionId { reason })
    }

    pub fn mint() -> Self {
        Self(uuid::Uuid::new_v4().to_string().into())
    }

    /// The session `default`, which all clients of a caller share.
    pub fn shared_default() -> Self {
        Self(DEFAULT_SESSION.into())
    }

    /// The default session of one client: `default-` and digits that no other client has.
    pub fn mint_default() -> Self {
        let digits = uuid::Uuid::new_v4().simple().to_string();
        let digits = digits.get(..OWN_DEFAULT_DIGITS).unwrap_or_default();
        Self(format!("{DEFAULT_SESSION}-{digits}").into())
    }

    /// Whether this is the name of a default session, shared or of one client. Such a session is
    /// there for its client before anything was run in it.
    pub fn is_default(&self) -> bool {
        let Some(rest) = self.0.strip_prefix(DEFAULT_SESSION) else { return false };
        let is_digits = |digits: &str| {
            digits.len() == OWN_DEFAULT_DIGITS
                && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        rest.is_empty() || rest.strip_prefix('-').is_some_and(is_digits)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// One execution's name: in its reply, in the log, in metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionId(Arc<str>);

impl ExecutionId {
    /// Later ones are greater: rows that are written together lie together in an index.
    pub(crate) fn mint() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    /// The id of an execution that was recorded.
    pub(crate) fn known(text: &str) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Which session code runs in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionChoice {
    /// This one; it is made if it does not exist.
    Named(SessionId),
    /// The caller's own `default`.
    #[default]
    Default,
    /// A new one, whose minted id the reply tells.
    New,
    /// One that ends with the run.
    Ephemeral,
}

impl SessionChoice {
    /// The id, where it may be that of a session that exists.
    pub fn named(&self) -> Option<SessionId> {
        match self {
            Self::Named(id) => Some(id.clone()),
            Self::Default => Some(SessionId::shared_default()),
            Self::New | Self::Ephemeral => None,
        }
    }
}

/// Why a text cannot be the id of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session id cannot be used: {reason}")]
pub struct BadSessionId {
    pub reason: &'static str,
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.map(|nibble| char::from(DIGITS[usize::from(nibble)])).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        ExecutionId, OWN_DEFAULT_DIGITS, SESSION_ID_BYTES_MAX, SessionChoice, SessionId, hex,
    };

    #[test]
    fn a_session_id_is_refused_with_its_reason() {
        let longest = "x".repeat(SESSION_ID_BYTES_MAX);
        for good in [" trimmed ", "größe", "...", ".a", &longest] {
            let id = SessionId::parse(good).unwrap();
            assert_eq!((id.as_str(), id.to_string()), (good.trim(), good.trim().to_owned()));
        }
        let longer = format!("{longest}x");
        let table = [
            ("", "it is empty"),
            ("  ", "it is empty"),
            (&*longer, "it is longer than 128 bytes"),
            ("a\nb", "it has control characters"),
            ("a/b", "it has a slash"),
            ("a\\b", "it has a slash"),
            (".", "it is a folder's name"),
            ("..", "it is a folder's name"),
        ];
        for (bad, reason) in table {
            assert_eq!(SessionId::parse(bad).unwrap_err().reason, reason, "{bad:?}");
        }
    }

    #[test]
    fn minted_ids_differ_and_are_displayed_as_they_are() {
        assert_ne!(SessionId::mint(), SessionId::mint());
        let (one, other) = (ExecutionId::mint(), ExecutionId::mint());
        assert_ne!(one, other);
        assert_eq!((one.to_string().as_str(), one.as_str().len()), (one.as_str(), 36));
    }

    #[test]
    fn default_sessions_of_clients_differ_and_are_recognized() {
        let (one, other) = (SessionId::mint_default(), SessionId::mint_default());
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), "default-".len() + OWN_DEFAULT_DIGITS);
        let shared = SessionId::shared_default();
        assert_eq!(shared.as_str(), "default");
        assert!([one, other, shared].iter().all(SessionId::is_default));
        for name in
            ["defaults", "default-", "default-1", "default-0123456789a", "default-012345678g"]
        {
            assert!(!SessionId::parse(name).unwrap().is_default(), "{name}");
        }
    }

    #[test]
    fn a_choice_names_a_session_that_may_exist() {
        let id = |text| SessionId::parse(text).unwrap();
        assert_eq!(SessionChoice::Named(id("x")).named(), Some(id("x")));
        assert_eq!(SessionChoice::Default.named(), Some(id("default")));
        assert_eq!((SessionChoice::New.named(), SessionChoice::Ephemeral.named()), (None, None));
    }

    #[test]
    fn bytes_become_hexadecimal_digits() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0x00, 0x1f, 0xa0, 0xff]), "001fa0ff");
    }
}
