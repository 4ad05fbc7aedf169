//! `PostgreSQL` as the store: it goes away in every way that it can, and code runs on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::postgres::Cluster;
use super::{Home, Over, done, health, pass, until_recorded};
use crate::harness::{Server, unique, until};

/// From the moment that the database is back; 5 s are promised of a machine that does nothing else.
const HEALED_MAX: Duration = Duration::from_secs(15);
/// The median: single answers wait for their turn on a busy machine.
const HEALTH_MAX: Duration = Duration::from_secs(1);
/// How long a database says nothing.
const SILENCE: Duration = Duration::from_secs(12);
/// Who waits for it takes that long; on a busy machine others take a part of that.
const DELAY_MAX: Duration = Duration::from_secs(6);

fn start(home: &Home, url: &str) -> Server {
    home.start(&[("DATABASE_URL", url), ("MAX_KERNELS", "20")])
}

fn recorded(cluster: &Cluster, database: &str) -> Vec<String> {
    let sql = "SELECT id FROM executions WHERE status = 'finished'";
    cluster.sql(database, sql).unwrap().lines().map(str::to_owned).collect()
}

fn id(reply: &Value) -> String {
    reply["execution_id"].as_str().unwrap().to_owned()
}

/// Clients that go on calling, and what they met.
struct Crowd {
    ids: Vec<String>,
    longest: Duration,
}

/// Has clients call for as long as something happens. No call fails.
fn meanwhile(server: &Server, happen: impl FnOnce()) -> Crowd {
    let is_over = AtomicBool::new(false);
    let crowd = Mutex::new(Crowd { ids: Vec::new(), longest: Duration::ZERO });
    thread::scope(|scope| {
        for number in 0..3 {
            let (is_over, crowd) = (&is_over, &crowd);
            scope.spawn(move || {
                let own = unique("crowd");
                while !is_over.load(Ordering::Relaxed) {
                    // One is new each time, one writes files, one goes on.
                    let session = if number == 0 { unique("new") } else { own.clone() };
                    let code = ["x = 1", "open('a.csv', 'a').write('1\\n')", "1"][number];
                    let started = Instant::now();
                    let reply = done(server, &session, code);
                    let took = started.elapsed();
                    let mut crowd = crowd.lock().unwrap();
                    crowd.longest = crowd.longest.max(took);
                    crowd.ids.push(id(&reply));
                    drop(crowd);
                    if number == 0 {
                        let path = format!("/api/v1/sessions/{session}/interrupt");
                        server.post(&path, &Value::Null);
                        pass(Duration::from_millis(100));
                    }
                }
            });
        }
        let over = Over(&is_over);
        happen();
        drop(over);
    });
    crowd.into_inner().unwrap()
}

/// It is said that the store is away, in time, and that code runs.
fn is_degraded(server: &Server) {
    until("the store is missed", || health(server)["status"] == "degraded");
    let mut times = Vec::new();
    for _ in 0..21 {
        let started = Instant::now();
        let health = health(server);
        times.push(started.elapsed());
        assert_eq!(
            (&health["status"], &health["database"]),
            (&"degraded".into(), &"unavailable".into())
        );
        assert!(health["problems"][0].as_str().unwrap().contains("records wait"), "{health}");
    }
    times.sort_unstable();
    assert!(times[10] < HEALTH_MAX, "{times:?}");
}

/// All that was acknowledged is in the database, soon after it is back.
fn heals(server: &Server, cluster: &Cluster, database: &str, crowd: &Crowd) {
    let took = until_recorded(server);
    assert!(took < HEALED_MAX, "{took:?}");
    let known = recorded(cluster, database);
    let missing = crowd.ids.iter().filter(|id| !known.contains(id)).count();
    assert_eq!(missing, 0, "of {}", crowd.ids.len());
    assert_eq!(health(server)["database"], "postgresql");
}

#[test]
fn every_form_of_address_works() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let url = cluster.url(&database);
    let rest = url.strip_prefix("postgres://").unwrap();
    for (number, form) in
        ["postgres://", "postgresql://", "postgresql+asyncpg://"].iter().enumerate()
    {
        let server = start(&home, &format!("{form}{rest}"));
        let reply = done(&server, "s", "x = 1\nopen('a.csv', 'w').write('1')");
        assert_eq!(health(&server)["database"], "postgresql");
        until_recorded(&server);
        assert!(recorded(&cluster, &database).contains(&id(&reply)), "{form}");
        assert_eq!(reply["session_restarted"], number > 0, "{reply}");
        server.stop();
    }
    assert!(!home.path().join("woma.db").exists());
}

#[test]
fn a_restart_of_the_database_costs_no_run() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let server = start(&home, &cluster.url(&database));
    let crowd = meanwhile(&server, || {
        for signal in ["-INT", "-QUIT"] {
            pass(Duration::from_millis(500));
            cluster.stop(signal);
            is_degraded(&server);
            pass(Duration::from_secs(1));
            cluster.launch();
            let started = Instant::now();
            until("it is healthy", || health(&server)["status"] == "healthy");
            assert!(started.elapsed() < HEALED_MAX, "{:?}", started.elapsed());
        }
    });
    heals(&server, &cluster, &database, &crowd);
    println!("{} runs, the longest {:?}", crowd.ids.len(), crowd.longest);
}

#[test]
fn a_silent_database_holds_up_no_run() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let server = start(&home, &cluster.url(&database));
    let usual = meanwhile(&server, || pass(Duration::from_secs(2)));
    let crowd = meanwhile(&server, || {
        cluster.signal_all("-STOP");
        is_degraded(&server);
        pass(SILENCE);
        is_degraded(&server);
        cluster.signal_all("-CONT");
        let started = Instant::now();
        until("it is healthy", || health(&server)["status"] == "healthy");
        assert!(started.elapsed() < HEALED_MAX, "{:?}", started.elapsed());
    });
    println!("{} runs, the longest {:?} after {:?}", crowd.ids.len(), crowd.longest, usual.longest);
    assert!(crowd.longest < usual.longest + DELAY_MAX, "{:?}", crowd.longest);
    heals(&server, &cluster, &database, &crowd);
}

#[test]
fn a_database_that_is_absent_at_the_start_is_found_later() {
    let cluster = Cluster::make();
    let home = Home::new();
    let server = start(&home, &cluster.url("postgres"));
    let crowd = meanwhile(&server, || {
        is_degraded(&server);
        pass(Duration::from_secs(1));
    });
    // What waits is not lost with the server either.
    server.kill();
    let server = start(&home, &cluster.url("postgres"));
    is_degraded(&server);
    assert!(health(&server)["unrecorded"].as_u64().unwrap() >= crowd.ids.len() as u64);
    cluster.launch();
    heals(&server, &cluster, "postgres", &crowd);
}

/// Two machines with one database: a key is a key on both, and so is the end of one.
#[test]
fn servers_with_one_database_have_the_same_keys() {
    let cluster = Cluster::start();
    let database = cluster.fresh();
    let url = cluster.url(&database);
    let variables: &[(&str, &str)] = &[("DATABASE_URL", &url), ("REQUIRE_API_KEY", "true")];
    let (here, there) = (Home::new(), Home::new());
    let first = here.keys(&["create", "first"]);
    let server = here.start(variables);
    until("its keys are in the database", || {
        cluster.sql(&database, "SELECT COUNT(*) FROM keys").unwrap().trim() == "1"
    });
    // This one has no file of keys, and would not start without any.
    let other = there.start(variables);
    let accepts = |server: &Server, key: &str| {
        let header = format!("Bearer {key}");
        let headers = [("Authorization", header.as_str())];
        server.request("GET", "/api/v1/sessions", &headers, b"").status == 200
    };
    assert!(accepts(&server, &first) && accepts(&other, &first));
    let second = there.keys(&["create", "second"]);
    until("it is known to the other", || accepts(&server, &second));
    here.keys(&["revoke", "first"]);
    until("its end is known to the other", || !accepts(&other, &first));
    // Without the database, each goes on with what it knows.
    cluster.stop("-INT");
    assert!(accepts(&server, &second) && accepts(&other, &second) && !accepts(&server, &first));
    assert!(!there.keys(&["list"]).contains(&first));
}

#[test]
fn a_database_that_may_only_be_read_is_waited_for() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let server = start(&home, &cluster.url(&database));
    done(&server, "s", "1");
    until_recorded(&server);
    let set = |value: &str| {
        let sql = format!("ALTER DATABASE {database} SET default_transaction_read_only = {value}");
        cluster.sql("postgres", &sql).unwrap();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'woma'";
        cluster.sql("postgres", sql).unwrap();
    };
    set("on");
    let crowd = meanwhile(&server, || pass(Duration::from_secs(2)));
    assert!(health(&server)["unrecorded"].as_u64().unwrap() > 0);
    set("off");
    heals(&server, &cluster, &database, &crowd);
}
