//! Redeploys: a server with the same database and an empty data folder finds what the earlier one had.

use std::thread;

use serde_json::{Value, json};

use crate::durability::postgres::Cluster;
use crate::durability::{Home, done, until_recorded};
use crate::harness::{Server, until};
use crate::package_index::Index;

/// A database that outlives its servers and their folders.
struct Deployment {
    cluster: Cluster,
    database: String,
}

impl Deployment {
    fn new() -> Self {
        let cluster = Cluster::start_trusting();
        let database = cluster.fresh();
        Self { cluster, database }
    }

    fn start(&self, home: &Home, more: &[(&str, &str)]) -> Server {
        let url = self.cluster.url(&self.database);
        let variables = [&[("DATABASE_URL", url.as_str())], more].concat();
        home.start(&variables)
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.database, sql).unwrap().trim().to_owned()
    }
}

/// The paths of the addresses in a reply.
fn addresses(reply: &Value) -> Vec<String> {
    let urls = reply["download_urls"].as_array().unwrap().iter();
    let path = |url: &str| format!("/dl/{}", url.split_once("/dl/").unwrap().1);
    urls.map(|file| path(file["url"].as_str().unwrap())).collect()
}

fn files(server: &Server, session: &str) -> Vec<String> {
    let list = server.get(&format!("/api/v1/sessions/{session}/files")).json();
    let mut paths: Vec<String> = list["files"]
        .as_array()
        .unwrap_or_else(|| panic!("{list}"))
        .iter()
        .map(|file| file["path"].as_str().unwrap().to_owned())
        .collect();
    paths.sort();
    paths
}

const WORK: &str = "import os\nimport matplotlib.pyplot as plt\nx = 41\n\
                    os.makedirs('sub')\nopen('sub/report.txt', 'w').write('first')\n\
                    open('gone.txt', 'w').write('gone')\nopen('data.csv', 'w').write('a,b')\n\
                    plt.plot([1, 3])\nplt.show()";

/// Makes a session with variables, files and a chart; returns the addresses.
fn work(server: &Server, session: &str) -> Vec<String> {
    let reply = done(server, session, WORK);
    let later = "open('sub/report.txt', 'w').write('second')\nos.remove('gone.txt')\nx += 1";
    let later = done(server, session, later);
    let upload = format!("/api/v1/sessions/{session}/files/given.csv");
    assert_eq!(server.request("PUT", &upload, &[], b"given").status, 201);
    [addresses(&reply), addresses(&later)].concat()
}

/// A run in a new data folder has the variables and files, and says so once.
fn is_back(server: &Server, session: &str) {
    let code = "x, sorted(os.listdir()), open('sub/report.txt').read(), open('given.csv').read()";
    let reply = done(server, session, code);
    let listed = ["data.csv", "given.csv", "sub"];
    assert_eq!(reply["result"], json!([42, listed, "second", "given"]), "{reply}");
    let why = reply["restart_reason"].as_str().unwrap();
    let files = "the session was taken over from the database; 3 files are back: data.csv, \
                 given.csv, sub/report.txt; its variables are back as of";
    assert!(why.starts_with(files), "{why}");
    let again = done(server, session, "x");
    assert_eq!(again["session_restarted"], false, "{again}");
}

#[test]
fn a_redeploy_finds_sessions_variables_files_and_links() {
    let (deployment, first, second) = (Deployment::new(), Home::new(), Home::new());
    let server = deployment.start(&first, &[]);
    let mut links = work(&server, "s");
    links.extend(addresses(&done(&server, "read", "y = 1\nopen('r.txt', 'w').write('r')")));
    let chart = server.get("/charts/s/chart_001.png");
    assert_eq!(chart.status, 200);
    done(&server, "reset", "open('r.txt', 'w').write('r')");
    assert_eq!(server.post("/api/v1/sessions/reset/reset", &Value::Null).status, 200);
    done(&server, "deleted", "open('d.txt', 'w').write('d')");
    assert!(server.request("DELETE", "/api/v1/sessions/deleted", &[], b"").status < 300);
    let label = json!({ "session_id": "named", "name": "Sales", "description": "of June" });
    assert!(server.post("/api/v1/sessions", &label).status < 300);
    let before: Vec<_> = links.iter().map(|link| server.get(link).body).collect();
    server.stop();

    let server = deployment.start(&second, &[]);
    let sessions = server.get("/api/v1/sessions").json();
    let known: Vec<_> = sessions["sessions"].as_object().unwrap().keys().collect();
    assert_eq!(known, ["named", "read", "reset", "s"], "{sessions}");
    assert_eq!(sessions["sessions"]["s"]["execution_count"], 2, "{sessions}");
    assert_eq!(sessions["sessions"]["named"]["name"], "Sales", "{sessions}");
    for (link, before) in links.iter().zip(before) {
        let answer = server.get(link);
        assert!(answer.status == 200 && answer.body == before, "{link}: {}", answer.status);
    }
    assert_eq!(server.get("/charts/s/chart_001.png").body, chart.body);
    is_back(&server, "s");
    // Reading is a first use too.
    assert_eq!(files(&server, "read"), ["r.txt"]);
    assert_eq!(server.get("/api/v1/sessions/read/files/r.txt").text(), "r");
    assert_eq!(done(&server, "read", "y")["result"], 1);
    assert_eq!(files(&server, "reset"), Vec::<String>::new());
    server.get("/api/v1/sessions/deleted").refused(404);
    assert_eq!(done(&server, "deleted", "1")["session_restarted"], false);
    let why = server.post("/api/v1/sessions", &json!({ "session_id": "named" })).refused(409);
    assert!(why.contains("exists already"), "{why}");
}

#[test]
fn a_session_of_a_live_server_is_not_taken_over_and_that_of_a_killed_one_is() {
    let (deployment, first, second) = (Deployment::new(), Home::new(), Home::new());
    let old = deployment.start(&first, &[]);
    let links = work(&old, "s");
    until("it is saved", || deployment.sql("SELECT count(*) FROM checkpoints") == "1");
    until_recorded(&old);

    let new = deployment.start(&second, &[]);
    let answer = new.post("/execute", &json!({ "code": "x", "session_id": "s" }));
    let why = answer.refused(409);
    assert!(why.contains("is in use by another server with the same database"), "{why}");
    assert!(answer.get("retry-after").is_some_and(|time| time.parse::<u64>().unwrap() <= 30));
    new.request("DELETE", "/api/v1/sessions/s", &[], b"").refused(409);
    assert_eq!(done(&new, "other", "1")["success"], true);
    assert_eq!(done(&old, "s", "x")["result"], 42);

    old.kill();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| is_back(&new, "s"));
        // The clock of the database decides; the test does not wait for it.
        let process = "SELECT lease_server FROM sessions WHERE id = 's'";
        deployment.sql(&format!("UPDATE servers SET alive_until = 0 WHERE id = ({process})"));
        waiting.join().unwrap();
    });
    assert!(links.iter().all(|link| new.get(link).status == 200));
}

#[test]
fn files_that_do_not_come_back_are_named() {
    let deployment = Deployment::new();
    let homes = [Home::new(), Home::new(), Home::new()];
    let old = deployment.start(&homes[0], &[]);
    let code =
        "open('a.bin', 'wb').write(bytes(700_000))\nopen('b.bin', 'wb').write(bytes(700_000))";
    done(&old, "s", code);
    done(&old, "t", "open('c.csv', 'w').write('c')");
    old.stop();

    let small = deployment.start(&homes[1], &[("DISK_MB", "1")]);
    let reply = done(&small, "s", "import os; os.listdir()");
    assert_eq!(reply["result"], json!(["a.bin"]), "{reply}");
    let why = "the session was taken over from the database; 1 file is back: a.bin; not back: b.bin \
               (the folder would be over its limit, DISK_MB)";
    assert_eq!(reply["restart_reason"], why, "{reply}");
    small.stop();

    // Contents in the folder of another server are out of reach, and so are those of the database.
    let apart = deployment.start(&homes[2], &[("BLOBS_IN", "folder")]);
    let reply = done(&apart, "t", "1");
    let why = "the session was taken over from the database; no file of its folder was stored \
               there; not back: c.csv (its content is not in this server's storage)";
    assert_eq!(reply["restart_reason"], why, "{reply}");
}

/// A server whose contents were in its folder keeps them when they go to the database from now on.
#[test]
fn contents_that_are_in_the_folder_stay_when_others_go_to_the_database() {
    let (deployment, home) = (Deployment::new(), Home::new());
    let old = deployment.start(&home, &[("BLOBS_IN", "folder")]);
    let before = addresses(&done(&old, "s", "x = 1\nopen('a.csv', 'w').write('a')"));
    old.stop();
    assert_eq!(deployment.sql("SELECT count(*) FROM blobs"), "0");
    let new = deployment.start(&home, &[]);
    let after = addresses(&done(&new, "s", "open('b.csv', 'w').write(f'b{x}')"));
    assert_eq!(new.get(&before[0]).text(), "a");
    assert_eq!(new.get(&after[0]).text(), "b1");
    assert_eq!(deployment.sql("SELECT count(*) FROM files JOIN blobs USING (digest)"), "1");
}

#[test]
fn packages_of_a_session_are_in_the_database() {
    let deployment = Deployment::new();
    let index = Index::start();
    index.add("woma_two", "0.3", &[]);
    let url = index.url();
    let more = [("PACKAGE_INDEX_URL", url.as_str())];
    let home = Home::new();
    let server = deployment.start(&home, &more);
    let ran = server.code("kept", "%pip install -q woma_two\nimport woma_two");
    assert_eq!(ran["success"], true, "{ran}");
    let stored = || deployment.sql("SELECT packages FROM sessions WHERE id = 'kept'");
    until("the database has them", || stored().contains("woma-two"));
    server.stop();
    // With the same folder, as if nothing had been.
    let server = deployment.start(&home, &more);
    let ran = server.code("kept", "import woma_two\nprint(woma_two.VERSION)");
    assert_eq!(ran["stdout"], "0.3\n", "{ran}");
    server.stop();
    // With an empty one, the session says what to install again.
    let other = Home::new();
    let server = deployment.start(&other, &more);
    let ran = server.code("kept", "print(1)");
    assert!(ran.to_string().contains("pip install woma-two==0.3"), "{ran}");
    let ran = server.code("kept", "%pip install -q woma_two\nimport woma_two\nprint(2)");
    assert_eq!(ran["stdout"], "2\n", "{ran}");
}
