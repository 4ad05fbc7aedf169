//! The wall clock against the monotonic one. What lives is timed by the latter alone; what was written
//! down with a time ages by the former, which an operator may set.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// Further than this a clock does not stray by itself between two looks.
const JUMP_MIN: Duration = Duration::from_mins(1);

/// Readings of both clocks at the last look.
#[derive(Debug)]
pub(crate) struct Clock {
    wall: Timestamp,
    steady: Instant,
}

impl Clock {
    pub(crate) fn new(wall: Timestamp, steady: Instant) -> Self {
        Self { wall, steady }
    }

    /// How far the wall clock was set since the last look, if it was. From here on it is believed
    /// again: only the operator knows which time was right.
    pub(crate) fn jump(&mut self, wall: Timestamp, steady: Instant) -> Option<SignedDuration> {
        let passed = SignedDuration::try_from(steady.saturating_duration_since(self.steady));
        let jump = wall.duration_since(self.wall) - passed.unwrap_or(SignedDuration::MAX);
        *self = Self { wall, steady };
        (jump.unsigned_abs() > JUMP_MIN).then_some(jump)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::{SignedDuration, Timestamp};

    use super::Clock;

    #[test]
    fn a_clock_that_is_set_is_noticed_once() {
        let (mut wall, mut steady) = (Timestamp::now(), Instant::now());
        let mut clock = Clock::new(wall, steady);
        for (seconds, set_by, is_noticed) in [
            (600, 0, false),
            (600, 59, false),
            (600, -59, false),
            (600, 3_600, true),
            (600, 0, false),
            (600, -3_600, true),
            (600, 0, false),
            (0, 0, false),
            (0, -7_200, true),
            (86_400, 1, false),
        ] {
            steady += Duration::from_secs(seconds);
            wall += SignedDuration::from_secs(seconds.cast_signed() + set_by);
            let expected = is_noticed.then(|| SignedDuration::from_secs(set_by));
            assert_eq!(clock.jump(wall, steady), expected, "{seconds} {set_by}");
        }
    }
}
