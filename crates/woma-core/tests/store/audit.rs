//! The trail: what is asked of it, and that nobody rewrites it.

use woma_core::store::{AuditFilter, Purged, SECURITY_EVENT};

use crate::fixture::{Backend, Fixture, at, entry, finished, running};

pub(crate) async fn rows_are_filtered_and_paged(fixture: Fixture) {
    let store = &fixture.store;
    for second in 0..10 {
        let owner = if second % 2 == 0 { "ann" } else { "bob" };
        let mut row = entry(owner, if second < 8 { "run" } else { SECURITY_EVENT });
        row.at = at(second);
        row.session_id = (second == 4).then(|| "s".to_owned());
        row.detail = format!("{{\"second\":{second}}}");
        store.append_audit(&row).await.unwrap();
    }
    let seconds = async |filter: AuditFilter, limit: u32| {
        let rows = store.audit(&filter, limit).await.unwrap();
        let second =
            |row: &woma_core::store::AuditRow| row.entry.at.as_second() - at(0).as_second();
        rows.iter().map(second).collect::<Vec<_>>()
    };
    let all = AuditFilter::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(seconds(all(), 3).await, [9, 8, 7]);
    assert_eq!(seconds(AuditFilter { owner: text("ann"), ..all() }, 9).await, [8, 6, 4, 2, 0]);
    let security = AuditFilter { action: text(SECURITY_EVENT), ..all() };
    assert_eq!(seconds(security, 9).await, [9, 8]);
    assert_eq!(seconds(AuditFilter { session_id: text("s"), ..all() }, 9).await, [4]);
    let span = AuditFilter { since: Some(at(2)), until: Some(at(5)), ..all() };
    assert_eq!(seconds(span, 9).await, [4, 3, 2]);
    let both = AuditFilter { owner: text("bob"), since: Some(at(4)), ..all() };
    assert_eq!(seconds(both, 2).await, [9, 7]);

    let first = store.audit(&all(), 4).await.unwrap();
    let before = first.last().map(|row| row.seq);
    assert_eq!(seconds(AuditFilter { before, ..all() }, 3).await, [5, 4, 3]);
}

pub(crate) async fn rows_are_never_changed(fixture: Fixture) {
    let store = &fixture.store;
    store.append_audit(&entry("ann", "run")).await.unwrap();
    let before = store.audit(&AuditFilter::default(), 9).await.unwrap();
    let mut attempts = vec![
        "UPDATE audit SET owner = 'bob'",
        "UPDATE audit SET detail = '{}' WHERE seq = 1",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE owner = 'ann'",
    ];
    match fixture.backend {
        Backend::Sqlite => {
            attempts.push("REPLACE INTO audit SELECT seq, 0, 'bob', '', '', '', '' FROM audit");
        }
        Backend::Postgres => attempts.push("TRUNCATE audit"),
    }
    for attempt in attempts {
        let refused = fixture.raw(attempt).expect_err(attempt);
        assert!(refused.contains("audit rows are"), "{attempt}: {refused}");
    }
    assert_eq!(store.audit(&AuditFilter::default(), 9).await, Ok(before));
}

pub(crate) async fn retention_leaves_what_runs(fixture: Fixture) {
    let store = &fixture.store;
    for id in ["runs", "done"] {
        let mut row = entry("ann", "execution_started");
        row.execution_id = Some(id.to_owned());
        store.begin(&running("ann", "a", id), &row).await.unwrap();
    }
    let mut row = entry("ann", "execution_finished");
    (row.execution_id, row.at) = (Some("done".to_owned()), at(5));
    store.finish(&finished(running("ann", "a", "done")), &[], &row).await.unwrap();

    let purged = store.purge(at(3), at(100)).await;
    assert_eq!(purged, Ok(Purged { audit: 1, executions: 0 }), "it ended after that time");
    let purged = store.purge(at(6), at(100)).await;
    assert_eq!(purged, Ok(Purged { audit: 1, executions: 1 }));
    assert_eq!(store.execution("ann", "done").await, Ok(None));
    assert!(store.execution("ann", "runs").await.unwrap().is_some());
    let trail = store.audit(&AuditFilter::default(), 9).await.unwrap();
    let actions: Vec<_> = trail.iter().map(|row| row.entry.action.as_str()).collect();
    assert_eq!(actions, ["audit_purged", "audit_purged", "execution_started"]);
    // The door that retention used is shut again.
    fixture.raw("DELETE FROM audit").unwrap_err();
}
