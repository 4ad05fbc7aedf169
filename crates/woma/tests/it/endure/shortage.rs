//! Shortages: descriptors and threads. Calls are refused by name or wait; nothing panics, and all is
//! well when the shortage is over.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, thread};

use serde_json::{Value, json};

use super::Held;
use crate::durability::{done, health};
use crate::harness::{Connection, Server, unique, until};

/// Descriptors of the server in the promise.
const DESCRIPTORS: &str = "--nofile=256:256";
/// Connections that together need more than these, two for each; those that are not accepted fit into
/// the queue of the listener.
const CONNECTIONS: usize = 200;
/// Parallel calls while no thread can be started.
const PARALLEL: usize = 20;

fn call(connection: &mut Connection, session: &str, code: &str) -> (u16, Value) {
    let body = json!({ "code": code, "session_id": session }).to_string();
    connection.send("POST", "/execute", &[], body.as_bytes());
    let answer = connection.answer(false);
    (answer.status, answer.json())
}

#[test]
fn a_server_without_descriptors_pauses_and_recovers() {
    // The default number of connections would leave enough of them.
    let variables = [("MAX_CONNECTIONS", "4096")];
    let server = Server::start_in(&["prlimit", DESCRIPTORS], &[], &variables);
    assert!(health(&server)["kernels"]["max"].as_u64() <= Some(8), "{}", health(&server));
    done(&server, "kept", "x = 7");
    let before = Held::by(server.pid);
    let mut early = server.connect();
    assert_eq!(call(&mut early, "kept", "x").1["result"], 7);
    let mut crowd: Vec<Connection> = Vec::new();
    for _ in 0..CONNECTIONS {
        // The kernel accepts them into the listener's queue.
        crowd.push(server.connect());
    }
    // A connection that exists is answered: with a result, or with a reason.
    until("no descriptor is left", || {
        early.send("GET", "/health", &[], b"");
        assert_eq!(early.answer(false).status, 200);
        server.log().contains("Cannot accept a connection")
    });
    let mut refused = 0;
    for session in ["kept", "new"] {
        let (status, reply) = call(&mut early, session, "1 + 1");
        if reply["result"] == 2 {
            continue;
        }
        refused += 1;
        assert!([200, 503].contains(&status), "{status} {reply}");
        assert!(reply.to_string().contains("Too many open files"), "it must say why: {reply}");
    }
    assert!(refused > 0, "there were descriptors enough: the test reaches nothing");
    drop(crowd);
    until("it accepts again", || {
        Connection::try_open(server.address).is_ok_and(|mut connection| {
            connection.try_send("GET", "/health", &[], b"").is_ok()
                && connection.try_answer(false).is_ok_and(|answer| answer.status == 200)
        })
    });
    until("runs succeed again", || {
        let reply = server.code("kept", "x");
        reply["success"] == true && reply["result"] == 7
    });
    done(&server, "another", "1");
    until("the descriptors are free", || {
        Held::by(server.pid).descriptors < before.descriptors + 40.0
    });
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A process that may not start another thread, until this is dropped.
enum Shortage {
    /// A cgroup of its own, because root may do it all the same by its limits.
    Group(PathBuf),
    Limit(u32),
}

impl Shortage {
    fn of_threads(pid: u32) -> Self {
        let groups = Path::new("/sys/fs/cgroup/pids");
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        if !is_root {
            set_processes(pid, "1:");
            return Self::Limit(pid);
        }
        let group = groups.join(unique("woma-test-threads"));
        fs::create_dir(&group).unwrap();
        let threads = Held::by(pid).threads;
        fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(group.join("pids.max"), threads.to_string()).unwrap();
        Self::Group(group)
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        match self {
            Self::Limit(pid) => set_processes(*pid, "unlimited:"),
            Self::Group(group) => {
                fs::write(group.join("pids.max"), "max").unwrap();
                let threads = fs::read_to_string(group.join("cgroup.procs")).unwrap();
                for process in threads.lines() {
                    fs::write(group.parent().unwrap().join("cgroup.procs"), process).unwrap();
                }
                fs::remove_dir(group).unwrap();
            }
        }
    }
}

fn set_processes(pid: u32, limit: &str) {
    let limit = format!("--nproc={limit}");
    let set = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
    assert!(set.unwrap().success());
}

#[test]
fn a_server_that_gets_no_threads_answers_with_those_that_it_has() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "8")]);
    done(&server, "s0", "x = 1");
    let shortage = Shortage::of_threads(server.pid);
    let threads = Held::by(server.pid).threads;
    thread::scope(|scope| {
        for number in 0..PARALLEL {
            let server = &server;
            scope.spawn(move || {
                let session = format!("s{}", number % 4);
                for _ in 0..5 {
                    let code = "open('a.txt', 'a').write('x'); 6 * 7";
                    let reply = server.code(&session, code);
                    assert_eq!((&reply["result"], &reply["success"]), (&json!(42), &json!(true)));
                }
            });
        }
    });
    assert!(Held::by(server.pid).threads <= threads, "there was no shortage");
    assert_eq!(health(&server)["status"], "healthy");
    drop(shortage);
    done(&server, "after", "1");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
