//! The least speed of a transfer: how long the server waits for the other side, in all and for the
//! bytes that have come. Time that the server itself takes does not count.

use std::time::Duration;

use tokio::time::{Instant, timeout};

/// Bounds of a transfer. It may take `grace`, a second more for each `bytes_per_second` bytes that
/// have come, and `time_max` in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceRules {
    pub grace: Duration,
    pub bytes_per_second: u64,
    pub time_max: Duration,
}

/// One transfer, as far as it has got.
#[derive(Debug)]
pub struct Pace {
    rules: PaceRules,
    waited: Duration,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the transfer was too slow: {bytes} bytes came in {} s; it may take {} s, a second more for \
     each {} bytes, and {} s in all",
    .waited.as_secs(), .rules.grace.as_secs(), .rules.bytes_per_second, .rules.time_max.as_secs()
)]
pub struct TooSlow {
    pub bytes: u64,
    pub waited: Duration,
    pub rules: PaceRules,
}

impl Pace {
    pub fn new(rules: PaceRules) -> Self {
        Self { rules, waited: Duration::ZERO, bytes: 0 }
    }

    /// Waits for what comes next from the other side.
    pub async fn wait<F: Future>(&mut self, next: F) -> Result<F::Output, TooSlow> {
        let began = Instant::now();
        let came = timeout(self.left(), next).await;
        self.waited += began.elapsed();
        came.map_err(|_| TooSlow { bytes: self.bytes, waited: self.waited, rules: self.rules })
    }

    /// So many bytes have come.
    pub fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    fn left(&self) -> Duration {
        let earned = Duration::from_secs(self.bytes / self.rules.bytes_per_second.max(1));
        let allowed = self.rules.grace.saturating_add(earned).min(self.rules.time_max);
        allowed.saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::{Duration, Instant};

    use super::{Pace, PaceRules};

    const RULES: PaceRules = PaceRules {
        grace: Duration::from_secs(30),
        bytes_per_second: 1_000,
        time_max: Duration::from_secs(100),
    };

    fn left(bytes: u64, waited_seconds: u64) -> u64 {
        let waited = Duration::from_secs(waited_seconds);
        Pace { rules: RULES, waited, bytes }.left().as_secs()
    }

    #[test]
    fn a_transfer_has_its_grace_and_the_time_that_its_bytes_earn() {
        for (bytes, waited, seconds) in [
            (0, 0, 30),
            (0, 29, 1),
            (0, 30, 0),
            // A trickle earns nothing.
            (290, 29, 1),
            (20_500, 0, 50),
            (20_500, 49, 1),
            (20_500, 60, 0),
            // However much comes, there is a total time.
            (u64::MAX, 0, 100),
            (u64::MAX, 99, 1),
            (u64::MAX, 100, 0),
        ] {
            assert_eq!(left(bytes, waited), seconds, "{bytes} bytes, {waited} s");
        }
    }

    #[tokio::test]
    async fn what_does_not_come_in_time_is_given_up_with_the_figures() {
        let rules = PaceRules { grace: Duration::from_millis(100), ..RULES };
        let (mut pace, began) = (Pace::new(rules), Instant::now());
        assert_eq!(pace.wait(ready(7)).await, Ok(7));
        pace.count(7);
        let slow = pace.wait(pending::<()>()).await.unwrap_err();
        assert!(began.elapsed() >= rules.grace && slow.waited >= rules.grace);
        assert_eq!(slow.bytes, 7);
        let text = slow.to_string();
        assert!(text.contains("7 bytes came") && text.contains("each 1000 bytes"), "{text}");
        // Nothing is left, and it is told at once.
        assert!(pace.wait(pending::<()>()).await.is_err());
    }
}
