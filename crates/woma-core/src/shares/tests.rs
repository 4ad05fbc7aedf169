//! Tests of the fair shares: which caller gets a permit, and from which caller it is taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Closed, Permit, PoolUse, Shares, Shortage};
use crate::model::caller::CallerId;

fn caller(name: &str) -> CallerId {
    CallerId::new(name)
}

fn take(shares: &Arc<Shares>, name: &str, count: usize) -> Vec<Permit> {
    (0..count).map(|_| shares.take(&caller(name)).unwrap()).collect()
}

fn shortage(of: &str, from: &[&str]) -> Shortage {
    Shortage { of: caller(of), from: from.iter().map(|name| caller(name)).collect() }
}

#[tokio::test]
async fn one_caller_never_has_every_place_unless_it_is_the_only_one_there_is() {
    for (places, most) in [(1, 1), (2, 1), (3, 2), (10, 9), (16, 14), (500, 438)] {
        let shares = Arc::new(Shares::new(places));
        let hers = take(&shares, "alice", most);
        assert!(shares.take(&caller("alice")).is_none(), "{places}");
        let his = take(&shares, "bob", places - most);
        assert!(shares.take(&caller("bob")).is_none(), "{places}");
        assert_eq!(shares.taken(), places);
        drop((hers, his));
        assert_eq!(shares.taken(), 0);
        assert!(super::lock(&shares.state).accounts.is_empty(), "nobody is remembered");
        assert_eq!(take(&shares, "local", places).len(), places);
    }
}

/// Has so many calls of each wait, and tells in which order they get the one permit.
async fn order_of(shares: &Arc<Shares>, permit: Permit, calls: &[&'static str]) -> Vec<String> {
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for (n, name) in calls.iter().copied().enumerate() {
        let (shares, sender) = (Arc::clone(shares), sender.clone());
        let waiting = Arc::clone(&shares);
        tokio::spawn(async move {
            let permit = waiting.wait(&caller(name), || {}).await.unwrap();
            sender.send(format!("{name}{n}")).unwrap();
            drop(permit);
        });
        while shares.starved.load(Ordering::Relaxed) <= n {
            tokio::task::yield_now().await;
        }
    }
    drop((permit, sender));
    let mut told = Vec::new();
    while let Some(next) = order.recv().await {
        told.push(next);
    }
    told
}

#[tokio::test]
async fn callers_have_turns_and_their_calls_come_in_the_order_of_arrival() {
    let shares = Arc::new(Shares::new(1));
    let permit = shares.take(&caller("zoe")).unwrap();
    let told = order_of(&shares, permit, &["a", "a", "a", "b", "b", "c"]).await;
    assert_eq!(told, ["a0", "b3", "c5", "a1", "b4", "a2"]);
    assert_eq!((shares.taken(), shares.is_short()), (0, false));
}

#[tokio::test]
async fn who_has_less_than_a_fair_share_comes_first() {
    let shares = Arc::new(Shares::new(8));
    let (mut hers, _his) = (take(&shares, "a", 6), take(&shares, "b", 2));
    // `a` was first in the line, and has more than its share.
    let _waiting = ["a", "b", "c"].map(|name| shares.line_up(&caller(name)).unwrap());
    let held = |name: &str| super::lock(&shares.state).accounts[&caller(name)].held;
    for (a, b, c) in [(5, 3, 0), (4, 3, 1), (4, 3, 1)] {
        hers.pop();
        assert_eq!((held("a"), held("b"), held("c")), (a, b, c));
    }
}

#[tokio::test]
async fn who_has_its_fair_share_waits_for_who_has_less() {
    let shares = Arc::new(Shares::new(4));
    let (_hers, mut his) = (take(&shares, "a", 2), take(&shares, "b", 2));
    let _waiting = ["a", "b"].map(|name| shares.line_up(&caller(name)).unwrap());
    his.pop();
    let held = |name: &str| super::lock(&shares.state).accounts[&caller(name)].held;
    assert_eq!((held("a"), held("b")), (2, 2), "the share of each is two");
}

#[tokio::test]
async fn who_gives_up_takes_no_place_along() {
    let shares = Arc::new(Shares::new(2));
    let (mine, other) = (take(&shares, "a", 1), take(&shares, "b", 1));
    let given_up = shares.line_up(&caller("c")).unwrap();
    let served = shares.line_up(&caller("c")).unwrap();
    assert!(shares.is_short());
    drop(given_up);
    drop(mine);
    assert_eq!(shares.taken(), 2, "the second one has it");
    assert!(!shares.is_short());
    // It came when no call waited for it.
    drop(served);
    assert_eq!(shares.taken(), 1);
    drop(other);
    assert!(super::lock(&shares.state).accounts.is_empty(), "nobody is remembered");
}

#[tokio::test]
async fn who_gives_up_leaves_the_round_to_the_others() {
    let shares = Arc::new(Shares::new(1));
    let _held = take(&shares, "z", 1);
    let [first, again, _other] = ["a", "a", "b"].map(|name| shares.line_up(&caller(name)).unwrap());
    let round = || Vec::from(super::lock(&shares.state).round.clone());
    drop(first);
    assert_eq!(round(), [caller("a"), caller("b")], "another call of the same caller waits");
    drop(again);
    assert_eq!(round(), [caller("b")]);
}

#[tokio::test]
async fn who_waits_at_a_closed_door_is_told() {
    let shares = Arc::new(Shares::new(1));
    let permit = shares.take(&caller("a")).unwrap();
    let waiting = {
        let shares = Arc::clone(&shares);
        tokio::spawn(async move { shares.wait(&caller("b"), || {}).await })
    };
    while !shares.is_short() {
        tokio::task::yield_now().await;
    }
    shares.close();
    assert!(matches!(waiting.await.unwrap(), Err(Closed)));
    drop(permit);
    assert!(shares.take(&caller("a")).is_none());
    assert!(shares.is_closed());
    assert_eq!(shares.acquire(&caller("a")).await.unwrap_err(), Closed);
    assert_eq!(shares.taken(), 0);
}

#[tokio::test]
async fn ones_own_go_first_and_nobodys_who_has_no_more_than_a_fair_share() {
    let shares = Arc::new(Shares::new(10));
    let (_hers, _his) = (take(&shares, "a", 9), take(&shares, "b", 1));
    let at_its_most = shares.line_up(&caller("a")).unwrap();
    assert_eq!(shares.shortages(), [shortage("a", &["a"])]);
    drop(at_its_most);
    // Below a fair share, which is five: it need not give up what it has.
    let below = shares.line_up(&caller("b")).unwrap();
    assert_eq!(shares.shortages(), [shortage("b", &["a", "b"])]);
    drop(below);
    // A caller without any: another has more than a third.
    let third = shares.line_up(&caller("c")).unwrap();
    assert_eq!(shares.shortages(), [shortage("c", &["a", "c"])]);
    drop(third);
    assert_eq!(shares.shortages(), []);
}

#[tokio::test]
async fn two_with_as_much_as_each_other_do_not_take_turns_at_taking() {
    let shares = Arc::new(Shares::new(10));
    let held = [take(&shares, "a", 4), take(&shares, "b", 3), take(&shares, "c", 3)];
    let waiting = shares.line_up(&caller("b")).unwrap();
    // From `a` only if `b` has nothing that is idle.
    assert_eq!(shares.shortages(), [shortage("b", &["b", "a"])]);
    drop(waiting);
    let waiting = shares.line_up(&caller("a")).unwrap();
    assert_eq!(shares.shortages(), [shortage("a", &["a"])], "nobody has more than it");
    drop((waiting, held));
    // With fewer places than callers, each has its turn.
    let shares = Arc::new(Shares::new(1));
    let _held = take(&shares, "a", 1);
    let _waiting = shares.line_up(&caller("b")).unwrap();
    assert_eq!(shares.shortages(), [shortage("b", &["a", "b"])]);
}

#[tokio::test]
async fn a_fair_share_is_neither_taken_nor_grown_from_others_first() {
    // The share of each of the three is two.
    let shares = Arc::new(Shares::new(6));
    let held = [take(&shares, "a", 4), take(&shares, "b", 2)];
    let waiting = ["b", "c"].map(|name| shares.line_up(&caller(name)).unwrap());
    assert_eq!(shares.shortages(), [shortage("b", &["b", "a"]), shortage("c", &["a", "c"])]);
    drop((waiting, held));
    // Two above it with as much as each other take from themselves alone.
    let held = [take(&shares, "a", 3), take(&shares, "b", 3)];
    let waiting = ["b", "c"].map(|name| shares.line_up(&caller(name)).unwrap());
    assert_eq!(shares.shortages(), [shortage("b", &["b"]), shortage("c", &["b", "a", "c"])]);
    drop((waiting, held));
}

#[tokio::test]
async fn what_is_on_its_way_back_is_taken_from_nobody_twice() {
    let shares = Arc::new(Shares::new(2));
    let (mut hers, his) = (take(&shares, "a", 1), take(&shares, "b", 1));
    let first = shares.line_up(&caller("c")).unwrap();
    assert_eq!(shares.shortages(), [shortage("c", &["b", "a", "c"])]);
    assert_eq!(shares.leaving(), 0);
    hers[0].leave();
    assert_eq!(shares.leaving(), 1);
    assert_eq!(shares.shortages(), [], "one is coming");
    let second = shares.line_up(&caller("d")).unwrap();
    assert_eq!(shares.shortages().len(), 1, "and it is not enough for two");
    drop((hers, his, first, second));
    assert_eq!((shares.taken(), super::lock(&shares.state).accounts.len()), (0, 0));
}

#[tokio::test]
async fn a_full_pool_still_has_a_place_for_another_caller_at_once() {
    let shares = Arc::new(Shares::new(16));
    let mut hers = take(&shares, "alice", 14);
    let mut waiting: Vec<_> = (0..100).map(|_| shares.line_up(&caller("alice")).unwrap()).collect();
    assert_eq!(shares.usage(), PoolUse { taken: 14, waiting: 100, places: 16 });
    // A hundred calls wait, and his does not wait behind them.
    for _ in 0..3 {
        let his = [0, 1].map(|_| shares.take(&caller("bob")).unwrap());
        assert!(shares.take(&caller("bob")).is_none(), "all are taken");
        drop(his);
    }
    // A call that finds nothing is served before the calls that came earlier.
    let his = [0, 1].map(|_| shares.take(&caller("bob")).unwrap());
    let mut next = shares.line_up(&caller("bob")).unwrap();
    hers.pop();
    assert!(next.turn.try_recv().is_ok());
    next.is_over = true;
    assert!(waiting.iter_mut().all(|call| call.turn.try_recv().is_err()));
    drop((his, next, waiting, hers));
}

#[tokio::test]
async fn addresses_share_as_callers_do() {
    let [one, other] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(std::net::IpAddr::from);
    let shares = Arc::new(Shares::new(8));
    let held: Vec<_> = (0..7).map(|_| shares.take(&one).unwrap()).collect();
    assert!(shares.take(&one).is_none() && shares.take(&other).is_some());
    drop(held);
}
