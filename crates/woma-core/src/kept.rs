//! The latest outputs, whole, for those who got the short form: in memory, within a budget of bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::caller::CallerId;
use crate::lock::lock;
use crate::model::{Execution, ExecutionId, Picture, SessionId};

/// Most executions that are remembered, however small.
const COUNT_MAX: usize = 10_000;
/// What an entry costs besides its texts, about.
const ENTRY_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct Kept {
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: BTreeMap<Arc<str>, Arc<Entry>>,
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

/// One execution's output.
#[derive(Debug)]
pub(crate) struct Entry {
    owner: CallerId,
    session: Option<SessionId>,
    pub(crate) id: ExecutionId,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) traceback: String,
    pub(crate) result: String,
    pub(crate) pictures: Vec<Picture>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let pictures: usize = self.pictures.iter().map(|picture| picture.bytes.len()).sum();
        let texts = [&self.stdout, &self.stderr, &self.traceback, &self.result];
        ENTRY_BYTES + pictures + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

impl Kept {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, inner: Mutex::default() }
    }

    pub(crate) fn keep(&self, owner: &CallerId, execution: &Execution) {
        let mut entry = entry(owner, execution);
        // What is larger than everything that is kept would push all else out, and go next.
        if entry.bytes() > self.bytes_max {
            entry.pictures.clear();
        }
        let bytes = entry.bytes();
        if bytes > self.bytes_max {
            return;
        }
        let key: Arc<str> = execution.id.as_str().into();
        let mut gone = Vec::new();
        let mut inner = self.lock();
        inner.entries.insert(Arc::clone(&key), Arc::new(entry));
        inner.order.push_back(key);
        inner.bytes += bytes;
        while inner.bytes > self.bytes_max || inner.order.len() > COUNT_MAX {
            let Some(oldest) = inner.order.pop_front() else { break };
            if let Some(entry) = inner.entries.remove(&oldest) {
                inner.bytes = inner.bytes.saturating_sub(entry.bytes());
                gone.push(entry);
            }
        }
        drop(inner);
        // Freed here, where nobody waits for the lock.
        drop(gone);
    }

    pub(crate) fn find(&self, owner: &CallerId, id: &str) -> Option<Arc<Entry>> {
        let inner = self.lock();
        inner.entries.get(id).filter(|entry| entry.owner == *owner).cloned()
    }

    /// The latest picture of a session that has this number in its run, counted from 1.
    pub(crate) fn latest_picture(
        &self,
        owner: &CallerId,
        session: &SessionId,
        number: usize,
    ) -> Option<Picture> {
        let inner = self.lock();
        let latest = inner.order.iter().rev().filter_map(|id| inner.entries.get(id));
        let mut mine = latest.filter(|e| e.owner == *owner && e.session.as_ref() == Some(session));
        mine.find_map(|entry| entry.pictures.get(number.checked_sub(1)?).cloned())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

fn entry(owner: &CallerId, execution: &Execution) -> Entry {
    let pictures = execution.displays.iter().flat_map(|shown| &shown.pictures);
    Entry {
        owner: owner.clone(),
        session: execution.session.clone(),
        id: execution.id.clone(),
        // Models are shown both as one text, and read on in it.
        stdout: execution.stdout_and_displays(),
        stderr: execution.stderr.clone(),
        traceback: execution.error.as_ref().map(|e| e.traceback.join("\n")).unwrap_or_default(),
        result: execution.result.as_ref().map(|result| result.text.clone()).unwrap_or_default(),
        pictures: pictures.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Kept;
    use crate::caller::CallerId;
    use crate::model::{Execution, ExecutionId};
    use crate::record::Record;

    fn execution(stdout: String) -> Execution {
        let exit = woma_sandbox::Exit::never_started("a test");
        let ended = Record::default().close(ExecutionId::mint(), exit, Duration::ZERO, true);
        Execution { stdout, ..ended }
    }

    #[test]
    fn the_oldest_goes_when_the_budget_is_spent_and_nobody_reads_what_is_not_theirs() {
        let kept = Kept::new(10_000);
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let first = execution("x".repeat(4_000));
        let second = execution("y".repeat(4_000));
        kept.keep(&alice, &first);
        kept.keep(&alice, &second);
        assert!(kept.find(&alice, first.id.as_str()).is_some());
        assert!(kept.find(&bob, first.id.as_str()).is_none());
        kept.keep(&bob, &execution("z".repeat(4_000)));
        assert!(kept.find(&alice, first.id.as_str()).is_none(), "the oldest is gone");
        assert!(kept.find(&alice, second.id.as_str()).is_some());
        let giant = execution("g".repeat(20_000));
        kept.keep(&bob, &giant);
        assert!(kept.find(&bob, giant.id.as_str()).is_none(), "more than there is room for");
        assert!(kept.find(&alice, second.id.as_str()).is_some(), "and nobody else paid for it");
    }
}
