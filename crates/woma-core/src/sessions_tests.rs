//! Turns, owners and limits, without a kernel: what has one is tested through the doors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Label, Rules, Sessions, lock};
use crate::caller::{Caller, CallerId, Quota};
use crate::model::{SessionChoice, SessionId};
use crate::{Code, Error};

fn sessions(sessions_max: usize) -> Sessions {
    let rules = Rules { kernels_max: 2, sessions_max, idle: Duration::from_secs(300) };
    Sessions::new(rules, None, Arc::default())
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
    let (seat, created) = sessions.choose(&me, &named("x")).unwrap().unwrap();
    assert!(created);
    let mut first = seat.queue().await;
    let slot = first.turn().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..50 {
        let (seat, _) = sessions.choose(&me, &named("x")).unwrap().unwrap();
        let mut place = seat.queue().await;
        let order = Arc::clone(&order);
        waiting.push(tokio::spawn(async move {
            let slot = place.turn().await.unwrap();
            lock(&order).push(number);
            drop(slot);
        }));
    }
    // Whoever was queued last is polled first, and still waits.
    waiting.reverse();
    drop(slot);
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
    let (seat, _) = sessions.choose(&me, &named("x")).unwrap().unwrap();
    let mut running = seat.queue().await;
    let slot = running.turn().await.unwrap();
    let stop = CancellationToken::new();
    running.begin(&stop);
    let (seat, _) = sessions.choose(&me, &named("x")).unwrap().unwrap();
    let mut waiting = seat.queue().await;
    let waiter = tokio::spawn(async move { waiting.turn().await.map(|_| ()) });
    let holder = {
        let stop = stop.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            drop(slot);
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
    let (seat, _) = sessions.choose(&caller("me", None), &named("x")).unwrap().unwrap();
    let session = Arc::clone(&seat.0);
    assert!(!session.interrupt());
    let mut place = seat.queue().await;
    let slot = place.turn().await.unwrap();
    let stop = CancellationToken::new();
    place.begin(&stop);
    assert!(session.interrupt() && stop.is_cancelled());
    place.end(false, true);
    assert!(!session.interrupt(), "before the next one has its turn");
    drop(slot);
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
        assert!(matches!(SessionId::parse(bad), Err(Error::BadSessionId { .. })), "{bad:?}");
    }
}
