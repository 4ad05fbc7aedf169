//! What nobody needs any more goes; what is in use never does.

use std::sync::Weak;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::caller::CallerId;
use crate::clock::Clock;
use crate::memory::drop_label;
use crate::model::SessionId;
use crate::service::Shared;
use crate::store::{SessionRow, StoreError};
use crate::transcript::drop_transcript;
use crate::vault::{Vault, remove_folder};

const FIRST: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_mins(10);
/// How long it is said of an address that it has expired; afterwards it never was.
const GONE_FOR: Duration = Duration::from_hours(24);
/// Contents that nobody has touched for this long, and that nothing refers to, are garbage.
/// Each checkpoint leaves the one before it behind, so this is not long.
const UNTOUCHED: Duration = Duration::from_mins(10);
/// Rows of each kind that one round takes.
const ROUND: u32 = 1_000;

/// Ends with the service.
pub(crate) async fn keep_clean(shared: Weak<Shared>) {
    let mut clock = Clock::new(Timestamp::now(), Instant::now());
    tokio::time::sleep(FIRST).await;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        // By a clock that was just set, everything may seem old that was made a moment ago.
        if let Some(jump) = clock.jump(Timestamp::now(), Instant::now()) {
            tracing::warn!(%jump, "The clock was set; what may have expired stays for this once");
        } else if let Some(vault) = &shared.vault
            && let Err(error) = clean(&shared, vault).await
        {
            tracing::warn!(%error, "Cleaning was not finished; it goes on later");
        }
        drop(shared);
        tokio::time::sleep(TICK).await;
    }
}

async fn clean(shared: &Shared, vault: &Vault) -> Result<(), StoreError> {
    let now = Timestamp::now();
    let before = |age: Duration| now.checked_sub(age).unwrap_or(Timestamp::MIN);
    let files = vault.store.purge_files(before(GONE_FOR), ROUND).await?;
    let mut sessions = 0;
    if let Some(age) = vault.settings.session_ttl {
        let place = |row: &SessionRow| {
            let id = SessionId::parse(&row.id).ok();
            id.map(|id| (CallerId::new(row.owner.clone()), id))
        };
        // One that is at hand is forgotten first, and goes another time.
        let is_known = |row: &SessionRow| {
            place(row).is_some_and(|(owner, id)| shared.sessions.knows_of(&owner, &id))
        };
        for row in vault.store.expire_sessions(before(age), ROUND, is_known).await? {
            let Some((owner, id)) = place(&row) else { continue };
            let folder = vault.folder(&owner, &id);
            drop_transcript(&folder);
            drop_label(&folder);
            remove_folder(folder).await.unwrap_or_default();
            sessions += 1;
        }
    }
    let mut records = 0;
    if let Some(age) = vault.settings.audit_retention {
        let purged = vault.store.purge(before(age), now).await?;
        records = purged.audit + purged.executions;
    }
    let contents = vault.blobs.collect(&vault.store, before(UNTOUCHED)).await?;
    if files + sessions + records + contents > 0 {
        tracing::info!(files, sessions, records, contents, "What had expired was removed");
    }
    Ok(())
}
