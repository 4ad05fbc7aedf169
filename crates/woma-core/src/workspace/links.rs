//! Addresses of files: a version that is kept, whatever becomes of the session that made it. Who
//! knows one may download.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::pin::Pin;

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _, once, try_unfold};
use jiff::Timestamp;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::files::{OpenedFile, STORED_LOOKED_AT};
use crate::error::Error;
use crate::model::caller::Caller;
use crate::model::{SessionId, StoredFile};
use crate::storage::blobs::{Blob, BlobStream};
use crate::storage::db::FileRow;
use crate::workspace::Workspaces;

/// Bytes of a file that are read at once.
const PIECE_BYTES: u64 = 256 * 1024;

/// Something to be sent, from any of its bytes on.
pub enum Content {
    File(File),
    Blob(Blob),
    Bytes(Bytes),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Content")
    }
}

/// A picture by its name.
#[derive(Debug)]
pub struct Chart {
    pub name: String,
    pub media_type: String,
    pub size_bytes: u64,
    pub digest: String,
    pub content: Content,
}

impl From<Downloaded> for Chart {
    fn from(downloaded: Downloaded) -> Self {
        let Downloaded { file, digest, content, .. } = downloaded;
        let (name, media_type, size_bytes) = (file.name, file.media_type, file.size_bytes);
        Self { name, media_type, size_bytes, digest, content }
    }
}

/// A file that was asked for by its address.
#[derive(Debug)]
pub struct Downloaded {
    pub file: StoredFile,
    pub digest: String,
    pub created_at: Timestamp,
    pub content: Content,
}

impl Content {
    /// `length` bytes from `start` on, in pieces. What has become shorter ends in an error.
    pub fn pieces(
        self,
        start: u64,
        length: u64,
    ) -> Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>> {
        match self {
            Self::File(file) => Box::pin(file_pieces(file, start, length)),
            Self::Blob(blob) => {
                let (stream, skip) = blob.stream_from(start);
                Box::pin(stream_pieces(stream, skip, length))
            }
            Self::Bytes(bytes) => {
                let bound = |number| usize::try_from(number).unwrap_or(usize::MAX).min(bytes.len());
                let part = bytes.slice(bound(start)..bound(start.saturating_add(length)));
                Box::pin(once(async { Ok(part) }))
            }
        }
    }
}

/// The next piece is read while the last one is sent.
fn file_pieces(
    file: File,
    start: u64,
    length: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let first = (length > 0).then(|| read_piece(file, Some(start), length));
    try_unfold((first, length), |(reading, left)| async move {
        let Some(reading) = reading else { return Ok(None) };
        let (piece, file) = reading.await.map_err(io::Error::other)??;
        if piece.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let left = left.saturating_sub(piece.len() as u64);
        let next = (left > 0).then(|| read_piece(file, None, left));
        Ok(Some((Bytes::from(piece), (next, left))))
    })
}

fn read_piece(
    mut file: File,
    start: Option<u64>,
    left: u64,
) -> JoinHandle<io::Result<(Vec<u8>, File)>> {
    tokio::task::spawn_blocking(move || {
        if let Some(start) = start {
            file.seek(SeekFrom::Start(start))?;
        }
        let wanted = left.min(PIECE_BYTES);
        let mut piece = Vec::with_capacity(usize::try_from(wanted).unwrap_or(0));
        (&file).take(wanted).read_to_end(&mut piece)?;
        Ok((piece, file))
    })
}

fn stream_pieces(
    stream: BlobStream,
    skip: u64,
    length: u64,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    try_unfold((stream, skip, length), |(mut stream, mut skip, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        loop {
            let Some(piece) = stream.next().await else {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            };
            let mut piece = piece.map_err(io::Error::other)?;
            let length = piece.len() as u64;
            if skip >= length {
                skip -= length;
                continue;
            }
            piece = piece.slice(usize::try_from(skip).unwrap_or(0)..);
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - piece.len() as u64;
            return Ok(Some((piece, (stream, 0, left))));
        }
    })
}

impl Workspaces {
    /// Stores a file as it is now, and gives it an address. A file that is stored already keeps its
    /// address, unless that expires soon.
    pub(crate) async fn make_address(
        &self,
        caller: &Caller,
        session: &SessionId,
        opened: OpenedFile,
    ) -> Result<StoredFile, Error> {
        if opened.size_bytes > self.storage.settings.file_bytes_max {
            return Err(Error::FileTooLarge);
        }
        let limit = self.storage_of(caller);
        let grant = Box::pin(self.grant(&caller.id, limit, opened.size_bytes)).await?;
        let (stored, is_new) = self.address(caller, session, opened).await?;
        if let Some(grant) = grant.filter(|_| is_new) {
            grant.stored();
        }
        Ok(stored)
    }

    /// A stored file by its address; `owner` where addresses are for their owners only.
    pub(crate) async fn download(
        &self,
        id: &str,
        owner: Option<&Caller>,
    ) -> Result<Downloaded, Error> {
        let shown = || id.chars().take(64).collect::<String>();
        let parsed: Uuid = id.parse().map_err(|_| Error::BadFileId(shown()))?;
        let row = self.storage.db.file(parsed).await?;
        let row = row.filter(|row| owner.is_none_or(|owner| owner.id.as_str() == row.owner));
        let row = row.ok_or_else(|| Error::NoDownload(shown()))?;
        if has_expired(&row, Timestamp::now()) {
            return Err(Error::Expired);
        }
        self.content(row).await
    }

    /// The latest stored file of that name that a session has made.
    pub(crate) async fn stored_chart(
        &self,
        caller: &Caller,
        session: &SessionId,
        name: &str,
    ) -> Result<Option<Chart>, Error> {
        let (db, owner, now) = (&self.storage.db, caller.id.as_str(), Timestamp::now());
        let mut found = db.latest_chart(owner, session.as_str(), name).await?;
        if found.as_ref().is_none_or(|row| has_expired(row, now)) {
            let rows = db.files(owner, Some(session.as_str()), STORED_LOOKED_AT).await?;
            found = rows.into_iter().find(|row| row.name == name && !has_expired(row, now));
        }
        match found {
            Some(row) => Ok(Some(self.content(row).await?.into())),
            None => Ok(None),
        }
    }

    async fn content(&self, row: FileRow) -> Result<Downloaded, Error> {
        let content = match self.storage.blobs.open_file(row.digest).await? {
            Some(file) => Content::File(file),
            None => Content::Blob(self.storage.blobs.get(row.digest).await?),
        };
        let (digest, created_at) = (row.digest.to_string(), row.created_at);
        Ok(Downloaded { digest, created_at, content, file: row.into() })
    }

    /// Stored versions of a session's files, the latest first, with the time of storing.
    pub(super) async fn stored_in(
        &self,
        caller: &Caller,
        session: &SessionId,
    ) -> Result<Vec<(StoredFile, Timestamp)>, Error> {
        let (owner, now) = (caller.id.as_str(), Timestamp::now());
        let rows = self.storage.db.files(owner, Some(session.as_str()), STORED_LOOKED_AT).await?;
        let rows = rows.into_iter().filter(|row| !has_expired(row, now));
        Ok(rows.map(|row| (row.created_at, row)).map(|(at, row)| (row.into(), at)).collect())
    }

    async fn address(
        &self,
        caller: &Caller,
        session: &SessionId,
        opened: OpenedFile,
    ) -> Result<(StoredFile, bool), Error> {
        let OpenedFile { file, path, name, media_type, size_bytes, .. } = opened;
        // Growth since it was opened is not part of the grant.
        let (digest, size_bytes) =
            self.storage.blobs.put_reader(file.take(size_bytes), size_bytes).await?;
        let now = Timestamp::now();
        let rows =
            self.storage.db.files(caller.id.as_str(), Some(session.as_str()), STORED_LOOKED_AT);
        let latest = rows.await?.into_iter().find(|row| row.path == path);
        if let Some(row) = latest.filter(|row| row.digest == digest && self.is_young(row, now)) {
            return Ok((row.into(), false));
        }
        let row = FileRow {
            id: Uuid::new_v4(),
            owner: caller.id.as_str().to_owned(),
            session_id: Some(session.as_str().to_owned()),
            path,
            name,
            digest,
            size_bytes,
            media_type: media_type.to_owned(),
            created_at: now,
            expires_at: self.storage.expiry(now),
            downloads: 0,
            is_chart: false,
        };
        self.storage.db.put_file(&row).await?;
        Ok((row.into(), true))
    }

    /// More than half of its time is left.
    fn is_young(&self, row: &FileRow, now: Timestamp) -> bool {
        match (row.expires_at, self.storage.settings.file_ttl) {
            (Some(end), Some(ttl)) => now.checked_add(ttl / 2).is_ok_and(|later| later < end),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }
}

/// Of `chart_007.png`, 7.
pub(crate) fn shown_number(name: &str) -> Option<usize> {
    let (number, _) = name.strip_prefix("chart_")?.split_once('.')?;
    number.parse().ok()
}

fn has_expired(row: &FileRow, now: Timestamp) -> bool {
    row.expires_at.is_some_and(|end| end <= now)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write as _};

    use bytes::Bytes;
    use futures_util::TryStreamExt as _;
    use futures_util::stream::iter;

    use super::{Blob, Content, PIECE_BYTES, shown_number};

    async fn read(content: Content, start: u64, length: u64) -> Result<Vec<u8>, ErrorKind> {
        let pieces: Vec<Bytes> =
            content.pieces(start, length).try_collect().await.map_err(|error| error.kind())?;
        Ok(pieces.concat())
    }

    /// The same content in every form that it may have.
    fn forms(bytes: &[u8]) -> [Content; 3] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let size_bytes = bytes.len() as u64;
        let pieces: Vec<_> =
            bytes.chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let bytes = Bytes::copy_from_slice(bytes);
        let blob = Blob::new(size_bytes, Box::pin(iter(pieces)));
        [Content::File(file), Content::Blob(blob), Content::Bytes(bytes)]
    }

    #[tokio::test]
    async fn any_part_can_be_read_of_any_content() {
        let all: Vec<u8> = (0..100).collect();
        for (start, length) in [(0, 100), (0, 0), (0, 1), (99, 1), (6, 2), (7, 7), (13, 50)] {
            let expected = &all[start..start + length];
            for content in forms(&all) {
                let got = read(content, start as u64, length as u64).await.unwrap();
                assert_eq!(got, expected, "{length} from {start}");
            }
        }
    }

    #[tokio::test]
    async fn what_has_become_shorter_is_an_error_and_not_an_end() {
        let [file, stream, _] = forms(b"short");
        assert_eq!(read(file, 0, PIECE_BYTES * 2).await, Err(ErrorKind::UnexpectedEof));
        assert_eq!(read(stream, 3, 100).await, Err(ErrorKind::UnexpectedEof));
    }

    #[test]
    fn names_of_shown_charts_have_numbers() {
        for (name, number) in [
            ("chart_001.png", Some(1)),
            ("chart_12.svg", Some(12)),
            ("chart_.png", None),
            ("chart_1", None),
            ("mine.png", None),
        ] {
            assert_eq!(shown_number(name), number, "{name}");
        }
    }
}
