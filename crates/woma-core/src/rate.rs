//! How often: one token bucket per key, pure over the instants it is given.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Not now; after this time there is room for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests: try again in {} s", .0.as_secs_f64().ceil())]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// Whole seconds, rounded up, as the `Retry-After` header wants them; never 0.
    pub fn seconds(self) -> u64 {
        (self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)).max(1)
    }
}

/// Buckets that hold one minute's worth and refill evenly: a burst of `per_minute` is let through,
/// then one every `60 / per_minute` seconds.
#[derive(Debug)]
pub struct RateLimiter<K> {
    buckets: Mutex<HashMap<K, Bucket>>,
    capacity: usize,
}

/// How much of a minute's allowance is used. Time that passes gives it back, so a bucket is fully
/// described by the moment at which nothing will be used any more.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    empty_at: Instant,
}

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// Remembers at most `capacity` keys; the one that would be free soonest is forgotten first.
    pub fn new(capacity: usize) -> Self {
        Self { buckets: Mutex::new(HashMap::new()), capacity: capacity.max(1) }
    }

    /// Takes one of the `per_minute`, or says when there will be one. Of 0 there never is one.
    pub fn check(&self, key: &K, per_minute: u32, now: Instant) -> Result<(), RetryAfter> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let used = buckets.get(key).map_or(Duration::ZERO, |bucket| bucket.used(now));
        let cost = room(per_minute, used)?;
        if !buckets.contains_key(key) && buckets.len() >= self.capacity {
            forget(&mut buckets, now);
        }
        // The sum is below two minutes, which an `Instant` always has room for.
        let empty_at = now.checked_add(used + cost).unwrap_or(now);
        buckets.insert(key.clone(), Bucket { empty_at });
        Ok(())
    }

    /// As [`RateLimiter::check`], but takes nothing.
    pub fn peek(&self, key: &K, per_minute: u32, now: Instant) -> Result<(), RetryAfter> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let used = buckets.get(key).map_or(Duration::ZERO, |bucket| bucket.used(now));
        room(per_minute, used).map(|_| ())
    }

    /// How many keys are remembered.
    pub fn len(&self) -> usize {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Bucket {
    fn used(self, now: Instant) -> Duration {
        self.empty_at.saturating_duration_since(now)
    }
}

/// What one request costs, if there is room for it.
fn room(per_minute: u32, used: Duration) -> Result<Duration, RetryAfter> {
    let Some(cost) = MINUTE.checked_div(per_minute) else {
        return Err(RetryAfter(MINUTE));
    };
    match (used + cost).checked_sub(MINUTE) {
        None | Some(Duration::ZERO) => Ok(cost),
        Some(excess) => Err(RetryAfter(excess)),
    }
}

/// Makes room: every bucket that has nothing in it goes, or else the one with the least.
fn forget<K: Eq + Hash + Clone>(buckets: &mut HashMap<K, Bucket>, now: Instant) {
    let before = buckets.len();
    buckets.retain(|_, bucket| bucket.empty_at > now);
    if buckets.len() == before {
        let least = buckets.iter().min_by_key(|(_, bucket)| bucket.empty_at);
        if let Some(key) = least.map(|(key, _)| key.clone()) {
            buckets.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{RateLimiter, RetryAfter};

    fn after(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_burst_passes_and_then_one_per_interval() {
        let limiter = RateLimiter::new(8);
        let start = Instant::now();
        for _ in 0..6 {
            assert_eq!(limiter.check(&"a", 6, start), Ok(()));
        }
        assert_eq!(limiter.check(&"a", 6, start), Err(RetryAfter(Duration::from_secs(10))));
        // (seconds after the burst, whether one passes)
        let table = [(4.0, false), (9.9, false), (10.0, true), (10.0, false), (20.0, true)];
        for (seconds, passes) in table {
            let verdict = limiter.check(&"a", 6, after(start, seconds));
            assert_eq!(verdict.is_ok(), passes, "after {seconds} s: {verdict:?}");
        }
    }

    #[test]
    fn a_refused_request_costs_nothing() {
        let limiter = RateLimiter::new(8);
        let start = Instant::now();
        assert!(limiter.check(&"a", 1, start).is_ok());
        for _ in 0..100 {
            assert!(limiter.check(&"a", 1, after(start, 30.0)).is_err());
        }
        assert!(limiter.check(&"a", 1, after(start, 60.0)).is_ok());
    }

    #[test]
    fn rest_does_not_save_up_more_than_one_minute() {
        let limiter = RateLimiter::new(8);
        let start = Instant::now();
        assert!(limiter.check(&"a", 3, start).is_ok());
        let later = after(start, 86_400.0);
        let passed = (0..10).filter(|_| limiter.check(&"a", 3, later).is_ok()).count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn one_key_does_not_pay_for_another() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        assert!(limiter.check(&"a", 1, now).is_ok());
        assert!(limiter.check(&"a", 1, now).is_err());
        assert!(limiter.check(&"b", 1, now).is_ok());
    }

    #[test]
    fn nothing_of_nothing_is_ever_allowed() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        assert!(limiter.check(&"a", 0, now).is_err());
        assert!(limiter.check(&"a", 0, after(now, 3600.0)).is_err());
        assert!(limiter.is_empty(), "a refused key is not remembered");
    }

    #[test]
    fn peeking_takes_nothing() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        for _ in 0..5 {
            assert!(limiter.peek(&"a", 1, now).is_ok());
        }
        assert!(limiter.check(&"a", 1, now).is_ok());
        assert!(limiter.peek(&"a", 1, now).is_err());
    }

    #[test]
    fn the_limit_may_change_between_two_requests() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        assert!(limiter.check(&"a", 1, now).is_ok());
        assert!(limiter.check(&"a", 1, now).is_err());
        // The minute is used up; a wider limit opens after its own, shorter interval.
        assert!(limiter.check(&"a", 60, now).is_err());
        assert!(limiter.check(&"a", 60, after(now, 1.0)).is_ok());
    }

    #[test]
    fn an_earlier_instant_is_no_way_out_and_no_panic() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        let later = after(now, 100.0);
        assert!(limiter.check(&"a", 1, later).is_ok());
        let refused = limiter.check(&"a", 1, now).unwrap_err();
        assert!(refused.0 >= Duration::from_secs(60));
    }

    #[test]
    fn memory_is_bounded_and_the_busiest_is_remembered_longest() {
        let limiter = RateLimiter::new(3);
        let now = Instant::now();
        for _ in 0..10 {
            // The busy one uses up its minute; whether a call passes is not the point here.
            limiter.check(&0, 10, now).unwrap_or_default();
        }
        for key in 1..1000 {
            assert!(limiter.check(&key, 10, now).is_ok());
            assert!(limiter.len() <= 3);
        }
        assert!(limiter.check(&0, 10, now).is_err(), "the busy one was forgotten");
        // A minute later all are idle, and one sweep frees them together.
        assert!(limiter.check(&5000, 10, after(now, 61.0)).is_ok());
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn whole_seconds_are_rounded_up_and_never_zero() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(RetryAfter(Duration::from_millis(millis)).seconds(), seconds);
        }
    }
}
