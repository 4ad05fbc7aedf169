//! A file on its way into a session's folder: bytes come as they like, and a thread that may wait
//! for the disk puts them into place.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::PollSender;
use woma_sandbox::workspace::{Folder, Reserve, WorkspacePath};

use super::allowance::WriteLimits;
use super::files::{Written, trouble};
use crate::error::Error;
use crate::workspace::Workspaces;
use crate::workspace::media;
use crate::workspace::quota::{Grant, StorageLimit};

/// Pieces that wait for the disk.
const PIECES_MAX: usize = 4;

/// How much may be written, and which limit that is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    bytes: u64,
    /// The limit that holds; `None` for that of a single file.
    of: Option<StorageLimit>,
}

impl Room {
    pub(super) fn of_file(bytes: u64) -> Self {
        Self { bytes, of: None }
    }

    /// As much as is left of a limit, if that is less.
    pub(super) fn narrow(&mut self, limit: StorageLimit, used_bytes: u64) {
        let left = limit.bytes.saturating_sub(used_bytes);
        if left < self.bytes {
            *self = Self { bytes: left, of: Some(limit) };
        }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Error> {
        let left = self.bytes.checked_sub(bytes as u64);
        self.bytes = left.ok_or(match self.of {
            Some(limit) => limit.refusal(),
            None => Error::FileTooLarge,
        })?;
        Ok(())
    }
}

enum Piece {
    Bytes(Bytes),
    /// Without this one nothing is stored: the sender of the others may have gone away.
    End,
}

/// Dropped, it leaves nothing.
pub(crate) struct Writing {
    pieces: PollSender<Piece>,
    end: JoinHandle<Result<Written, Error>>,
    /// Bytes sent so far.
    bytes: u64,
}

impl Writing {
    /// `held` is dropped when the file is written, or given up: a place among the writers, and what
    /// must not go meanwhile.
    pub(crate) fn begin(
        workspaces: &Workspaces,
        held: impl Send + 'static,
        folder: Arc<Folder>,
        path: WorkspacePath,
        room: Room,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(PIECES_MAX);
        let reserve = Arc::clone(&workspaces.storage.sessions_reserve);
        let end = tokio::task::spawn_blocking(move || {
            let written = write(&folder, &path, room, &reserve, receiver);
            drop(held);
            written
        });
        Self { pieces: PollSender::new(sender), end, bytes: 0 }
    }

    /// False once nothing more is taken; [`Self::finish`] says why.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> bool {
        let ready = std::future::poll_fn(|context| self.pieces.poll_reserve(context)).await;
        self.bytes += bytes.len() as u64;
        ready.is_ok() && self.pieces.send_item(Piece::Bytes(bytes)).is_ok()
    }

    /// That was all of it, if there is still room: others may have written meanwhile.
    pub(crate) async fn finish(mut self, limits: &WriteLimits) -> Result<Written, Error> {
        let grants = match Box::pin(limits.take(self.bytes)).await {
            Ok(grants) => grants,
            // The writing thread knows the reason better.
            Err(error) => return Err(self.reason().await.unwrap_or(error)),
        };
        let ready = std::future::poll_fn(|context| self.pieces.poll_reserve(context)).await;
        if ready.is_ok() && self.pieces.send_item(Piece::End).is_err() {
            tracing::debug!("a file was given up before its end");
        }
        self.pieces.close();
        let written = self.end.await.map_err(|_| Error::Lost)??;
        grants.into_iter().for_each(Grant::stored);
        Ok(written)
    }

    /// Why nothing more is taken, if it is so.
    pub(crate) async fn reason(self) -> Option<Error> {
        drop(self.pieces);
        match self.end.await {
            Ok(Err(Error::BrokenOff(_)) | Ok(_)) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(Error::Lost),
        }
    }
}

fn write(
    folder: &Folder,
    path: &WorkspacePath,
    mut room: Room,
    reserve: &Reserve,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Written, Error> {
    let failed = |error: io::Error| match error.kind() {
        // On the way to a new file, a name that is no folder is one that is taken.
        io::ErrorKind::NotADirectory => Error::InTheWay(path.to_string()),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull,
        _ => trouble(error, path),
    };
    if reserve.refuses(0) {
        return Err(Error::DiskReserve);
    }
    let replaced = folder.stat(path).is_ok();
    let mut draft = folder.create(path).map_err(failed)?;
    let mut size_bytes = 0;
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Bytes(bytes)) => {
                room.take(bytes.len())?;
                if reserve.refuses(bytes.len() as u64) {
                    return Err(Error::DiskReserve);
                }
                size_bytes += bytes.len() as u64;
                draft.write_all(&bytes).map_err(failed)?;
            }
            Some(Piece::End) => break,
            None => return Err(Error::BrokenOff("the sender has gone away".to_owned())),
        }
    }
    draft.commit().map_err(failed)?;
    let (name, media_type) = (path.name().to_owned(), media::of_name(path.name()));
    Ok(Written { path: path.to_string(), name, size_bytes, media_type, replaced })
}

impl AsyncWrite for Writing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.pieces.poll_reserve(context)).map_err(closed)?;
        let piece = Piece::Bytes(Bytes::copy_from_slice(bytes));
        self.pieces.send_item(piece).map_err(closed)?;
        self.bytes += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
