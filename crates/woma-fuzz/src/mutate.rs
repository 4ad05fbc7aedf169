//! Mutations of a corpus in a fixed order: bytes changed, pieces removed, repeated, moved between
//! inputs, and words of the format inserted.

/// Bytes at which ranges, signs and separators begin or end.
const ODD_BYTES: &[u8] =
    &[0, 1, 0x0a, 0x0d, 0x1f, 0x20, b'"', b'%', b'.', b'/', b':', b'\\', 0x7f, 0x80, 0xc0, 0xff];
/// Changes of one input at most.
const CHANGES_MAX: usize = 6;
/// Repetitions of a piece at most.
const REPEATED_MAX: usize = 300;

/// Endless mutations.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
    corpus: Vec<Vec<u8>>,
    words: &'static [&'static str],
    bytes_max: usize,
}

impl Mutator {
    /// The same seed and corpus give the same mutations.
    ///
    /// # Panics
    ///
    /// Later, if the corpus is empty.
    pub fn new(
        seed: u64,
        corpus: Vec<Vec<u8>>,
        words: &'static [&'static str],
        bytes_max: usize,
    ) -> Self {
        Self { state: seed, corpus, words, bytes_max }
    }

    /// `SplitMix64`.
    fn next_number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.state;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.next_number() % end).unwrap_or(0)
    }

    fn piece(&mut self, of: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(of.len() + 1);
        // Short pieces are the useful ones.
        let most = if self.below(3) == 0 { of.len() - start } else { 8.min(of.len() - start) };
        start..start + self.below(most + 1)
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(10) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = ODD_BYTES[self.below(ODD_BYTES.len())],
            2 => input.insert(at, u8::try_from(self.below(256)).unwrap_or(0)),
            3 => drop(input.drain(self.piece(input))),
            4 => input.truncate(at),
            5 => {
                let piece = input[self.piece(input)].to_vec();
                let times = 1 + self.below(REPEATED_MAX);
                input.splice(at..at, piece.repeat(times));
            }
            6 => {
                let other = self.below(self.corpus.len());
                let other = self.corpus[other].clone();
                let piece = other[self.piece(&other)].to_vec();
                let range = self.piece(input);
                input.splice(range, piece);
            }
            7 => {
                let number = match self.below(3) {
                    0 => self.next_number().to_string(),
                    1 => format!("-{}", self.below(1_000)),
                    _ => format!("{:x}", self.next_number()),
                };
                input.splice(at..at, number.into_bytes());
            }
            _ if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())];
                let range = if self.below(2) == 0 { at..at } else { self.piece(input) };
                input.splice(range, word.bytes());
            }
            _ => input.push(0),
        }
        input.truncate(self.bytes_max);
    }
}

impl Iterator for Mutator {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let which = self.below(self.corpus.len());
        let mut input = self.corpus[which].clone();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input);
        }
        Some(input)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Mutator;

    #[test]
    fn mutations_are_many_bounded_and_the_same_each_time() {
        let new = || Mutator::new(7, vec![b"GET / HTTP/1.1".to_vec(), vec![]], &["Host:"], 4_096);
        let first: Vec<Vec<u8>> = new().take(5_000).collect();
        assert_eq!(first, new().take(5_000).collect::<Vec<_>>());
        let different: BTreeSet<&Vec<u8>> = first.iter().collect();
        assert!(different.len() > 3_000, "{}", different.len());
        assert!(first.iter().all(|input| input.len() <= 4_096));
        let has_word = first.iter().filter(|input| input.windows(5).any(|part| part == b"Host:"));
        assert!(has_word.count() > 500);
    }
}
