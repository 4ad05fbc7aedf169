//! Digest of a blob, which is its name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::storage::db::StoreError;

/// SHA-256, displayed in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn first_byte(self) -> u8 {
        let [first, ..] = self.0;
        first
    }

    pub(super) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = StoreError;

    fn try_from(text: String) -> Result<Self, StoreError> {
        text.parse()
    }
}

impl FromStr for Digest {
    type Err = StoreError;

    /// Parses 64 hexadecimal digits, in lower case only, so that a blob has one name.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let digits = text.as_bytes();
        let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 64 || !digits.iter().all(is_hex) {
            return Err(StoreError::Corrupt("a digest has 64 hexadecimal digits".to_owned()));
        }
        let value = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            if let [high, low] = pair {
                *byte = value(*high) * 16 + value(*low);
            }
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_displays() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!((format!("{digest:?}").as_str(), digest.first_byte()), (text, 0xba));
        assert_eq!(Digest::finish(Sha256::new().chain_update("ab").chain_update("c")), digest);
    }

    #[test]
    fn rejects_invalid_digests() {
        let upper = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        let (shorter, longer) = ("a".repeat(63), "a".repeat(65));
        let odd = ["/", ":", "`", "g"].map(|digit| format!("{shorter}{digit}"));
        let odd = odd.iter().chain([&shorter, &longer]).map(String::as_str);
        let others = ["", "ba78", upper, &"../".repeat(22)[..64], &"é".repeat(32)];
        for text in odd.chain(others) {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
