//! Output of a session outside of runs. It must be read all the time, or a background thread would
//! block on a full pipe, and its size is limited.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::sync::lock;

/// Most bytes kept; the oldest are dropped first.
const LOG_BYTES_MAX: usize = 256 * 1024;
/// Most pipes of finished runs that are still read because a process holds them open.
const OLD_PIPES_MAX: usize = 32;
/// Pause after each full buffer: a flood costs the server little, and its writer a lot.
const FLOOD_PAUSE: Duration = Duration::from_millis(2);
/// Initial buffer size; most logs are empty or short.
const FIRST_READ_BYTES: usize = 4 * 1024;
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Log {
    kept: Arc<Mutex<VecDeque<u8>>>,
    old_pipes: Arc<AtomicUsize>,
}

impl Log {
    pub(crate) fn new(pipe: pipe::Receiver) -> Self {
        let log = Self { kept: Arc::default(), old_pipes: Arc::default() };
        tokio::spawn(follow(pipe, Arc::clone(&log.kept)));
        log
    }

    /// Takes over the pipe of a finished run that is still open for writing.
    pub(crate) fn adopt(&self, pipe: pipe::Receiver) {
        let counter = Arc::clone(&self.old_pipes);
        if counter.fetch_add(1, Ordering::Relaxed) >= OLD_PIPES_MAX {
            // Processes that write to it get a broken pipe.
            counter.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let kept = Arc::clone(&self.kept);
        tokio::spawn(async move {
            follow(pipe, kept).await;
            counter.fetch_sub(1, Ordering::Relaxed);
        });
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        let mut kept = lock(&self.kept);
        std::mem::take(&mut *kept).into()
    }
}

async fn follow(mut pipe: pipe::Receiver, kept: Arc<Mutex<VecDeque<u8>>>) {
    let mut buffer = vec![0; FIRST_READ_BYTES];
    loop {
        let length = match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        {
            let mut kept = lock(&kept);
            kept.extend(buffer.get(..length).unwrap_or_default());
            let excess = kept.len().saturating_sub(LOG_BYTES_MAX);
            kept.drain(..excess);
        }
        if length == buffer.len() {
            buffer.resize(READ_BYTES, 0);
            tokio::time::sleep(FLOOD_PAUSE).await;
        }
    }
}
