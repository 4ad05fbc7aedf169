//! The audit trail: filters, immutability, retention, daily limit.

use futures_util::future::join_all;
use woma_core::store::{
    AUDIT_LEFT_OUT, AUDIT_LIMITED, AuditCheck, AuditFilter, AuditHead, AuditProblem, Purged,
    SECURITY_EVENT, Store, Tampering,
};

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
            attempts.push(
                "REPLACE INTO audit (seq, at, owner, action, detail) \
                 SELECT seq, 0, 'bob', '', '' FROM audit",
            );
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
    for id in ["done", "runs"] {
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
    // Of a chain, the beginning goes: what follows a running execution stays with it.
    let purged = store.purge(at(6), at(100)).await;
    assert_eq!(purged, Ok(Purged { audit: 0, executions: 1 }));
    assert_eq!(execution(store, "ann", "done").await, None);
    assert!(execution(store, "ann", "runs").await.is_some());
    let trail = store.audit(&AuditFilter::default(), 9).await.unwrap();
    let actions: Vec<_> = trail.iter().map(|row| row.entry.action.as_str()).collect();
    let kept = ["audit_purged", "audit_purged", "execution_finished", "execution_started"];
    assert_eq!(actions, kept);
    assert_eq!(store.check_audit(&[]).await.unwrap().problem, None);
    // The permission that retention used is revoked again.
    fixture.raw("DELETE FROM audit").unwrap_err();
}

/// Changes the trail behind the back of the server, which the triggers refuse.
fn tamper(fixture: &Fixture, sql: &str) {
    let without_triggers = match fixture.backend {
        Backend::Sqlite => {
            "DROP TRIGGER IF EXISTS audit_is_not_changed; DROP TRIGGER IF EXISTS \
             audit_is_not_deleted;"
        }
        Backend::Postgres => "ALTER TABLE audit DISABLE TRIGGER USER;",
    };
    fixture.raw(&format!("{without_triggers} {sql}")).expect(sql);
}

async fn problem(store: &Store) -> Option<(i64, Tampering)> {
    let problem = store.check_audit(&[]).await.unwrap().problem;
    problem.map(|AuditProblem { position, kind, .. }| (position, kind))
}

pub(crate) async fn a_check_names_the_row_that_was_tampered_with(fixture: Fixture) {
    let store = &fixture.store;
    for second in 0..9 {
        let mut row = entry("ann", "run");
        (row.at, row.detail) = (at(second), format!("{{\"second\":{second}}}"));
        store.append_audit(&row).await.unwrap();
    }
    let whole = store.check_audit(&[]).await.unwrap();
    assert_eq!((whole.chains.len(), whole.chains[0].rows, whole.problem), (1, 9, None));
    let heads = store.audit_heads().await.unwrap();
    assert_eq!(heads, [whole.chains[0].head.clone()]);
    store.append_audit(&entry("ann", "run")).await.unwrap();
    assert_eq!(store.check_audit(&heads).await.unwrap().problem, None);

    let columns = "seq, at, owner, action, session_id, execution_id, detail, chain, position, hash";
    let fresh = match fixture.backend {
        Backend::Sqlite => "",
        Backend::Postgres => "OVERRIDING SYSTEM VALUE",
    };
    tamper(&fixture, "CREATE TABLE saved AS SELECT * FROM audit");
    let restore = format!(
        "DELETE FROM audit; INSERT INTO audit ({columns}) {fresh} SELECT {columns} FROM saved \
         ORDER BY seq"
    );
    let swap = "UPDATE audit SET detail = (SELECT other.detail FROM saved AS other \
                WHERE other.position = 9 - audit.position) WHERE position IN (4, 5)";
    let swap_places = "UPDATE audit SET position = -1 WHERE position = 4; \
                       UPDATE audit SET position = 4 WHERE position = 5; \
                       UPDATE audit SET position = 5 WHERE position = -1";
    let inserted = "INSERT INTO audit (at, owner, action, detail, chain, position, hash) \
                    SELECT at, owner, action, detail, chain, 11, hash FROM saved \
                    WHERE position = 10";
    let table = [
        ("UPDATE audit SET detail = '{}' WHERE position = 3", 3, Tampering::Changed),
        ("UPDATE audit SET owner = 'bob' WHERE position = 10", 10, Tampering::Changed),
        ("UPDATE audit SET at = at + 1 WHERE position = 1", 1, Tampering::Changed),
        (swap, 4, Tampering::Changed),
        (swap_places, 4, Tampering::Changed),
        ("DELETE FROM audit WHERE position = 5", 5, Tampering::Removed),
        ("DELETE FROM audit WHERE position <= 2", 2, Tampering::Removed),
        ("DELETE FROM audit WHERE position >= 10", 10, Tampering::Removed),
        ("DELETE FROM audit", 1, Tampering::Removed),
        (inserted, 11, Tampering::Inserted),
        (
            "INSERT INTO audit (at, owner, action, detail) VALUES (1, 'ann', 'run', '{}')",
            0,
            Tampering::Inserted,
        ),
    ];
    for (sql, position, kind) in table {
        tamper(&fixture, sql);
        assert_eq!(problem(store).await, Some((position, kind)), "{sql}");
        tamper(&fixture, &restore);
        assert_eq!(problem(store).await, None, "after {sql}");
    }
    // A chain that was written anew is whole; only a head that was kept elsewhere tells.
    let other = AuditHead { hash: "0".repeat(64), ..heads[0].clone() };
    let found = store.check_audit(&[other]).await.unwrap().problem.unwrap();
    assert_eq!((found.position, found.kind), (9, Tampering::Replaced));
    let later = AuditHead { position: 11, ..heads[0].clone() };
    let found = store.check_audit(&[later]).await.unwrap().problem.unwrap();
    assert_eq!((found.position, found.kind), (11, Tampering::Removed));
    let unknown = AuditHead { chain: "other".to_owned(), ..heads[0].clone() };
    let found = store.check_audit(&[unknown]).await.unwrap().problem.unwrap();
    assert_eq!((found.chain.as_str(), found.kind), ("other", Tampering::Removed));
}

pub(crate) async fn processes_and_servers_write_whole_chains(fixture: Fixture) {
    let second = Store::open(fixture.config()).await.unwrap();
    let stores = [
        fixture.store.clone().with_audit_chain("one"),
        second.clone().with_audit_chain("one"),
        second.with_audit_chain("two"),
    ];
    let append = async |store: &Store, number: i64| {
        let mut row = entry("ann", "run");
        row.at = at(number);
        let id = format!("{}-{number}", uuid::Uuid::new_v4());
        store.append_audit(&row).await.unwrap();
        finish(store, &finished(running("ann", "s", &id)), &row).await.unwrap();
    };
    let all = (0..4).flat_map(|number| stores.iter().map(move |store| (store, number)));
    join_all(all.map(|(store, number)| append(store, number))).await;
    let AuditCheck { chains, problem, .. } = fixture.store.check_audit(&[]).await.unwrap();
    assert_eq!(problem, None);
    let found: Vec<_> = chains.iter().map(|c| (c.head.chain.as_str(), c.rows)).collect();
    assert_eq!(found, [("one", 16), ("two", 8)]);
}

pub(crate) async fn a_purge_leaves_chains_that_can_be_checked(fixture: Fixture) {
    let store = &fixture.store;
    let other = store.clone().with_audit_chain("other");
    for second in 0..10 {
        let mut row = entry("ann", "run");
        row.at = at(second);
        store.append_audit(&row).await.unwrap();
        if second < 3 {
            other.append_audit(&row).await.unwrap();
        }
    }
    let heads = store.audit_heads().await.unwrap();
    let nothing = store.purge(at(0), at(100)).await;
    assert_eq!(nothing, Ok(Purged::default()));
    let purges = AuditFilter { action: Some("audit_purged".to_owned()), ..AuditFilter::default() };
    assert_eq!(store.audit(&purges, 9).await.unwrap().len(), 0, "nothing went");
    assert_eq!(store.purge(at(5), at(100)).await, Ok(Purged { audit: 8, executions: 0 }));
    assert_eq!(store.audit(&purges, 9).await.unwrap().len(), 2, "one for each chain");
    let check = store.check_audit(&heads).await.unwrap();
    assert_eq!(check.problem, None);
    let found: Vec<_> =
        check.chains.iter().map(|c| (c.head.chain.as_str(), c.first, c.rows)).collect();
    assert_eq!(found, [("local", 6, 6), ("other", 4, 1)]);
    let purged: Vec<_> = check.purged.iter().map(|head| head.chain.as_str()).collect();
    assert_eq!(purged, ["other"], "the head of the first chain is still there");
    // Rows of purges do not go alone.
    assert_eq!(store.purge(at(5), at(101)).await, Ok(Purged::default()));
    assert_eq!(store.purge(at(8), at(101)).await, Ok(Purged { audit: 3, executions: 0 }));
    store.append_audit(&entry("ann", "run")).await.unwrap();
    assert_eq!(problem(store).await, None);
    // The first row that is left cannot go unnoticed, nor what the purge says of those before it.
    tamper(&fixture, "CREATE TABLE saved AS SELECT detail FROM audit WHERE position = 12");
    tamper(&fixture, "UPDATE audit SET detail = '{}' WHERE position = 12");
    assert_eq!(problem(store).await, Some((12, Tampering::Changed)));
    tamper(&fixture, "UPDATE audit SET detail = (SELECT detail FROM saved) WHERE position = 12");
    assert_eq!(problem(store).await, None);
    tamper(&fixture, "DELETE FROM audit WHERE position = 9 AND chain = 'local'");
    assert_eq!(problem(store).await, Some((9, Tampering::Removed)));
}

pub(crate) async fn rows_from_before_the_chains_are_told_apart(fixture: Fixture) {
    let insert = "INSERT INTO audit (at, owner, action, detail) VALUES (1, 'ann', 'run', '{}')";
    fixture.raw(insert).unwrap();
    // As the migration has left it, had the row been there.
    fixture.raw("UPDATE audit_heads SET position = 1 WHERE chain = ''").unwrap();
    fixture.store.append_audit(&entry("ann", "run")).await.unwrap();
    let check = fixture.store.check_audit(&[]).await.unwrap();
    assert_eq!((check.unchained, check.problem), (1, None));
    assert_eq!(fixture.store.purge(at(0), at(1)).await, Ok(Purged { audit: 1, executions: 0 }));
    assert_eq!(fixture.store.check_audit(&[]).await.unwrap().unchained, 0);
    fixture.raw(insert).unwrap();
    assert_eq!(problem(&fixture.store).await, Some((0, Tampering::Inserted)));
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
    assert_eq!(store.check_audit(&[]).await.unwrap().problem, None);
    let bytes = store.owner_bytes("ann").await.unwrap();
    assert!(bytes < 3_000, "purged records are still charged: {bytes}");
}
