//! Turns, owners and limits, without a kernel: what has one is tested through the doors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Contents, Label, Rules, Sessions, lock};
use crate::error::Code;
use crate::error::Error;
use crate::model::caller::{Caller, CallerId, Quota};
use crate::model::{BadSessionId, SessionChoice, SessionId};
use crate::policy::Policies;

fn sessions(sessions_max: usize) -> Sessions {
    with_kernels(2, sessions_max)
}

fn with_kernels(kernels_max: usize, sessions_max: usize) -> Sessions {
    let idle = Duration::from_secs(300);
    let workspace = Contents::default();
    let rules = Rules { kernels_max, running_max: 2, sessions_max, idle, workspace };
    Sessions::new(rules, Policies::open(), None, Arc::default())
}

fn caller(name: &str, sessions: Option<u32>) -> Caller {
    let quota = Quota { sessions, ..Quota::default() };
    Caller { id: CallerId::new(name), quota, ..Caller::local() }
}

fn label() -> Label {
    Label { name: Some("n".to_owned()), description: "d".to_owned(), ..Label::default() }
}

fn named(id: &str) -> SessionChoice {
    SessionChoice::Named(SessionId::parse(id).unwrap())
}

#[tokio::test]
async fn turns_come_in_the_order_of_arrival() {
    let sessions = sessions(10);
    let me = caller("a", None);
    let (session_ref, created) = sessions.choose(&me, &named("x")).unwrap().unwrap();
    assert!(created);
    let mut first = session_ref.queue().await;
    let state = first.turn().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..50 {
        let (session_ref, _) = sessions.choose(&me, &named("x")).unwrap().unwrap();
        let mut place = session_ref.queue().await;
        let order = Arc::clone(&order);
        waiting.push(tokio::spawn(async move {
            let state = place.turn().await.unwrap();
            lock(&order).push(number);
            drop(state);
        }));
    }
    // The last in the queue is polled first, and still waits.
    waiting.reverse();
    drop(state);
    for task in waiting {
        task.await.unwrap();
    }
    assert_eq!(*lock(&order), (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_name_belongs_to_its_owner() {
    let sessions = sessions(10);
    let (alice, bob) = (caller("alice", None), caller("bob", None));
    let (hers, _) = sessions.choose(&alice, &named("x")).unwrap().unwrap();
    let (his, created) = sessions.choose(&bob, &named("x")).unwrap().unwrap();
    assert!(created && !Arc::ptr_eq(&hers.0, &his.0));
    let id = SessionId::parse("hers only").unwrap();
    sessions.create(&alice, Some(id.clone()), Label::default()).unwrap();
    assert!(matches!(sessions.find(&bob, &id), Err(Error::NoSession(_))));
    assert!(matches!(sessions.delete(&bob, &id).await, Err(Error::NoSession(_))));
    assert_eq!(sessions.list(&bob).len(), 1);
    assert_eq!(sessions.list(&alice).len(), 2);
    let (again, created) = sessions.choose(&alice, &named("x")).unwrap().unwrap();
    assert!(!created && Arc::ptr_eq(&again.0, &hers.0));
}

#[tokio::test]
async fn minted_ids_differ_and_given_ones_clash() {
    let sessions = sessions(10);
    let me = caller("me", None);
    let one = sessions.create(&me, None, label()).unwrap();
    let two = sessions.create(&me, None, label()).unwrap();
    assert_ne!(one.id, two.id);
    let clash = sessions.create(&me, Some(one.id.clone()), Label::default());
    assert_eq!(clash.unwrap_err().code(), Code::Conflict);
}

#[tokio::test]
async fn a_full_table_forgets_what_has_no_kernel_and_refuses_when_all_are_in_use() {
    let sessions = sessions(2);
    let me = caller("me", None);
    let mut places = Vec::new();
    for id in ["a", "b"] {
        let (session, _) = sessions.choose(&me, &named(id)).unwrap().unwrap();
        places.push(session.queue().await);
    }
    let refused = sessions.choose(&me, &named("c")).unwrap_err();
    assert_eq!(refused.code(), Code::Busy);
    assert!(refused.retry_after().is_some());
    places.remove(0);
    assert!(sessions.choose(&me, &named("c")).unwrap().unwrap().1, "a was forgotten");
    assert_eq!(sessions.count(), 2);
}

#[tokio::test]
async fn one_caller_never_fills_the_table() {
    let sessions = sessions(16);
    let (alice, bob) = (caller("alice", None), caller("bob", None));
    let mut places = Vec::new();
    for n in 0..14 {
        let (session_ref, _) = sessions.choose(&alice, &named(&format!("{n}"))).unwrap().unwrap();
        places.push(session_ref.queue().await);
    }
    assert_eq!(sessions.choose(&alice, &named("more")).unwrap_err().code(), Code::Busy);
    let (session_ref, _) = sessions.choose(&bob, &named("his")).unwrap().unwrap();
    places.push(session_ref.queue().await);
    places.remove(0);
    assert!(sessions.choose(&alice, &named("more")).unwrap().unwrap().1, "one made room");
}

#[tokio::test]
async fn the_only_caller_of_a_server_may_fill_the_table() {
    let sessions = sessions(16);
    let mut places = Vec::new();
    for n in 0..16 {
        let choice = named(&format!("{n}"));
        let (session, _) = sessions.choose(&Caller::local(), &choice).unwrap().unwrap();
        places.push(session.queue().await);
    }
    let refused = sessions.choose(&Caller::local(), &named("more")).unwrap_err();
    assert!(refused.to_string().contains("16 sessions are in use"), "{refused}");
}

#[test]
fn the_oldest_of_the_caller_is_forgotten_before_those_of_others() {
    let sessions = sessions(3);
    let (alice, bob) = (caller("alice", None), caller("bob", None));
    for (owner, id) in [(&bob, "first"), (&alice, "second"), (&alice, "third")] {
        sessions.choose(owner, &named(id)).unwrap();
    }
    let knows = |owner: &Caller, id: &str| sessions.knows(owner, &SessionId::parse(id).unwrap());
    sessions.choose(&alice, &named("fourth")).unwrap();
    assert!(!knows(&alice, "second") && knows(&alice, "third") && knows(&bob, "first"));
    // This caller has none: the oldest of all goes.
    sessions.choose(&caller("carol", None), &named("fifth")).unwrap();
    assert!(!knows(&bob, "first") && knows(&alice, "third") && knows(&alice, "fourth"));
}

#[tokio::test]
async fn a_choice_leads_to_its_session() {
    let (sessions, me) = (sessions(10), caller("me", None));
    assert!(sessions.choose(&me, &SessionChoice::Ephemeral).unwrap().is_none());
    let (default, is_new) = sessions.choose(&me, &SessionChoice::Default).unwrap().unwrap();
    assert_eq!((default.0.id.as_str(), is_new), ("default", true));
    let minted = [(), ()].map(|()| sessions.choose(&me, &SessionChoice::New).unwrap().unwrap());
    assert!(minted[0].1 && minted[1].1 && minted[0].0.0.id != minted[1].0.0.id);
    assert_eq!(sessions.all().len(), 3);
}

#[tokio::test]
async fn a_session_comes_back_once_and_a_reset_forgets_its_runs() {
    let (sessions, me) = (sessions(10), caller("me", None));
    let id = SessionId::parse("x").unwrap();
    assert!(!sessions.knows(&me, &id));
    for runs in [7, 8] {
        let past = Some((runs, "the server was restarted".to_owned()));
        sessions.revive(&me, id.clone(), Label { past, ..label() }).unwrap();
    }
    let info = sessions.info(&sessions.find(&me, &id).unwrap());
    assert_eq!((info.execution_count, info.name.as_str(), info.is_live), (7, "n", false));
    sessions.reset(&me, &id).await.unwrap();
    assert_eq!(sessions.list(&me)[0].execution_count, 0);
    let other = SessionId::parse("other").unwrap();
    assert!(matches!(sessions.reset(&me, &other).await, Err(Error::NoSession(_))));
}

#[tokio::test]
async fn a_session_that_is_being_deleted_is_not_listed() {
    let (sessions, me) = (sessions(10), caller("me", None));
    let id = SessionId::parse("x").unwrap();
    let session = sessions.create(&me, Some(id.clone()), label()).unwrap();
    assert!(sessions.leaving(&me, &id).is_none());
    sessions.until_gone(&me, &id).await;
    assert!(session.mark_deleted());
    assert!(Arc::ptr_eq(&sessions.leaving(&me, &id).unwrap(), &session));
    assert_eq!((sessions.list(&me).len(), sessions.count()), (0, 1));
    let mut waiting = Box::pin(sessions.until_gone(&me, &id));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    session.gone.cancel();
    waiting.await;
}

#[tokio::test]
async fn permits_are_counted_and_end_with_the_server() {
    let (sessions, me) = (sessions(10), caller("me", None).id);
    let mut kernel = sessions.kernel_permit(&me).await.unwrap();
    assert_eq!((sessions.kernels(), sessions.kernels_leaving()), (1, 0));
    kernel.leave();
    assert_eq!((sessions.kernels(), sessions.kernels_leaving()), (1, 1));
    drop(kernel);
    assert_eq!((sessions.kernels(), sessions.kernels_leaving()), (0, 0));
    let runs = [sessions.count_run(), sessions.count_run()];
    assert_eq!(sessions.running(), 2);
    drop(runs);
    assert_eq!(sessions.running(), 0);
    drop((sessions.run_permit(&me).await.unwrap(), sessions.second_kernel(&me).await.unwrap()));
    sessions.close();
    for refused in [
        sessions.kernel_permit(&me).await,
        sessions.run_permit(&me).await,
        sessions.second_kernel(&me).await,
    ] {
        assert!(matches!(refused, Err(Error::ShuttingDown)));
    }
}

#[test]
fn second_kernels_are_a_part_of_all_within_bounds() {
    let local = Caller::local().id;
    for (kernels, beside) in [(1, 2), (128, 2), (192, 3), (512, 8), (5000, 8)] {
        assert_eq!(with_kernels(kernels, 10).beside.most(&local), beside, "{kernels}");
    }
}

#[tokio::test]
async fn a_quota_is_a_quota() {
    let sessions = sessions(10);
    let me = caller("me", Some(1));
    let (session, _) = sessions.choose(&me, &named("a")).unwrap().unwrap();
    let place = session.queue().await;
    let refused = sessions.choose(&me, &named("b")).unwrap_err();
    assert_eq!(refused.code(), Code::QuotaExceeded);
    assert!(sessions.choose(&caller("other", Some(1)), &named("b")).is_ok());
    drop(place);
    assert!(sessions.choose(&me, &named("b")).is_ok(), "what is idle makes room");
}

#[tokio::test]
async fn who_waits_in_a_deleted_session_is_told() {
    let sessions = sessions(10);
    let me = caller("me", None);
    let id = SessionId::parse("x").unwrap();
    let (session_ref, _) = sessions.choose(&me, &named("x")).unwrap().unwrap();
    let mut running = session_ref.queue().await;
    let state = running.turn().await.unwrap();
    let stop = CancellationToken::new();
    running.begin(&stop);
    let (session_ref, _) = sessions.choose(&me, &named("x")).unwrap().unwrap();
    let mut waiting = session_ref.queue().await;
    let waiter = tokio::spawn(async move { waiting.turn().await.map(|_| ()) });
    let holder = {
        let stop = stop.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            drop(state);
            drop(running);
        })
    };
    sessions.delete(&me, &id).await.unwrap();
    holder.await.unwrap();
    assert!(matches!(waiter.await.unwrap(), Err(Error::SessionDeleted(_))));
    assert!(sessions.choose(&me, &named("x")).unwrap().unwrap().1, "a new one has its name");
}

#[tokio::test]
async fn an_interruption_is_for_the_run_that_has_the_turn() {
    let sessions = sessions(10);
    let (session_ref, _) = sessions.choose(&caller("me", None), &named("x")).unwrap().unwrap();
    let session = Arc::clone(&session_ref.0);
    assert!(!session.interrupt());
    let mut place = session_ref.queue().await;
    let state = place.turn().await.unwrap();
    let stop = CancellationToken::new();
    place.begin(&stop);
    assert!(session.interrupt() && stop.is_cancelled());
    place.end(false, true);
    assert!(!session.interrupt(), "before the next one has its turn");
    drop(state);
    drop(place);
    assert!(!session.interrupt());
}

#[tokio::test]
async fn sessions_without_a_kernel_are_forgotten_after_a_day() {
    let sessions = sessions(10);
    let me = caller("me", None);
    sessions.choose(&me, &named("x")).unwrap();
    let now = Instant::now();
    sessions.expire(now + Duration::from_hours(23));
    assert_eq!(sessions.count(), 1);
    sessions.expire(now + Duration::from_hours(25));
    assert_eq!(sessions.count(), 0);
}

#[test]
fn session_ids_are_checked() {
    for good in ["default", "a b", "größe", "x".repeat(128).as_str(), " trimmed "] {
        assert!(SessionId::parse(good).is_ok(), "{good}");
    }
    for bad in ["", "  ", "a/b", "a\\b", "..", "a\nb", "a\0b", "x".repeat(129).as_str()] {
        assert!(matches!(SessionId::parse(bad), Err(BadSessionId { .. })), "{bad:?}");
    }
}

#[test]
fn finds_variables_in_other_sessions_of_the_same_owner_only() {
    let sessions = sessions(10);
    let (me, other) = (caller("a", None), caller("b", None));
    let id = |name: &str| SessionId::parse(name).unwrap();
    for (owner, name, variables) in
        [(&me, "x", &["df", "n"][..]), (&me, "y", &["n"]), (&other, "z", &["secret"])]
    {
        let session = sessions.create(owner, Some(id(name)), label()).unwrap();
        session.remember_variables(variables.iter().copied());
    }
    assert_eq!(sessions.with_variable(&me.id, "df", Some(&id("y"))), Some(id("x")));
    assert_eq!(sessions.with_variable(&me.id, "df", None), Some(id("x")));
    assert_eq!(sessions.with_variable(&me.id, "df", Some(&id("x"))), None);
    assert_eq!(sessions.with_variable(&me.id, "secret", None), None);
    let session = sessions.find(&me, &id("x")).unwrap();
    session.forget_count();
    assert_eq!(sessions.with_variable(&me.id, "df", None), None);
    assert_eq!(sessions.with_variable(&me.id, "n", None), Some(id("y")));
    session.remember_variables(["n"].into_iter());
    sessions.find(&me, &id("y")).unwrap().mark_deleted();
    assert_eq!(sessions.with_variable(&me.id, "n", None), Some(id("x")));
}
