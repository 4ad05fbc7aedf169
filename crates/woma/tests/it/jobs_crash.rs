//! Jobs and servers that die: nothing that was acknowledged is lost, and no job runs twice.

use std::collections::BTreeMap;
use std::env;

use serde_json::{Value, json};

use crate::durability::Home;
use crate::durability::postgres::Cluster;
use crate::harness::{Server, until};
use crate::jobs::{ended, job, submit};

/// Kills of a worker in `make test`; `WOMA_TEST_KILLS` sets another number.
const KILLS: usize = 2;
/// Queued jobs in `make test`; `WOMA_TEST_JOBS` sets another number.
const QUEUED: usize = 100;

fn number(variable: &str, default: usize) -> usize {
    let text = env::var_os(variable).and_then(|text| text.into_string().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn said(server: &Server, id: &str) -> String {
    let path = format!("/api/v1/jobs/{id}/output?wait=5");
    server.get(&path).json()["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_killed_server_leaves_interrupted_jobs_results_and_a_queue() {
    let home = Home::new();
    let one = [("MAX_CONCURRENT_JOBS", "2")];
    let server = home.start(&one);
    let done = submit(&server, "a", "print('whole')\n7");
    assert_eq!(ended(&server, &done)["status"], "completed");
    let endless = "import time\nprint('so far', flush=True)\nopen('kept.txt', 'w').write('x')\n\
                   time.sleep(600)";
    let cut = submit(&server, "a", endless);
    let again = json!({ "code": "import os, time\nn = len(os.listdir('.'))\n\
        open(f'try{n}', 'w').close()\nprint('try', flush=True)\n\
        time.sleep(600 if n == 0 else 0)", "session_id": "b", "retries": 1 });
    let again = server.post("/api/v1/jobs", &again).json()["job_id"].as_str().unwrap().to_owned();
    let queued = submit(&server, "a", "open('kept.txt').read()");
    // The output is stored now and then: what a reader was shown may be a moment ahead of it.
    until("both run", || [&cut, &again].iter().all(|id| !said(&server, id).is_empty()));
    let database = home.path().join("woma.db");
    until("what they said is stored", || {
        let sql = "SELECT count(*) FROM jobs WHERE state = 'running' AND output_chars > 0";
        let open = rusqlite::Connection::open(&database);
        let count = open.and_then(|db| db.query_row(sql, [], |row| row.get::<_, i64>(0)));
        count.is_ok_and(|count| count == 2)
    });
    assert_eq!(job(&server, &queued)["status"], "pending");
    server.kill();
    let server = home.start(&one);
    let failed = ended(&server, &cut);
    assert_eq!(
        (&failed["status"], &failed["error"]["category"]),
        (&json!("failed"), &json!("interrupted"))
    );
    let result = server.get(&format!("/api/v1/jobs/{cut}/result")).json();
    assert_eq!(
        (&result["success"], &result["stdout"]),
        (&json!(false), &json!("so far\n")),
        "{result}"
    );
    let result = server.get(&format!("/api/v1/jobs/{done}/result")).json();
    assert_eq!((&result["result"], &result["stdout"]), (&json!(7), &json!("whole\n")), "{result}");
    assert_eq!(ended(&server, &queued)["status"], "completed", "a queued job runs after all");
    let retried = ended(&server, &again);
    assert_eq!(
        (&retried["status"], &retried["attempts"]),
        (&json!("completed"), &json!(2)),
        "{retried}"
    );
}

/// A job that leaves a line in the file of its session each time it begins.
fn marked(server: &Server, number: usize) -> String {
    let code = format!("open('begun', 'a').write('{number}\\n')\nimport time\ntime.sleep(0.05)");
    submit(server, "marks", &code)
}

fn marks(server: &Server) -> BTreeMap<String, usize> {
    let text = server.get("/api/v1/sessions/marks/files/begun").text().to_owned();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn every_job_ends_once_however_often_its_worker_is_killed() {
    let home = Home::new();
    let (mut ids, kills) = (Vec::new(), number("WOMA_TEST_KILLS", KILLS));
    let mut server = home.start(&[]);
    for round in 0..kills {
        let first = ids.len();
        ids.extend((first..first + 6).map(|number| marked(&server, number)));
        let last = ids[first].clone();
        until("a job of this round has begun", || job(&server, &last)["status"] != "pending");
        assert!(round < kills);
        server.kill();
        server = home.start(&[]);
    }
    let mut completed = 0;
    for id in &ids {
        let job = ended(&server, id);
        match job["status"].as_str().unwrap() {
            "completed" => completed += 1,
            "failed" => assert_eq!(job["error"]["category"], "interrupted", "{job}"),
            other => panic!("{other}: {job}"),
        }
        assert_eq!(job["attempts"], 1, "{job}");
    }
    let marks = marks(&server);
    assert!(marks.values().all(|count| *count == 1), "a job began twice: {marks:?}");
    assert!(marks.len() >= completed, "{} of {completed}", marks.len());
    assert!(completed + 4 * kills >= ids.len(), "only those that ran may be lost: {completed}");
}

#[test]
fn many_queued_jobs_are_all_run() {
    let (count, home) = (number("WOMA_TEST_JOBS", QUEUED), Home::new());
    let server = home.start(&[("MAX_CONCURRENT_JOBS", "4")]);
    let ids: Vec<String> = (0..count)
        .map(|number| {
            let body = json!({ "code": number.to_string(), "stateless": true });
            let answer = server.post("/api/v1/jobs", &body);
            assert_eq!(answer.status, 202, "{}", answer.text());
            answer.json()["job_id"].as_str().unwrap().to_owned()
        })
        .collect();
    for (number, id) in ids.iter().enumerate() {
        assert_eq!(ended(&server, id)["status"], "completed");
        let result = server.get(&format!("/api/v1/jobs/{id}/result")).json();
        assert_eq!(result["result"], json!(number), "{result}");
    }
}

#[test]
fn two_servers_share_one_queue_and_one_takes_over_from_the_other() {
    let cluster = Cluster::start_trusting();
    let url = cluster.url(&cluster.fresh());
    let variables = [("DATABASE_URL", url.as_str()), ("MAX_CONCURRENT_JOBS", "1")];
    let (home_a, home_b) = (Home::new(), Home::new());
    let (a, b) = (home_a.start(&variables), home_b.start(&variables));
    let apart = |server: &Server, code: &str| -> String {
        let answer = server.post("/api/v1/jobs", &json!({ "code": code, "stateless": true }));
        answer.json()["job_id"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
    };
    let ids: Vec<String> = (0..12).map(|n| apart(&a, &format!("{n}"))).collect();
    for (number, id) in ids.iter().enumerate() {
        let job = ended(&b, id);
        assert_eq!((&job["status"], &job["attempts"]), (&json!("completed"), &json!(1)), "{job}");
        let result: Value = b.get(&format!("/api/v1/jobs/{id}/result")).json();
        assert_eq!(result["result"], json!(number), "either server has it: {result}");
    }
    // Both are busy; what waits is run by the one that lives.
    let sleep = "import time\nprint('on', flush=True)\ntime.sleep(600)";
    let (first, second) = (apart(&a, sleep), apart(&a, sleep));
    until("both servers run one", || {
        [&first, &second].iter().all(|id| job(&b, id)["status"] == "running")
    });
    assert_eq!(servers_that_run(&cluster, &url), 2, "each server runs one");
    let waiting: Vec<String> = (0..3).map(|n| apart(&a, &format!("{n} + 1"))).collect();
    a.kill();
    let lost = [&first, &second].map(Clone::clone);
    let mut failed = None;
    until("the job of the killed server is failed", || {
        failed = lost.iter().find(|id| job(&b, id)["status"] == "failed").cloned();
        failed.is_some()
    });
    let other = lost.iter().find(|id| Some(*id) != failed.as_ref()).unwrap();
    assert_eq!(job(&b, other)["status"], "running", "the job of the other one goes on");
    let cancelled = b.post(&format!("/api/v1/jobs/{other}/cancel"), &json!({})).json();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    for id in &waiting {
        assert_eq!(ended(&b, id)["status"], "completed");
    }
}

/// Servers that are running jobs.
fn servers_that_run(cluster: &Cluster, url: &str) -> usize {
    let database = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let sql = "SELECT count(DISTINCT server) FROM jobs WHERE state = 'running'";
    cluster.sql(database, sql).unwrap().trim().parse().unwrap()
}
