//! Contract of the store's rows, for both databases.

use futures_util::future::join_all;
use woma_core::store::{
    AuditFilter, CheckpointRow, Deletion, DeletionRow, FileRow, KeyRow, LEASE, SessionRow,
    StoreError,
};

use crate::fixture::{
    Fixture, LATE, at, checkpoint, deleted, entry, execution, file_row, finish, finished, running,
    session,
};

pub(crate) async fn a_session_is_created_and_updated(fixture: Fixture) {
    let store = &fixture.store;
    assert_eq!(store.session("ann", "a").await, Ok(None));
    let mut row = session("ann", "a");
    row.last_used_at = at(10);
    store.put_session(&row).await.unwrap();
    assert_eq!(store.session("ann", "a").await, Ok(Some(row.clone())));

    // An update changes neither the creation time nor the counter.
    let mut change = row.clone();
    change.name = Some("numbers".to_owned());
    change.description = Some("of the quarter".to_owned());
    change.policy = Some("open".to_owned());
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
        store.delete(&deleted("ann", "a", Deletion::Session)).await.unwrap();
        assert_eq!(store.session("ann", "a").await, Ok(None));
    }
}

pub(crate) async fn a_session_expires_when_idle_and_only_then(fixture: Fixture) {
    let store = &fixture.store;
    let make = async |id: &str, used: i64| {
        let row = SessionRow { last_used_at: at(used), ..session("ann", id) };
        store.put_session(&row).await.unwrap();
    };
    for (id, used) in [("old", 1), ("older", 0), ("busy", 0), ("new", 10), ("kept", 0)] {
        make(id, used).await;
    }
    fixture.plant_running("ann", "busy", "e1");
    store.put_checkpoint(&checkpoint("ann", "old")).await.unwrap();
    store.put_checkpoint(&checkpoint("ann", "new")).await.unwrap();

    let gone = async |limit: u32| {
        let kept = |row: &SessionRow| row.id == "kept";
        let gone = store.expire_sessions("one", at(10), limit, kept).await.unwrap();
        gone.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(gone(2).await, ["older"]);
    assert_eq!(gone(10).await, ["old"]);
    assert_eq!(gone(10).await, Vec::<String>::new());
    assert_eq!(store.sessions("ann").await.unwrap().len(), 3);
    assert_eq!(store.checkpoint("ann", "old").await, Ok(None));
    assert!(store.checkpoint("ann", "new").await.unwrap().is_some());
    // A lifetime of its own counts instead, by the database's clock.
    for (id, used, lifetime_s) in [("brief", 100, 60), ("long", 0, 3_000_000_000)] {
        let (last_used_at, labels) = (at(used), Some(r#"{"team":"a"}"#.to_owned()));
        let lifetime_s = Some(lifetime_s);
        let row = SessionRow { last_used_at, labels, lifetime_s, ..session("ann", id) };
        store.put_session(&row).await.unwrap();
        assert_eq!(store.session("ann", id).await, Ok(Some(row)));
    }
    assert_eq!(gone(10).await, ["brief"]);
}

/// Two servers share a database: neither deletes a session on which the other has a lease.
pub(crate) async fn a_lease_protects_until_it_expires_or_is_released(fixture: Fixture) {
    let store = &fixture.store;
    for id in ["a", "b", "c"] {
        store.put_session(&session("ann", id)).await.unwrap();
    }
    store.renew_lease("one").await.unwrap();
    store.renew_lease("two").await.unwrap();
    store.take_session("ann", "a", "one").await.unwrap();
    store.take_session("ann", "b", "two").await.unwrap();
    let expire = async |server: &str| {
        let gone = store.expire_sessions(server, at(10), 10, |_| false).await.unwrap();
        gone.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    // A server may delete its own sessions and those without a lease.
    assert_eq!(expire("two").await, ["b", "c"]);
    assert_eq!(expire("two").await, Vec::<String>::new());
    // An update by another server keeps the lease.
    store.put_session(&session("ann", "a")).await.unwrap();
    assert_eq!(expire("two").await, Vec::<String>::new());
    // The lease of a killed server expires by the database's clock.
    let late = format!(
        "UPDATE servers SET alive_until = alive_until - {} WHERE id = 'one'",
        LEASE.as_micros()
    );
    fixture.raw(&late).unwrap();
    assert_eq!(expire("two").await, ["a"]);
    // A server that stops releases its leases at once.
    store.put_session(&session("ann", "d")).await.unwrap();
    store.renew_lease("one").await.unwrap();
    store.take_session("ann", "d", "one").await.unwrap();
    assert_eq!(expire("two").await, Vec::<String>::new());
    store.release_lease("one").await.unwrap();
    assert_eq!(expire("two").await, ["d"]);
}

/// A session is taken from a server that is gone, or that has the same data folder.
pub(crate) async fn a_session_of_a_live_server_elsewhere_is_not_taken(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "a")).await.unwrap();
    let take = async |server: &str| store.take_session("ann", "a", server).await;
    assert_eq!(take("one/1").await, Ok(()));
    assert_eq!(take("two/1").await, Err(StoreError::Conflict));
    assert_eq!(take("one/2").await, Ok(()));
    store.release_lease("one/2").await.unwrap();
    assert_eq!(take("two/1").await, Ok(()));
    assert_eq!(take("one/2").await, Err(StoreError::Conflict));
    fixture.raw("UPDATE servers SET alive_until = 0 WHERE id = 'two/1'").unwrap();
    assert_eq!(take("one/2").await, Ok(()));
}

pub(crate) async fn an_execution_is_recorded_and_counted(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "a")).await.unwrap();
    let done = finished(running("ann", "a", "e1"));
    finish(store, &done, &entry("ann", "execution_finished")).await.unwrap();
    assert_eq!(execution(store, "ann", "e1").await, Some(done));
    let session = store.session("ann", "a").await.unwrap().unwrap();
    assert_eq!((session.execution_count, session.last_used_at), (1, at(5)));
    let trail = store.audit(&AuditFilter::default(), 10).await.unwrap();
    let actions: Vec<_> = trail.iter().map(|row| row.entry.action.as_str()).collect();
    assert_eq!(actions, ["execution_finished"]);
}

pub(crate) async fn a_running_execution_is_finished(fixture: Fixture) {
    let store = &fixture.store;
    fixture.plant_running("ann", "a", "e1");
    let row = running("ann", "a", "e1");
    assert_eq!(execution(store, "ann", "e1").await, Some(row.clone()));
    let done = finished(row);
    finish(store, &done, &entry("ann", "execution_finished")).await.unwrap();
    assert_eq!(execution(store, "ann", "e1").await, Some(done));
}

pub(crate) async fn an_execution_ends_once(fixture: Fixture) {
    let store = &fixture.store;
    let done = finished(running("ann", "a", "e1"));
    finish(store, &done, &entry("ann", "x")).await.unwrap();
    let result = finish(store, &done, &entry("ann", "x")).await;
    assert_eq!(result, Err(StoreError::Conflict));
    assert_eq!(store.audit(&AuditFilter::default(), 10).await.unwrap().len(), 1);

    // The running execution of another owner is a conflict too.
    fixture.plant_running("bob", "b", "e2");
    let stolen = finished(running("ann", "a", "e2"));
    let result = finish(store, &stolen, &entry("ann", "x")).await;
    assert_eq!(result, Err(StoreError::Conflict));
}

pub(crate) async fn a_failed_write_leaves_nothing(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "a")).await.unwrap();
    let file = file_row("ann", "a", "one.csv");
    store.put_file(&file).await.unwrap();
    assert_eq!(store.put_file(&file).await, Err(StoreError::Conflict));
    assert_eq!(store.files("ann", None, 10).await.unwrap().len(), 1);
    fixture.plant_running("bob", "b", "e1");
    let done = finished(running("ann", "a", "e1"));
    let result = finish(store, &done, &entry("ann", "x")).await;
    assert_eq!(result, Err(StoreError::Conflict));
    assert_eq!(execution(store, "ann", "e1").await, None);
    assert_eq!(store.session("ann", "a").await.unwrap().unwrap().execution_count, 0);
    assert_eq!(store.audit(&AuditFilter::default(), 10).await, Ok(vec![]));
    assert!(store.health().await.is_healthy, "a conflict is not a failure of the store");
}

pub(crate) async fn executions_are_paged(fixture: Fixture) {
    let store = &fixture.store;
    for number in 0..7 {
        let mut row =
            running("ann", if number % 2 == 0 { "a" } else { "b" }, &format!("e{number}"));
        // Pairs with the same time are ordered by id.
        row.started_at = at(number / 2);
        finish(store, &finished(row), &entry("ann", "x")).await.unwrap();
    }
    let other = finished(running("bob", "a", "e9"));
    finish(store, &other, &entry("bob", "x")).await.unwrap();
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
    store.delete(&deleted("ann", "a", Deletion::Session)).await.unwrap();
    assert_eq!(store.files("ann", None, 10).await, Ok(vec![]));
    assert_eq!(store.files("bob", None, 10).await.unwrap().len(), 1);
}

pub(crate) async fn latest_chart_ignores_insertion_order(fixture: Fixture) {
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

pub(crate) async fn key_revocations_are_final(fixture: Fixture) {
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
    // A later write neither undoes nor moves a revocation.
    store.put_key(&key("a", 1, None)).await.unwrap();
    store.put_key(&key("c", 3, Some(9))).await.unwrap();
    store.put_key(&KeyRow { sha256: "another".to_owned(), ..key("b", 2, None) }).await.unwrap();
    let expected = vec![key("a", 1, Some(5)), key("b", 2, None), key("c", 3, Some(4))];
    assert_eq!(store.keys().await, Ok(expected));
}

pub(crate) async fn a_checkpoint_replaces_older_ones_only(fixture: Fixture) {
    let store = &fixture.store;
    let first = checkpoint("ann", "a");
    store.put_checkpoint(&first).await.unwrap();
    let mut second = first.clone();
    (second.created_at, second.size_bytes) = (at(2), 77);
    store.put_checkpoint(&second).await.unwrap();
    // An older checkpoint is refused.
    assert_eq!(store.put_checkpoint(&first).await, Err(StoreError::Conflict));
    assert_eq!(store.checkpoint("ann", "a").await, Ok(Some(second)));
    assert_eq!(store.checkpoint("bob", "a").await, Ok(None));
    for what in [Deletion::Checkpoint, Deletion::Session] {
        store.delete(&deleted("ann", "a", what)).await.unwrap();
        assert_eq!(store.checkpoint("ann", "a").await, Ok(None));
        store.put_checkpoint(&first).await.unwrap();
        assert_eq!(store.checkpoint("ann", "a").await, Ok(Some(first.clone())));
    }
}

/// Creates a session with a checkpoint and a chart; returns the chart.
async fn create_session(fixture: &Fixture, name: &str) -> FileRow {
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

/// Visible parts of the session: its row, its checkpoint, the number of its files.
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

pub(crate) async fn a_deletion_covers_what_was_created_before_it(fixture: Fixture) {
    let store = &fixture.store;
    let file = create_session(&fixture, "one").await;
    let early = DeletionRow { at: at(-1), ..deleted("ann", "a", Deletion::Session) };
    store.delete(&early).await.unwrap();
    assert_eq!(left(&fixture, &file).await, (true, true, 1), "all of it is later");
    store.delete(&deleted("ann", "a", Deletion::Checkpoint)).await.unwrap();
    assert_eq!(left(&fixture, &file).await, (true, false, 1));
    store.delete(&deleted("ann", "a", Deletion::Session)).await.unwrap();
    assert_eq!(left(&fixture, &file).await, (false, false, 0));
    assert_eq!(store.digests_in_use().await, Ok(vec![]));
    // A later session of that name stays when the deletion is applied again.
    let later = at(LATE + 1);
    let row = SessionRow { created_at: later, ..session("ann", "a") };
    let file = FileRow { created_at: later, ..file_row("ann", "a", "chart.png") };
    let state = CheckpointRow { created_at: later, ..checkpoint("ann", "a") };
    store.put_session(&row).await.unwrap();
    store.put_file(&file).await.unwrap();
    store.put_checkpoint(&state).await.unwrap();
    store.delete(&deleted("ann", "a", Deletion::Session)).await.unwrap();
    assert_eq!(store.file(file.id).await, Ok(Some(file)));
    assert_eq!(store.checkpoint("ann", "a").await, Ok(Some(state)));
    assert!(store.session("ann", "a").await.unwrap().is_some());
}

pub(crate) async fn owners_are_isolated(fixture: Fixture) {
    let store = &fixture.store;
    for owner in ["ann", "bob"] {
        let mut row = session(owner, "same");
        row.name = Some(owner.to_owned());
        store.put_session(&row).await.unwrap();
        let row = finished(running(owner, "same", &format!("of-{owner}")));
        finish(store, &row, &entry(owner, "x")).await.unwrap();
        store.put_file(&file_row(owner, "same", "a.csv")).await.unwrap();
    }
    let found = store.session("bob", "same").await.unwrap().unwrap();
    assert_eq!(found.name.as_deref(), Some("bob"));
    assert_eq!(execution(store, "bob", "of-ann").await, None);
    assert_eq!(store.executions("bob", Some("same"), 9, None).await.unwrap().len(), 1);
    assert_eq!(store.executions("bob", None, 9, Some("of-ann")).await, Ok(vec![]));
    assert_eq!(store.files("bob", Some("same"), 9).await.unwrap().len(), 1);
    store.delete(&deleted("bob", "same", Deletion::Session)).await.unwrap();
    assert!(store.session("ann", "same").await.unwrap().is_some());
}

pub(crate) async fn unusual_names_and_long_texts_round_trip(fixture: Fixture) {
    let store = &fixture.store;
    let odd =
        ["", " ", "'; DROP TABLE sessions; --", "naïve 🐍 \u{202e} 名", "$1 ? %s \\ \"", "a\nb\tc"];
    for (number, name) in odd.iter().enumerate() {
        let mut row = session(name, name);
        row.description = Some((*name).to_owned());
        store.put_session(&row).await.unwrap();
        assert_eq!(store.session(name, name).await, Ok(Some(row)), "{name:?}");
        let mut row = finished(running(name, name, &format!("e{number}")));
        row.code_text = Some(format!("{name}{}", "é".repeat(512 * 1024)));
        finish(store, &row, &entry(name, name)).await.unwrap();
        assert_eq!(execution(store, name, &row.id).await, Some(row), "{name:?}");
    }
    // NUL, which PostgreSQL cannot store.
    let mut row = finished(running("ann", "a", "nul"));
    row.code_text = Some("a\0b".to_owned());
    finish(store, &row, &entry("ann", "x")).await.unwrap();
    let found = execution(store, "ann", "nul").await.unwrap();
    assert_eq!(found.code_text.as_deref(), Some("a\u{fffd}b"));
}

pub(crate) async fn concurrent_writers_lose_nothing(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "a")).await.unwrap();
    let write = async |writer: usize| {
        for number in 0..10 {
            let row = finished(running("ann", "a", &format!("{writer}-{number}")));
            finish(store, &row, &entry("ann", "finished")).await.unwrap();
            let again = finish(store, &row, &entry("ann", "again")).await;
            assert_eq!(again, Err(StoreError::Conflict));
            store.put_file(&file_row("ann", "a", "out.csv")).await.unwrap();
            store.session("ann", "a").await.unwrap().unwrap();
        }
    };
    join_all((0..20).map(write)).await;
    let session = store.session("ann", "a").await.unwrap().unwrap();
    assert_eq!(session.execution_count, 200);
    assert_eq!(store.files("ann", None, 1000).await.unwrap().len(), 200);
    assert_eq!(store.audit(&AuditFilter::default(), 1000).await.unwrap().len(), 200);
}
