//! Sessions that are deleted or reset while the database is away stay so.

use serde_json::{Value, json};

use super::postgres::Cluster;
use super::{Home, done, health, until_recorded};
use crate::harness::{Server, until};

fn start(home: &Home, cluster: &Cluster, database: &str) -> Server {
    home.start(&[("DATABASE_URL", &cluster.url(database)), ("MAX_KERNELS", "20")])
}

/// Variables, a file with an address, and a checkpoint of them in the database.
fn made(server: &Server, cluster: &Cluster, database: &str, session: &str) -> String {
    let body = json!({ "session_id": session, "name": "before" });
    assert_eq!(server.post("/api/v1/sessions", &body).status, 200);
    let reply = done(server, session, "x = 1\nopen('a.csv', 'w').write('1')");
    let saved = server.post(&format!("/api/v1/sessions/{session}/checkpoint"), &Value::Null);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let sql = format!("SELECT digest FROM checkpoints WHERE session_id = '{session}'");
    assert_ne!(cluster.sql(database, &sql).unwrap().trim(), "");
    let url = reply["download_urls"][0]["url"].as_str().unwrap();
    let path = format!("/{}", url.splitn(4, '/').last().unwrap());
    assert_eq!(server.get(&path).status, 200, "{path}");
    path
}

fn rid(server: &Server, session: &str) {
    let path = format!("/api/v1/sessions/{session}");
    let answer = match session.starts_with("deleted") {
        true => server.request("DELETE", &path, &[], b""),
        false => server.post(&format!("{path}/reset"), &Value::Null),
    };
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Checks that no data is restored, neither in this kernel nor after its end.
fn is_empty(server: &Server, session: &str) {
    let reply = done(server, session, "import os\n['x' in globals(), os.path.exists('a.csv')]");
    assert_eq!(reply["result"], json!([false, false]), "{reply}");
    server.code(session, "import os; os._exit(1)");
    let reply = done(server, session, "'x' in globals()");
    assert_eq!(reply["result"], false, "{reply}");
}

#[test]
fn deletions_during_a_database_outage_are_final() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let server = start(&home, &cluster, &database);
    let sessions = ["deleted", "deleted-used", "reset", "reset-used"];
    let files = sessions.map(|session| made(&server, &cluster, &database, session));
    cluster.stop("-QUIT");
    until("the store is missed", || health(&server)["status"] == "degraded");
    for session in sessions {
        rid(&server, session);
    }
    for session in ["deleted-used", "reset-used"] {
        is_empty(&server, session);
    }
    server.get("/api/v1/sessions/deleted").refused(404);
    server.post("/api/v1/sessions/reset/restore", &Value::Null).refused(404);
    // The next server knows it, though the database does not.
    server.kill();
    let server = start(&home, &cluster, &database);
    is_empty(&server, "deleted-used");
    cluster.launch();
    until_recorded(&server);
    for session in sessions {
        is_empty(&server, session);
    }
    for (session, file) in sessions.iter().zip(&files) {
        let expected = if session.starts_with("deleted") { 404 } else { 200 };
        assert_eq!(server.get(file).status, expected, "{session}");
    }
    server.stop();
    let server = start(&home, &cluster, &database);
    for session in sessions {
        is_empty(&server, session);
    }
}

#[test]
fn a_session_after_a_deleted_one_of_the_same_name_is_new() {
    let cluster = Cluster::start();
    let (home, database) = (Home::new(), cluster.fresh());
    let server = start(&home, &cluster, &database);
    made(&server, &cluster, &database, "deleted");
    cluster.stop("-QUIT");
    until("the store is missed", || health(&server)["status"] == "degraded");
    rid(&server, "deleted");
    let body = json!({ "session_id": "deleted", "name": "after" });
    assert_eq!(server.post("/api/v1/sessions", &body).status, 200);
    done(&server, "deleted", "y = 2");
    cluster.launch();
    until_recorded(&server);
    let sql = "SELECT name FROM sessions WHERE id = 'deleted'";
    until("it is written down", || cluster.sql(&database, sql).unwrap().trim() == "after");
    let saved = server.post("/api/v1/sessions/deleted/checkpoint", &Value::Null);
    assert_eq!(saved.status, 200, "{}", saved.text());
    let reply = done(&server, "deleted", "open('b.csv', 'w').write('1')");
    let url = reply["download_urls"][0]["url"].as_str().unwrap();
    let path = format!("/{}", url.splitn(4, '/').last().unwrap());
    server.kill();
    let server = start(&home, &cluster, &database);
    let reply = done(&server, "deleted", "y, 'x' in globals()");
    assert_eq!(reply["result"], json!([2, false]), "{reply}");
    assert_eq!(server.get(&path).status, 200);
    assert_eq!(cluster.sql(&database, sql).unwrap().trim(), "after");
}
