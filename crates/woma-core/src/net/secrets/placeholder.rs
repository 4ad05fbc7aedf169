//! Placeholders: unguessable, and the same for a session after a restart of its server.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::PLACEHOLDER_START;
use crate::model::caller::CallerId;

/// Bytes of a placeholder's random part.
const RANDOM_BYTES: usize = 20;
pub(crate) const KEY_BYTES: usize = 32;

/// Makes placeholders from a key that only the server has.
pub(crate) struct Placeholders {
    key: [u8; KEY_BYTES],
}

impl std::fmt::Debug for Placeholders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Placeholders")
    }
}

impl Placeholders {
    pub(crate) fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { key }
    }

    /// Of a secret in a session, or in one run without a session.
    pub(crate) fn of(&self, owner: &CallerId, session: &str, name: &str) -> String {
        let mut text = PLACEHOLDER_START.to_owned();
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else { return text };
        for part in [owner.as_str(), session, name] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        for byte in mac.finalize().into_bytes().iter().take(RANDOM_BYTES) {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").unwrap_or_default();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_one_session_s_own_and_stays() {
        let (one, other) = (Placeholders::new([1; 32]), Placeholders::new([2; 32]));
        let (a, b) = (CallerId::new("a"), CallerId::new("b"));
        let text = one.of(&a, "s", "KEY");
        assert_eq!(text.len(), PLACEHOLDER_START.len() + 40);
        assert_eq!(text, one.of(&a, "s", "KEY"));
        let others = [
            one.of(&b, "s", "KEY"),
            one.of(&a, "t", "KEY"),
            one.of(&a, "s", "KEZ"),
            other.of(&a, "s", "KEY"),
            one.of(&a, "sK", "EY"),
        ];
        assert!(!others.contains(&text), "{others:?}");
    }
}
