//! The name of a content.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::store::StoreError;

/// A SHA-256, shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

impl FromStr for Digest {
    type Err = StoreError;

    /// 64 digits, in lower case: one content has one name.
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
    fn a_name_is_read_as_it_is_written() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let upper = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        for text in ["", "ba78", upper, &"../".repeat(22)[..64], &"é".repeat(32)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
