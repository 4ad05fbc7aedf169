//! Hostile inputs for the tests of the other crates; no part of the program.
//!
//! A target is a test that calls [`Target::run`]. By `cargo test` it gets every input of its corpus,
//! then mutations of them in a fixed order, for a bounded time. By `make fuzz` the same test gets
//! mutations that libFuzzer chooses by the code that they reach.

mod corpus;
#[cfg(feature = "guided")]
mod guided;
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use mutate::Mutator;

/// Mutations of one target in an ordinary test run, unless they take longer than [`TIME_MAX`].
const MUTATIONS: usize = 20_000;
/// Time for the mutations of one target in an ordinary test run.
const TIME_MAX: Duration = Duration::from_secs(2);
/// Length of a mutated input, in bytes.
const BYTES_MAX: usize = 16 * 1024;
/// The order of mutations; a failure is the same one the next time.
const SEED: u64 = 0x0077_6f6d_6120_6675;

/// Code that reads what strangers send.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the corpus: `corpus/NAME.txt`.
    pub name: &'static str,
    /// Words of the format, which random bytes would not find.
    pub words: &'static [&'static str],
}

impl Target {
    /// Calls `check` with hostile inputs. It panics if the code under test does something wrong.
    ///
    /// # Panics
    ///
    /// If `check` does, after saying where the input is; and if there is no corpus.
    pub fn run(self, check: impl Fn(&[u8]) + Send + Sync + 'static) {
        #[cfg(feature = "guided")]
        if let Some(seconds) = guided::seconds() {
            return guided::run(self, seconds, Box::new(check));
        }
        let started = Instant::now();
        let kept = self.corpus();
        for input in &kept {
            self.try_one(&check, input);
        }
        for input in Mutator::new(SEED, kept, self.words, BYTES_MAX).take(MUTATIONS) {
            self.try_one(&check, &input);
            if started.elapsed() > TIME_MAX {
                break;
            }
        }
    }

    /// Inputs that are kept: examples of the format, inputs that reached new code, and every input
    /// that was once answered wrongly.
    ///
    /// # Panics
    ///
    /// If there are none: mutations of nothing reach nothing.
    pub fn corpus(self) -> Vec<Vec<u8>> {
        let kept = corpus::read(&corpus::file(self.name));
        assert!(!kept.is_empty(), "{}: the corpus is empty", corpus::file(self.name).display());
        kept
    }

    /// The corpus and a number of its mutations, for a target that is too slow for many.
    pub fn inputs(self, mutations: usize) -> Vec<Vec<u8>> {
        let kept = self.corpus();
        let mutated = Mutator::new(SEED, kept.clone(), self.words, BYTES_MAX).take(mutations);
        kept.into_iter().chain(mutated).collect()
    }

    fn try_one(self, check: &dyn Fn(&[u8]), input: &[u8]) {
        let checked = catch_unwind(AssertUnwindSafe(|| check(input)));
        if let Err(panic) = checked {
            let said = corpus::written(input);
            let file = corpus::file(self.name);
            // The harness shows it with the failure; the line goes into the corpus as it is.
            let message = format!("a line for {}:\n{said}\n", file.display());
            std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes())
                .unwrap_or_default();
            resume_unwind(panic);
        }
    }
}

/// The folder of a target's inputs while it is fuzzed for long.
#[cfg_attr(not(feature = "guided"), expect(dead_code, reason = "for guided runs"))]
fn working_folder(name: &str) -> PathBuf {
    let below = std::env::var_os("WOMA_FUZZ_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    below.join(name)
}
