//! The files of a session, read and written from outside of it. A session's folder is there without
//! its kernel, and mostly without the database too: only addresses need that.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};
use woma_sandbox::workspace::{Folder, WorkspacePath};

use super::Service;
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{ExportedFile, SessionChoice, SessionId};
use crate::storage::layout::session_folder;
use crate::workspace::Workspaces;
use crate::workspace::allowance::WriteLimits;
use crate::workspace::archive::{Archive, pack};
use crate::workspace::exports::{ExportJob, ExportOwner, ExportReport};
use crate::workspace::files::{
    self, Destination, FileList, OpenedFile, Written, blocking, exact, trouble, with_near,
};
use crate::workspace::writes::Writing;

impl Service {
    /// The plain files of a session, by path; hidden ones are left out.
    pub async fn list_files(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<FileList, Error> {
        caller.may_read()?;
        let folder = self.folder_to_read(caller, session).await?;
        match folder {
            Some(folder) => self.workspaces()?.list(caller, session, folder).await,
            None => Ok(FileList::default()),
        }
    }

    /// Opens a plain file; nothing else ever is.
    pub async fn open_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
    ) -> Result<OpenedFile, Error> {
        caller.may_read()?;
        let path = exact(path, session)?;
        let folder = self.folder_to_read(caller, session).await?;
        let folder = folder.ok_or_else(|| Error::no_file(path.as_str()))?;
        let opened = move || files::open(&folder, &path).map_err(|e| with_near(e, &folder));
        blocking(opened).await
    }

    /// Puts a file into a session, which is made if it does not exist. The file is there whole or
    /// not at all: a stream that ends in an error leaves nothing, and so does dropping this.
    pub async fn write_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        place: Destination<'_>,
        mut content: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
    ) -> Result<Written, Error> {
        caller.may_execute()?;
        let path = place.path(session)?;
        let limit = self.workspaces()?.storage.settings.file_bytes_max;
        let (mut writing, limits) = self.begin_writing(caller, session, path, limit).await?;
        while let Some(bytes) = content.next().await {
            let bytes = bytes.map_err(|error| Error::BrokenOff(error.to_string()))?;
            if !writing.write(bytes).await {
                break;
            }
        }
        let written = writing.finish(&limits).await?;
        self.store_written(caller, session, &written).await;
        self.rebaseline(caller, session).await;
        self.note(caller, "write_file", Some(session), &of_written(&written));
        Ok(written)
    }

    /// Downloads a file into a session. Without a name, it has the one of its address.
    pub async fn fetch_from_url(
        &self,
        caller: &Caller,
        session: &SessionId,
        url: &str,
        name: Option<&str>,
    ) -> Result<Written, Error> {
        caller.may_execute()?;
        let workspaces = self.workspaces()?;
        let download = workspaces.fetcher.of(&caller.id).open(url).await.map_err(Error::Fetch)?;
        let path = match name {
            Some(name) => Destination::Named(name).path(session)?,
            None => Destination::Named(&download.file_name).path(session)?,
        };
        let limit = workspaces.storage.settings.fetch.bytes_max;
        let (mut writing, limits) = self.begin_writing(caller, session, path, limit).await?;
        if let Err(error) = download.save(&mut writing, &mut |_, _| {}).await {
            // Who stopped taking it in knows better why.
            return Err(writing.reason().await.unwrap_or(Error::Fetch(error)));
        }
        let written = writing.finish(&limits).await?;
        self.store_written(caller, session, &written).await;
        self.rebaseline(caller, session).await;
        self.note(caller, "fetch_from_url", Some(session), &of_written(&written));
        Ok(written)
    }

    pub async fn delete_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
    ) -> Result<String, Error> {
        caller.may_execute()?;
        let path = exact(path, session)?;
        let folder = self.folder_to_read(caller, session).await?;
        let folder = folder.ok_or_else(|| Error::no_file(path.as_str()))?;
        let removed = path.clone();
        let remove = move || {
            let removed = folder.remove(&path).map_err(|error| trouble(error, &path));
            removed.map_err(|error| with_near(error, &folder))
        };
        blocking(remove).await?;
        if let Some(exports) = self.workspaces()?.exports.clone() {
            let (owner, path) = (self.export_owner(caller, session)?, removed.clone());
            let remove = move || {
                exports.remove_file(&owner, &path);
                Ok(())
            };
            blocking(remove).await?;
        }
        self.workspaces()?.note_left(caller, session, &[removed.to_string()]);
        self.rebaseline(caller, session).await;
        let path = removed.to_string();
        self.note(caller, "delete_file", Some(session), &json!({ "path": path }));
        Ok(path)
    }

    /// Copies a file of a session to the host; `None` where clients download files instead.
    pub async fn export_file(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: &str,
    ) -> Result<Option<ExportedFile>, Error> {
        let workspaces = self.workspaces()?;
        let Some(exports) = workspaces.exports.clone() else { return Ok(None) };
        caller.may_read()?;
        let path = exact(path, session)?;
        let folder = self.folder_to_read(caller, session).await?;
        let source = folder.ok_or_else(|| Error::no_file(path.as_str()))?;
        let found = Arc::clone(&source);
        let entry = blocking(move || found.stat(&path).map_err(|error| trouble(error, &path)));
        let job = ExportJob {
            owner: self.export_owner(caller, session)?,
            source,
            written: vec![entry.await?],
            deleted: Vec::new(),
            limit: self.shared.settings.limits.workspace(),
        };
        let ExportReport { mut copies, mut notes } = workspaces.export(exports, job).await?;
        match (copies.pop(), notes.pop()) {
            (Some(copy), _) => {
                let detail = json!({ "path": copy.path, "bytes": copy.size_bytes });
                self.note(caller, "export_file", Some(session), &detail);
                Ok(Some(copy))
            }
            (None, Some(why)) => Err(Error::NotExported(why)),
            (None, None) => Err(Error::Lost),
        }
    }

    fn export_owner(&self, caller: &Caller, session: &SessionId) -> Result<ExportOwner, Error> {
        let folder = self.workspaces()?.storage.folder(&caller.id, session);
        Ok(ExportOwner::session(session, &folder))
    }

    /// A session's files as a zip, or those below one of its folders. Hidden ones are left out.
    pub async fn archive(
        &self,
        caller: &Caller,
        session: &SessionId,
        below: Option<&str>,
    ) -> Result<Archive, Error> {
        caller.may_read()?;
        let below = below.map(|path| exact(path, session)).transpose()?;
        let name = below.as_ref().map_or(session.as_str(), |path| path.name());
        let name = format!("{name}.zip");
        match self.folder_to_read(caller, session).await? {
            Some(folder) => {
                let detail = json!({ "archive": name });
                let place = self.workspaces()?.writer(&caller.id).await?;
                let archive = pack(folder, below, name, place).await?;
                self.note(caller, "export_archive", Some(session), &detail);
                Ok(archive)
            }
            None => Err(Error::no_file(name)),
        }
    }

    pub(crate) fn workspaces(&self) -> Result<&Arc<Workspaces>, Error> {
        self.workspaces.as_ref().ok_or(Error::KeepsNoFiles)
    }

    /// The folder of a session; `None` if the session has no files yet.
    pub(super) async fn folder_to_read(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Option<Arc<Folder>>, Error> {
        let mut opened = self.workspaces()?.open_folder(caller, session).await?;
        if opened.is_none() {
            // Its files may be in the database only.
            self.sessions.recall(caller, session).await?;
            opened = self.workspaces()?.open_folder(caller, session).await?;
        }
        // Every client has a default session, used or not.
        if opened.is_none() && !session.is_default() {
            self.sessions.find(caller, session)?;
        }
        Ok(opened)
    }

    async fn begin_writing(
        &self,
        caller: &Caller,
        session: &SessionId,
        path: WorkspacePath,
        limit_bytes: u64,
    ) -> Result<(Writing, WriteLimits), Error> {
        let workspaces = self.workspaces()?;
        if workspaces.storage.sessions_reserve.refuses(0) {
            return Err(Error::DiskReserve);
        }
        let choice = SessionChoice::Named(session.clone());
        // A session that is not at hand is more than its name: it has rules and variables.
        let recalled = self.sessions.recall_in_turn(caller, session).await?;
        // Held until it is written: meanwhile the session is not forgotten.
        let session_ref =
            self.sessions.choose(caller, &choice)?.map(|(session_ref, _)| session_ref);
        drop(recalled);
        let at = workspaces.storage.folder(&caller.id, session);
        let folder = blocking(move || Ok(Arc::new(session_folder(&at)?.0))).await?;
        let limit = self.shared.settings.limits.workspace();
        let limits = WriteLimits::new(workspaces, caller, session, Arc::clone(&folder), limit);
        let room = Box::pin(limits.room(limit_bytes)).await?;
        let place = workspaces.writer(&caller.id).await?;
        let held = (session_ref, place);
        let writing = Writing::begin(workspaces, held, folder, path, room);
        Ok((writing, limits))
    }

    /// Stores a file that was written from outside, where another server can find it. A file that
    /// cannot be stored is in its session all the same.
    async fn store_written(&self, caller: &Caller, session: &SessionId, written: &Written) {
        let Some(workspaces) = &self.workspaces else { return };
        if !workspaces.storage.outlives_folder() {
            return;
        }
        let stored = async {
            let opened = self.open_file(caller, session, &format!("./{}", written.path)).await?;
            Box::pin(workspaces.make_address(caller, session, opened)).await
        };
        if let Err(error) = stored.await {
            let path = &written.path;
            tracing::warn!(%error, %session, path, "A file is in the session's folder only");
            workspaces.note_left(caller, session, std::slice::from_ref(path));
        }
    }

    /// Takes the folder as it is now: changes from outside are not those of the next run.
    async fn rebaseline(&self, caller: &Caller, session: &SessionId) {
        let Ok(session) = self.sessions.find(caller, session) else { return };
        session.rebaseline().await;
        self.sessions.make_room();
    }
}

/// A written file in the audit trail.
fn of_written(written: &Written) -> Value {
    let Written { path, size_bytes, replaced, .. } = written;
    json!({ "path": path, "bytes": size_bytes, "replaced": replaced })
}
