//! Limits on a file that comes from outside: those of the session's folder, and of all that its
//! owner has, stored versions included.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use woma_sandbox::workspace::{Contents, Folder, counted_max, measure};

use super::files::blocking;
use super::writes::Room;
use crate::error::Error;
use crate::error::Holder;
use crate::model::SessionId;
use crate::model::caller::{Caller, CallerId};
use crate::workspace::Workspaces;
use crate::workspace::quota::{FRESH, Grant, Meter, StorageLimit};

/// Files of all sessions of a caller that are counted.
const COUNTED_MAX: u64 = 200_000;

pub(crate) struct WriteLimits {
    workspaces: Arc<Workspaces>,
    owner: CallerId,
    folder: Arc<Folder>,
    files_max: u64,
    /// Of the session, and of its owner where that one has a limit.
    session: (Meter, StorageLimit),
    all: Option<(Meter, StorageLimit)>,
}

impl WriteLimits {
    pub(crate) fn new(
        workspaces: &Arc<Workspaces>,
        caller: &Caller,
        session: &SessionId,
        folder: Arc<Folder>,
        limit: Contents,
    ) -> Self {
        let path = workspaces.storage.folder(&caller.id, session);
        let meter = workspaces.meters.of(format!("folder {}", path.display()));
        let session = StorageLimit { bytes: limit.bytes, holder: Holder::Session };
        let all = workspaces.storage_of(caller);
        let all = all.map(|storage| (workspaces.folders_of(&caller.id), storage));
        Self {
            workspaces: Arc::clone(workspaces),
            owner: caller.id.clone(),
            folder,
            files_max: limit.files,
            session: (meter, session),
            all,
        }
    }

    /// How much may be written, and what is in the way of more.
    pub(crate) async fn room(&self, file_bytes_max: u64) -> Result<Room, Error> {
        let mut room = Room::of_file(file_bytes_max);
        let (meter, limit) = &self.session;
        let counted = async {
            let found = self.found().await?;
            let limit = self.files_max;
            if found.files < limit { Ok(found.bytes) } else { Err(Error::TooManyFiles { limit }) }
        };
        room.narrow(*limit, meter.count(Duration::ZERO, counted).await?);
        if let Some((_, limit)) = &self.all {
            let mut used = self.workspaces.used_by(&self.owner, FRESH).await?;
            if limit.bytes.saturating_sub(used) < file_bytes_max {
                used = self.workspaces.used_by(&self.owner, Duration::ZERO).await?;
            }
            room.narrow(*limit, used);
        }
        Ok(room)
    }

    /// The right to so many bytes in each of them.
    pub(crate) async fn take(&self, bytes: u64) -> Result<Vec<Grant>, Error> {
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
                self.workspaces.used_by(&self.owner, fresh).await?;
                // Versions and checkpoints have a meter of their own, unfinished uploads have
                // another, and the limit is the same.
                let kept = self.workspaces.kept_by(&self.owner).used();
                let kept = kept.saturating_add(self.workspaces.parts_of(&self.owner).used());
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
}

impl Workspaces {
    /// Counter of the folders of all sessions of an owner.
    fn folders_of(&self, owner: &CallerId) -> Meter {
        self.meters.of(format!("folders of {owner}"))
    }

    /// Bytes in the folders of all sessions of an owner, in its unfinished uploads, and in its stored
    /// versions and checkpoints.
    pub(crate) async fn used_by(&self, owner: &CallerId, fresh: Duration) -> Result<u64, Error> {
        let folders = self.storage.folders(owner);
        let counted = blocking(move || match measure(&folders, COUNTED_MAX) {
            // More than can be counted is more than there is room for.
            Ok(found) if found.files > COUNTED_MAX => Ok(u64::MAX),
            Ok(found) => Ok(found.bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        });
        let in_folders = self.folders_of(owner).count(fresh, counted).await?;
        let parts = self.parts_of(owner).count(fresh, self.count_parts(owner)).await?;
        let meter = self.kept_by(owner);
        let kept = match meter.count(fresh, self.count_kept(owner)).await {
            Ok(kept) => kept,
            Err(error) => {
                // Files need no store; what was known of it last will do.
                tracing::debug!(%error, "What a caller has stored could not be counted");
                meter.used()
            }
        };
        Ok(in_folders.saturating_add(parts).saturating_add(kept))
    }
}
