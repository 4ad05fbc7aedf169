//! Changes that a run made to its session's folder: detected, reported, and stored for download.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;
use woma_sandbox::Cell;
use woma_sandbox::protocol::Note;
use woma_sandbox::workspace::{
    Allowance, Bounds, Changes, Contents, DigestBounds, Entry, Folder, Snapshot, Stillness,
    WorkspacePath, counted_max, diff,
};

use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{Execution, FileReport, Picture, SessionId, StoredFile};
use crate::storage::db::{FileRow, StoreError};
use crate::storage::layout::{remove_folder, session_folder};
use crate::workspace::Workspaces;
use crate::workspace::exports::{ExportJob, ExportOwner, ExportReport, Exports, is_copied};
use crate::workspace::media;
use crate::workspace::quota::Grant;

/// Files that a reply names, of each kind.
const NAMED_MAX: usize = 200;
/// Files that are looked through for the number of the last chart.
const CHARTS_COUNTED: u32 = 10_000;
/// Files that get an address after one run.
const STORED_MAX: usize = 50;

/// A session's folder, what was in it when it was last looked at, and what it may hold.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) folder: Arc<Folder>,
    seen: Snapshot,
    /// Of when it was found empty.
    stillness: Option<Stillness>,
    pub(crate) allowance: Allowance,
}

impl Files {
    /// Opens the folder, and makes it where it is not there. `earlier`: what it was known to be
    /// allowed before its kernel ended.
    pub(crate) async fn open(
        path: &Path,
        limit: Contents,
        earlier: Option<Allowance>,
    ) -> Result<Self, Error> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let (folder, _) = session_folder(&path)?;
            let seen = Snapshot::take(&folder, Bounds::default(), counted_max(limit.files))?;
            let mut allowance = earlier.unwrap_or_else(|| Allowance::new(limit, seen.contents()));
            // Nothing is open: there is no kernel.
            allowance.see_all(seen.contents(), Contents::default());
            Ok::<_, io::Error>(Self { folder: Arc::new(folder), seen, stillness: None, allowance })
        });
        Ok(opened.await.map_err(|_| Error::Lost)??)
    }

    /// Of a folder that was just made and is empty.
    pub(crate) fn of_new(folder: Arc<Folder>, limit: Contents) -> Self {
        let allowance = Allowance::new(limit, Contents::default());
        Self { folder, seen: Snapshot::of_nothing(), stillness: None, allowance }
    }

    /// Changes since the last look. A live cell of the folder is told, and need not look again.
    pub(crate) async fn look(&mut self, cell: Option<&mut Cell>) -> io::Result<Changes> {
        // It knows what is deleted but open, and how the disk is.
        match cell.as_ref().and_then(|cell| cell.allowance()) {
            Some(known) => self.allowance = known,
            None => self.allowance.see_all(self.allowance.folder(), Contents::default()),
        }
        let changes = self.compare().await?;
        if let Some(cell) = cell {
            cell.allow(self.allowance);
        }
        Ok(changes)
    }

    async fn compare(&mut self) -> io::Result<Changes> {
        // Most folders have no files: one look, and no other thread.
        let stillness = self.folder.stillness()?;
        if self.seen.is_empty()
            && ((stillness.is_some() && stillness == self.stillness) || is_empty(&self.folder)?)
        {
            self.stillness = stillness;
            self.allowance.see(Contents::default());
            return Ok(Changes { complete: true, ..Changes::default() });
        }
        self.stillness = None;
        let (folder, before) = (Arc::clone(&self.folder), self.seen.clone());
        let counted_max = self.allowance.counted_max();
        let looked = tokio::task::spawn_blocking(move || compare(&folder, &before, counted_max));
        let looked = looked.await.map_err(|error| io::Error::other(error.to_string()))?;
        let (changes, seen) = looked?;
        self.allowance.see(seen.contents());
        self.seen = seen;
        Ok(changes)
    }
}

/// Hidden files are files too.
fn is_empty(folder: &Folder) -> io::Result<bool> {
    Ok(folder.usage(1)?.files == 0)
}

fn compare(
    folder: &Folder,
    before: &Snapshot,
    counted_max: u64,
) -> io::Result<(Changes, Snapshot)> {
    let mut seen = Snapshot::take(folder, Bounds::default(), counted_max)?;
    let changes = diff(folder, before, &mut seen, DigestBounds::default());
    Ok((changes, seen))
}

/// Note on a folder that is over its limit: which limit, by how much, and the way out.
pub(crate) fn too_full(allowance: &Allowance) -> Option<Note> {
    if !allowance.is_over() {
        return None;
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1024 * 1024);
    let (found, limit) = (allowance.found(), allowance.limit());
    let mut over = Vec::new();
    if found.bytes > limit.bytes {
        let (found, limit) = (megabytes(found.bytes), megabytes(limit.bytes));
        over.push(format!("{found} MB, its limit is {limit} MB (DISK_MB)"));
    }
    if found.files > limit.files {
        over.push(format!("{} files and folders, its limit is {}", found.files, limit.files));
    }
    if over.is_empty() {
        let found = megabytes(found.bytes);
        over.push(format!(
            "{found} MB, and the server's disk is below its reserve (MIN_FREE_DISK)"
        ));
    }
    let of_which = match megabytes(allowance.deleted().bytes) {
        0 => String::new(),
        held => format!(", of which deleted but open files hold {held} MB"),
    };
    let rule = match allowance.is_spent() {
        true => {
            "and code has made more of it since: nothing runs before files are deleted with \
             `delete_file`, or the session is reset"
        }
        false => "code may only make that less: delete files that are not needed",
    };
    let text = format!("the session's folder holds {}{of_which}; {rule}", over.join(" and "));
    Some(Note { code: "workspace_full".to_owned(), text, subject: None, line: None })
}

impl Workspaces {
    /// Looks at a folder after a run, and keeps what can be kept.
    pub(crate) async fn look(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        files: &mut Files,
        cell: Option<&mut Cell>,
    ) -> FileReport {
        match files.look(cell).await {
            Ok(changes) if changes.is_nothing() => FileReport::default(),
            // Boxed, as is all that most runs do not need: each run's task would be of its size.
            Ok(changes) => Box::pin(self.report(caller, session, files, changes)).await,
            Err(error) => {
                let note = format!("the session's folder cannot be looked at: {error}");
                FileReport { notes: vec![note], ..FileReport::default() }
            }
        }
    }

    /// Keeps what can be kept of the files that a run made or changed, and tells of all.
    async fn report(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        files: &Files,
        changes: Changes,
    ) -> FileReport {
        let mut report = FileReport::default();
        match &self.exports {
            Some(exports) => {
                let owner = session.map_or_else(ExportOwner::run, |session| {
                    ExportOwner::session(session, &self.storage.folder(&caller.id, session))
                });
                self.copy_changes(exports, owner, files, &changes, &mut report).await;
            }
            None => {
                self.keep_changes(caller, session, &files.folder, &changes, &mut report).await;
                self.note_changes(caller, session, &changes, &report.stored);
            }
        }
        if !changes.complete {
            let why = "there are too many, they are too deep, or a folder cannot be read";
            report.notes.push(format!("not every file was looked at: {why}"));
        }
        let longest = changes.added.len().max(changes.modified.len()).max(changes.deleted.len());
        if longest > NAMED_MAX {
            let text = format!("{longest} files were made, changed or deleted at once");
            report.notes.push(format!("{text}; only the first {NAMED_MAX} are named"));
        }
        let names = |entries: Vec<Entry>| named(entries.into_iter().map(|entry| entry.path));
        report.added = names(changes.added);
        report.modified = names(changes.modified);
        report.deleted = named(changes.deleted.into_iter());
        report
    }

    /// Copies the files that a run made or changed to the host, where no client could download
    /// them.
    async fn copy_changes(
        &self,
        exports: &Arc<Exports>,
        owner: ExportOwner,
        files: &Files,
        changes: &Changes,
        report: &mut FileReport,
    ) {
        let linked = &self.storage.settings.linked;
        let written = changes.added.iter().chain(&changes.modified);
        let written = written.filter(|entry| is_copied(entry) && linked.has(&entry.path));
        let job = ExportJob {
            owner,
            source: Arc::clone(&files.folder),
            written: written.cloned().collect(),
            deleted: changes.deleted.clone(),
            limit: files.allowance.limit(),
        };
        match self.export(Arc::clone(exports), job).await {
            Ok(ExportReport { copies, notes }) => {
                report.exported = copies;
                report.notes.extend(notes);
            }
            Err(error) => report.notes.push(format!("files are not copied to the host: {error}")),
        }
    }

    /// Runs an export on a thread that may wait for the disk.
    pub(crate) async fn export(
        &self,
        exports: Arc<Exports>,
        job: ExportJob,
    ) -> Result<ExportReport, Error> {
        // Copies are made for the one user of a process on the same machine.
        let turn = self.writer(&Caller::local().id).await?;
        let copied = tokio::task::spawn_blocking(move || {
            let report = exports.repeat(&job);
            drop(turn);
            report
        });
        copied.await.map_err(|_| Error::Lost)
    }

    /// Keeps the files that a run made or changed where they can be downloaded.
    async fn keep_changes(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
        changes: &Changes,
        report: &mut FileReport,
    ) {
        let written = changes.added.iter().chain(&changes.modified);
        // Asked once, and only where there is something to store.
        let mut room = None;
        let linked = &self.storage.settings.linked;
        let storable = written.filter(|entry| entry.addressable && linked.has(&entry.path));
        for (stored, entry) in storable.enumerate() {
            if stored == STORED_MAX {
                let text = format!("only the first {STORED_MAX} files of a run get an address");
                report.notes.push(text);
                break;
            }
            match self.keep(caller, session, folder, entry, &mut room).await {
                Ok(file) => report.stored.push(file),
                Err(NotKept { why, concerns_all }) => {
                    report.notes.push(format!("{} has no download address: {why}", entry.path));
                    if concerns_all {
                        // Each would wait for the store as long as this one did.
                        report.notes.push("later files of this run have none either".to_owned());
                        break;
                    }
                }
            }
        }
    }

    /// The number of a session's next chart: it goes on where an earlier server stopped.
    pub(crate) async fn next_chart(
        &self,
        caller: &Caller,
        session: &SessionId,
        known: Option<usize>,
    ) -> usize {
        if let Some(count) = known {
            return count + 1;
        }
        let owner = caller.id.as_str();
        let asked = self.storage.db.files(owner, Some(session.as_str()), CHARTS_COUNTED);
        let listed = self.storage.db.in_time(asked).await;
        listed.map_or(0, |files| files.iter().filter(|file| file.is_chart).count()) + 1
    }

    /// Keeps the pictures of a run where they can be fetched, numbered through the session.
    pub(crate) async fn keep_charts(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        first: usize,
        execution: &mut Execution,
    ) {
        let pictures: Vec<Picture> =
            execution.displays.iter().flat_map(|shown| shown.pictures.iter().cloned()).collect();
        for (index, picture) in pictures.into_iter().enumerate() {
            let name =
                format!("chart_{:03}.{}", first + index, media::extension(&picture.media_type));
            let kept = self.keep_chart(caller, session, &name, picture).await;
            match kept {
                Ok(file) => execution.charts.push(file),
                Err(NotKept { why, .. }) => {
                    // All or none: they are told apart by their place.
                    execution.charts.clear();
                    let note = format!("{name} has no download address: {why}");
                    execution.files.notes.push(note);
                    return;
                }
            }
        }
    }

    async fn keep_chart(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        name: &str,
        picture: Picture,
    ) -> Result<StoredFile, NotKept> {
        let size_bytes = picture.bytes.len() as u64;
        let grant = self.grant(&caller.id, self.storage_of(caller), size_bytes).await?;
        let digest = self.storage.blobs.put(picture.bytes).await?;
        let now = Timestamp::now();
        let row = FileRow {
            id: Uuid::new_v4(),
            owner: caller.id.as_str().to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            path: name.to_owned(),
            name: name.to_owned(),
            digest,
            size_bytes,
            media_type: picture.media_type,
            created_at: now,
            expires_at: self.storage.expiry(now),
            downloads: 0,
            is_chart: true,
        };
        self.put_down(&row, grant).await?;
        Ok(row.into())
    }

    /// A store that does not answer costs a file its address; it is in its session all the same.
    async fn put_down(&self, row: &FileRow, grant: Option<Grant>) -> Result<(), StoreError> {
        self.storage.db.in_time(self.storage.db.put_file(row)).await?;
        if let Some(grant) = grant {
            grant.stored();
        }
        Ok(())
    }

    async fn keep(
        &self,
        caller: &Caller,
        session: Option<&SessionId>,
        folder: &Arc<Folder>,
        entry: &Entry,
        room: &mut Option<u64>,
    ) -> Result<StoredFile, NotKept> {
        let limit = self.storage.settings.file_bytes_max;
        if entry.size_bytes > limit {
            let megabytes = |bytes: u64| bytes.div_ceil(1024 * 1024);
            let (size, limit) = (megabytes(entry.size_bytes), megabytes(limit));
            let why = format!("it has {size} MB, the limit is {limit} MB; it stays in the session");
            return Err(why.into());
        }
        let storage = self.storage_of(caller);
        let left = match *room {
            Some(left) => left,
            None => self.room_to_keep(&caller.id, storage, entry.size_bytes).await?,
        };
        if entry.size_bytes > left {
            // Asked once in a run: what is smaller may still find room.
            *room = Some(left);
            let refusal = storage.map(|limit| NotKept::from(limit.refusal()));
            return Err(refusal.unwrap_or_else(|| "there is no room".to_owned().into()));
        }
        let path = WorkspacePath::parse(&format!("./{}", entry.path));
        let path = path.map_err(|error| error.to_string())?;
        let (folder, place) = (Arc::clone(folder), path.clone());
        let opened = tokio::task::spawn_blocking(move || folder.open(&place));
        let (file, _) =
            opened.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let (digest, size_bytes) = self.storage.blobs.put_reader(file, limit.min(left)).await?;
        let grant = self.grant(&caller.id, storage, size_bytes).await?;
        *room = room.map(|left| left.saturating_sub(size_bytes));
        let now = Timestamp::now();
        let row = FileRow {
            id: Uuid::new_v4(),
            owner: caller.id.as_str().to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            path: path.as_str().to_owned(),
            name: path.name().to_owned(),
            digest,
            size_bytes,
            media_type: media::of_name(path.name()).to_owned(),
            created_at: now,
            expires_at: self.storage.expiry(now),
            downloads: 0,
            is_chart: false,
        };
        self.put_down(&row, grant).await?;
        Ok(row.into())
    }
}

/// Why a file has no address.
struct NotKept {
    why: String,
    /// It is not the file's fault.
    concerns_all: bool,
}

impl From<String> for NotKept {
    fn from(why: String) -> Self {
        Self { why, concerns_all: false }
    }
}

impl From<Error> for NotKept {
    fn from(error: Error) -> Self {
        if let Error::Store(error) = error {
            return error.into();
        }
        let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{error}{hint}").into()
    }
}

impl From<StoreError> for NotKept {
    fn from(error: StoreError) -> Self {
        Self { why: error.to_string(), concerns_all: error.is_retryable() }
    }
}

/// The folder of an ephemeral session: removed in the background when this is dropped.
#[derive(Debug)]
pub(crate) struct Passing(pub(crate) PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        remove_folder(std::mem::take(&mut self.0));
    }
}

fn named(names: impl Iterator<Item = String>) -> Vec<String> {
    names.take(NAMED_MAX).collect()
}

impl From<FileRow> for StoredFile {
    fn from(row: FileRow) -> Self {
        Self {
            id: row.id,
            path: row.path,
            name: row.name,
            size_bytes: row.size_bytes,
            media_type: row.media_type,
            expires_at: row.expires_at,
        }
    }
}
