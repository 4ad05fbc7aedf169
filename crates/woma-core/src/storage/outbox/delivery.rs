//! Delivery of the outbox to the database: in order, in batches, with one retry policy.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::timeout;

use super::Outbox;
use super::entry::{Ended, Entry, append_all};
use crate::storage::db::{Store, StoreError};

/// Time limit of one write to the database.
pub(super) const DELIVERY_TIME_MAX: Duration = Duration::from_secs(5);
/// Entries delivered in one batch.
const BATCH_MAX: usize = 512;
/// How long the first entry of a batch waits for others, unless a caller waits for it: one commit
/// per run would slow the runs down.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// Pause after the first failed attempt; it doubles with each one, up to the second figure.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How often files of servers that were killed are looked for.
const TAKE_OVER_INTERVAL: Duration = Duration::from_secs(30);

/// An entry with its number.
pub(super) type Numbered = (u64, Arc<Entry>);

/// Delivers until the outbox is dropped.
pub(super) async fn run(outbox: Weak<Outbox>, store: Store) {
    let Some((accepted, deliver_now)) = outbox
        .upgrade()
        .map(|outbox| (Arc::clone(&outbox.accepted), Arc::clone(&outbox.deliver_now)))
    else {
        return;
    };
    let mut pause = RETRY_FIRST;
    loop {
        let Some(held) = outbox.upgrade() else { return };
        let batch = held.next_batch(BATCH_MAX);
        drop(held);
        if batch.is_empty() {
            if timeout(TAKE_OVER_INTERVAL, accepted.notified()).await.is_err() {
                take_over(&outbox).await;
            } else {
                tokio::select! {
                    () = tokio::time::sleep(BATCH_DELAY) => {}
                    () = deliver_now.notified() => {}
                }
            }
            continue;
        }
        let (delivered, failed) = deliver(&store, &batch).await;
        let Some(outbox) = outbox.upgrade() else { return };
        outbox.delivered(&batch[..delivered], failed.is_some());
        drop(outbox);
        if let Some(error) = failed {
            tracing::debug!(%error, "the outbox waits for the database");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        } else {
            pause = RETRY_FIRST;
        }
    }
}

async fn take_over(outbox: &Weak<Outbox>) {
    let Some(outbox) = outbox.upgrade() else { return };
    outbox.take_over_in_background().await;
}

/// Delivers a batch in order. Returns how many entries the database has, or has rejected for good,
/// and the error for which the next one must be tried again.
async fn deliver(store: &Store, batch: &[Numbered]) -> (usize, Option<StoreError>) {
    let mut done = 0;
    while let Some((_, entry)) = batch.get(done) {
        let executions = executions(&batch[done..]);
        let together = match executions.as_slice() {
            [] | [_] => Err(StoreError::Conflict),
            _ => in_time(store, deliver_executions(store, &executions)).await,
        };
        match together {
            Ok(()) => {
                done += executions.len();
                continue;
            }
            Err(error) if error.is_temporary() => return (done, Some(error)),
            // The database rejects one of them; the others must still be recorded.
            Err(_) => {}
        }
        match in_time(store, entry.deliver(store)).await {
            Ok(()) => {}
            Err(error) if error.is_temporary() => return (done, Some(error)),
            Err(error) => {
                tracing::error!(%error, ?entry, "A record was rejected by the database");
            }
        }
        done += 1;
    }
    (done, None)
}

/// The executions at the start of a batch.
fn executions(batch: &[Numbered]) -> Vec<&Ended> {
    let entries = batch.iter().map_while(|(_, entry)| match entry.as_ref() {
        Entry::Execution(ended) => Some(ended.as_ref()),
        _ => None,
    });
    entries.collect()
}

async fn deliver_executions(store: &Store, batch: &[&Ended]) -> Result<(), StoreError> {
    store.finish_all(batch.iter().map(|ended| (&ended.row, &ended.audit))).await?;
    for ended in batch {
        // The executions are recorded; a second attempt would be a conflict.
        if let Err(error) = append_all(store, &ended.events).await {
            tracing::error!(%error, id = ended.row.id, "A security event could not be recorded");
        }
    }
    Ok(())
}

async fn in_time(
    store: &Store,
    call: impl Future<Output = Result<(), StoreError>>,
) -> Result<(), StoreError> {
    timeout(DELIVERY_TIME_MAX, call).await.unwrap_or_else(|_| Err(store.timed_out()))
}
