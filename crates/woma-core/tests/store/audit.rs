//! The audit trail: filters, immutability, retention, daily limit.

use woma_core::store::{AUDIT_LEFT_OUT, AUDIT_LIMITED, AuditFilter, Purged, SECURITY_EVENT};

use crate::fixture::{Backend, Fixture, at, entry, execution, finish, finished, running};

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

pub(crate) async fn retention_keeps_running_executions(fixture: Fixture) {
    let store = &fixture.store;
    for id in ["runs", "done"] {
        let mut row = entry("ann", "execution_started");
        row.execution_id = Some(id.to_owned());
        fixture.plant_running("ann", "a", id);
        store.append_audit(&row).await.unwrap();
    }
    let mut row = entry("ann", "execution_finished");
    (row.execution_id, row.at) = (Some("done".to_owned()), at(5));
    finish(store, &finished(running("ann", "a", "done")), &row).await.unwrap();

    let purged = store.purge(at(3), at(100)).await;
    assert_eq!(purged, Ok(Purged { audit: 1, executions: 0 }), "it ended after that time");
    let purged = store.purge(at(6), at(100)).await;
    assert_eq!(purged, Ok(Purged { audit: 1, executions: 1 }));
    assert_eq!(execution(store, "ann", "done").await, None);
    assert!(execution(store, "ann", "runs").await.is_some());
    let trail = store.audit(&AuditFilter::default(), 9).await.unwrap();
    let actions: Vec<_> = trail.iter().map(|row| row.entry.action.as_str()).collect();
    assert_eq!(actions, ["audit_purged", "audit_purged", "execution_started"]);
    // The permission that retention used is revoked again.
    fixture.raw("DELETE FROM audit").unwrap_err();
}

pub(crate) async fn a_day_has_a_limit_and_says_what_was_left_out(fixture: Fixture) {
    const LIMIT: u64 = 10_000;
    let store = fixture.store.clone().with_audit_day_bytes(LIMIT);
    let mut row = entry("ann", "run");
    row.detail = format!("{{\"text\":\"{}\"}}", "x".repeat(1_000));
    for _ in 0..30 {
        store.append_audit(&row).await.unwrap();
    }
    store.append_audit(&entry("bob", "run")).await.unwrap();
    finish(&store, &finished(running("ann", "s", "e1")), &row).await.unwrap();
    let of = async |owner: &str, action: &str| {
        let (owner, action) = (Some(owner.to_owned()), Some(action.to_owned()));
        let filter = AuditFilter { owner, action, ..AuditFilter::default() };
        store.audit(&filter, 100).await.unwrap()
    };
    let written = of("ann", "run").await.len() as u64;
    assert!((7..10).contains(&written), "{written} rows of over a kilobyte in ten");
    assert_eq!(of("bob", "run").await.len(), 1, "the limit is per caller");
    assert_eq!(of("ann", AUDIT_LIMITED).await.len(), 1, "reported once");
    assert!(execution(&store, "ann", "e1").await.is_some(), "executions are recorded");
    let bytes = store.owner_bytes("ann").await.unwrap();
    assert!((LIMIT..LIMIT + 3_000).contains(&bytes), "{bytes} are charged");

    assert_eq!(store.tell_left_out(row.at).await, Ok(0), "the day is not over");
    let tomorrow = row.at + jiff::SignedDuration::from_hours(24);
    assert_eq!(store.tell_left_out(tomorrow).await, Ok(1));
    assert_eq!(store.tell_left_out(tomorrow).await, Ok(0), "told once");
    let told = of("ann", AUDIT_LEFT_OUT).await;
    assert!(told[0].entry.detail.contains(&format!("\"rows\":{}", 31 - written)), "{told:?}");
    row.at = tomorrow;
    store.append_audit(&row).await.unwrap();
    assert_eq!(of("ann", "run").await.len() as u64, written + 1, "the next day has its own limit");

    store.purge(tomorrow, tomorrow).await.unwrap();
    let bytes = store.owner_bytes("ann").await.unwrap();
    assert!(bytes < 3_000, "purged records are still charged: {bytes}");
}
