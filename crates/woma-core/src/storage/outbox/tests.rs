//! Entries reach the database in order and once, also after a kill.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::journal::LineRef;
use super::{Ended, Entry, Outbox, WAITING_MAX};
use crate::storage::blobs::Digest;
use crate::storage::db::{
    AuditEntry, AuditFilter, CheckpointRow, Deletion, DeletionRow, ExecutionRow, ExecutionStatus,
    FileRow, SessionRow, Store, StoreConfig,
};

fn row(id: &str) -> ExecutionRow {
    ExecutionRow {
        id: id.to_owned(),
        owner: "me".to_owned(),
        session_id: None,
        server: "here".to_owned(),
        started_at: Timestamp::now(),
        ended_at: None,
        status: ExecutionStatus::Running,
        outcome: None,
        error_category: None,
        code_sha256: String::new(),
        code_text: None,
        wall_ms: None,
        cpu_ms: None,
        memory_peak_bytes: None,
        output_bytes: None,
        files_count: None,
        client: None,
    }
}

fn ended(id: &str) -> Ended {
    let now = Timestamp::now();
    let row = ExecutionRow {
        status: ExecutionStatus::Finished,
        ended_at: Some(now),
        outcome: Some("completed".to_owned()),
        ..row(id)
    };
    let entry = |action: &str| AuditEntry {
        at: now,
        owner: "me".to_owned(),
        action: action.to_owned(),
        session_id: None,
        execution_id: Some(id.to_owned()),
        detail: "{}".to_owned(),
    };
    Ended { row, audit: entry("execute"), events: vec![entry("security_event")] }
}

async fn store(folder: &tempfile::TempDir) -> Store {
    Store::open(StoreConfig::Sqlite { file: folder.path().join("a.db") }).await.unwrap()
}

async fn execution(store: &Store, id: &str) -> Option<ExecutionRow> {
    let rows = store.executions("me", None, 100, None).await.unwrap();
    rows.into_iter().find(|row| row.id == id)
}

#[tokio::test]
async fn delivers_ended_executions_and_empties_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    let outbox = Outbox::open(&path, store.clone()).unwrap();
    for id in ["a", "b"] {
        outbox.begin(&row(id)).unwrap();
        outbox.end(ended(id)).unwrap();
    }
    outbox.begin(&row("c")).unwrap();
    outbox.settle().await;
    let known = execution(&store, "a").await.unwrap();
    assert_eq!(known.status, ExecutionStatus::Finished);
    assert_eq!(execution(&store, "c").await, None);
    outbox.end(ended("c")).unwrap();
    outbox.settle().await;
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    let trail = store.audit(&AuditFilter::default(), 100).await.unwrap();
    assert_eq!(trail.len(), 6, "{trail:?}");
}

#[tokio::test]
async fn settle_waits_for_delivery_and_session_counters() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    let outbox = Outbox::open(&path, store.clone()).unwrap();
    for id in ["s", "t"] {
        outbox.push(session(id, 1)).unwrap();
    }
    for round in 0..3 {
        for (id, session) in [("a", "s"), ("b", "t"), ("c", "s")] {
            let mut ended = ended(&format!("{id}{round}"));
            ended.row.session_id = Some(session.to_owned());
            outbox.end(ended).unwrap();
        }
        outbox.settle().await;
        assert!(execution(&store, &format!("c{round}")).await.is_some());
    }
    for (id, count) in [("s", 6), ("t", 3)] {
        let session = store.session("me", id).await.unwrap().unwrap();
        assert_eq!(session.execution_count, count);
        assert!(session.last_used_at > at(1));
    }
}

#[tokio::test]
async fn recovers_records_of_a_killed_server_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    // The file of a server whose database never answered.
    leave(
        &path,
        &[
            LineRef::Begun(&row("done")),
            LineRef::Entry(0, &Entry::Execution(Box::new(ended("done")))),
            LineRef::Begun(&row("running")),
        ],
    );
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"Begun\":{\"id\":\"torn").unwrap();
    drop(file);
    let before = std::fs::read(&path).unwrap();
    for _ in 0..2 {
        let outbox = Outbox::open(&path, store.clone()).unwrap();
        outbox.settle().await;
        let done = execution(&store, "done").await.unwrap();
        assert_eq!(done.status, ExecutionStatus::Finished);
        let lost = execution(&store, "running").await.unwrap();
        assert_eq!(lost.status, ExecutionStatus::Lost);
        drop(outbox);
        // Killed again before the file was compacted.
        std::fs::write(&path, &before).unwrap();
    }
    assert_eq!(trail(&store, "execute").await, 1);
}

#[tokio::test]
async fn refuses_more_waiting_records_than_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = Outbox::open(&folder.path().join("journal"), unreachable().await).unwrap();
    for number in 0..WAITING_MAX {
        outbox.end(ended(&number.to_string())).unwrap();
    }
    assert_eq!(outbox.waiting(), WAITING_MAX as u64);
    assert!(outbox.end(ended("x")).is_err());
    assert!(outbox.push(session("s", 1)).is_err());
    assert_eq!(outbox.waiting(), WAITING_MAX as u64);
}

#[tokio::test]
async fn a_full_outbox_does_not_keep_a_server_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let entry = audit("left");
    let mut lines: Vec<LineRef<'_>> =
        (0..WAITING_MAX as u64).map(|number| LineRef::Entry(number, &entry)).collect();
    let running = row("running");
    lines.push(LineRef::Begun(&running));
    leave(&path, &lines);
    leave(&folder.path().join("journal.1"), &lines[..2]);
    let outbox = Outbox::open(&path, unreachable().await).unwrap();
    assert_eq!(outbox.waiting(), WAITING_MAX as u64 + 3);
    assert!(outbox.push(session("s", 1)).is_err());
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn session(id: &str, created: i64) -> Entry {
    named_session(id, created, "")
}

fn named_session(id: &str, created: i64, name: &str) -> Entry {
    Entry::Session(Box::new(SessionRow {
        owner: "me".to_owned(),
        id: id.to_owned(),
        name: Some(name.to_owned()),
        description: None,
        policy: None,
        lease_server: None,
        created_at: at(created),
        last_used_at: at(created),
        execution_count: 0,
        labels: None,
        lifetime_s: None,
        network: None,
        secrets: None,
        packages: None,
        environment: None,
        isolation: None,
    }))
}

fn checkpoint(session: &str, content: &str, created: i64) -> Entry {
    Entry::Checkpoint(Box::new(CheckpointRow {
        owner: "me".to_owned(),
        session_id: session.to_owned(),
        digest: Digest::of(content.as_bytes()),
        size_bytes: content.len() as u64,
        created_at: at(created),
        summary: "{}".to_owned(),
    }))
}

fn deletion(session: &str, what: Deletion, second: i64) -> Entry {
    let (owner, session_id) = ("me".to_owned(), session.to_owned());
    Entry::Deletion(DeletionRow { owner, session_id, what, at: at(second) })
}

fn audit(action: &str) -> Entry {
    Entry::Audit(Box::new(AuditEntry {
        at: at(1),
        owner: "me".to_owned(),
        action: action.to_owned(),
        session_id: None,
        execution_id: None,
        detail: "{}".to_owned(),
    }))
}

fn file(session: &str, created: i64) -> FileRow {
    FileRow {
        id: uuid::Uuid::new_v4(),
        owner: "me".to_owned(),
        session_id: Some(session.to_owned()),
        path: "a.csv".to_owned(),
        name: "a.csv".to_owned(),
        digest: Digest::of(b"file"),
        size_bytes: 4,
        media_type: "text/csv".to_owned(),
        created_at: at(created),
        expires_at: None,
        downloads: 0,
        is_chart: false,
    }
}

/// Writes the file of a server that was killed.
fn leave(path: &Path, lines: &[LineRef<'_>]) {
    let mut file = std::fs::File::create(path).unwrap();
    for line in lines {
        serde_json::to_writer(&mut file, line).unwrap();
        file.write_all(b"\n").unwrap();
    }
}

async fn trail(store: &Store, action: &str) -> usize {
    let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
    store.audit(&filter, 100).await.unwrap().len()
}

/// A database that does not answer.
async fn unreachable() -> Store {
    let url = "postgres://nobody@127.0.0.1:1/none".to_owned();
    Store::open(StoreConfig::Postgres { url, connections_max: 1 }).await.unwrap()
}

async fn opened(folder: &tempfile::TempDir) -> (Arc<Outbox>, Store) {
    let store = store(folder).await;
    (Outbox::open(&folder.path().join("journal"), store.clone()).unwrap(), store)
}

#[tokio::test]
async fn a_session_that_was_deleted_and_created_again_is_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, store) = opened(&folder).await;
    let (old, new) = (file("s", 2), file("s", 6));
    store.put_file(&old).await.unwrap();
    for entry in [
        named_session("s", 1, "old"),
        checkpoint("s", "old", 2),
        deletion("s", Deletion::Session, 5),
        named_session("s", 6, "new"),
        checkpoint("s", "new", 7),
    ] {
        outbox.push(entry).unwrap();
    }
    store.put_file(&new).await.unwrap();
    outbox.settle().await;
    let found = store.session("me", "s").await.unwrap().unwrap();
    assert_eq!((found.name.as_deref(), found.created_at), (Some("new"), at(6)));
    let found = store.checkpoint("me", "s").await.unwrap().unwrap();
    assert_eq!(found.digest, Digest::of(b"new"));
    assert_eq!(store.files("me", Some("s"), 9).await, Ok(vec![new]));
}

#[tokio::test]
async fn a_deletion_hides_rows_before_the_database_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, store) = opened(&folder).await;
    outbox.push(session("s", 1)).unwrap();
    outbox.push(checkpoint("s", "x", 2)).unwrap();
    outbox.settle().await;
    store.put_file(&file("s", 2)).await.unwrap();
    let pending = store.pending_deletions();
    let row = |what| match deletion("s", what, 5) {
        Entry::Deletion(row) => row,
        _ => unreachable!(),
    };
    pending.add(&row(Deletion::Checkpoint));
    assert_eq!(store.checkpoint("me", "s").await, Ok(None));
    assert_eq!(store.files("me", None, 9).await.unwrap().len(), 1);
    pending.add(&row(Deletion::Session));
    assert_eq!(store.session("me", "s").await, Ok(None));
    assert_eq!(store.sessions("me").await, Ok(vec![]));
    assert_eq!(store.files("me", None, 9).await, Ok(vec![]));
    let later = file("s", 6);
    store.put_file(&later).await.unwrap();
    assert_eq!(store.files("me", None, 9).await, Ok(vec![later]));
    // A row of the deleted session that comes late is dropped.
    outbox.push(session("s", 1)).unwrap();
    outbox.push(checkpoint("s", "late", 5)).unwrap();
    assert_eq!(outbox.waiting(), 0);
    pending.remove(&row(Deletion::Session));
    pending.remove(&row(Deletion::Checkpoint));
    assert!(store.session("me", "s").await.unwrap().is_some());
}

#[tokio::test]
async fn a_synced_deletion_survives_a_kill_while_the_database_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let here = store(&folder).await;
    here.put_session(&match session("s", 1) {
        Entry::Session(row) => *row,
        _ => unreachable!(),
    })
    .await
    .unwrap();
    {
        let outbox = Outbox::open(&path, unreachable().await).unwrap();
        let entries = vec![deletion("s", Deletion::Session, 5), audit("delete_session")];
        outbox.push_synced(entries).await.unwrap();
        assert_eq!(outbox.waiting(), 2);
    }
    // Its file is unlocked when its delivery task has ended, as by a kill.
    let outbox = opened_when_free(&path, &here).await;
    assert_eq!(here.session("me", "s").await, Ok(None), "hidden from the start");
    outbox.settle().await;
    assert_eq!(here.session("me", "s").await, Ok(None));
    assert_eq!(trail(&here, "delete_session").await, 1);
    assert!(!here.pending_deletions().covers("me", "s", Deletion::Session, at(1)));
}

/// Opens the first file, which a dropped outbox may hold for a moment.
async fn opened_when_free(path: &Path, store: &Store) -> Arc<Outbox> {
    let opened = async {
        loop {
            if let Some((journal, _)) = super::Journal::open(path).unwrap() {
                drop(journal);
                return Outbox::open(path, store.clone()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), opened).await.unwrap()
}

#[tokio::test]
async fn delivered_entries_are_not_delivered_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    leave(
        &path,
        &[
            LineRef::Begun(&row("running")),
            LineRef::Entry(4, &audit("first")),
            LineRef::Entry(5, &audit("second")),
            LineRef::Delivered(5),
        ],
    );
    let outbox = Outbox::open(&path, store.clone()).unwrap();
    outbox.settle().await;
    assert_eq!((trail(&store, "first").await, trail(&store, "second").await), (0, 1));
    // The file says so too while something runs.
    outbox.begin(&row("more")).unwrap();
    outbox.push(audit("third")).unwrap();
    outbox.settle().await;
    let before = std::fs::read_to_string(&path).unwrap();
    assert!(before.contains("third") && before.contains("Delivered"), "{before}");
    leave(&path, &[]);
    std::fs::write(folder.path().join("journal.1"), &before).unwrap();
    outbox.take_over().unwrap();
    outbox.settle().await;
    assert_eq!(trail(&store, "third").await, 1);
    let lost = execution(&store, "more").await.unwrap();
    assert_eq!(lost.status, ExecutionStatus::Lost);
    assert_eq!(std::fs::metadata(folder.path().join("journal.1")).unwrap().len(), 0);
}

#[tokio::test]
async fn the_last_version_of_a_row_replaces_one_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let outbox = Outbox::open(&path, unreachable().await).unwrap();
    let inner = || super::lock(&outbox.inner);
    // As if the first batch had been taken already.
    outbox.push(checkpoint("s", "in flight", 1)).unwrap();
    inner().in_flight = 1;
    for number in 2..50 {
        outbox.push(checkpoint("s", "waits", number)).unwrap();
        outbox.push(named_session("s", 1, &number.to_string())).unwrap();
    }
    assert_eq!(outbox.waiting(), 3, "one in flight, one checkpoint, one session");
    outbox.push(deletion("s", Deletion::Checkpoint, 60)).unwrap();
    outbox.push(checkpoint("s", "new", 70)).unwrap();
    assert_eq!(outbox.waiting(), 5, "not across a deletion");
    let (_, content) = read_copy(&folder, &path);
    let kept: Vec<String> = content.waiting.values().map(|entry| format!("{entry:?}")).collect();
    assert_eq!(kept.len(), 5, "{kept:?}");
    assert!(kept.iter().any(|entry| entry.contains("\"49\"")), "{kept:?}");
}

/// Reads a copy of the file of an outbox that is open.
fn read_copy(folder: &tempfile::TempDir, path: &Path) -> (super::Journal, super::Content) {
    let copy = folder.path().join("copy");
    std::fs::copy(path, &copy).unwrap();
    super::Journal::open(&copy).unwrap().unwrap()
}

#[tokio::test]
async fn a_large_file_is_rewritten_with_what_waits_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let outbox = Outbox::open(&path, unreachable().await).unwrap();
    outbox.begin(&row("runs")).unwrap();
    let name = "x".repeat(100_000);
    for number in 0..60 {
        outbox.push(named_session("s", 1, &name)).unwrap();
        outbox.push(audit(&format!("a{number}"))).unwrap();
    }
    assert!(std::fs::metadata(&path).unwrap().len() > 4 << 20);
    let first = outbox.next_batch(1);
    outbox.delivered(&first, false);
    assert!(std::fs::metadata(&path).unwrap().len() < 1 << 20);
    let (_, content) = read_copy(&folder, &path);
    assert_eq!((content.running.len(), content.waiting.len()), (1, 60));
    assert!(!folder.path().join("journal.new").exists());
    // It is still locked, and further lines go to the new file.
    assert!(super::Journal::open(&path).unwrap().is_none());
    outbox.push(audit("last")).unwrap();
    assert_eq!(read_copy(&folder, &path).1.waiting.len(), 61);
}

#[tokio::test]
async fn a_record_that_the_database_rejects_does_not_block_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (outbox, store) = opened(&folder).await;
    outbox.push(checkpoint("s", "new", 9)).unwrap();
    outbox.settle().await;
    // Dated by a clock that was behind: it is the later one all the same.
    outbox.push(checkpoint("s", "newer", 3)).unwrap();
    for id in ["a", "a", "b"] {
        outbox.end(ended(id)).unwrap();
    }
    outbox.push(audit("after")).unwrap();
    outbox.settle().await;
    let found = store.checkpoint("me", "s").await.unwrap().unwrap();
    assert_eq!((found.digest, found.created_at), (Digest::of(b"newer"), at(9)));
    assert!(execution(&store, "b").await.is_some());
    assert_eq!((trail(&store, "execute").await, trail(&store, "after").await), (2, 1));
}
