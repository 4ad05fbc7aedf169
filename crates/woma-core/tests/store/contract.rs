//! What the store promises about its rows, whatever keeps them.

use futures_util::future::join_all;
use woma_core::store::{AuditFilter, FileRow, Forgotten, KeyRow, SessionState, Store, StoreError};

use crate::fixture::{Fixture, at, checkpoint, entry, file_row, finished, running, session};

pub(crate) async fn a_session_is_made_and_changed(fixture: Fixture) {
    let store = &fixture.store;
    assert_eq!(store.session("ann", "a").await, Ok(None));
    let mut row = session("ann", "a");
    row.last_used_at = at(10);
    store.put_session(&row).await.unwrap();
    assert_eq!(store.session("ann", "a").await, Ok(Some(row.clone())));

    // What was made when, and how much was done in it, is not changed by who changes the rest.
    let mut change = row.clone();
    change.name = Some("numbers".to_owned());
    change.description = Some("of the quarter".to_owned());
    change.policy = Some("open".to_owned());
    change.folder = Some("a".to_owned());
    change.state = SessionState::Live;
    change.created_at = at(99);
    change.last_used_at = at(5);
    change.execution_count = 99;
    store.put_session(&change).await.unwrap();
    let mut expected = change.clone();
    (expected.created_at, expected.last_used_at) = (row.created_at, at(10));
    expected.execution_count = 0;
    assert_eq!(store.session("ann", "a").await, Ok(Some(expected)));

    store.put_session(&session("ann", "b")).await.unwrap();
    let ids: Vec<_> = store.sessions("ann").await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["a", "b"]);
    for _ in 0..2 {
        store.forget("ann", "a", Forgotten::Deleted).await.unwrap();
        assert_eq!(store.session("ann", "a").await, Ok(None));
    }
}

pub(crate) async fn a_session_expires_when_idle_and_only_then(fixture: Fixture) {
    let store = &fixture.store;
    let make = async |id: &str, used: i64, state: SessionState| {
        let mut row = session("ann", id);
        (row.last_used_at, row.state) = (at(used), state);
        store.put_session(&row).await.unwrap();
    };
    make("old", 1, SessionState::Dormant).await;
    make("older", 0, SessionState::Dormant).await;
    make("live", 0, SessionState::Live).await;
    make("busy", 0, SessionState::Dormant).await;
    make("new", 10, SessionState::Dormant).await;
    make("kept", 0, SessionState::Dormant).await;
    store.begin(&running("ann", "busy", "e1"), &entry("ann", "x")).await.unwrap();
    store.put_checkpoint(&checkpoint("ann", "old")).await.unwrap();
    store.put_checkpoint(&checkpoint("ann", "new")).await.unwrap();

    let gone = async |limit: u32| {
        let gone = store.expire_sessions(at(10), limit, |row| row.id == "kept").await.unwrap();
        gone.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(gone(2).await, ["older"]);
    assert_eq!(gone(10).await, ["old"]);
    assert_eq!(gone(10).await, Vec::<String>::new());
    assert_eq!(store.sessions("ann").await.unwrap().len(), 4);
    assert_eq!(store.checkpoint("ann", "old").await, Ok(None));
    assert!(store.checkpoint("ann", "new").await.unwrap().is_some());
}

pub(crate) async fn an_execution_is_begun_and_finished(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "a")).await.unwrap();
    let row = running("ann", "a", "e1");
    store.begin(&row, &entry("ann", "execution_started")).await.unwrap();
    assert_eq!(store.execution("ann", "e1").await, Ok(Some(row.clone())));

    let done = finished(row);
    let files = [file_row("ann", "a", "one.csv"), file_row("ann", "a", "two.csv")];
    store.finish(&done, &files, &entry("ann", "execution_finished")).await.unwrap();
    assert_eq!(store.execution("ann", "e1").await, Ok(Some(done)));
    assert_eq!(store.files("ann", Some("a"), 10).await.unwrap().len(), 2);
    let session = store.session("ann", "a").await.unwrap().unwrap();
    assert_eq!((session.execution_count, session.last_used_at), (1, at(5)));
    let trail = store.audit(&AuditFilter::default(), 10).await.unwrap();
    let actions: Vec<_> = trail.iter().map(|row| row.entry.action.as_str()).collect();
    assert_eq!(actions, ["execution_finished", "execution_started"]);
}

/// How every execution comes in from the journal: with its end, and only then.
pub(crate) async fn an_execution_may_be_finished_that_nobody_began(fixture: Fixture) {
    let store = &fixture.store;
    let done = finished(running("ann", "a", "e1"));
    store.finish(&done, &[], &entry("ann", "execution_finished")).await.unwrap();
    assert_eq!(store.execution("ann", "e1").await, Ok(Some(done)));
}

pub(crate) async fn an_execution_ends_once(fixture: Fixture) {
    let store = &fixture.store;
    let row = running("ann", "a", "e1");
    store.begin(&row, &entry("ann", "x")).await.unwrap();
    assert_eq!(store.begin(&row, &entry("ann", "x")).await, Err(StoreError::Conflict));
    let done = finished(row);
    let file = file_row("ann", "a", "one.csv");
    store.finish(&done, &[file], &entry("ann", "x")).await.unwrap();
    let again = file_row("ann", "a", "two.csv");
    let result = store.finish(&done, &[again], &entry("ann", "x")).await;
    assert_eq!(result, Err(StoreError::Conflict));
    assert_eq!(store.files("ann", None, 10).await.unwrap().len(), 1);
    assert_eq!(store.audit(&AuditFilter::default(), 10).await.unwrap().len(), 2);

    // Not even with the id of somebody else's that still runs.
    store.begin(&running("bob", "b", "e2"), &entry("bob", "x")).await.unwrap();
    let stolen = finished(running("ann", "a", "e2"));
    let result = store.finish(&stolen, &[], &entry("ann", "x")).await;
    assert_eq!(result, Err(StoreError::Conflict));
}

pub(crate) async fn what_fails_leaves_nothing(fixture: Fixture) {
    let store = &fixture.store;
    let file = file_row("ann", "a", "one.csv");
    store.put_file(&file).await.unwrap();
    assert_eq!(store.put_file(&file).await, Err(StoreError::Conflict));
    let done = finished(running("ann", "a", "e1"));
    let files = [file_row("ann", "a", "two.csv"), file];
    let result = store.finish(&done, &files, &entry("ann", "x")).await;
    assert_eq!(result, Err(StoreError::Conflict));
    assert_eq!(store.execution("ann", "e1").await, Ok(None));
    assert_eq!(store.files("ann", None, 10).await.unwrap().len(), 1);
    assert_eq!(store.audit(&AuditFilter::default(), 10).await, Ok(vec![]));
    assert!(store.health().await.is_healthy, "a conflict is no trouble of the store");
}

pub(crate) async fn executions_come_in_pages(fixture: Fixture) {
    let store = &fixture.store;
    for number in 0..7 {
        let mut row =
            running("ann", if number % 2 == 0 { "a" } else { "b" }, &format!("e{number}"));
        // Two by two at the same time: the id decides.
        row.started_at = at(number / 2);
        store.begin(&row, &entry("ann", "x")).await.unwrap();
    }
    store.begin(&running("bob", "a", "e9"), &entry("bob", "x")).await.unwrap();
    let page = async |session: Option<&str>, limit: u32, before: Option<&str>| {
        let page = store.executions("ann", session, limit, before).await.unwrap();
        page.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 3, None).await, ["e6", "e5", "e4"]);
    assert_eq!(page(None, 3, Some("e4")).await, ["e3", "e2", "e1"]);
    assert_eq!(page(None, 3, Some("e1")).await, ["e0"]);
    assert_eq!(page(Some("b"), 9, Some("e4")).await, ["e3", "e1"]);
    assert_eq!(page(None, 3, Some("e9")).await, Vec::<String>::new());
}

pub(crate) async fn files_are_found_and_expire(fixture: Fixture) {
    let store = &fixture.store;
    let (mut one, two) = (file_row("ann", "a", "one.csv"), file_row("ann", "b", "two.csv"));
    let mut kept = file_row("ann", "a", "kept.csv");
    kept.expires_at = None;
    one.expires_at = Some(at(50));
    for file in [&one, &two, &kept, &file_row("bob", "a", "three.csv")] {
        store.put_file(file).await.unwrap();
    }
    assert_eq!(store.file(one.id).await, Ok(Some(one.clone())));
    assert_eq!(store.file(uuid::Uuid::new_v4()).await, Ok(None));
    assert_eq!(store.files("ann", Some("a"), 10).await.unwrap().len(), 2);
    assert_eq!(store.files("ann", None, 10).await.unwrap().len(), 3);
    assert_eq!(store.files("ann", None, 1).await.unwrap().len(), 1);
    store.put_checkpoint(&checkpoint("ann", "a")).await.unwrap();
    assert_eq!(store.owner_bytes("ann").await, Ok(309));
    assert_eq!(store.owner_bytes("nobody").await, Ok(0));
    assert_eq!(store.digests_in_use().await.unwrap().len(), 5);

    store.count_download(one.id).await.unwrap();
    store.count_download(one.id).await.unwrap();
    assert_eq!(store.file(one.id).await.unwrap().unwrap().downloads, 2);
    assert_eq!(store.count_download(uuid::Uuid::new_v4()).await, Err(StoreError::NotFound));

    assert_eq!(store.purge_files(at(49), 10).await, Ok(0));
    assert_eq!(store.purge_files(at(100), 1).await, Ok(1), "the oldest first");
    assert_eq!(store.file(one.id).await, Ok(None));
    assert_eq!(store.delete_file("bob", two.id).await, Ok(false));
    assert_eq!(store.delete_file("ann", two.id).await, Ok(true));
    store.forget("ann", "a", Forgotten::Deleted).await.unwrap();
    assert_eq!(store.files("ann", None, 10).await, Ok(vec![]));
    assert_eq!(store.files("bob", None, 10).await.unwrap().len(), 1);
}

pub(crate) async fn the_latest_chart_is_the_latest(fixture: Fixture) {
    let store = &fixture.store;
    let mut charts = Vec::new();
    for (second, is_chart) in [(1, true), (3, true), (2, true), (4, false)] {
        let mut file = file_row("ann", "a", "chart.png");
        (file.created_at, file.is_chart) = (at(second), is_chart);
        store.put_file(&file).await.unwrap();
        charts.push(file);
    }
    let latest = store.latest_chart("ann", "a", "chart.png").await.unwrap();
    assert_eq!(latest.as_ref(), charts.get(1));
    assert_eq!(store.latest_chart("ann", "b", "chart.png").await, Ok(None));
    assert_eq!(store.latest_chart("bob", "a", "chart.png").await, Ok(None));
}

pub(crate) async fn keys_are_added_and_revoked_for_good(fixture: Fixture) {
    let store = &fixture.store;
    let key = |id: &str, made: i64, revoked: Option<i64>| KeyRow {
        id: id.to_owned(),
        sha256: format!("digest of {id}"),
        about: "{}".to_owned(),
        created_at: at(made),
        revoked_at: revoked.map(at),
    };
    for row in [key("b", 2, None), key("a", 1, None), key("c", 3, Some(4))] {
        store.put_key(&row).await.unwrap();
    }
    store.put_key(&key("a", 1, Some(5))).await.unwrap();
    // Neither undone by who has not heard of it, nor moved by who says it again.
    store.put_key(&key("a", 1, None)).await.unwrap();
    store.put_key(&key("c", 3, Some(9))).await.unwrap();
    store.put_key(&KeyRow { sha256: "another".to_owned(), ..key("b", 2, None) }).await.unwrap();
    let expected = vec![key("a", 1, Some(5)), key("b", 2, None), key("c", 3, Some(4))];
    assert_eq!(store.keys().await, Ok(expected));
}

pub(crate) async fn checkpoints_follow_each_other(fixture: Fixture) {
    let store = &fixture.store;
    let first = checkpoint("ann", "a");
    store.put_checkpoint(&first).await.unwrap();
    let mut second = first.clone();
    (second.created_at, second.size_bytes) = (at(2), 77);
    store.put_checkpoint(&second).await.unwrap();
    // What is not taken is not said to be.
    assert_eq!(store.put_checkpoint(&first).await, Err(StoreError::Conflict));
    assert_eq!(store.checkpoint("ann", "a").await, Ok(Some(second)));
    assert_eq!(store.checkpoint("bob", "a").await, Ok(None));
    for what in [Forgotten::Emptied, Forgotten::Deleted] {
        store.forget("ann", "a", what).await.unwrap();
        assert_eq!(store.checkpoint("ann", "a").await, Ok(None));
        store.put_checkpoint(&first).await.unwrap();
        assert_eq!(store.checkpoint("ann", "a").await, Ok(Some(first.clone())));
    }
}

/// Everything that there can be of a session.
async fn whole(fixture: &Fixture, name: &str) -> FileRow {
    let store = &fixture.store;
    let mut row = session("ann", "a");
    row.name = Some(name.to_owned());
    store.put_session(&row).await.unwrap();
    store.put_checkpoint(&checkpoint("ann", "a")).await.unwrap();
    let mut file = file_row("ann", "a", "chart.png");
    file.is_chart = true;
    store.put_file(&file).await.unwrap();
    file
}

/// By what is left of a session to whoever asks: its name, its variables, its files.
async fn left(fixture: &Fixture, file: &FileRow) -> (bool, bool, usize) {
    let store = &fixture.store;
    let is_known = store.session("ann", "a").await.unwrap().is_some();
    assert_eq!(store.sessions("ann").await.unwrap().len(), usize::from(is_known));
    let files = store.files("ann", Some("a"), 10).await.unwrap().len();
    assert_eq!(store.files("ann", None, 10).await.unwrap().len(), files);
    assert_eq!(store.file(file.id).await.unwrap().is_some(), files > 0);
    let chart = store.latest_chart("ann", "a", "chart.png").await.unwrap();
    assert_eq!(chart.is_some(), files > 0);
    (is_known, store.checkpoint("ann", "a").await.unwrap().is_some(), files)
}

pub(crate) async fn what_is_marked_is_forgotten_before_the_database_knows(fixture: Fixture) {
    let store = &fixture.store;
    let marks = fixture.folder.path().join("forgotten");
    store.keep_marks_in(marks.clone()).unwrap();
    let count = || std::fs::read_dir(&marks).unwrap().count();
    let file = whole(&fixture, "one").await;
    store.forget("ann", "a", Forgotten::Emptied).await.unwrap();
    assert_eq!((left(&fixture, &file).await, count()), ((true, false, 1), 1));
    store.forget("ann", "a", Forgotten::Deleted).await.unwrap();
    store.forget("ann", "a", Forgotten::Emptied).await.unwrap();
    assert_eq!((left(&fixture, &file).await, count()), ((false, false, 0), 1));
    // The database has it all: nobody has told it.
    assert_eq!(store.digests_in_use().await.unwrap().len(), 2);
    // A server that comes later, or shares the folder, knows it too.
    let other = Store::open(fixture.config()).await.unwrap();
    other.keep_marks_in(marks.clone()).unwrap();
    assert_eq!(other.checkpoint("ann", "a").await, Ok(None));
    assert_eq!(other.settle_all().await, Ok(1));
    assert_eq!((other.digests_in_use().await, count()), (Ok(vec![]), 0));
}

pub(crate) async fn what_follows_a_forgotten_session_stays(fixture: Fixture) {
    let store = &fixture.store;
    store.keep_marks_in(fixture.folder.path().join("forgotten")).unwrap();
    let old = whole(&fixture, "old").await;
    store.forget("ann", "a", Forgotten::Deleted).await.unwrap();
    // Whichever comes first, and all at once.
    let mut row = session("ann", "a");
    row.name = Some("new".to_owned());
    let (file, checkpoint) = (file_row("ann", "a", "chart.png"), checkpoint("ann", "a"));
    let (one, two, three) = futures_util::join!(
        store.put_checkpoint(&checkpoint),
        store.put_file(&file),
        store.put_session(&row),
    );
    assert_eq!((one, two, three), (Ok(()), Ok(()), Ok(())));
    assert_eq!(store.settle_all().await, Ok(0));
    assert_eq!(store.file(old.id).await, Ok(None));
    assert_eq!(store.file(file.id).await, Ok(Some(file)));
    assert_eq!(store.checkpoint("ann", "a").await, Ok(Some(checkpoint)));
    let found = store.session("ann", "a").await.unwrap().unwrap();
    assert_eq!(found.name.as_deref(), Some("new"));
}

pub(crate) async fn owners_do_not_see_each_other(fixture: Fixture) {
    let store = &fixture.store;
    for owner in ["ann", "bob"] {
        let mut row = session(owner, "same");
        row.name = Some(owner.to_owned());
        store.put_session(&row).await.unwrap();
        let row = running(owner, "same", &format!("of-{owner}"));
        store.begin(&row, &entry(owner, "x")).await.unwrap();
        store.put_file(&file_row(owner, "same", "a.csv")).await.unwrap();
    }
    let found = store.session("bob", "same").await.unwrap().unwrap();
    assert_eq!(found.name.as_deref(), Some("bob"));
    assert_eq!(store.execution("bob", "of-ann").await, Ok(None));
    assert_eq!(store.executions("bob", Some("same"), 9, None).await.unwrap().len(), 1);
    assert_eq!(store.executions("bob", None, 9, Some("of-ann")).await, Ok(vec![]));
    assert_eq!(store.files("bob", Some("same"), 9).await.unwrap().len(), 1);
    store.forget("bob", "same", Forgotten::Deleted).await.unwrap();
    assert!(store.session("ann", "same").await.unwrap().is_some());
}

pub(crate) async fn odd_names_and_long_texts_come_back(fixture: Fixture) {
    let store = &fixture.store;
    let odd =
        ["", " ", "'; DROP TABLE sessions; --", "naïve 🐍 \u{202e} 名", "$1 ? %s \\ \"", "a\nb\tc"];
    for (number, name) in odd.iter().enumerate() {
        let mut row = session(name, name);
        row.description = Some((*name).to_owned());
        store.put_session(&row).await.unwrap();
        assert_eq!(store.session(name, name).await, Ok(Some(row)), "{name:?}");
        let mut row = running(name, name, &format!("e{number}"));
        row.code_text = Some(format!("{name}{}", "é".repeat(512 * 1024)));
        store.begin(&row, &entry(name, name)).await.unwrap();
        assert_eq!(store.execution(name, &row.id).await, Ok(Some(row)), "{name:?}");
    }
    // The one character that PostgreSQL does not have.
    let mut row = running("ann", "a", "nul");
    row.code_text = Some("a\0b".to_owned());
    store.begin(&row, &entry("ann", "x")).await.unwrap();
    let found = store.execution("ann", "nul").await.unwrap().unwrap();
    assert_eq!(found.code_text.as_deref(), Some("a\u{fffd}b"));
}

pub(crate) async fn twenty_writers_at_once(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "a")).await.unwrap();
    let write = async |writer: usize| {
        for number in 0..10 {
            let row = running("ann", "a", &format!("{writer}-{number}"));
            store.begin(&row, &entry("ann", "started")).await.unwrap();
            // Each id is claimed by one, however many try.
            let stolen = store.begin(&row, &entry("ann", "stolen")).await;
            assert_eq!(stolen, Err(StoreError::Conflict));
            let file = file_row("ann", "a", "out.csv");
            store.finish(&finished(row), &[file], &entry("ann", "finished")).await.unwrap();
            store.session("ann", "a").await.unwrap().unwrap();
        }
    };
    join_all((0..20).map(write)).await;
    let session = store.session("ann", "a").await.unwrap().unwrap();
    assert_eq!(session.execution_count, 200);
    assert_eq!(store.files("ann", None, 1000).await.unwrap().len(), 200);
    assert_eq!(store.audit(&AuditFilter::default(), 1000).await.unwrap().len(), 400);
}

pub(crate) async fn writes_in_the_background_settle(fixture: Fixture) {
    let store = &fixture.store;
    let mut pending = Vec::new();
    for number in 0..50 {
        let row = running("ann", "a", &format!("e{number}"));
        pending.push(store.finish_later(&finished(row), &[], &entry("ann", "finished")));
    }
    // Who does not wait for it has it done all the same.
    let dropped = finished(running("ann", "a", "dropped"));
    drop(store.finish_later(&dropped, &[], &entry("ann", "finished")));
    for write in pending {
        write.settled().await.unwrap();
    }
    let rows = store.executions("ann", None, 1000, None).await.unwrap();
    assert!(rows.iter().filter(|row| row.id != "dropped").count() == 50, "{rows:?}");
    store.flush().await.unwrap();
    assert!(store.execution("ann", "dropped").await.unwrap().is_some());
}
