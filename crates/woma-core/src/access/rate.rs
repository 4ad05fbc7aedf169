//! Rate limits: one token bucket per key; the caller passes the clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Refusal, with the time after which one more request is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many requests: try again in {} s", .0.as_secs_f64().ceil())]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// Whole seconds for the `Retry-After` header, rounded up, at least 1.
    pub fn seconds(self) -> u64 {
        (self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)).max(1)
    }
}

/// Rate limiter whose buckets hold one minute's worth and refill evenly: a burst of `per_minute`
/// passes, then one request every `60 / per_minute` seconds.
#[derive(Debug)]
pub struct RateLimiter<K> {
    buckets: Mutex<HashMap<K, Bucket>>,
    capacity: usize,
}

/// Used part of a minute's allowance. It refills with time, so the instant at which it is full
/// again describes the bucket.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    empty_at: Instant,
}

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// Creates a limiter of at most `capacity` keys; it evicts the least used key first.
    pub fn new(capacity: usize) -> Self {
        Self { buckets: Mutex::new(HashMap::new()), capacity: capacity.max(1) }
    }

    /// Takes one token of `per_minute`, or returns when one will be available. 0 allows none.
    pub fn check(&self, key: &K, per_minute: u32, now: Instant) -> Result<(), RetryAfter> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let used = buckets.get(key).map_or(Duration::ZERO, |bucket| bucket.used(now));
        let cost = cost_of(per_minute, used)?;
        if !buckets.contains_key(key) && buckets.len() >= self.capacity {
            evict(&mut buckets, now);
        }
        // The sum is below two minutes, so it does not overflow.
        let empty_at = now.checked_add(used + cost).unwrap_or(now);
        buckets.insert(key.clone(), Bucket { empty_at });
        Ok(())
    }

    /// As [`RateLimiter::check`], without taking a token.
    pub fn peek(&self, key: &K, per_minute: u32, now: Instant) -> Result<(), RetryAfter> {
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let used = buckets.get(key).map_or(Duration::ZERO, |bucket| bucket.used(now));
        cost_of(per_minute, used).map(|_| ())
    }

    /// Number of tracked keys.
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

/// Cost of one request, if the allowance covers it.
fn cost_of(per_minute: u32, used: Duration) -> Result<Duration, RetryAfter> {
    let Some(cost) = MINUTE.checked_div(per_minute) else {
        return Err(RetryAfter(MINUTE));
    };
    match (used + cost).checked_sub(MINUTE) {
        None | Some(Duration::ZERO) => Ok(cost),
        Some(excess) => Err(RetryAfter(excess)),
    }
}

/// Evicts all unused buckets, or else the least used one.
fn evict<K: Eq + Hash + Clone>(buckets: &mut HashMap<K, Bucket>, now: Instant) {
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
    fn idle_time_saves_up_at_most_one_minute() {
        let limiter = RateLimiter::new(8);
        let start = Instant::now();
        assert!(limiter.check(&"a", 3, start).is_ok());
        let later = after(start, 86_400.0);
        let passed = (0..10).filter(|_| limiter.check(&"a", 3, later).is_ok()).count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn keys_are_limited_independently() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        assert!(limiter.check(&"a", 1, now).is_ok());
        assert!(limiter.check(&"a", 1, now).is_err());
        assert!(limiter.check(&"b", 1, now).is_ok());
    }

    #[test]
    fn a_limit_of_zero_allows_no_request() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        assert!(limiter.check(&"a", 0, now).is_err());
        assert!(limiter.check(&"a", 0, after(now, 3600.0)).is_err());
        assert!(limiter.is_empty(), "a refused key takes no memory");
        assert!(limiter.check(&"a", 1, now).is_ok() && !limiter.is_empty());
    }

    #[test]
    fn peek_takes_no_token() {
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
    fn an_earlier_instant_neither_helps_nor_panics() {
        let limiter = RateLimiter::new(8);
        let now = Instant::now();
        let later = after(now, 100.0);
        assert!(limiter.check(&"a", 1, later).is_ok());
        let refused = limiter.check(&"a", 1, now).unwrap_err();
        assert!(refused.0 >= Duration::from_secs(60));
    }

    #[test]
    fn memory_is_bounded_and_the_busiest_key_is_kept() {
        let limiter = RateLimiter::new(3);
        let now = Instant::now();
        for _ in 0..10 {
            // The busy key uses up its minute; the results do not matter here.
            limiter.check(&0, 10, now).unwrap_or_default();
        }
        for key in 1..1000 {
            assert!(limiter.check(&key, 10, now).is_ok());
            assert!(limiter.len() <= 3);
        }
        assert!(limiter.check(&0, 10, now).is_err(), "the busy key was evicted");
        // A minute later all are idle, and one sweep frees them together.
        assert!(limiter.check(&5000, 10, after(now, 61.0)).is_ok());
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn a_bucket_is_unused_at_the_instant_it_is_full_again() {
        let limiter = RateLimiter::new(2);
        let now = Instant::now();
        assert!(limiter.check(&1, 60, now).is_ok() && limiter.check(&2, 60, now).is_ok());
        assert!(limiter.check(&3, 60, after(now, 1.0)).is_ok());
        assert_eq!(limiter.len(), 1);
    }

    #[test]
    fn whole_seconds_are_rounded_up_and_never_zero() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            assert_eq!(RetryAfter(Duration::from_millis(millis)).seconds(), seconds);
        }
    }
}
