//! Pools of the entry points that callers share: connections, requests, memory of bodies, long
//! messages and pictures. Decides how large each is; `woma_core::shares` decides who is next.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use woma_core::shares::{Closed, Permit, PoolUse, Shares, most_of};
use woma_core::{CallerId, Code};

use super::error::Envelope;

/// Bytes of a body that need no part of the memory for bodies.
pub(crate) const BODY_FREE_BYTES: usize = 64 * 1024;
/// Memory is reserved in blocks of this size, as bytes arrive.
pub(crate) const BODY_BLOCK_BYTES: usize = 64 * 1024;
/// Memory of all bodies in flight: so many of the longest, within this limit.
const BODIES_IN_MEMORY: usize = 4;
const BODY_MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bodies that may be finished when the memory is used up: those that hold it wait for each other
/// otherwise. One caller has one of them.
const BODIES_BEYOND: usize = 2;
/// How long a body waits for memory.
const BODY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Long JSON-RPC messages that are inspected at the same time.
const INSPECTED_MAX: usize = 2;
/// Pictures that are scaled at the same time; each may take 128 MiB.
const PICTURES_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct Pools {
    /// By client address: nobody knows yet who the caller is.
    pub(crate) connections: Arc<Shares<IpAddr>>,
    /// By caller; as many as one address may have connections, so that the callers behind one
    /// proxy share what the proxy has.
    pub(crate) requests: Arc<Shares>,
    body_blocks: Arc<Shares>,
    bodies_beyond: Arc<Shares>,
    body_wait_max: Duration,
    pub(crate) inspected: Arc<Shares>,
    pub(crate) pictures: Arc<Shares>,
}

impl Pools {
    pub(crate) fn new(connections_max: usize, body_bytes_max: usize) -> Self {
        let body_memory = body_bytes_max.saturating_mul(BODIES_IN_MEMORY);
        let body_memory = body_memory.min(BODY_MEMORY_BYTES_MAX).max(body_bytes_max);
        Self {
            connections: Arc::new(Shares::new(connections_max)),
            requests: Arc::new(Shares::new(most_of(connections_max))),
            body_blocks: Arc::new(Shares::new(body_memory.div_ceil(BODY_BLOCK_BYTES))),
            bodies_beyond: Arc::new(Shares::new(BODIES_BEYOND)),
            body_wait_max: BODY_WAIT_MAX,
            inspected: Arc::new(Shares::new(INSPECTED_MAX)),
            pictures: Arc::new(Shares::new(PICTURES_MAX)),
        }
    }

    /// How full each of them is, by name.
    pub(crate) fn usage(&self) -> [(&'static str, PoolUse); 6] {
        [
            ("connections", self.connections.usage()),
            ("requests", self.requests.usage()),
            ("body_memory", self.body_blocks.usage()),
            ("bodies_beyond_memory", self.bodies_beyond.usage()),
            ("inspected_messages", self.inspected.usage()),
            ("scaled_pictures", self.pictures.usage()),
        ]
    }
}

/// Memory that a body has, growing with it.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    pools: Arc<Pools>,
    caller: CallerId,
    blocks: Vec<Permit>,
    /// The right to be finished whatever is left.
    beyond: Option<Permit>,
}

impl BodyMemory {
    pub(crate) fn new(pools: Arc<Pools>, caller: CallerId) -> Self {
        Self { pools, caller, blocks: Vec::new(), beyond: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.beyond.is_none()
    }

    /// Memory for a body of so many bytes in all; waits until it is this caller's turn.
    pub(crate) async fn hold(&mut self, bytes: usize) -> Result<(), Envelope> {
        let wanted = bytes.saturating_sub(BODY_FREE_BYTES).div_ceil(BODY_BLOCK_BYTES);
        while self.blocks.len() < wanted && self.beyond.is_none() {
            match self.pools.body_blocks.take(&self.caller) {
                Some(block) => self.blocks.push(block),
                None => self.wait().await?,
            }
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), Envelope> {
        let pools = Arc::clone(&self.pools);
        let next = async {
            tokio::select! {
                biased;
                block = pools.body_blocks.acquire(&self.caller) => self.blocks.push(block?),
                beyond = pools.bodies_beyond.acquire(&self.caller) => self.beyond = Some(beyond?),
            }
            Ok::<_, Closed>(())
        };
        match timeout(pools.body_wait_max, next).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Closed)) => Err(woma_core::Error::from(Closed).into()),
            Err(_) => {
                let most = self.pools.body_blocks.most(&self.caller);
                let mebibytes = most * BODY_BLOCK_BYTES / (1024 * 1024);
                let text = format!(
                    "the memory for request bodies is in use: one caller may have {mebibytes} MiB"
                );
                Err(Envelope::new(Code::Busy, text)
                    .with_hint("try again when other requests are done, or send smaller bodies"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use woma_core::CallerId;

    use super::{BODY_BLOCK_BYTES, BODY_FREE_BYTES, BodyMemory, Pools};

    const MIB: usize = 1024 * 1024;

    fn memory(pools: &Arc<Pools>, caller: &str) -> BodyMemory {
        BodyMemory::new(Arc::clone(pools), CallerId::new(caller))
    }

    async fn is_pending<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
        let poll = |context: &mut Context<'_>| Poll::Ready(future.as_mut().poll(context));
        poll_fn(poll).await.is_pending()
    }

    #[tokio::test]
    async fn memory_is_reserved_as_bytes_arrive_and_given_back() {
        let pools = Arc::new(Pools::new(16, 64 * MIB));
        let mut body = memory(&pools, "alice");
        let taken = || pools.body_blocks.taken();
        for (bytes, blocks) in [
            (0, 0),
            (BODY_FREE_BYTES, 0),
            (BODY_FREE_BYTES + 1, 1),
            (BODY_FREE_BYTES + BODY_BLOCK_BYTES, 1),
            (BODY_FREE_BYTES + BODY_BLOCK_BYTES + 1, 2),
            (MIB, 15),
        ] {
            body.hold(bytes).await.unwrap();
            assert_eq!((taken(), body.is_empty()), (blocks, blocks == 0), "{bytes}");
        }
        drop(body);
        assert_eq!(taken(), 0);
    }

    #[tokio::test]
    async fn memory_full_of_one_callers_bodies_does_not_stop_anothers() {
        let pools = Arc::new(Pools::new(16, 64 * MIB));
        // Seven bodies of 32 MiB are all that one caller may have in memory.
        let mut hers = Vec::new();
        for _ in 0..7 {
            let mut body = memory(&pools, "alice");
            body.hold(32 * MIB + BODY_FREE_BYTES).await.unwrap();
            hers.push(body);
        }
        // The next one is finished beyond that, and further ones wait for it.
        let mut beyond = memory(&pools, "alice");
        beyond.hold(64 * MIB).await.unwrap();
        assert!(beyond.beyond.is_some() && beyond.blocks.is_empty());
        let mut waiting = memory(&pools, "alice");
        let mut wait = Box::pin(waiting.hold(MIB));
        assert!(is_pending(wait.as_mut()).await);
        // Another caller's body has all that it needs, at once.
        let mut his = memory(&pools, "bob");
        his.hold(32 * MIB).await.unwrap();
        assert!(his.beyond.is_none());
        his.hold(64 * MIB).await.unwrap();
        assert!(his.beyond.is_some(), "and is finished though the memory is used up");
        assert!(is_pending(wait.as_mut()).await);
        hers.pop();
        wait.await.unwrap();
        drop((hers, beyond, his, waiting));
        assert!(pools.usage().iter().all(|(_, pool)| pool.taken == 0 && pool.waiting == 0));
    }

    #[tokio::test]
    async fn bodies_that_hold_all_memory_finish_one_after_the_other() {
        let pools = Arc::new(Pools::new(16, 64 * MIB));
        // Each has its part of the memory, and wants more than is left.
        let mut bodies = Vec::new();
        for _ in 0..8 {
            let mut body = memory(&pools, "alice");
            body.hold(28 * MIB + BODY_FREE_BYTES).await.unwrap();
            bodies.push(body);
        }
        let whole = bodies.into_iter().map(|mut body| async move {
            body.hold(64 * MIB).await.unwrap();
        });
        futures_util::future::join_all(whole).await;
        assert_eq!(pools.body_blocks.taken() + pools.bodies_beyond.taken(), 0);
    }
    #[tokio::test]
    async fn a_body_that_waits_too_long_for_memory_is_refused() {
        let pools = Pools { body_wait_max: Duration::from_millis(20), ..Pools::new(16, MIB) };
        let pools = Arc::new(pools);
        let mut hers = Vec::new();
        for _ in 0..4 {
            let mut body = memory(&pools, "alice");
            body.hold(14 * BODY_BLOCK_BYTES + BODY_FREE_BYTES).await.unwrap();
            hers.push(body);
        }
        let mut beyond = memory(&pools, "alice");
        beyond.hold(MIB).await.unwrap();
        let refused = memory(&pools, "alice").hold(MIB).await.unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.code), (503, "busy"));
        assert!(refused.message.contains("one caller may have 3 MiB"), "{}", refused.message);
        assert!(refused.retry_after.is_some() && refused.hint.is_some());
        // Nothing is left of it, and it succeeds when there is memory again.
        drop(hers);
        assert_eq!((pools.body_blocks.taken(), pools.body_blocks.usage().waiting), (0, 0));
        memory(&pools, "alice").hold(MIB).await.unwrap();
    }
}
