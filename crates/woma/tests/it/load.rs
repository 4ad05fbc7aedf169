//! Many clients at once: no reply is lost or misdirected, and excess load is rejected.

use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Connection, Server, shared, unique};

const PARALLEL: usize = 200;
const TOO_MANY: usize = 1000;

#[test]
fn parallel_calls_get_their_own_answers() {
    let slow = slowest_of_a_round();
    assert!(slow < Duration::from_secs(20), "p99 is {slow:?}");
}

fn slowest_of_a_round() -> Duration {
    let name = unique("parallel");
    let barrier = Barrier::new(PARALLEL);
    let mut waits: Vec<Duration> = thread::scope(|scope| {
        let call = |n: usize| {
            let (name, barrier) = (&name, &barrier);
            move || {
                let nonce = unique("nonce");
                let session = format!("{name}-{}", n % 10);
                let code = format!("print('{nonce}')\n'{nonce}'");
                let path = ["/execute", "/api/execute/quick"][n % 2];
                barrier.wait();
                let started = Instant::now();
                let answer = shared().post(path, &json!({ "code": code, "session_id": session }));
                let waited = started.elapsed();
                let reply = answer.json();
                assert_eq!(reply["result"], json!(nonce), "{reply}");
                assert_eq!(reply["stdout"], json!(format!("{nonce}\n")));
                assert_eq!(reply["session_id"], json!(session));
                waited
            }
        };
        let calls: Vec<_> = (0..PARALLEL).map(|n| scope.spawn(call(n))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    waits.sort_unstable();
    waits[PARALLEL * 99 / 100 - 1]
}

#[test]
fn overload_is_refused_at_once_and_recovers_soon() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "10")]);
    let name = unique("sleep");
    let barrier = Barrier::new(TOO_MANY);
    let (sender, answered) = mpsc::channel();
    let silent: Vec<Connection> = thread::scope(|scope| {
        let call = |n: usize| {
            let (server, name, barrier, sender) = (&server, &name, &barrier, sender.clone());
            move || {
                let mut connection = server.connect();
                let session = format!("{name}-{}", n % 100);
                let body = json!({ "code": "import time\ntime.sleep(100)", "session_id": session });
                barrier.wait();
                let started = Instant::now();
                connection.send("POST", "/execute", &[], body.to_string().as_bytes());
                connection.patience(Duration::from_secs(20));
                match connection.try_answer(false) {
                    Ok(answer) => sender.send((answer, started.elapsed())).unwrap(),
                    Err(_) => return Some(connection),
                }
                None
            }
        };
        let calls: Vec<_> = (0..TOO_MANY).map(|n| scope.spawn(call(n))).collect();
        calls.into_iter().filter_map(|call| call.join().unwrap()).collect()
    });
    drop(sender);
    let mut waits: Vec<Duration> = Vec::new();
    for (answer, waited) in answered {
        answer.refused(503);
        assert_eq!(answer.json()["code"], "busy");
        assert_eq!(answer.get("retry-after"), Some("1"));
        waits.push(waited);
    }
    // Ten run and 256 wait: a server without keys has one caller. All the others were told to retry.
    assert_eq!((silent.len(), waits.len()), (266, TOO_MANY - 266));
    let health = server.get("/health").json();
    assert_eq!(health["kernels"]["used"], 10, "{health}");
    let slowest = waits.into_iter().max().unwrap();
    // A debug build takes milliseconds for each, and a hundred seconds if it made one of them wait.
    assert!(slowest < Duration::from_secs(20), "all at once, the slowest took {slowest:?}");
    // Without the load of a thousand test threads, the server refuses at once.
    let mut waits: Vec<Duration> = (0..100)
        .map(|_| {
            let started = Instant::now();
            server.post("/api/v1/execute", &json!({ "code": "1" })).refused(503);
            started.elapsed()
        })
        .collect();
    waits.sort_unstable();
    assert!(waits[98] < Duration::from_secs(2), "{:?}", &waits[90..]);
    let started = Instant::now();
    assert_eq!(server.get("/health").status, 200);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let started = Instant::now();
    drop(silent);
    let reply = loop {
        let answer = server.post("/execute", &json!({ "code": "1 + 1" }));
        if answer.status == 200 {
            break answer.json();
        }
        answer.refused(503);
    };
    assert_eq!(reply["result"], 2);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}
