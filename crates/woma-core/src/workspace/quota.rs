//! Storage quota of a caller. Counted at intervals, kept up to date in between, and reserved before a
//! write, so that two writes at once do not both get the last bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::error::Holder;
use crate::model::caller::{Caller, CallerId};
use crate::storage::db::StoreError;
use crate::workspace::Workspaces;
use woma_sandbox::sync::lock;

/// How long a count is believed: other servers, and code in its session, change it too.
pub(crate) const FRESH: Duration = Duration::from_secs(30);
/// Meters in memory; beyond, unused ones are dropped.
const METERS_MAX: usize = 4_096;

/// A storage limit and its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StorageLimit {
    pub(crate) bytes: u64,
    pub(crate) holder: Holder,
}

/// Everything that is counted, by its name.
#[derive(Debug, Default)]
pub(crate) struct Meters(Mutex<HashMap<String, Meter>>);

impl Meters {
    pub(crate) fn of(&self, name: String) -> Meter {
        let mut meters = lock(&self.0);
        if meters.len() >= METERS_MAX {
            meters.retain(|_, meter| Arc::strong_count(&meter.0) > 1);
        }
        meters.entry(name).or_default().clone()
    }
}

/// One thing that is counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Sum>>);

#[derive(Debug, Default)]
struct Sum {
    /// The last count, with what was stored since.
    counted: Option<(u64, Instant)>,
    /// Bytes granted and not stored yet.
    granted: u64,
    /// All that was ever stored by us.
    stored: u64,
}

/// The right to store so many bytes; dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Grant {
    meter: Meter,
    bytes: u64,
}

impl Meter {
    /// Counts, unless that was done lately.
    pub(crate) async fn count<E>(
        &self,
        fresh: Duration,
        counting: impl Future<Output = Result<u64, E>>,
    ) -> Result<u64, E> {
        let (known, stored) = {
            let sum = lock(&self.0);
            (sum.counted.filter(|(_, at)| at.elapsed() < fresh), sum.stored)
        };
        if known.is_none() {
            let found = counting.await?;
            let mut sum = lock(&self.0);
            // What was stored while it was counted may be in it or not; rather twice than never.
            let meanwhile = sum.stored - stored;
            sum.counted = Some((found.saturating_add(meanwhile), Instant::now()));
        }
        Ok(self.used())
    }

    /// Bytes stored and granted, as far as it is known.
    pub(crate) fn used(&self) -> u64 {
        let sum = lock(&self.0);
        sum.counted.map_or(0, |(bytes, _)| bytes).saturating_add(sum.granted)
    }

    /// So many more, if `limit` has room for them.
    pub(crate) fn take(&self, bytes: u64, limit: u64) -> Option<Grant> {
        self.reserve(bytes, limit).then(|| Grant { meter: self.clone(), bytes })
    }

    fn reserve(&self, bytes: u64, limit: u64) -> bool {
        let mut sum = lock(&self.0);
        let used = sum.counted.map_or(0, |(bytes, _)| bytes).saturating_add(sum.granted);
        let has_room = used.saturating_add(bytes) <= limit;
        if has_room {
            sum.granted += bytes;
        }
        has_room
    }
}

impl Grant {
    /// Extends it by so many bytes, if `limit` has room for them.
    pub(crate) fn grow(&mut self, bytes: u64, limit: u64) -> bool {
        let has_room = self.meter.reserve(bytes, limit);
        self.bytes += if has_room { bytes } else { 0 };
        has_room
    }

    /// It is there now, and is counted.
    pub(crate) fn stored(self) {
        let mut sum = lock(&self.meter.0);
        sum.stored += self.bytes;
        if let Some((bytes, _)) = &mut sum.counted {
            *bytes = bytes.saturating_add(self.bytes);
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut sum = lock(&self.meter.0);
        sum.granted = sum.granted.saturating_sub(self.bytes);
    }
}

impl Workspaces {
    /// By its key, or by the server's setting.
    pub(crate) fn storage_of(&self, caller: &Caller) -> Option<StorageLimit> {
        let own = caller.quota.storage_bytes;
        let own = own.map(|bytes| StorageLimit { bytes, holder: Holder::Key });
        own.or_else(|| {
            let bytes = self.storage.settings.storage_bytes_max?;
            Some(StorageLimit { bytes, holder: Holder::Caller })
        })
    }

    /// Storage that an owner has left for versions and checkpoints. Counted anew if it seems less than
    /// is wanted.
    pub(crate) async fn room_to_keep(
        &self,
        owner: &CallerId,
        limit: Option<StorageLimit>,
        wanted: u64,
    ) -> Result<u64, StoreError> {
        let Some(limit) = limit else { return Ok(u64::MAX) };
        let meter = self.kept_by(owner);
        let mut used = meter.count(FRESH, self.count_kept(owner)).await?;
        if used.saturating_add(wanted) > limit.bytes {
            used = meter.count(Duration::ZERO, self.count_kept(owner)).await?;
        }
        Ok(limit.bytes.saturating_sub(used))
    }

    /// The right to keep a version or a checkpoint of that size.
    pub(crate) async fn grant(
        &self,
        owner: &CallerId,
        limit: Option<StorageLimit>,
        bytes: u64,
    ) -> Result<Option<Grant>, Error> {
        let Some(limit) = limit else { return Ok(None) };
        let meter = self.kept_by(owner);
        for fresh in [FRESH, Duration::ZERO] {
            meter.count(fresh, self.count_kept(owner)).await?;
            if let Some(grant) = meter.take(bytes, limit.bytes) {
                return Ok(Some(grant));
            }
        }
        Err(limit.refusal())
    }

    pub(crate) fn kept_by(&self, owner: &CallerId) -> Meter {
        self.meters.of(format!("kept by {owner}"))
    }

    pub(crate) async fn count_kept(&self, owner: &CallerId) -> Result<u64, StoreError> {
        let rows = self.storage.db.in_time(self.storage.db.owner_bytes(owner.as_str())).await?;
        Ok(rows.saturating_add(self.storage.packages_bytes(owner)))
    }
}

impl StorageLimit {
    pub(crate) fn refusal(self) -> Error {
        Error::NoRoom { holder: self.holder, limit_bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::{FRESH, Meter};

    async fn counted(meter: &Meter, fresh: Duration, bytes: u64) -> u64 {
        let Ok(used) = meter.count(fresh, async { Ok::<_, Infallible>(bytes) }).await;
        used
    }

    #[tokio::test]
    async fn the_last_of_the_room_goes_to_one() {
        let meter = Meter::default();
        assert_eq!(counted(&meter, FRESH, 40).await, 40);
        let first = meter.take(60, 100).unwrap();
        assert!(meter.take(1, 100).is_none(), "it is granted, though not stored yet");
        drop(first);
        let second = meter.take(60, 100).unwrap();
        second.stored();
        assert_eq!(meter.used(), 100);
        assert!(meter.take(1, 100).is_none());
    }

    #[tokio::test]
    async fn a_count_is_believed_for_a_while_and_kept_up_to_date() {
        let meter = Meter::default();
        counted(&meter, FRESH, 10).await;
        meter.take(5, 100).unwrap().stored();
        assert_eq!(counted(&meter, FRESH, 99).await, 15, "nobody asked");
        assert_eq!(counted(&meter, Duration::ZERO, 7).await, 7);
    }

    #[tokio::test]
    async fn what_is_stored_while_it_is_counted_is_not_forgotten() {
        let meter = Meter::default();
        let slow = meter.count(FRESH, async {
            meter.take(30, 100).unwrap().stored();
            Ok::<_, Infallible>(10)
        });
        assert_eq!(slow.await, Ok(40));
    }
}
