//! The latest outputs, whole, for those who got the short form: in memory, within a budget of bytes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::middle::{Middle, Middles};
use super::record::Gaps;
use crate::model::caller::CallerId;
use crate::model::{Execution, ExecutionId, Picture, SessionId};
use crate::text::OutputStream;
use woma_sandbox::sync::lock;

/// Most executions that are remembered, however small.
const COUNT_MAX: usize = 10_000;
/// Executions of a session whose whole output is kept; of earlier ones, beginning and end are.
const SPILLED_MAX: usize = 8;
/// Approximate cost of an entry besides its texts.
const ENTRY_BYTES: usize = 256;

#[derive(Debug)]
pub(crate) struct OutputCache {
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
    pub(crate) late: String,
    pub(crate) pictures: Vec<Picture>,
    gaps: Gaps,
    /// Taken away before the entry itself, if its session has too much.
    middles: Mutex<Middles>,
}

/// Output of a run beyond what its texts have.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) middles: Middles,
    pub(crate) gaps: Gaps,
}

impl Entry {
    /// Middle of a stream, if it is there, and the place of the text that stands for it.
    pub(crate) fn middle(&self, stream: OutputStream) -> Option<(Arc<Middle>, Range<usize>)> {
        let middles = lock(&self.middles);
        match stream {
            OutputStream::Stdout => middles.stdout.clone().zip(self.gaps.stdout.clone()),
            OutputStream::Stderr => middles.stderr.clone().zip(self.gaps.stderr.clone()),
            OutputStream::Traceback | OutputStream::Result | OutputStream::Late => None,
        }
    }

    fn is_spilled(&self) -> bool {
        !lock(&self.middles).is_empty()
    }

    fn spilled_bytes(&self) -> u64 {
        lock(&self.middles).bytes()
    }

    fn bytes(&self) -> usize {
        let pictures: usize = self.pictures.iter().map(|picture| picture.bytes.len()).sum();
        let texts = [&self.stdout, &self.stderr, &self.traceback, &self.result, &self.late];
        ENTRY_BYTES + pictures + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

impl OutputCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, inner: Mutex::default() }
    }

    pub(crate) fn keep(&self, owner: &CallerId, execution: &Execution, whole: Whole) {
        let spilled_max = (!whole.middles.is_empty()).then_some(whole.middles.bytes_max);
        let mut entry = entry(owner, execution, whole);
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
        // Freed here, after the lock is released.
        drop(gone);
        if let Some(bytes_max) = spilled_max {
            self.bound_spilled(owner, execution.session.as_ref(), bytes_max);
        }
    }

    /// Removes the whole outputs of a session's earlier runs beyond their number and bytes.
    fn bound_spilled(&self, owner: &CallerId, session: Option<&SessionId>, bytes_max: u64) {
        let (mut count, mut bytes) = (0, 0);
        for entry in self.spilled(owner, session) {
            count += 1;
            // The latest run has a limit of its own.
            bytes += if count > 1 { entry.spilled_bytes() } else { 0 };
            if count > SPILLED_MAX || bytes > bytes_max {
                drop(std::mem::take(&mut *lock(&entry.middles)));
            }
        }
    }

    /// Removes the whole outputs of a session that ends.
    pub(crate) fn remove_spilled(&self, owner: &CallerId, session: &SessionId) {
        for entry in self.spilled(owner, Some(session)) {
            drop(std::mem::take(&mut *lock(&entry.middles)));
        }
    }

    /// Executions of a session that have a whole output, the latest first.
    fn spilled(&self, owner: &CallerId, session: Option<&SessionId>) -> Vec<Arc<Entry>> {
        let inner = self.lock();
        let latest = inner.order.iter().rev().filter_map(|id| inner.entries.get(id));
        let mine = latest.filter(|e| e.owner == *owner && e.session.as_ref() == session);
        mine.filter(|entry| entry.is_spilled()).cloned().collect()
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

/// The place of a gap in standard output with displays, which only move it towards the end.
fn composed_gap(execution: &Execution, composed: &str, gap: &Range<usize>) -> Option<Range<usize>> {
    let line = execution.stdout.get(gap.clone())?;
    let mut places = composed.match_indices(line).map(|(start, _)| start);
    let start = places.find(|start| *start >= gap.start)?;
    Some(start..start + line.len())
}

fn entry(owner: &CallerId, execution: &Execution, whole: Whole) -> Entry {
    let Whole { middles, mut gaps } = whole;
    // Models are shown both as one text, and read on in it.
    let stdout = execution.stdout_and_displays();
    gaps.stdout = gaps.stdout.and_then(|gap| composed_gap(execution, &stdout, &gap));
    let pictures = execution.displays.iter().flat_map(|shown| &shown.pictures);
    Entry {
        owner: owner.clone(),
        session: execution.session.clone(),
        id: execution.id.clone(),
        stdout,
        stderr: execution.stderr.clone(),
        traceback: execution.error.as_ref().map(|e| e.traceback.join("\n")).unwrap_or_default(),
        result: execution.result.as_ref().map(|result| result.text.clone()).unwrap_or_default(),
        late: execution.late_output.clone(),
        pictures: pictures.cloned().collect(),
        gaps,
        middles: Mutex::new(middles),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use woma_sandbox::protocol::Role;

    use super::{COUNT_MAX, ENTRY_BYTES, OutputCache, SPILLED_MAX, Whole};
    use crate::execution::middle::{Middle, Middles};
    use crate::execution::record::{Gaps, Record};
    use crate::model::caller::CallerId;
    use crate::model::{Execution, ExecutionId, Picture, SessionId, Shown};

    fn shown(bytes: usize) -> Shown {
        let picture = Picture { media_type: "image/png".to_owned(), bytes: vec![7; bytes].into() };
        let (role, data, pictures) = (Role::Display, BTreeMap::new(), vec![picture]);
        Shown { role, id: None, data, metadata: None, pictures }
    }

    fn execution(stdout: String) -> Execution {
        let exit = woma_sandbox::Exit::never_started("a test");
        let ended = Record::default().close(ExecutionId::mint(), exit, Duration::ZERO, true);
        Execution { stdout, ..ended }
    }

    #[test]
    fn the_oldest_goes_when_the_budget_is_spent_and_nobody_reads_what_is_not_theirs() {
        let kept = OutputCache::new(10_000);
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let first = execution("x".repeat(4_000));
        let second = execution("y".repeat(4_000));
        kept.keep(&alice, &first, Whole::default());
        kept.keep(&alice, &second, Whole::default());
        assert!(kept.find(&alice, first.id.as_str()).is_some());
        assert!(kept.find(&bob, first.id.as_str()).is_none());
        kept.keep(&bob, &execution("z".repeat(4_000)), Whole::default());
        assert!(kept.find(&alice, first.id.as_str()).is_none(), "the oldest is gone");
        assert!(kept.find(&alice, second.id.as_str()).is_some());
        let giant = execution("g".repeat(20_000));
        kept.keep(&bob, &giant, Whole::default());
        assert!(kept.find(&bob, giant.id.as_str()).is_none(), "more than there is room for");
        assert!(kept.find(&alice, second.id.as_str()).is_some(), "and nobody else paid for it");
    }
    #[test]
    fn an_entry_costs_its_texts_its_pictures_and_its_frame() {
        let alice = CallerId::new("alice");
        let mut ran = execution("out".to_owned());
        ran.stderr = "errors".to_owned();
        ran.displays = vec![shown(100), shown(20)];
        let bytes = ENTRY_BYTES + 120 + "out".len() + "errors".len();
        let kept = OutputCache::new(bytes);
        kept.keep(&alice, &ran, Whole::default());
        assert_eq!(kept.lock().bytes, bytes);
        assert_eq!(kept.find(&alice, ran.id.as_str()).unwrap().pictures.len(), 2);
        // One byte less, and the texts are kept without the pictures.
        let kept = OutputCache::new(bytes - 1);
        kept.keep(&alice, &ran, Whole::default());
        assert_eq!(kept.lock().bytes, bytes - 120);
        let found = kept.find(&alice, ran.id.as_str()).unwrap();
        assert_eq!((found.stderr.as_str(), found.pictures.len()), ("errors", 0));
        // As many bytes as the texts have are enough for them.
        let kept = OutputCache::new(bytes - 120);
        kept.keep(&alice, &ran, Whole::default());
        assert!(kept.find(&alice, ran.id.as_str()).is_some());
        let kept = OutputCache::new(bytes - 121);
        kept.keep(&alice, &ran, Whole::default());
        assert!(kept.find(&alice, ran.id.as_str()).is_none());
    }

    #[test]
    fn entries_have_a_number_too() {
        let (kept, alice) = (OutputCache::new(usize::MAX), CallerId::new("alice"));
        let mut ran = execution(String::new());
        let ids: Vec<_> = (0..=COUNT_MAX).map(|_| ExecutionId::mint()).collect();
        for id in &ids {
            ran.id = id.clone();
            kept.keep(&alice, &ran, Whole::default());
        }
        assert_eq!(kept.lock().order.len(), 10_000);
        assert_eq!(kept.lock().bytes, 10_000 * ENTRY_BYTES);
        assert!(kept.find(&alice, ids[0].as_str()).is_none());
        assert!(kept.find(&alice, ids[1].as_str()).is_some());
    }

    #[test]
    fn the_latest_picture_is_of_the_owner_the_session_and_the_number() {
        let kept = OutputCache::new(100_000);
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let (here, there) = (SessionId::parse("here").unwrap(), SessionId::parse("there").unwrap());
        let keep = |owner: &CallerId, session: &SessionId, sizes: &[usize]| {
            let displays = sizes.iter().map(|bytes| shown(*bytes)).collect();
            let session = Some(session.clone());
            kept.keep(
                owner,
                &Execution { session, displays, ..execution(String::new()) },
                Whole::default(),
            );
        };
        keep(&alice, &here, &[1, 2]);
        keep(&alice, &here, &[3]);
        keep(&alice, &here, &[]);
        keep(&alice, &there, &[4, 5]);
        keep(&bob, &here, &[6]);
        let latest = |owner: &CallerId, session: &SessionId, number: usize| {
            kept.latest_picture(owner, session, number).map(|picture| picture.bytes.len())
        };
        assert_eq!(latest(&alice, &here, 1), Some(3));
        assert_eq!(latest(&alice, &here, 2), Some(2), "the latest run has one only");
        assert_eq!(latest(&alice, &there, 2), Some(5));
        assert_eq!(latest(&bob, &here, 1), Some(6));
        assert_eq!((latest(&bob, &there, 1), latest(&alice, &here, 0)), (None, None));
    }

    #[test]
    fn whole_outputs_are_bounded_by_session_and_go_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let kept = OutputCache::new(1 << 20);
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let (alice, bob) = (CallerId::new("alice"), CallerId::new("bob"));
        let session = SessionId::parse("s").unwrap();
        let keep = |owner: &CallerId, bytes_max: u64| {
            let ran = execution(String::new());
            let path = folder.path().join(ran.id.as_str());
            fs::write(&path, "abc").unwrap();
            let mut middle = Middle::new(path, None);
            middle.count(b"abc");
            let middles = Middles { stdout: Some(Arc::new(middle)), stderr: None, bytes_max };
            let ran = Execution { session: Some(session.clone()), ..ran };
            kept.keep(owner, &ran, Whole { middles, gaps: Gaps::default() });
        };
        keep(&bob, 100);
        for _ in 0..SPILLED_MAX + 2 {
            keep(&alice, 100);
        }
        assert_eq!(files(), 1 + SPILLED_MAX);
        // The latest, and two before it.
        keep(&alice, 6);
        assert_eq!(files(), 1 + 3);
        kept.remove_spilled(&alice, &session);
        assert_eq!(files(), 1, "another caller's session of that name has its own");
    }
}
