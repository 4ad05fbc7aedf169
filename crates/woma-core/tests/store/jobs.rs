//! Contract of the queue of jobs and of schedules, for both databases.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use woma_core::store::{
    JOB_LEASE, JobEnd, JobFilter, JobOutputRow, JobRow, JobState, NewJob, Occurrence, QueueLimits,
    Queued, ScheduleRow, Store, StoreError, Webhook, WebhookEnd, WebhookState,
};

use crate::fixture::{Fixture, at, session};

const WIDE: QueueLimits = QueueLimits {
    jobs: 1_000,
    jobs_of_owner: 1_000,
    bytes: 1 << 30,
    bytes_of_owner: 1 << 30,
    webhooks_of_owner: 10,
};

fn job(owner: &str, id: &str) -> NewJob {
    NewJob {
        id: id.to_owned(),
        owner: owner.to_owned(),
        session_id: None,
        priority: 0,
        retries: 0,
        request: r#"{"code":"1"}"#.to_owned(),
        request_sha256: "ab".to_owned(),
        caller: "{}".to_owned(),
        idempotency_key: None,
        schedule_id: None,
        due_at: None,
        webhook: None,
    }
}

async fn submit(store: &Store, job: NewJob) -> JobRow {
    match store.submit_job(&job, WIDE).await.unwrap() {
        Queued::Added(row) => *row,
        other => panic!("{other:?}"),
    }
}

/// The id of the next job of this caller.
async fn claim(store: &Store, owner: &str, server: &str) -> Option<String> {
    store.claim_job(owner, server).await.unwrap().map(|claimed| claimed.row.id)
}

fn end(state: JobState) -> JobEnd {
    let output = JobOutputRow { head: "out".to_owned(), chars: 3, ..JobOutputRow::default() };
    let result = Some(r#"{"stdout":"out"}"#.to_owned());
    JobEnd { state, execution_id: Some("e1".to_owned()), error: None, result, output }
}

/// Lets every claim expire.
fn expire(fixture: &Fixture) {
    let late = JOB_LEASE.as_micros();
    let sql = format!("UPDATE jobs SET lease_until = lease_until - {late} WHERE state = 'running'");
    fixture.raw(&sql).unwrap();
}

pub(crate) async fn a_job_is_queued_claimed_renewed_and_ended_once(fixture: Fixture) {
    let store = &fixture.store;
    let queued = submit(store, job("ann", "a")).await;
    assert_eq!((queued.state, queued.attempts, queued.has_result), (JobState::Pending, 0, false));
    assert_eq!(store.job("ann", "a").await, Ok(Some(queued)));
    assert_eq!(store.job("bob", "a").await, Ok(None), "the job of another caller");
    assert_eq!(store.job_owners("one").await, Ok(vec!["ann".to_owned()]));

    let claimed = store.claim_job("ann", "one").await.unwrap().unwrap();
    assert_eq!((claimed.row.state, claimed.row.attempts), (JobState::Running, 1));
    assert_eq!((&*claimed.request, &*claimed.caller), (r#"{"code":"1"}"#, "{}"));
    assert!(claimed.row.started_at.is_some());
    assert_eq!(claim(store, "ann", "two").await, None, "it is claimed");
    assert_eq!(store.job_owners("two").await, Ok(vec![]));

    let said = JobOutputRow {
        head: "a\0b".to_owned(),
        tail: "c".to_owned(),
        chars: 9,
        progress: Some(400),
        progress_message: Some("half".to_owned()),
    };
    assert_eq!(store.renew_job("a", "two", Some(&said)).await, Ok(None), "another server");
    assert_eq!(store.renew_job("a", "one", Some(&said)).await, Ok(Some(false)));
    assert_eq!(store.renew_job("a", "one", None).await, Ok(Some(false)));
    let stored = JobOutputRow { head: "a\u{fffd}b".to_owned(), ..said };
    assert_eq!(store.job_output("ann", "a").await, Ok(Some(stored)));
    assert_eq!(store.job_output("bob", "a").await, Ok(None));

    assert_eq!(store.finish_job("a", "two", &end(JobState::Failed)).await, Ok(false));
    assert_eq!(store.finish_job("a", "one", &end(JobState::Timeout)).await, Ok(true));
    assert_eq!(store.finish_job("a", "one", &end(JobState::Failed)).await, Ok(false), "once");
    let ended = store.job("ann", "a").await.unwrap().unwrap();
    assert_eq!((ended.state, ended.has_result, ended.output_chars), (JobState::Timeout, true, 3));
    assert!(ended.ended_at >= ended.started_at && ended.execution_id.as_deref() == Some("e1"));
    let result = store.job_result("ann", "a").await.unwrap();
    assert_eq!(result.as_deref(), Some(r#"{"stdout":"out"}"#));
    assert_eq!(store.job_result("bob", "a").await, Ok(None));
    assert_eq!(store.renew_job("a", "one", None).await, Ok(None), "it has ended");
}

pub(crate) async fn callers_have_turns_and_priority_counts_within_a_caller(fixture: Fixture) {
    let store = &fixture.store;
    for number in 0..3 {
        submit(store, job("ann", &format!("a{number}"))).await;
    }
    submit(store, NewJob { priority: 5, ..job("ann", "urgent") }).await;
    for owner in ["bob", "cid"] {
        submit(store, job(owner, &format!("{owner}0"))).await;
        submit(store, NewJob { priority: 9, ..job(owner, &format!("{owner}1")) }).await;
    }
    let later = Timestamp::now() + Duration::from_hours(1);
    submit(store, NewJob { due_at: Some(later), priority: 100, ..job("dan", "later") }).await;
    let mut order = Vec::new();
    loop {
        let owners = store.job_owners("one").await.unwrap();
        let Some(next) = owners.first() else { break };
        order.extend(claim(store, next, "one").await);
    }
    let expected = ["urgent", "bob1", "cid1", "a0", "bob0", "cid0", "a1", "a2"].map(str::to_owned);
    assert_eq!(order, expected, "nobody's priority goes before another caller's turn");
    assert_eq!(claim(store, "dan", "one").await, None, "it is not due");
}

pub(crate) async fn a_queue_has_limits_in_all_and_for_each_caller(fixture: Fixture) {
    let store = &fixture.store;
    let limits = QueueLimits { jobs: 3, jobs_of_owner: 2, ..WIDE };
    let add = async |owner: &str, id: &str| {
        matches!(store.submit_job(&job(owner, id), limits).await, Ok(Queued::Added(_)))
    };
    assert!(add("ann", "a1").await && add("ann", "a2").await);
    assert!(!add("ann", "a3").await, "two of one caller");
    assert!(add("bob", "b1").await && !add("bob", "b2").await, "three in all");
    assert_eq!(store.pending_jobs("ann").await, Ok((3, 2, 0)));
    claim(store, "ann", "one").await.unwrap();
    assert!(add("bob", "b2").await, "a job that runs is not in the queue");
    let bytes = QueueLimits { bytes_of_owner: 30, ..WIDE };
    let long = NewJob { request: "x".repeat(30), ..job("cid", "c1") };
    assert!(matches!(store.submit_job(&long, bytes).await, Ok(Queued::Added(_))));
    assert_eq!(store.submit_job(&job("cid", "c2"), bytes).await, Ok(Queued::Full));
}

pub(crate) async fn a_key_makes_one_job(fixture: Fixture) {
    let store = &fixture.store;
    let keyed =
        |owner: &str, id: &str| NewJob { idempotency_key: Some("k".to_owned()), ..job(owner, id) };
    let ids = ["a", "b", "c", "d"].map(|id| keyed("ann", id));
    let all = join_all(ids.iter().map(|job| store.submit_job(job, WIDE))).await;
    let added = all.iter().filter(|queued| matches!(queued, Ok(Queued::Added(_)))).count();
    assert_eq!(added, 1, "{all:?}");
    let known: BTreeSet<_> = all
        .into_iter()
        .map(|queued| match queued.unwrap() {
            Queued::Added(row) | Queued::Known(row) => row.id,
            Queued::Full => panic!("the queue is not full"),
        })
        .collect();
    assert_eq!(known.len(), 1, "all of them name the same job");
    assert!(matches!(store.submit_job(&keyed("bob", "e"), WIDE).await, Ok(Queued::Added(_))));
}

pub(crate) async fn an_expired_claim_fails_the_job_or_returns_it(fixture: Fixture) {
    let store = &fixture.store;
    for (id, retries) in [("once", 0), ("twice", 1), ("stopped", 1)] {
        submit(store, NewJob { retries, ..job("ann", id) }).await;
        assert_eq!(claim(store, "ann", "one").await.as_deref(), Some(id));
    }
    let said = JobOutputRow { head: "so far".to_owned(), chars: 6, ..JobOutputRow::default() };
    store.renew_job("once", "one", Some(&said)).await.unwrap();
    store.cancel_job("ann", "stopped").await.unwrap();
    assert_eq!(store.reap_jobs("two", "{}").await, Ok(vec![]), "they are claimed");
    expire(&fixture);
    assert_eq!(store.reap_jobs("one", "{}").await, Ok(vec![]), "its own");
    let mut reaped = store.reap_jobs("two", r#"{"reason":"interrupted"}"#).await.unwrap();
    reaped.sort();
    let states = [
        ("once".to_owned(), JobState::Failed),
        ("stopped".to_owned(), JobState::Cancelled),
        ("twice".to_owned(), JobState::Pending),
    ];
    assert_eq!(reaped, states);
    let failed = store.job("ann", "once").await.unwrap().unwrap();
    assert_eq!(failed.error.as_deref(), Some(r#"{"reason":"interrupted"}"#));
    assert_eq!(store.job_output("ann", "once").await.unwrap().unwrap().head, "so far");
    assert_eq!(store.finish_job("once", "one", &end(JobState::Completed)).await, Ok(false));
    // The second time is the last.
    assert_eq!(claim(store, "ann", "two").await.as_deref(), Some("twice"));
    store.put_back_job("twice", "two", Duration::ZERO).await.unwrap();
    assert_eq!(claim(store, "ann", "two").await.as_deref(), Some("twice"), "it was put back");
    expire(&fixture);
    let reaped = store.reap_jobs("one", "{}").await;
    assert_eq!(reaped, Ok(vec![("twice".to_owned(), JobState::Failed)]));
    assert_eq!(store.job("ann", "twice").await.unwrap().unwrap().attempts, 2);
}

pub(crate) async fn a_job_of_a_session_waits_for_the_server_that_has_it(fixture: Fixture) {
    let store = &fixture.store;
    store.put_session(&session("ann", "s")).await.unwrap();
    store.take_session("ann", "s", "folder1/one").await.unwrap();
    submit(store, NewJob { session_id: Some("s".to_owned()), ..job("ann", "a") }).await;
    assert_eq!(claim(store, "ann", "folder2/two").await, None, "the other server has the session");
    assert_eq!(store.job_owners("folder2/two").await, Ok(vec![]));
    assert_eq!(store.job_owners("folder1/three").await, Ok(vec!["ann".to_owned()]));
    let gone = store.expire_sessions("folder2/two", at(10), 10, |_| false).await;
    assert_eq!(gone, Ok(vec![]), "a session with a job does not expire");
    store.release_lease("folder1/one").await.unwrap();
    assert_eq!(
        store.expire_sessions("folder2/two", at(10), 10, |_| false).await,
        Ok(vec![]),
        "not even without a lease"
    );
    assert_eq!(claim(store, "ann", "folder2/two").await.as_deref(), Some("a"));
}

pub(crate) async fn a_job_is_cancelled_while_it_waits_or_runs(fixture: Fixture) {
    let store = &fixture.store;
    for id in ["a", "b"] {
        submit(store, NewJob { session_id: Some("s".to_owned()), ..job("ann", id) }).await;
    }
    claim(store, "ann", "one").await.unwrap();
    assert_eq!(store.cancel_job("bob", "a").await, Ok(None));
    let running = store.cancel_job("ann", "a").await.unwrap().unwrap();
    assert_eq!((running.state, running.cancel_requested), (JobState::Running, true));
    assert_eq!(store.renew_job("a", "one", None).await, Ok(Some(true)), "its server is told");
    let waiting = store.cancel_job("ann", "b").await.unwrap().unwrap();
    assert_eq!(waiting.state, JobState::Cancelled);
    assert_eq!(claim(store, "ann", "one").await, None);
    store.finish_job("a", "one", &end(JobState::Cancelled)).await.unwrap();
    let ended = store.cancel_job("ann", "a").await.unwrap().unwrap();
    assert_eq!(ended.state, JobState::Cancelled, "again changes nothing");
    for id in ["c", "d"] {
        submit(store, NewJob { session_id: Some("s".to_owned()), ..job("ann", id) }).await;
    }
    claim(store, "ann", "one").await.unwrap();
    assert_eq!(store.cancel_session_jobs("bob", "s").await, Ok(0));
    assert_eq!(store.cancel_session_jobs("ann", "s").await, Ok(2));
}

pub(crate) async fn concurrent_claims_never_share_a_job(fixture: Fixture) {
    const JOBS: usize = 60;
    let store = &fixture.store;
    for number in 0..JOBS {
        submit(store, job("ann", &format!("j{number:02}"))).await;
    }
    let servers = ["one", "two", "three", "four"];
    let claims = join_all(servers.map(|server| async move {
        let mut mine = Vec::new();
        while let Some(id) = claim(store, "ann", server).await {
            mine.push(id);
        }
        mine
    }));
    let claimed: Vec<String> = claims.await.into_iter().flatten().collect();
    let distinct: BTreeSet<_> = claimed.iter().collect();
    // A server whose neighbour claims at the same moment may see none: who is left looks again.
    let mut rest = 0;
    while claim(store, "ann", "five").await.is_some() {
        rest += 1;
    }
    assert_eq!((distinct.len(), claimed.len() + rest), (claimed.len(), JOBS));
}

pub(crate) async fn jobs_are_listed_in_pages_and_purged(fixture: Fixture) {
    let store = &fixture.store;
    for number in 0..5 {
        submit(store, job("ann", &format!("a{number}"))).await;
    }
    submit(store, job("bob", "b0")).await;
    let ids = async |filter: &JobFilter, limit, before: Option<&str>| {
        let jobs = store.jobs("ann", filter, limit, before).await.unwrap();
        jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let all = JobFilter::default();
    assert_eq!(ids(&all, 2, None).await, ["a4", "a3"]);
    assert_eq!(ids(&all, 9, Some("a3")).await, ["a2", "a1", "a0"]);
    assert_eq!(ids(&all, 9, Some("b0")).await, Vec::<String>::new(), "no job of this caller");
    for _ in 0..2 {
        let id = claim(store, "ann", "one").await.unwrap();
        store.finish_job(&id, "one", &end(JobState::Completed)).await.unwrap();
    }
    let done = JobFilter { state: Some(JobState::Completed), ..all.clone() };
    assert_eq!(ids(&done, 9, None).await, ["a1", "a0"]);
    let of = JobFilter { session: Some("s".to_owned()), ..all.clone() };
    assert_eq!(ids(&of, 9, None).await, Vec::<String>::new());
    let later = Timestamp::now() + Duration::from_hours(1);
    assert_eq!(store.purge_jobs(at(0), 1 << 30).await, Ok(0));
    assert_eq!(store.purge_jobs(at(0), 40).await, Ok(1), "the older of two that are too large");
    assert_eq!(ids(&done, 9, None).await, ["a1"]);
    assert_eq!(store.purge_jobs(later, 1 << 30).await, Ok(1));
    assert_eq!(ids(&all, 9, None).await, ["a4", "a3", "a2"], "those that wait stay");
}

pub(crate) async fn an_occurrence_makes_one_job(fixture: Fixture) {
    let store = &fixture.store;
    let row = ScheduleRow {
        id: "s1".to_owned(),
        owner: "ann".to_owned(),
        name: Some("nightly".to_owned()),
        cron: "0 3 * * *".to_owned(),
        zone: "UTC".to_owned(),
        session_id: None,
        priority: 1,
        retries: 0,
        request: "{}".to_owned(),
        caller: "{}".to_owned(),
        is_paused: false,
        created_at: at(0),
        next_at: at(5),
        last_at: None,
        last_job: None,
        problem: None,
    };
    store.add_schedule(&row, 1).await.unwrap();
    let other = ScheduleRow { id: "s2".to_owned(), ..row.clone() };
    assert_eq!(store.add_schedule(&other, 1).await, Err(StoreError::Conflict), "one is the limit");
    assert_eq!(store.schedule("ann", "s1").await, Ok(Some(row.clone())));
    assert_eq!(store.schedule("bob", "s1").await, Ok(None));
    assert_eq!(store.due_schedules(9).await, Ok(vec![row.clone()]));
    let later = Timestamp::from_second(Timestamp::now().as_second() + 3600).unwrap();
    let occurrence = |id: &str| Occurrence {
        next_at: later,
        job: Some(NewJob { schedule_id: Some("s1".to_owned()), ..job("ann", id) }),
        problem: None,
    };
    let (first, second) = (occurrence("j1"), occurrence("j2"));
    let both = join_all([&first, &second].map(|one| store.fire_schedule(&row, one, WIDE))).await;
    assert_eq!(both.iter().filter(|fired| fired.is_ok()).count(), 1, "{both:?}");
    let made = store.jobs("ann", &JobFilter::default(), 9, None).await.unwrap();
    assert_eq!(made.len(), 1);
    assert_eq!(store.due_schedules(9).await, Ok(vec![]));
    let fired = store.schedule("ann", "s1").await.unwrap().unwrap();
    assert_eq!((fired.next_at, fired.last_job), (later, Some(made[0].id.clone())));
    // A full queue leaves the schedule due.
    assert_eq!(store.pause_schedule("bob", "s1", None).await, Ok(false));
    assert_eq!(store.pause_schedule("ann", "s1", Some(at(7))).await, Ok(true));
    let due = store.due_schedules(9).await.unwrap().remove(0);
    let full = QueueLimits { jobs: 1, ..WIDE };
    let refused = store.fire_schedule(&due, &occurrence("j3"), full).await;
    assert_eq!(
        (refused, store.due_schedules(9).await.unwrap().len()),
        (Err(StoreError::NotFound), 1)
    );
    assert_eq!(store.pause_schedule("ann", "s1", None).await, Ok(true));
    assert_eq!(store.due_schedules(9).await, Ok(vec![]));
    assert_eq!(store.schedules("ann", 9, None).await.unwrap().len(), 1);
    assert_eq!(store.delete_schedule("bob", "s1").await, Ok(false));
    assert_eq!(store.delete_schedule("ann", "s1").await, Ok(true));
}

/// `WOMA_TEST_JOBS` sets another number of jobs; the rates are printed.
pub(crate) async fn many_jobs_of_three_callers_are_claimed_once_and_in_turns(fixture: Fixture) {
    let count = std::env::var_os("WOMA_TEST_JOBS").and_then(|text| text.into_string().ok());
    let count: usize = count.and_then(|text| text.parse().ok()).unwrap_or(240);
    let (store, owners) = (&fixture.store, ["ann", "bob", "cid"]);
    let limits = QueueLimits { jobs: u64::MAX, jobs_of_owner: u64::MAX, ..WIDE };
    let began = std::time::Instant::now();
    // Most of them are one caller's, who came first.
    let owner_of = |number: usize| match number {
        number if number < count / 2 => owners[0],
        number => owners[number % 3],
    };
    for number in 0..count {
        let job = job(owner_of(number), &format!("j{number:06}"));
        assert!(matches!(store.submit_job(&job, limits).await, Ok(Queued::Added(_))));
    }
    let submitted = began.elapsed();
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    loop {
        let next = store.job_owners("one").await.unwrap();
        let Some(owner) = next.first() else { break };
        let id = claim(store, owner, "one").await.unwrap();
        assert!(seen.insert(id.clone()), "{id} was claimed twice");
        store.finish_job(&id, "one", &end(JobState::Completed)).await.unwrap();
        order.push(owner.clone());
    }
    assert_eq!(seen.len(), count, "none is lost");
    let of = |name: &str| order.iter().filter(|owner| *owner == name).count();
    let shared = 3 * of("bob").min(of("cid"));
    for round in order[..shared].chunks(3) {
        let round: BTreeSet<&str> = round.iter().map(String::as_str).collect();
        assert_eq!(round.len(), 3, "each of three callers has a turn: {round:?}");
    }
    let (backend, seconds) = (fixture.backend.name(), began.elapsed().saturating_sub(submitted));
    eprintln!(
        "{backend}: {count} jobs submitted in {submitted:?}, claimed and ended in {seconds:?}"
    );
}

const CLAIM: Duration = Duration::from_secs(30);

fn with_webhook(owner: &str, id: &str) -> NewJob {
    let (url, secret) = ("https://example.org/".to_owned(), "sixteen bytes ok".to_owned());
    NewJob { webhook: Some(Webhook { url, secret }), ..job(owner, id) }
}

/// Makes every webhook due that waits for its time.
fn make_due(fixture: &Fixture) {
    let sql = "UPDATE jobs SET webhook_due_at = 1 WHERE webhook_due_at IS NOT NULL";
    fixture.raw(sql).unwrap();
}

pub(crate) async fn a_webhook_is_due_with_the_end_of_its_job_and_delivered_once(fixture: Fixture) {
    let store = &fixture.store;
    for id in ["done", "cancelled", "lost"] {
        let queued = submit(store, with_webhook("ann", id)).await;
        assert_eq!(queued.webhook.unwrap().state, WebhookState::Waiting);
    }
    submit(store, job("ann", "without")).await;
    assert_eq!(store.webhook_owners().await, Ok(vec![]), "no job has ended");
    store.cancel_job("ann", "cancelled").await.unwrap();
    for _ in 0..3 {
        store.claim_job("ann", "one").await.unwrap().unwrap();
    }
    assert!(store.finish_job("done", "one", &end(JobState::Completed)).await.unwrap());
    assert!(store.finish_job("without", "one", &end(JobState::Completed)).await.unwrap());
    expire(&fixture);
    store.reap_jobs("two", "{}").await.unwrap();
    assert_eq!(store.webhook_owners().await, Ok(vec!["ann".to_owned()]));

    // Two servers at once: each message is claimed by one.
    let claims = join_all((0..6).map(|_| store.claim_webhook("ann", CLAIM, 2))).await;
    let claims: Vec<_> = claims.into_iter().filter_map(Result::unwrap).collect();
    let ids: BTreeSet<&str> = claims.iter().map(|claim| &*claim.job.id).collect();
    assert_eq!((claims.len(), ids), (3, BTreeSet::from(["done", "cancelled", "lost"])));
    assert!(claims.iter().all(|claim| claim.attempt == 1 && !claim.webhook.secret.is_empty()));
    assert_eq!(store.webhook_owners().await, Ok(vec![]), "a claim keeps others away");

    let delivered = WebhookEnd::Delivered;
    assert_eq!(store.settle_webhook("done", 1, &delivered).await, Ok(true));
    assert_eq!(store.settle_webhook("done", 1, &delivered).await, Ok(false), "once");
    let gone = WebhookEnd::Failed { error: "status 410".to_owned() };
    assert_eq!(store.settle_webhook("cancelled", 1, &gone).await, Ok(true));
    let again = WebhookEnd::Again { after: CLAIM, error: "status 500".to_owned() };
    assert_eq!(store.settle_webhook("lost", 1, &again).await, Ok(true));
    let state = async |id: &str| store.job("ann", id).await.unwrap().unwrap().webhook.unwrap();
    assert_eq!(state("done").await.state, WebhookState::Delivered);
    assert!(state("done").await.delivered_at.is_some());
    assert_eq!(state("cancelled").await.error.as_deref(), Some("status 410"));
    let lost = state("lost").await;
    assert_eq!((lost.state, lost.attempts), (WebhookState::Pending, 1));
    assert!(lost.next_at.is_some() && lost.error.as_deref() == Some("status 500"));
    let secrets = "SELECT count(*) FROM jobs WHERE webhook_secret IS NOT NULL";
    assert_eq!(fixture.count(secrets), 1, "a secret goes when nothing is left to deliver");

    // A server dies during an attempt: its claim expires, and it was counted.
    make_due(&fixture);
    assert_eq!(store.claim_webhook("ann", CLAIM, 2).await.unwrap().unwrap().attempt, 2);
    assert_eq!(store.settle_webhook("lost", 1, &delivered).await, Ok(false), "an older attempt");
    make_due(&fixture);
    assert!(store.claim_webhook("ann", CLAIM, 2).await.unwrap().is_none(), "no attempt is left");
    assert_eq!(store.give_up_webhooks(2).await, Ok(1));
    assert_eq!(state("lost").await.state, WebhookState::Failed);
}

pub(crate) async fn undelivered_webhooks_are_bounded_and_keep_their_jobs(fixture: Fixture) {
    let store = &fixture.store;
    let limits = QueueLimits { webhooks_of_owner: 1, ..WIDE };
    submit(store, with_webhook("ann", "first")).await;
    store.cancel_job("ann", "first").await.unwrap();
    let refused = store.submit_job(&with_webhook("ann", "second"), limits).await;
    assert_eq!(refused, Ok(Queued::Full));
    assert_eq!(store.pending_jobs("ann").await, Ok((0, 0, 1)));
    let others = [job("ann", "plain"), with_webhook("bob", "third")];
    for other in others {
        assert!(matches!(store.submit_job(&other, limits).await, Ok(Queued::Added(_))));
    }
    assert_eq!(store.purge_jobs(Timestamp::MAX, 0).await, Ok(0), "it is not delivered yet");
    store.claim_webhook("ann", CLAIM, 8).await.unwrap().unwrap();
    store.settle_webhook("first", 1, &WebhookEnd::Delivered).await.unwrap();
    assert_eq!(store.purge_jobs(Timestamp::MAX, 0).await, Ok(1));
}

pub(crate) async fn waiting_jobs_are_counted_through_every_change(fixture: Fixture) {
    let store = &fixture.store;
    let all = "SELECT count(*) FROM jobs WHERE state = 'pending'";
    let counted = "SELECT CAST(COALESCE(SUM(waiting_jobs), 0) AS BIGINT) FROM job_turns";
    let bytes = "SELECT CAST(COALESCE(SUM(waiting_bytes), 0) AS BIGINT) FROM job_turns";
    let check = |expected: i64| {
        assert_eq!((fixture.count(all), fixture.count(counted)), (expected, expected));
        assert_eq!(fixture.count(bytes), expected * 12, "each request has 12 bytes");
    };
    for id in ["a", "b", "c", "d"] {
        submit(store, NewJob { retries: 1, ..job("ann", id) }).await;
    }
    submit(store, job("bob", "e")).await;
    check(5);
    let put_back = claim(store, "ann", "one").await.unwrap();
    let reaped = claim(store, "ann", "one").await.unwrap();
    let done = claim(store, "ann", "one").await.unwrap();
    check(2);
    store.put_back_job(&put_back, "one", Duration::ZERO).await.unwrap();
    check(3);
    store.finish_job(&done, "one", &end(JobState::Completed)).await.unwrap();
    check(3);
    expire(&fixture);
    let again = store.reap_jobs("two", "{}").await.unwrap();
    assert_eq!(again, [(reaped, JobState::Pending)]);
    check(4);
    store.cancel_job("bob", "e").await.unwrap();
    check(3);
    store.purge_jobs(Timestamp::MAX, 0).await.unwrap();
    check(3);
}
