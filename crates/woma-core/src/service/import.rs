//! Taking over the sessions, files and download links of Power Interpreter.
//!
//! A session comes with its files or not at all, and what is there already stays as it is: an import
//! that failed or that is repeated goes on where it ended. The other system's database is only read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;
use woma_sandbox::workspace::{WorkspacePath, sanitised};

use crate::model::SessionId;
use crate::model::caller::CallerId;
use crate::session::known::leave_trace;
use crate::storage::blobs::Digest;
use crate::storage::db::{
    FileRow, PowerInterpreter, SessionRow, SourceError, SourceFile, SourceSession, StoreError,
};
use crate::storage::layout::{LinkedFiles, OpenError, Storage, StorageSettings};
use crate::workspace::media;

/// Rows are written after this long, although their session has more files: contents that no row
/// refers to are collected as garbage after ten minutes.
const ROWS_DUE: Duration = Duration::from_mins(5);
/// Files of one session that are looked at for those that are there already.
const KNOWN_MAX: u32 = 100_000;
/// Files that are named in a summary, of each kind.
const NAMED_MAX: usize = 20;

/// Request for an import.
#[derive(Debug, Clone)]
pub struct ImportRequest {
    /// Address of Power Interpreter's database.
    pub from: String,
    /// Its folder of sessions' files, `sandbox_data`.
    pub files: Option<PathBuf>,
    /// The caller who gets everything.
    pub owner: CallerId,
    /// Only reports what would be imported.
    pub is_dry_run: bool,
}

/// Progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportProgress {
    pub files_done: u64,
    pub files_all: u64,
    pub bytes_done: u64,
}

/// Result of an import, or of a dry run what it would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportSummary {
    pub sessions: u64,
    /// With their links.
    pub files: u64,
    pub bytes: u64,
    /// Files that were there already.
    pub files_known: u64,
    pub files_expired: u64,
    /// Files that keep their links, though the names of their sessions cannot be used here.
    pub files_without_session: u64,
    /// Files that were not imported, with the reason; the first of them.
    pub refused: Vec<(String, String)>,
    pub refused_count: u64,
    /// Tables that are not taken over, with the numbers of their rows.
    pub left_behind: Vec<(&'static str, u64)>,
}

impl ImportSummary {
    fn refuse(&mut self, name: String, why: impl Into<String>) {
        self.refused_count += 1;
        if self.refused.len() < NAMED_MAX {
            self.refused.push((name, why.into()));
        }
    }
}

/// Failure of an import; what was complete before it stays.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the import ended: {0}; run the command again to go on, nothing is there in part")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the folder of --files cannot be read: {}: {error}", path.display())]
    Files { path: PathBuf, error: io::Error },
}

/// One session of the other system, with what it brings.
#[derive(Debug, Default)]
struct Arrival {
    session: Option<SourceSession>,
    stored: Vec<SourceFile>,
    /// Files of its folder: path in it, and place on this machine.
    in_folder: Vec<(String, PathBuf)>,
}

/// Imports, and reports progress after each file.
pub async fn import_power_interpreter(
    settings: StorageSettings,
    request: &ImportRequest,
    progress: &mut (dyn FnMut(ImportProgress) + Send),
) -> Result<ImportSummary, ImportError> {
    let mut source = PowerInterpreter::open(&request.from).await?;
    let mut arrivals: BTreeMap<String, Arrival> = BTreeMap::new();
    let mut summary =
        ImportSummary { left_behind: source.left_behind().await?, ..ImportSummary::default() };
    for session in source.sessions().await?.into_iter().filter(|session| session.is_active) {
        let arrival = arrivals.entry(session.id.clone()).or_default();
        arrival.session = Some(session);
    }
    let now = Timestamp::now();
    for file in source.files().await? {
        if file.expires_at.is_some_and(|end| end <= now) {
            summary.files_expired += 1;
        } else {
            arrivals.entry(file.session_id.clone()).or_default().stored.push(file);
        }
    }
    if let Some(folder) = &request.files {
        for (session, path, place) in folder_files(folder)? {
            arrivals.entry(session).or_default().in_folder.push((path, place));
        }
    }
    let files = arrivals.values().map(|one| one.stored.len() + one.in_folder.len());
    let files_all = files.sum::<usize>() as u64;
    let storage = match request.is_dry_run {
        true => None,
        false => Some(Storage::open(settings.clone()).await?),
    };
    let mut import = Import { settings, storage, owner: request.owner.clone(), source, summary };
    let mut done = ImportProgress { files_done: 0, files_all, bytes_done: 0 };
    let mut advance = |bytes: u64| {
        done.files_done += 1;
        done.bytes_done += bytes;
        progress(done);
    };
    for (id, arrival) in arrivals {
        import.take(&id, arrival, &mut advance).await?;
    }
    if let Some(storage) = &import.storage {
        storage.close().await;
    }
    Ok(import.summary)
}

struct Import {
    settings: StorageSettings,
    /// `None` for a dry run.
    storage: Option<Storage>,
    owner: CallerId,
    source: PowerInterpreter,
    summary: ImportSummary,
}

impl Import {
    /// Takes one session over.
    async fn take(
        &mut self,
        id: &str,
        arrival: Arrival,
        advance: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), ImportError> {
        let session = SessionId::parse(id).ok();
        let row = session.as_ref().map(|session| self.session_row(session, &arrival));
        let mut due = Batch { session: row, files: Vec::new(), since: Instant::now() };
        for file in arrival.stored {
            let size = file.size_bytes;
            if session.is_none() {
                self.summary.files_without_session += 1;
            }
            due.files.extend(self.fetch(file, session.as_ref()).await?);
            advance(size);
            self.write_if_due(&mut due).await?;
        }
        if !arrival.in_folder.is_empty() {
            match &session {
                Some(session) => {
                    let known = self.known_files(session, &due.files).await?;
                    for (path, place) in arrival.in_folder {
                        let file = self.read(session, &path, &place, &known).await?;
                        advance(file.as_ref().map_or(0, |row| row.size_bytes));
                        due.files.extend(file);
                        self.write_if_due(&mut due).await?;
                    }
                }
                None => {
                    for (path, _) in arrival.in_folder {
                        let why = "the name of its session cannot be used here";
                        self.summary.refuse(format!("{id}/{path}"), why);
                        advance(0);
                    }
                }
            }
        }
        self.write(&mut due).await?;
        if let (Some(row), Some(storage)) = (&due.session, &self.storage) {
            leave_trace(storage, row);
        }
        Ok(())
    }

    fn session_row(&self, id: &SessionId, arrival: &Arrival) -> SessionRow {
        let now = Timestamp::now();
        let created = arrival.session.as_ref().and_then(|session| session.created_at);
        let files = || arrival.stored.iter().filter_map(|file| file.created_at);
        let used = arrival.session.as_ref().and_then(|session| session.updated_at);
        let name = arrival.session.as_ref().map(|session| session.name.clone());
        let description = arrival.session.as_ref().and_then(|session| session.description.clone());
        SessionRow {
            owner: self.owner.as_str().to_owned(),
            id: id.as_str().to_owned(),
            name,
            description,
            policy: None,
            lease_server: None,
            // A file that is older than its session would belong to an earlier one.
            created_at: files().chain(created).min().unwrap_or(now),
            last_used_at: files().chain(used).max().unwrap_or(now),
            execution_count: 0,
            labels: None,
            lifetime_s: None,
            network: None,
            secrets: None,
            packages: None,
            environment: None,
            isolation: None,
        }
    }

    /// Stores the content of a row of `sandbox_files`; returns its row here, unless it is there.
    async fn fetch(
        &mut self,
        file: SourceFile,
        session: Option<&SessionId>,
    ) -> Result<Option<FileRow>, ImportError> {
        let Ok(id) = file.id.parse::<Uuid>() else {
            self.summary.refuse(file.name, format!("`{}` is not the id of a download", file.id));
            return Ok(None);
        };
        if file.size_bytes > self.settings.file_bytes_max {
            self.summary.refuse(file.name, "it is larger than SANDBOX_FILE_MAX_MB");
            return Ok(None);
        }
        let Some(storage) = &self.storage else {
            self.summary.files += 1;
            self.summary.bytes += file.size_bytes;
            return Ok(None);
        };
        if storage.db.file(id).await?.is_some() {
            self.summary.files_known += 1;
            return Ok(None);
        }
        let content = self.source.content(&file.id).await?;
        let digest = Digest::of(&content);
        let is_sum = |text: &String| text.len() == 64;
        if let Some(sum) = file.checksum.filter(is_sum)
            && !sum.eq_ignore_ascii_case(&digest.to_string())
        {
            let why = "its content does not match its checksum".to_owned();
            self.summary.refuse(file.name, why);
            return Ok(None);
        }
        let digest = storage.blobs.put(content.into()).await?;
        let media_type = file.media_type.unwrap_or_else(|| media::of_name(&file.name).to_owned());
        Ok(Some(FileRow {
            id,
            owner: self.owner.as_str().to_owned(),
            session_id: session.map(|session| session.as_str().to_owned()),
            path: path_of(&file.name, id),
            name: file.name,
            digest,
            size_bytes: file.size_bytes,
            media_type,
            created_at: file.created_at.unwrap_or_else(Timestamp::now),
            expires_at: file.expires_at,
            downloads: file.downloads,
            is_chart: false,
        }))
    }

    /// Paths and digests of a session's files that are there already, the latest of each path.
    async fn known_files(
        &self,
        session: &SessionId,
        due: &[FileRow],
    ) -> Result<BTreeMap<String, Digest>, ImportError> {
        let Some(storage) = &self.storage else { return Ok(BTreeMap::new()) };
        let owner = self.owner.as_str();
        let rows = storage.db.files(owner, Some(session.as_str()), KNOWN_MAX).await?;
        // The latest come first, and the last insertion counts.
        let known = rows.into_iter().rev().map(|row| (row.path, row.digest));
        Ok(known.chain(due.iter().map(|row| (row.path.clone(), row.digest))).collect())
    }

    /// Stores a file of the other system's folder, unless its latest version is there.
    async fn read(
        &mut self,
        session: &SessionId,
        path: &str,
        place: &Path,
        known: &BTreeMap<String, Digest>,
    ) -> Result<Option<FileRow>, ImportError> {
        let failed = |error| ImportError::Files { path: place.to_owned(), error };
        let size_bytes = std::fs::metadata(place).map_err(failed)?.len();
        let shown = format!("{session}/{path}");
        if size_bytes > self.settings.file_bytes_max {
            self.summary.refuse(shown, "it is larger than SANDBOX_FILE_MAX_MB");
            return Ok(None);
        }
        let Ok(path) = WorkspacePath::parse(&format!("./{path}")) else {
            self.summary.refuse(shown, "its name cannot be used here");
            return Ok(None);
        };
        let Some(storage) = &self.storage else {
            self.summary.files += 1;
            self.summary.bytes += size_bytes;
            return Ok(None);
        };
        let content = std::fs::read(place).map_err(failed)?;
        if known.get(path.as_str()) == Some(&Digest::of(&content)) {
            self.summary.files_known += 1;
            return Ok(None);
        }
        let size_bytes = content.len() as u64;
        let digest = storage.blobs.put(content.into()).await?;
        let now = Timestamp::now();
        Ok(Some(FileRow {
            id: Uuid::new_v4(),
            owner: self.owner.as_str().to_owned(),
            session_id: Some(session.as_str().to_owned()),
            name: path.name().to_owned(),
            media_type: media::of_name(path.name()).to_owned(),
            path: path.to_string(),
            digest,
            size_bytes,
            created_at: now,
            expires_at: storage.expiry(now),
            downloads: 0,
            is_chart: false,
        }))
    }

    async fn write_if_due(&mut self, due: &mut Batch) -> Result<(), ImportError> {
        if due.since.elapsed() < ROWS_DUE {
            return Ok(());
        }
        self.write(due).await
    }

    /// Writes the rows of a session and of its files in one transaction.
    async fn write(&mut self, due: &mut Batch) -> Result<(), ImportError> {
        let files = std::mem::take(&mut due.files);
        due.since = Instant::now();
        let Some(storage) = &self.storage else {
            self.summary.sessions += u64::from(due.session.is_some());
            return Ok(());
        };
        let (is_new, added) = storage.db.adopt(due.session.as_ref(), &files).await?;
        self.summary.sessions += u64::from(is_new);
        self.summary.files += added;
        self.summary.bytes += files.iter().map(|file| file.size_bytes).sum::<u64>();
        Ok(())
    }
}

/// Rows that wait until the contents of their session are stored.
struct Batch {
    session: Option<SessionRow>,
    files: Vec<FileRow>,
    since: Instant,
}

/// Path of a stored file in its session's folder.
fn path_of(name: &str, id: Uuid) -> String {
    let plain = |name: &str| WorkspacePath::parse(&format!("./{name}")).ok();
    let path = plain(name).or_else(|| plain(&sanitised(name)?));
    path.map_or_else(|| format!("file_{id}"), |path| path.to_string())
}

/// Plain files below the folders of sessions: session, path in it, place. Hidden files, caches and
/// links are left out.
fn folder_files(folder: &Path) -> Result<Vec<(String, String, PathBuf)>, ImportError> {
    let mut found = Vec::new();
    for (name, place, kind) in entries(folder)? {
        if kind.is_dir() && LinkedFiles::All.has(&name) {
            let mut below = vec![(String::new(), place)];
            while let Some((path, place)) = below.pop() {
                for (part, place, kind) in entries(&place)? {
                    let path = if path.is_empty() { part } else { format!("{path}/{part}") };
                    match LinkedFiles::All.has(&path) {
                        true if kind.is_dir() => below.push((path, place)),
                        true if kind.is_file() => found.push((name.clone(), path, place)),
                        _ => {}
                    }
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Entries of a folder whose names are text.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf, std::fs::FileType)>, ImportError> {
    let failed = |error| ImportError::Files { path: folder.to_owned(), error };
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string() {
            entries.push((name, entry.path(), entry.file_type().map_err(failed)?));
        }
    }
    Ok(entries)
}
