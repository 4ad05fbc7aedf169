//! What ended reaches the store, once, whatever becomes of the server.

use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use super::{Ended, Journal, WAITING_MAX};
use crate::store::{
    AuditEntry, AuditFilter, ExecutionRow, ExecutionStatus, SessionRow, SessionState, Store,
    StoreConfig,
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
        request_id: None,
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

async fn settled(journal: &Journal) {
    tokio::time::timeout(Duration::from_secs(20), async {
        while journal.waiting() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_ended_reaches_the_store_and_leaves_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    let journal = Journal::open(&path, store.clone()).unwrap();
    for id in ["a", "b"] {
        journal.begin(&row(id)).unwrap();
        journal.end(ended(id)).unwrap();
    }
    journal.begin(&row("c")).unwrap();
    settled(&journal).await;
    let known = store.execution("me", "a").await.unwrap().unwrap();
    assert_eq!(known.status, ExecutionStatus::Finished);
    assert_eq!(store.execution("me", "c").await.unwrap(), None);
    journal.end(ended("c")).unwrap();
    settled(&journal).await;
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    let trail = store.audit(&AuditFilter::default(), 100).await.unwrap();
    assert_eq!(trail.len(), 6, "{trail:?}");
}

#[tokio::test]
async fn who_waits_finds_what_has_just_ended_and_its_session_has_counted_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    let now = Timestamp::now();
    for id in ["s", "t"] {
        let (owner, id, server) = ("me".to_owned(), id.to_owned(), "here".to_owned());
        let (state, created_at, last_used_at) = (SessionState::Live, now, now);
        let (name, description, policy, folder) = Default::default();
        let execution_count = 0;
        let session = SessionRow {
            owner,
            id,
            name,
            description,
            policy,
            folder,
            server,
            state,
            created_at,
            last_used_at,
            execution_count,
        };
        store.put_session(&session).await.unwrap();
    }
    let journal = Journal::open(&path, store.clone()).unwrap();
    for round in 0..3 {
        for (id, session) in [("a", "s"), ("b", "t"), ("c", "s")] {
            let mut ended = ended(&format!("{id}{round}"));
            ended.row.session_id = Some(session.to_owned());
            journal.end(ended).unwrap();
        }
        journal.settle().await;
        assert!(store.execution("me", &format!("c{round}")).await.unwrap().is_some());
    }
    for (id, count) in [("s", 6), ("t", 3)] {
        let session = store.session("me", id).await.unwrap().unwrap();
        assert_eq!(session.execution_count, count);
        assert!(session.last_used_at > now);
    }
}

#[tokio::test]
async fn what_a_killed_server_left_is_brought_in_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("journal"), store(&folder).await);
    {
        // A server without a store that would answer: everything stays in the file.
        let mut file = std::fs::File::create(&path).unwrap();
        for line in [
            super::LineOf::Begun(&row("done")),
            super::LineOf::Ended(&ended("done")),
            super::LineOf::Begun(&row("running")),
        ] {
            serde_json::to_writer(&mut file, &line).unwrap();
            file.write_all(b"\n").unwrap();
        }
        file.write_all(b"{\"Begun\":{\"id\":\"torn").unwrap();
    }
    let before = std::fs::read(&path).unwrap();
    for _ in 0..2 {
        let journal = Journal::open(&path, store.clone()).unwrap();
        settled(&journal).await;
        let done = store.execution("me", "done").await.unwrap().unwrap();
        assert_eq!(done.status, ExecutionStatus::Finished);
        let lost = store.execution("me", "running").await.unwrap().unwrap();
        assert_eq!(lost.status, ExecutionStatus::Lost);
        drop(journal);
        // Killed again before it could be shortened.
        std::fs::write(&path, &before).unwrap();
    }
    let filter = AuditFilter { action: Some("execute".to_owned()), ..AuditFilter::default() };
    assert_eq!(store.audit(&filter, 100).await.unwrap().len(), 1);
}

#[tokio::test]
async fn too_much_that_waits_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let url = "postgres://nobody@127.0.0.1:1/none".to_owned();
    let away = StoreConfig::Postgres { url, connections_max: 1 };
    let store = Store::open(away).await.unwrap();
    let journal = Journal::open(&folder.path().join("journal"), store).unwrap();
    let one = ended("x");
    for _ in 0..WAITING_MAX {
        journal.end(one.clone()).unwrap();
    }
    assert!(journal.end(one).is_err());
}
