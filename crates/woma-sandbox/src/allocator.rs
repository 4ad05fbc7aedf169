//! Allocator settings: memory that hostile frames and long outputs needed once is returned to the
//! system.

use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(target_env = "gnu")]
use std::time::Duration;

#[cfg(target_env = "gnu")]
use crate::sys;

/// Number of arenas; additional threads share them.
#[cfg(target_env = "gnu")]
const ARENAS: i32 = 4;
/// Blocks of at least this size are returned to the system when freed.
#[cfg(target_env = "gnu")]
const OWN_BLOCK_BYTES: i32 = 256 * 1024;
/// Bytes that may stay free at the end of an arena.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 1024 * 1024;
/// Bytes received from cells after which freed pages are returned.
const TRIM_AFTER_BYTES: u64 = 16 * 1024 * 1024;

/// Delay after a run; its reply is sent by then.
#[cfg(target_env = "gnu")]
const TRIM_DELAY: Duration = Duration::from_secs(1);

static TAKEN_BYTES: AtomicU64 = AtomicU64::new(0);

/// Configures the allocator. Call it once, before there are threads.
pub fn bound() {
    #[cfg(target_env = "gnu")]
    sys::bound_allocator(ARENAS, OWN_BLOCK_BYTES, KEPT_BYTES);
}

/// Records bytes received from a cell in a finished run. From time to time this returns freed
/// pages, after the reply is sent. Needs the async runtime.
pub(crate) fn taken(bytes: u64) {
    let before = TAKEN_BYTES.fetch_add(bytes, Ordering::Relaxed);
    if before + bytes < TRIM_AFTER_BYTES {
        return;
    }
    TAKEN_BYTES.store(0, Ordering::Relaxed);
    #[cfg(target_env = "gnu")]
    tokio::spawn(async {
        tokio::time::sleep(TRIM_DELAY).await;
        give_back();
    });
}

/// Returns freed pages to the system. Needs the async runtime.
pub(crate) fn give_back() {
    // Cannot fail; not awaited.
    #[cfg(target_env = "gnu")]
    drop(tokio::task::spawn_blocking(sys::trim_allocator));
}
