//! What a file that comes from outside is counted against: the session's folder, and all that its
//! owner has, stored versions included.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use woma_sandbox::workspace::{Contents, Folder, counted_max, measure};

use super::{Room, blocking};
use crate::Error;
use crate::caller::{Caller, CallerId};
use crate::error::Holder;
use crate::model::SessionId;
use crate::quota::{FRESH, Grant, Meter, StorageLimit};
use crate::vault::Vault;

/// Files of all sessions of a caller that are counted.
const COUNTED_MAX: u64 = 200_000;

pub(super) struct Places {
    vault: Arc<Vault>,
    owner: CallerId,
    folder: Arc<Folder>,
    files_max: u64,
    /// Of the session, and of its owner where that one has a limit.
    session: (Meter, StorageLimit),
    all: Option<(Meter, StorageLimit)>,
    folders: PathBuf,
}

impl Places {
    pub(super) fn new(
        vault: &Arc<Vault>,
        caller: &Caller,
        session: &SessionId,
        folder: Arc<Folder>,
        limit: Contents,
    ) -> Self {
        let path = vault.folder(&caller.id, session);
        let folders = path.parent().map_or_else(PathBuf::new, ToOwned::to_owned);
        let meter = vault.meters.of(format!("folder {}", path.display()));
        let session = StorageLimit { bytes: limit.bytes, holder: Holder::Session };
        let all = vault
            .storage_of(caller)
            .map(|storage| (vault.meters.of(format!("folders of {}", caller.id)), storage));
        Self {
            vault: Arc::clone(vault),
            owner: caller.id.clone(),
            folder,
            files_max: limit.files,
            session: (meter, session),
            all,
            folders,
        }
    }

    /// How much may be written, and what is in the way of more.
    pub(super) async fn room(&self, file_bytes_max: u64) -> Result<Room, Error> {
        let mut room = Room::of_file(file_bytes_max);
        let (meter, limit) = &self.session;
        let counted = async {
            let found = self.found().await?;
            let limit = self.files_max;
            if found.files < limit { Ok(found.bytes) } else { Err(Error::TooManyFiles { limit }) }
        };
        room.narrow(*limit, meter.count(Duration::ZERO, counted).await?);
        if let Some((meter, limit)) = &self.all {
            let mut used = self.used_by_all(meter, FRESH).await?;
            if limit.bytes.saturating_sub(used) < file_bytes_max {
                used = self.used_by_all(meter, Duration::ZERO).await?;
            }
            room.narrow(*limit, used);
        }
        Ok(room)
    }

    /// The right to so many bytes in each of them.
    pub(super) async fn take(&self, bytes: u64) -> Result<Vec<Grant>, Error> {
        let (meter, limit) = &self.session;
        let mut grant = meter.take(bytes, limit.bytes);
        if grant.is_none() {
            let counted = async { Ok::<_, Error>(self.found().await?.bytes) };
            meter.count(Duration::ZERO, counted).await?;
            grant = meter.take(bytes, limit.bytes);
        }
        let mut grants = vec![grant.ok_or_else(|| limit.refusal())?];
        if let Some((meter, limit)) = &self.all {
            let mut grant = None;
            for fresh in [FRESH, Duration::ZERO] {
                self.used_by_all(meter, fresh).await?;
                // Versions and checkpoints have a meter of their own, and the same limit.
                let kept = self.vault.kept_by(&self.owner).used();
                grant = meter.take(bytes, limit.bytes.saturating_sub(kept));
                if grant.is_some() {
                    break;
                }
            }
            grants.push(grant.ok_or_else(|| limit.refusal())?);
        }
        Ok(grants)
    }

    async fn found(&self) -> Result<Contents, Error> {
        let (folder, counted_max) = (Arc::clone(&self.folder), counted_max(self.files_max));
        blocking(move || Ok(folder.usage(counted_max)?)).await
    }

    /// In the folders of all sessions, and in stored versions and checkpoints.
    async fn used_by_all(&self, meter: &Meter, fresh: Duration) -> Result<u64, Error> {
        let folders = self.folders.clone();
        let counted = blocking(move || {
            let found = measure(&folders, COUNTED_MAX)?;
            // More than can be counted is more than there is room for.
            Ok(if found.files > COUNTED_MAX { u64::MAX } else { found.bytes })
        });
        let in_folders = meter.count(fresh, counted).await?;
        let meter = self.vault.kept_by(&self.owner);
        let kept = match meter.count(fresh, self.vault.count_kept(&self.owner)).await {
            Ok(kept) => kept,
            Err(error) => {
                // Files need no store; what was known of it last will do.
                tracing::debug!(%error, "What a caller has stored could not be counted");
                meter.used()
            }
        };
        Ok(in_folders.saturating_add(kept))
    }
}
