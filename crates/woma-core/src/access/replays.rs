//! Replies to requests with an `Idempotency-Key`: the work of a key is done once, and a repetition
//! gets the first reply again. In memory only: a restart forgets them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use woma_sandbox::sync::lock;

use crate::model::caller::CallerId;

/// Keys that are remembered for one caller, and for all.
pub const KEYS_PER_CALLER_MAX: usize = 256;
pub const KEYS_MAX: usize = 8_192;
/// How long a reply is remembered.
pub const AGE_MAX: Duration = Duration::from_hours(24);
/// Replies that are remembered for one caller, and for all, in bytes.
pub const BYTES_PER_CALLER_MAX: usize = 16 * 1024 * 1024;
pub const BYTES_MAX: usize = 64 * 1024 * 1024;

/// Digest of a request, by which a repetition is told from another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of these parts, whose borders count.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }
}

/// Memory that a reply takes.
pub trait Weight {
    fn bytes(&self) -> usize;
}

/// Remembered replies of all callers.
#[derive(Debug)]
pub struct Replays<T>(Arc<Mutex<Table<T>>>);

impl<T> Default for Replays<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table { entries: BTreeMap::new() })))
    }
}

impl<T> Clone for Replays<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Table<T> {
    entries: BTreeMap<(CallerId, String), Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    fingerprint: Fingerprint,
    since: Instant,
    /// `None` while the first request is in progress.
    reply: Option<T>,
}

/// How a request with a key goes on.
#[derive(Debug)]
pub enum Begun<T> {
    /// The first one: it has to be done, and its reply handed to the claim.
    First(Claim<T>),
    /// A repetition, with the reply of the first.
    Again(T),
    /// A repetition of one that is in progress.
    InProgress,
    /// The key belongs to another request.
    Differs,
    /// As many requests of this caller, or of all, are in progress as may be remembered.
    Full,
}

/// The right to do the work of a key. Dropped without a reply, it gives the key back.
#[derive(Debug)]
pub struct Claim<T> {
    table: Arc<Mutex<Table<T>>>,
    key: Option<(CallerId, String)>,
}

impl<T: Weight + Clone> Replays<T> {
    pub fn begin(
        &self,
        caller: &CallerId,
        key: &str,
        fingerprint: Fingerprint,
        now: Instant,
    ) -> Begun<T> {
        let mut table = lock(&self.0);
        let full_key = (caller.clone(), key.to_owned());
        table.forget_old(now);
        if let Some(entry) = table.entries.get(&full_key) {
            return match &entry.reply {
                _ if entry.fingerprint != fingerprint => Begun::Differs,
                Some(reply) => Begun::Again(reply.clone()),
                None => Begun::InProgress,
            };
        }
        while table.of(caller).count() >= KEYS_PER_CALLER_MAX {
            if !table.forget_oldest(Some(caller)) {
                return Begun::Full;
            }
        }
        while table.entries.len() >= KEYS_MAX {
            if !table.forget_oldest(None) {
                return Begun::Full;
            }
        }
        table.entries.insert(full_key.clone(), Entry { fingerprint, since: now, reply: None });
        Begun::First(Claim { table: Arc::clone(&self.0), key: Some(full_key) })
    }
}

impl<T: Weight> Claim<T> {
    /// Remembers the reply; older ones go if they take too much memory.
    pub fn finish(mut self, reply: T) {
        let Some(key) = self.key.take() else { return };
        let mut table = lock(&self.table);
        if let Some(entry) = table.entries.get_mut(&key) {
            entry.reply = Some(reply);
        }
        while table.weight(Some(&key.0)) > BYTES_PER_CALLER_MAX {
            table.forget_oldest(Some(&key.0));
        }
        while table.weight(None) > BYTES_MAX {
            table.forget_oldest(None);
        }
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            lock(&self.table).entries.remove(&key);
        }
    }
}

impl<T> Table<T> {
    fn of<'a>(
        &'a self,
        caller: &'a CallerId,
    ) -> impl Iterator<Item = (&'a (CallerId, String), &'a Entry<T>)> {
        let first = (caller.clone(), String::new());
        self.entries.range(first..).take_while(move |((owner, _), _)| owner == caller)
    }

    fn forget_old(&mut self, now: Instant) {
        self.entries.retain(|_, entry| {
            entry.reply.is_none() || now.saturating_duration_since(entry.since) < AGE_MAX
        });
    }

    /// Forgets the oldest reply, of a caller or of all; false if there is none.
    fn forget_oldest(&mut self, caller: Option<&CallerId>) -> bool {
        let is_done = |(_, entry): &(&(CallerId, String), &Entry<T>)| entry.reply.is_some();
        let age = |(_, entry): &(&(CallerId, String), &Entry<T>)| entry.since;
        let oldest = match caller {
            Some(caller) => self.of(caller).filter(is_done).min_by_key(age),
            None => self.entries.iter().filter(is_done).min_by_key(age),
        };
        let oldest = oldest.map(|(key, _)| key.clone());
        oldest.and_then(|key| self.entries.remove(&key)).is_some()
    }
}

impl<T: Weight> Table<T> {
    fn weight(&self, caller: Option<&CallerId>) -> usize {
        let bytes = |entry: &Entry<T>| entry.reply.as_ref().map_or(0, Weight::bytes);
        match caller {
            Some(caller) => self.of(caller).map(|(_, entry)| bytes(entry)).sum(),
            None => self.entries.values().map(bytes).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Text(&'static str, usize);

    impl Weight for Text {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    fn caller(name: &str) -> CallerId {
        CallerId::new(name)
    }

    fn request(text: &str) -> Fingerprint {
        Fingerprint::of([text.as_bytes()])
    }

    /// Does the work of a key.
    fn done(replays: &Replays<Text>, owner: &str, key: &str, reply: Text) {
        match replays.begin(&caller(owner), key, request(key), Instant::now()) {
            Begun::First(claim) => claim.finish(reply),
            other => panic!("{other:?}"),
        }
    }

    fn is_known(replays: &Replays<Text>, owner: &str, key: &str) -> bool {
        let begun = replays.begin(&caller(owner), key, request(key), Instant::now());
        matches!(begun, Begun::Again(_))
    }

    #[test]
    fn the_work_of_a_key_is_done_once() {
        let (replays, now) = (Replays::<Text>::default(), Instant::now());
        let begin = |owner, text| replays.begin(&caller(owner), "k", request(text), now);
        let Begun::First(claim) = begin("a", "1") else { panic!("it is the first") };
        assert!(matches!(begin("a", "1"), Begun::InProgress));
        assert!(matches!(begin("a", "2"), Begun::Differs));
        claim.finish(Text("reply", 5));
        assert!(matches!(begin("a", "1"), Begun::Again(Text("reply", 5))));
        assert!(matches!(begin("a", "2"), Begun::Differs));
        // Another caller's key is another key; one that failed is given back.
        for _ in 0..2 {
            assert!(matches!(begin("b", "1"), Begun::First(_)));
        }
    }

    #[test]
    fn a_reply_is_forgotten_after_a_day() {
        let replays = Replays::default();
        done(&replays, "a", "k", Text("reply", 5));
        let later = Instant::now() + AGE_MAX;
        assert!(is_known(&replays, "a", "k"));
        assert!(matches!(replays.begin(&caller("a"), "k", request("k"), later), Begun::First(_)));
    }

    #[test]
    fn one_caller_has_a_bounded_number_of_keys() {
        let replays = Replays::default();
        for number in 0..=KEYS_PER_CALLER_MAX {
            done(&replays, "a", &format!("{number}"), Text("", 1));
        }
        assert!(!is_known(&replays, "a", "0"), "the oldest went");
        let replays = Replays::<Text>::default();
        let begin = |owner, number: usize| {
            let key = number.to_string();
            replays.begin(&caller(owner), &key, request(&key), Instant::now())
        };
        let claims: Vec<_> = (0..KEYS_PER_CALLER_MAX).map(|number| begin("a", number)).collect();
        assert!(matches!(begin("a", KEYS_PER_CALLER_MAX), Begun::Full), "all are in progress");
        assert!(matches!(begin("b", 0), Begun::First(_)), "another caller has its own");
        drop(claims);
        assert!(matches!(begin("a", KEYS_PER_CALLER_MAX), Begun::First(_)));
    }

    #[test]
    fn all_callers_have_a_bounded_number_of_keys() {
        let replays = Replays::default();
        for number in 0..=KEYS_MAX {
            done(&replays, &format!("{}", number / 100), &format!("{number}"), Text("", 1));
        }
        assert_eq!(lock(&replays.0).entries.len(), KEYS_MAX);
        assert!(is_known(&replays, &format!("{}", KEYS_MAX / 100), &format!("{KEYS_MAX}")));
    }

    #[test]
    fn replies_take_bounded_memory() {
        let replays = Replays::default();
        let third = BYTES_PER_CALLER_MAX / 3;
        for key in ["1", "2", "3", "4"] {
            done(&replays, "a", key, Text("", third));
        }
        assert!(!is_known(&replays, "a", "1") && is_known(&replays, "a", "2"));
        for number in 0..=BYTES_MAX / BYTES_PER_CALLER_MAX {
            done(&replays, &format!("c{number}"), "k", Text("", BYTES_PER_CALLER_MAX));
        }
        assert!(lock(&replays.0).weight(None) <= BYTES_MAX);
        assert!(!is_known(&replays, "a", "4"));
    }

    #[test]
    fn the_borders_of_a_request_count() {
        let of = |parts: &[&str]| Fingerprint::of(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    }
}
