//! Fairness among callers: each gets its share of kernels and run slots.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::auth::{KEY, Keyed};
use crate::client::Client;
use crate::harness::{Connection, until};

const SLEEP: &str = "import time; time.sleep(120)";

fn used(keyed: &Keyed) -> u64 {
    keyed.client("x").get("/health").json()["kernels"]["used"].as_u64().unwrap()
}

/// Calls of one caller that sleep, each in a session of its own.
fn sleepers(keyed: &Keyed, key: &str, count: usize) -> Vec<Connection> {
    let send = |n| {
        let body = json!({ "code": SLEEP, "session_id": format!("sleeper-{n}") });
        keyed.client(key).send("POST", "/execute", &[], &body)
    };
    (0..count).map(send).collect()
}

#[test]
fn sleeping_sessions_of_one_caller_do_not_block_others() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_KERNELS", "10")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let sleeping = sleepers(&keyed, &alice, 20);
    until("alice has all that she can have", || used(&keyed) >= 9);
    // While her code sleeps, one kernel is left for others, and his session keeps it.
    for n in 0..3 {
        let reply = keyed.client(&bob).code("his", &format!("{n} + 1"));
        assert_eq!(reply["result"], n + 1, "{reply}");
    }
    assert_eq!(used(&keyed), 10);
    drop(sleeping);
}

#[test]
fn idle_sessions_of_one_caller_do_not_evict_others() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_KERNELS", "10")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    keyed.client(&bob).code("his", "x = 1");
    for n in 0..12 {
        assert_eq!(keyed.client(&alice).code(&format!("idle-{n}"), "x = 1")["success"], true);
    }
    let reply = keyed.client(&bob).code("his", "x");
    assert_eq!((&reply["result"], reply.get("session_restarted")), (&json!(1), None));
    // The oldest of her own sessions was evicted.
    let reply = keyed.client(&alice).code("idle-0", "x");
    assert_eq!((&reply["result"], &reply["session_restarted"]), (&json!(1), &json!(true)));
}

#[test]
fn concurrent_runs_are_limited_and_callers_alternate() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_KERNELS", "50"), ("MAX_RUNNING", "2")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let sleeping = sleepers(&keyed, &alice, 5);
    until("one runs and the others wait", || {
        keyed.client("x").get("/health").json()["queue"]["used"] == 4 && used(&keyed) == 1
    });
    assert_eq!(keyed.client(&bob).code("his", "6 * 7")["result"], 42);
    assert_eq!(used(&keyed), 2, "those that wait to run have no kernel yet");
    drop(sleeping);
}

/// A figure of the server's own.
pub(crate) fn metric(client: Client<'_>, name: &str) -> u64 {
    let text = client.get("/metrics").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |number| number.trim().parse().unwrap())
}

/// Durations of that many calls; no call may find its kernel gone.
fn waits(client: Client<'_>, count: usize) -> Vec<Duration> {
    let call = |n| {
        let started = Instant::now();
        let reply = client.code("modest", &format!("x = {n}\nx"));
        assert_eq!((&reply["result"], reply.get("session_restarted")), (&json!(n), None));
        started.elapsed()
    };
    let mut waits: Vec<Duration> = (0..count).map(call).collect();
    waits.sort_unstable();
    waits
}

#[test]
fn three_callers_under_load_get_their_shares() {
    const CALLS: usize = 100;
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_KERNELS", "8")]);
    let keys = ["greedy", "steady", "modest"].map(|name| keyed.key(name, &[]));
    let [greedy, steady, modest] = keys.each_ref().map(|key| keyed.client(key));
    waits(modest, 1);
    let quiet = waits(modest, CALLS);
    let (is_over, runs) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let loaded = thread::scope(|scope| {
        let (is_over, runs) = (&is_over, &runs);
        // One has 24 sessions for which it wants a kernel each, the other has four.
        for (client, who, sessions) in [(greedy, 0, 24), (steady, 1, 4)] {
            for n in 0..sessions {
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let code = "x = 1\nimport time; time.sleep(0.1)";
                        let reply = client.code(&format!("session-{n}"), code);
                        assert_eq!(reply["success"], true, "{reply}");
                        runs[who].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
        until("all are busy", || runs.iter().all(|runs| runs.load(Ordering::Relaxed) > 10));
        let before = runs.each_ref().map(|runs| runs.load(Ordering::Relaxed));
        let loaded = waits(modest, CALLS);
        until("it has gone on for a while", || {
            let after = runs.each_ref().map(|runs| runs.load(Ordering::Relaxed));
            (after[0] - before[0]) + (after[1] - before[1]) > 60
        });
        let after = runs.each_ref().map(|runs| runs.load(Ordering::Relaxed));
        is_over.store(true, Ordering::Relaxed);
        let [theirs, his] = [after[0] - before[0], after[1] - before[1]];
        // Of eight kernels the modest one has one; of the others, the two have as many as each
        // other.
        println!("greedy {theirs}, steady {his}");
        assert!(his * 2 >= theirs, "{his} runs beside {theirs}");
        loaded
    });
    let (quiet, loaded) = (quiet[CALLS * 99 / 100 - 1], loaded[CALLS * 99 / 100 - 1]);
    println!("p99 {quiet:?}, under load {loaded:?}");
    assert!(loaded < quiet * 10 + Duration::from_secs(5), "p99 {quiet:?}, then {loaded:?}");
}

#[test]
fn idle_kernels_are_saved_and_evicted_before_memory_runs_out() {
    const SESSIONS: usize = 30;
    let settings = [("API_KEY", KEY), ("SESSIONS_MEMORY", "400"), ("MAX_KERNELS", "100")];
    let keyed = Keyed::start(&settings);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let (alice, bob, root) = (keyed.client(&alice), keyed.client(&bob), keyed.client(KEY));
    bob.code("his", "x = 1");
    let health = keyed.client(KEY).get("/health").json();
    if health["limits_held_by"]["who"] == "none" {
        println!("no cgroup counts the memory of sessions here");
        return;
    }
    assert_eq!(health["memory"]["sessions_bytes_max"], 400 << 20, "{health}");
    for n in 0..SESSIONS {
        // All of them together are far over the limit.
        let code = "x = b'0123456789abcdef' * (16 << 16); len(x)";
        let reply = alice.code(&format!("large-{n}"), code);
        assert_eq!(reply["result"], 16 << 20, "{n}: {reply}");
        until("there is room for one more", || {
            let health = keyed.client(KEY).get("/health").json();
            health["memory"]["sessions_bytes"].as_u64().unwrap() < 370 << 20
        });
    }
    let evicted = metric(root, "woma_kernels_evicted_total{reason=\"memory\"}");
    assert!(evicted >= 6, "{evicted} kernels went");
    let reply = alice.code("large-0", "len(x), x[16 * 1000 + 5]");
    assert_eq!(reply["result"], json!([16 << 20, 0x35]), "{reply}");
    let reason = reply["restart_reason"].as_str().unwrap();
    assert!(reason.contains("memory is short"), "{reason}");
    assert_eq!(reply["session_restored"]["restored"], json!(["x"]), "{reply}");
    // Of the caller with the most, and of no other.
    let reply = bob.code("his", "x");
    assert_eq!((&reply["result"], reply.get("session_restarted")), (&json!(1), None));
    // Nothing was killed.
    let text = root.get("/metrics").text().to_owned();
    assert!(!text.contains("out_of_memory"), "{text}");
}

#[test]
fn all_sessions_together_have_a_memory_limit() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("SESSIONS_MEMORY", "300")]);
    let (alice, bob) = (keyed.key("alice", &[]), keyed.key("bob", &[]));
    let (alice, bob) = (keyed.client(&alice), keyed.client(&bob));
    bob.code("his", "x = 1");
    if keyed.client("x").get("/health").json()["limits_held_by"]["who"] == "none" {
        println!("no cgroup holds the memory of sessions here");
        return;
    }
    // Within the limit of a session, which is 2 GiB.
    let reply = alice.code("hers", "x = b'x' * (600 << 20)");
    assert_eq!(reply["outcome"], "out_of_memory", "{reply}");
    let message = reply["error_message"].as_str().unwrap();
    assert!(message.contains("300 MB"), "{reply}");
    assert!(reply.to_string().contains("all sessions together"), "{reply}");
    // His kernel was not killed: it is live, or was saved before.
    let reply = bob.code("his", "x");
    assert_eq!(reply["result"], 1, "{reply}");
}
