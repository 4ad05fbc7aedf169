//! Files whose contents are not in the data folder, but in the database or in a bucket of S3.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bucket::{self, Bucket};
use crate::durability::postgres::Cluster;
use crate::durability::{Home, done, health, until_recorded};
use crate::harness::{Answer, Server, environment, until};

/// Longest wait of a run for a storage that does not answer, on a busy machine. It is far
/// below what writing a file may take.
const SILENCE_MAX: Duration = Duration::from_secs(20);
const CHART: &str = "import matplotlib.pyplot as plt\nplt.plot([1, 3])\nplt.savefig('c.png')\n\
                     plt.close()";

/// A database, and a bucket beside it.
struct World {
    cluster: Cluster,
    database: String,
    bucket: Option<Bucket>,
}

impl World {
    fn in_database() -> Self {
        let cluster = Cluster::start();
        let database = cluster.fresh();
        Self { cluster, database, bucket: None }
    }

    fn in_s3() -> Self {
        Self { bucket: Some(Bucket::start()), ..Self::in_database() }
    }

    fn start(&self, home: &Home) -> Server {
        let url = self.cluster.url(&self.database);
        let mut variables = vec![("DATABASE_URL", url.as_str()), ("BLOBS_IN", "database")];
        let endpoint = self.bucket.as_ref().map(Bucket::endpoint);
        if let Some(endpoint) = &endpoint {
            variables.pop();
            variables.extend(keys(endpoint));
        }
        home.start(&variables)
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.database, sql).unwrap().trim().to_owned()
    }

    fn count(&self) -> usize {
        match &self.bucket {
            Some(bucket) => bucket.objects().len(),
            None => self.sql("SELECT count(*) FROM blobs").parse().unwrap(),
        }
    }

    /// Moves all last-use times back by an hour.
    fn age(&self) {
        match &self.bucket {
            Some(bucket) => bucket.age(Duration::from_secs(3600)),
            None => {
                self.sql("UPDATE blobs SET touched_at = touched_at - 3600000000");
            }
        }
    }
}

fn keys(endpoint: &str) -> [(&str, &str); 6] {
    [
        ("BLOBS_IN", "s3"),
        ("S3_ENDPOINT", endpoint),
        ("S3_BUCKET", bucket::NAME),
        ("S3_PREFIX", "woma"),
        // Under the names that Amazon's programs use.
        ("AWS_ACCESS_KEY_ID", bucket::KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", bucket::SECRET),
    ]
}

/// The path of the address of a file.
fn address(reply: &Value, name: &str) -> String {
    let urls = reply["download_urls"].as_array().unwrap_or_else(|| panic!("{reply}"));
    let url = urls.iter().find_map(|file| file["url"].as_str().filter(|url| url.ends_with(name)));
    let url = url.unwrap_or_else(|| panic!("{name}: {reply}"));
    format!("/dl/{}", url.split_once("/dl/").unwrap().1)
}

fn part(server: &Server, target: &str, range: &str) -> Answer {
    let answer = server.request("GET", target, &[("Range", range)], b"");
    assert_eq!(answer.status, 206, "{range}: {}", answer.text());
    answer
}

#[test]
fn files_in_the_database_outlive_the_server_and_its_folder() {
    outlives(&World::in_database());
}

#[test]
fn files_in_s3_outlive_the_server_and_its_folder() {
    let world = World::in_s3();
    outlives(&world);
    let bucket = world.bucket.as_ref().unwrap();
    assert!(bucket.objects().iter().all(|name| name.starts_with("woma/")));
}

fn outlives(world: &World) {
    let home = Home::new();
    let server = world.start(&home);
    // Three pieces of the database, and a border of theirs is where the second part begins.
    let code = "x = 41\nopen('big.txt', 'w').write('0123456789abcdef' * (3 << 16))\n\
                open('small.csv', 'w').write('a,b')";
    let reply = done(&server, "s", code);
    let (big, small) = (address(&reply, "big.txt"), address(&reply, "small.csv"));
    let chart = address(&done(&server, "s", CHART), "c.png");
    let upload = "/api/v1/sessions/s/files/given.csv";
    assert_eq!(server.request("PUT", upload, &[], b"given").status, 201);
    let given = done(&server, "s", "open('given.csv', 'a').write('!')");
    let given = address(&given, "given.csv");
    let whole = |server: &Server| {
        let answer = server.get(&big);
        assert_eq!((answer.status, answer.body.len()), (200, 3 << 20));
        assert!(answer.body.chunks(16).all(|piece| piece == b"0123456789abcdef"));
        assert_eq!(server.get(&small).text(), "a,b");
        assert_eq!(server.get(&given).text(), "given!");
        assert!(server.get(&chart).body.starts_with(b"\x89PNG"));
        let range = format!("bytes={}-{}", (1 << 20) - 2, (1 << 20) + 1);
        assert_eq!(part(server, &big, &range).text(), "ef01");
        assert_eq!(part(server, &big, "bytes=-3").text(), "def");
        assert_eq!(part(server, &big, "bytes=2097153-2097155").text(), "123");
        assert_eq!(part(server, &small, "bytes=1-").text(), ",b");
        server.request("GET", &big, &[("Range", "bytes=3145728-")], b"").refused(416);
        let head = server.request("HEAD", &big, &[], b"");
        assert_eq!(head.get("content-length"), Some("3145728"));
    };
    whole(&server);
    let shown = server.get("/charts/s/c.png");
    assert_eq!((shown.status, shown.get("content-type")), (200, Some("image/png")));
    if let Some(bucket) = &world.bucket {
        bucket.requests();
        part(&server, &big, "bytes=-3");
        let asked = bucket.requests();
        assert!(asked.iter().any(|line| line.ends_with("bytes=3145725-")), "{asked:?}");
    }
    until("it is saved", || world.sql("SELECT count(*) FROM checkpoints") == "1");
    until_recorded(&server);
    server.kill();

    // The folder held no contents, so none are missing without it.
    fs::remove_dir_all(home.path().join("blobs")).unwrap();
    let server = world.start(&home);
    whole(&server);
    let reply = done(&server, "s", "x + 1");
    assert_eq!(reply["result"], 42, "{reply}");
    assert_eq!(reply["session_restored"]["restored"], json!(["x", "plt"]), "{reply}");
    server.kill();
    let elsewhere = Home::new();
    whole(&world.start(&elsewhere));
    let left = fs::read_dir(elsewhere.path().join("blobs")).unwrap().count();
    assert_eq!(left, 1, "only the place for what has no name yet");
}

#[test]
fn only_garbage_is_deleted_from_the_database() {
    is_cleaned(&World::in_database());
}

#[test]
fn only_garbage_is_deleted_from_s3() {
    is_cleaned(&World::in_s3());
}

fn is_cleaned(world: &World) {
    let home = Home::new();
    let server = world.start(&home);
    let reply = done(&server, "s", "x = 41\nfor n in 'abc': open(n + '.txt', 'w').write(n)");
    let files = ["a.txt", "b.txt", "c.txt"].map(|name| address(&reply, name));
    server.stop();
    // Three files and the variables.
    assert_eq!(world.count(), 4);
    world.sql("DELETE FROM files WHERE name = 'a.txt'");
    world.sql("UPDATE files SET expires_at = 1 WHERE name = 'b.txt'");
    world.age();
    let server = world.start(&home);
    until("the garbage is gone", || world.count() == 2);
    let [deleted, expired, kept] = files;
    server.get(&deleted).refused(404);
    server.get(&expired).refused(404);
    assert_eq!(server.get(&kept).text(), "c");
    assert_eq!(done(&server, "s", "x")["result"], 41);
}

/// Runs that write files succeed, but the files cannot be downloaded; the rest is unaffected.
fn is_missed(server: &Server, known: &str, why: &str) {
    let started = Instant::now();
    let reply = done(server, "s", "x += 1\nopen('new.csv', 'w').write(str(x))\nx");
    assert_eq!(reply["download_urls"], json!([]), "{reply}");
    let told = reply["warnings"].to_string();
    assert!(told.contains("new.csv has no download address"), "{reply}");
    assert!(told.contains(why), "{told}");
    assert!(!told.contains("127.0.0.1"), "{told}");
    let told = server.get(known).refused(503);
    assert!(told.contains("the object store is away"), "{told}");
    for _ in 0..10 {
        let reply = done(server, "s", "x += 1\nopen('new.csv', 'w').write(str(x))\nx");
        assert!(reply["warnings"].to_string().contains("no download address"), "{reply}");
        server.get(known).refused(503);
    }
    assert!(started.elapsed() < SILENCE_MAX, "{:?}", started.elapsed());
    assert_eq!(done(server, "other", "6 * 7")["result"], 42);
    let file = server.get("/api/v1/sessions/s/files/new.csv");
    assert_eq!(
        (file.status, file.text()),
        (200, done(server, "s", "x")["result"].to_string().as_str())
    );
}

fn is_found_again(server: &Server, known: &str) {
    until("files have addresses again", || {
        // An unchanged file is not stored again.
        let reply = done(server, "s", "x += 1\nopen('new.csv', 'w').write(str(x))\nx");
        let is_kept = reply["download_urls"] != json!([]);
        if is_kept {
            let content = server.get(&address(&reply, "new.csv"));
            assert_eq!(content.text(), reply["result"].to_string());
        }
        is_kept
    });
    assert_eq!(server.get(known).text(), "known");
}

#[test]
fn without_the_bucket_runs_go_on_and_files_have_no_address() {
    let bucket = Bucket::start();
    let home = Home::new();
    let server = home.start(&keys(&bucket.endpoint()));
    let reply = done(&server, "s", "x = 1\nopen('known.csv', 'w').write('known')");
    let known = address(&reply, "known.csv");
    bucket.stop();
    is_missed(&server, &known, "the object store is away: it cannot be reached");
    bucket.launch();
    is_found_again(&server, &known);
    bucket.silence(true);
    is_missed(&server, &known, "the object store is away: nothing came in time");
    bucket.silence(false);
    is_found_again(&server, &known);

    // The same if it is absent when the server starts.
    server.kill();
    bucket.stop();
    let server = home.start(&keys(&bucket.endpoint()));
    assert_eq!(health(&server)["status"], "healthy");
    done(&server, "s", "x = 1");
    is_missed(&server, &known, "the object store is away");
    bucket.launch();
    is_found_again(&server, &known);
    assert!(!server.log().contains(bucket::SECRET), "{}", server.log());
}

#[test]
fn with_files_in_a_silent_database_runs_go_on_without_addresses() {
    let world = World::in_database();
    let home = Home::new();
    let server = world.start(&home);
    done(&server, "s", "open('known.csv', 'w').write('known')");
    world.cluster.freeze();
    let started = Instant::now();
    let reply = done(&server, "s", "open('new.csv', 'w').write('new')");
    let took = started.elapsed();
    world.cluster.thaw();
    assert!(reply["warnings"].to_string().contains("new.csv has no download"), "{reply}");
    assert!(took < SILENCE_MAX, "{took:?}");
    until_recorded(&server);
    let reply = done(&server, "s", "open('newer.csv', 'w').write('newer')");
    assert_eq!(server.get(&address(&reply, "newer.csv")).text(), "newer");
}

#[test]
fn streams_large_files_without_holding_them_in_memory() {
    for world in [World::in_database(), World::in_s3()] {
        let home = Home::new();
        let server = world.start(&home);
        done(&server, "s", "1");
        let before = server.memory_peak();
        let code = "import os\nwith open('large.zip', 'wb') as file:\n\
                    \x20   for _ in range(50): file.write(os.urandom(1 << 20))";
        let target = address(&done(&server, "s", code), "large.zip");
        assert_eq!(server.get(&target).body.len(), 50 << 20);
        assert_eq!(part(&server, &target, "bytes=-1").body.len(), 1);
        let grown = server.memory_peak() - before;
        println!("in S3: {}, memory grew by {grown} MiB from {before}", world.bucket.is_some());
        assert!(grown < 75, "{grown} MiB for a file of 50");
    }
}

/// Output of a server that does not start, or of another command.
fn said(home: &Home, command: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_woma"))
        .arg("--data-dir")
        .arg(home.path())
        .arg("--env")
        .arg(environment())
        .args(command)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(variables.iter().copied())
        .current_dir(home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn rejects_invalid_storage_at_the_start() {
    let bucket = Bucket::start();
    let (home, endpoint) = (Home::new(), bucket.endpoint());
    let with = |name: &'static str, value: &'static str| {
        let mut keys = keys(&endpoint).to_vec();
        keys.retain(|(known, _)| *known != name);
        keys.push((name, value));
        keys
    };
    for (variables, why) in [
        (vec![("BLOBS_IN", "database")], "BLOBS_IN=database needs DATABASE_URL"),
        (
            vec![("BLOBS_IN", "s3")],
            "BLOBS_IN=s3 needs S3_BUCKET, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY",
        ),
        (with("S3_BUCKET", ""), "BLOBS_IN=s3 needs S3_BUCKET, which is not set"),
        (with("S3_BUCKET", "absent"), "the bucket does not exist"),
        (with("AWS_SECRET_ACCESS_KEY", "wrong-s3cret"), "refuses these keys"),
        (with("S3_ENDPOINT", "http://files.example"), "S3_ALLOW_HTTP=true"),
        (with("S3_CA_FILE", "/nowhere/ca.pem"), "/nowhere/ca.pem"),
    ] {
        let (is_started, said) = said(&home, &["serve", "--port", "0"], &variables);
        assert!(!is_started && said.contains(why), "{variables:?}: {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    let (_, shown) = said(&home, &["config", "show"], &keys(&endpoint));
    assert!(shown.contains(bucket::NAME) && !shown.contains(bucket::SECRET), "{shown}");
}
