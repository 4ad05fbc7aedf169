//! Datasets outlive their server: whole or absent after a kill, found again after a redeploy, within
//! the storage of their caller.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::client::client;
use crate::durability::postgres::Cluster;
use crate::durability::{Home, pass};
use crate::harness::{Server, until};

fn make(server: &Server, rows: u32) {
    let code = format!(
        "import pandas as pd, numpy as np\n\
         pd.DataFrame({{'a': np.arange({rows}), 'b': np.random.rand({rows})}}).to_csv('t.csv', index=False)"
    );
    let made = server.code("s", &code);
    assert_eq!(made["success"], true, "{made}");
}

fn load(server: &Server, name: &str) -> u16 {
    let body = json!({ "file_path": "t.csv", "dataset_name": name, "session_id": "s" });
    server.post("/api/v1/datasets", &body).status
}

fn sum(server: &Server, name: &str) -> u64 {
    let body = json!({ "sql": format!("SELECT sum(a) AS s FROM {name}") });
    let answer = server.post("/api/v1/queries", &body);
    let found = answer.json()["data"][0]["s"].clone();
    found
        .as_u64()
        .or_else(|| found.as_str()?.parse().ok())
        .unwrap_or_else(|| panic!("{}", answer.text()))
}

#[test]
fn a_killed_server_leaves_datasets_whole_or_absent() {
    let home = Home::new();
    let server = home.start(&[]);
    make(&server, 200_000);
    let whole = (0..200_000u64).sum::<u64>();
    assert_eq!(load(&server, "kept"), 201);
    let mut server = server;
    for round in 0..4u64 {
        let is_acknowledged = thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let mut connection = server.connect();
                let body =
                    json!({ "file_path": "t.csv", "dataset_name": "torn", "session_id": "s" });
                let body = body.to_string();
                let sent = connection.try_send("POST", "/api/v1/datasets", &[], body.as_bytes());
                sent.is_ok() && connection.try_answer(false).is_ok_and(|answer| answer.status < 300)
            });
            pass(Duration::from_millis(60 + 120 * round));
            server.kill();
            loading.join().unwrap()
        });
        server = home.start(&[]);
        let found = server.get("/api/v1/datasets/torn").status;
        assert!(found == 200 || found == 404 && !is_acknowledged, "{found}");
        if found == 200 {
            assert_eq!(sum(&server, "torn"), whole);
        }
        assert_eq!(sum(&server, "kept"), whole);
        let seen = server.code("t", "len(datasets['kept'])");
        assert_eq!(seen["result"], 200_000, "{seen}");
    }
    // Files that were changed or lost on disk come back from what is stored.
    server.stop();
    let shelves = home.path().join("sessions/datasets");
    let shelf = fs::read_dir(&shelves).unwrap().next().unwrap().unwrap().path();
    fs::write(shelf.join("kept.parquet"), "torn").unwrap();
    fs::write(shelf.join("stray.parquet"), "stray").unwrap();
    let server = home.start(&[]);
    assert_eq!(sum(&server, "kept"), whole);
    assert_eq!(
        server.code("t", "import os\n'stray.parquet' in os.listdir('/datasets')")["result"],
        false
    );
}

#[test]
fn a_redeploy_finds_datasets_and_servers_share_them() {
    let cluster = Cluster::start_trusting();
    let database = cluster.fresh();
    let url = cluster.url(&database);
    let start = |home: &Home| home.start(&[("DATABASE_URL", url.as_str())]);
    let (first, second) = (Home::new(), Home::new());
    let server = start(&first);
    make(&server, 1_000);
    assert_eq!(load(&server, "sales"), 201);
    server.stop();
    let server = start(&second);
    let seen = server.code("t", "float(datasets['sales'].a.sum())");
    assert_eq!(seen["result"], 499_500.0, "{seen}");
    assert_eq!(sum(&server, "sales"), 499_500);
    // Another server with the same database: what one loads or drops, the other has.
    let other = start(&first);
    make(&other, 10);
    assert_eq!(load(&other, "more"), 201);
    assert_eq!(sum(&server, "more"), 45);
    assert_eq!(other.request("DELETE", "/api/v1/datasets/sales", &[], b"").status, 200);
    until("the session sees the change", || {
        let names = server.code("t", "import os\nsorted(os.listdir('/datasets'))");
        names["result"] == json!(["more.parquet"])
    });
}

#[test]
fn datasets_count_in_the_storage_of_their_caller() {
    let server = Server::start_with(&[], &[("STORAGE_MB", "4")]);
    let code = "import os\nopen('t.csv', 'w').write('a\\n' + '\\n'.join(os.urandom(400).hex() for _ in range(2500)))";
    assert_eq!(server.code("s", code)["success"], true);
    let mut refused = None;
    for round in 0..6 {
        let body =
            json!({ "file_path": "t.csv", "dataset_name": format!("d{round}"), "session_id": "s" });
        let answer = server.post("/api/v1/datasets", &body);
        if answer.status != 201 {
            refused = Some(answer.refused(429));
            break;
        }
    }
    let refused = refused.expect("the quota was reached");
    assert!(refused.contains("no storage left"), "{refused}");
    // A drop makes room.
    assert_eq!(server.request("DELETE", "/api/v1/datasets/d0", &[], b"").status, 200);
    let body = json!({ "file_path": "t.csv", "dataset_name": "again", "session_id": "s" });
    assert_eq!(server.post("/api/v1/datasets", &body).status, 201);
    assert_eq!(client(&server).get("/api/v1/datasets/d0").status, 404);
}
