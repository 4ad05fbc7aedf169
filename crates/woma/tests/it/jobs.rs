//! Jobs: submitted over REST and MCP, followed, cancelled; beside a session, and after a call.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::auth::Keyed;
use crate::client::{Client, client};
use crate::durability::done;
use crate::harness::{Server, descendants, unique, until};

fn here() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let variables = [("MAX_CONCURRENT_JOBS", "3"), ("JOB_TIMEOUT", "120"), ("LOG_LEVEL", "debug")];
    SERVER.get_or_init(|| Server::start_with(&[], &variables))
}

/// Submits code to a session; returns the job's id.
pub(crate) fn submit(server: &Server, session: &str, code: &str) -> String {
    submit_with(server, &json!({ "code": code, "session_id": session }))
}

fn submit_with(server: &Server, body: &Value) -> String {
    let answer = server.post("/api/v1/jobs", body);
    assert_eq!(answer.status, 202, "{}", answer.text());
    let job = answer.json();
    assert_eq!(job["status"], "pending", "{job}");
    let id = job["job_id"].as_str().unwrap().to_owned();
    assert_eq!(answer.get("location"), Some(&*format!("/api/v1/jobs/{id}")));
    id
}

pub(crate) fn job(server: &Server, id: &str) -> Value {
    server.get(&format!("/api/v1/jobs/{id}")).json()
}

/// Waits for the end of a job, and returns it.
pub(crate) fn ended(server: &Server, id: &str) -> Value {
    let mut seen = Value::Null;
    until("the job has ended", || {
        seen = server.get(&format!("/api/v1/jobs/{id}?wait=20")).json();
        !matches!(seen["status"].as_str(), Some("pending" | "running"))
    });
    seen
}

fn result(server: &Server, id: &str) -> Value {
    ended(server, id);
    let answer = server.get(&format!("/api/v1/jobs/{id}/result"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Waits until a job has printed this.
fn until_said(server: &Server, id: &str, text: &str) {
    until("the job has said it", || {
        let path = format!("/api/v1/jobs/{id}/output?wait=5");
        server.get(&path).json()["text"].as_str().is_some_and(|said| said.contains(text))
    });
}

#[test]
fn a_job_runs_beside_its_session_with_a_copy_of_its_variables_and_the_same_files() {
    let (server, session) = (here(), unique("beside"));
    done(server, &session, "x = [1]\nopen('in.txt', 'w').write('given')");
    let code = "import os, time\nx.append(2)\nprint(open('in.txt').read(), x, flush=True)\n\
                while not os.path.exists('go'):\n    time.sleep(0.01)\n\
                open('out.txt', 'w').write('made')\nimport matplotlib.pyplot as plt\n\
                plt.plot([1]); plt.show()\nlen(x)";
    let id = submit(server, &session, code);
    until_said(server, &id, "given [1, 2]");
    // The session goes on meanwhile, with its own variables.
    let reply = done(server, &session, "x.append('own')\nopen('go', 'w').close()\nx");
    assert_eq!(reply["result"], json!([1, "own"]), "{reply}");
    let result = result(server, &id);
    assert_eq!((&result["success"], &result["result"]), (&json!(true), &json!(2)), "{result}");
    assert_eq!(result["stdout"], "given [1, 2]\n", "{result}");
    assert_eq!(
        (&result["job_status"], &result["session_id"]),
        (&json!("completed"), &json!(session))
    );
    assert_eq!(result["inline_images"].as_array().map(Vec::len), Some(1), "{result}");
    let reply = done(server, &session, "open('out.txt').read(), x");
    assert_eq!(reply["result"], json!(["made", [1, "own"]]), "{reply}");
    assert_eq!(reply["files_created"], json!([]), "the job's files are not this run's: {reply}");
}

#[test]
fn a_job_that_raises_fails_and_one_that_takes_too_long_times_out() {
    let server = here();
    let raised = submit(server, &unique("raises"), "print('before')\n1 / 0");
    let late = json!({ "code": "while True: pass", "session_id": unique("late"), "timeout": 0.5 });
    let late = submit_with(server, &late);
    let job = ended(server, &raised);
    assert_eq!((&job["status"], &job["has_error"]), (&json!("failed"), &json!(true)), "{job}");
    assert_eq!(job["error"]["category"], "runtime", "{job}");
    let reply = result(server, &raised);
    assert_eq!(
        (&reply["error"]["type"], &reply["stdout"]),
        (&json!("ZeroDivisionError"), &json!("before\n"))
    );
    let job = ended(server, &late);
    assert_eq!(job["status"], "timeout", "{job}");
    let reply = result(server, &late);
    assert_eq!(reply["outcome"], "timed_out", "{reply}");
    assert!(reply["hint"].as_str().unwrap().contains("at most 120"), "{reply}");
}

#[test]
fn a_cancelled_job_is_killed_with_its_daemons_and_keeps_what_it_said() {
    let (server, session) = (here(), unique("daemons"));
    let marker = unique("daemon").replace('-', "");
    let code = format!(
        "import os, signal, subprocess, sys, time\n\
         for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n\
         for _ in range(3):\n    \
             subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', '{marker}'], \
             start_new_session=True)\n\
         print('started', flush=True)\ntime.sleep(600)"
    );
    let id = submit(server, &session, &code);
    until_said(server, &id, "started");
    let daemons = || {
        let named = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&marker)
        };
        descendants(server.pid).into_iter().filter(named).count()
    };
    until("the daemons run", || daemons() == 3);
    let cancelled = server.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).json();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    until("no daemon is left", || daemons() == 0);
    assert!(result(server, &id)["stdout"].as_str().unwrap().contains("started"));
    let again = server.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).json();
    assert_eq!(again["status"], "cancelled", "{again}");
    done(server, &session, "1");
}

#[test]
fn output_and_progress_are_read_while_a_job_runs() {
    let (server, session) = (here(), unique("live"));
    let code = "import os, time\nprint('first', flush=True)\nprogress(0.25, 'a quarter')\n\
                while not os.path.exists('go'):\n    time.sleep(0.01)\n\
                from tqdm import tqdm\n\
                for _ in tqdm(range(4), desc='rows'):\n    pass\nprint('last')";
    let id = submit(server, &session, code);
    until_said(server, &id, "a quarter");
    let running = job(server, &id);
    assert_eq!(
        running["progress"],
        json!({ "fraction": 0.25, "message": "a quarter" }),
        "{running}"
    );
    assert!(running["output_tail"].as_str().unwrap().starts_with("first"), "{running}");
    let part = server.get(&format!("/api/v1/jobs/{id}/output?limit=5")).json();
    assert_eq!((&part["text"], &part["next_offset"]), (&json!("first"), &json!(5)), "{part}");
    let mut stream = server.connect();
    stream.send("GET", &format!("/api/v1/jobs/{id}/stream?offset=5"), &[], b"");
    let path = format!("/api/v1/sessions/{session}/files/go");
    assert_eq!(server.request("PUT", &path, &[], b"").status, 201);
    let streamed = stream.answer(false);
    let events = streamed.lines();
    let said: String = events.iter().filter_map(|event| event["text"].as_str()).collect();
    assert!(said.contains("rows: 100%") && said.ends_with("last\n"), "{said:?}");
    let last = events.last().unwrap();
    assert_eq!(last["status"], "completed", "{last}");
    assert_eq!(last["progress"]["fraction"], 1.0, "{last}");
    let own = submit(server, &session, "def progress(x): return x + 1\nprogress(1)");
    assert_eq!(result(server, &own)["result"], 2, "a name of the user's goes first");
}

#[test]
fn a_flood_of_output_keeps_its_beginning_and_its_end() {
    let (server, session) = (here(), unique("flood"));
    let code = "for n in range(400_000): print('line', n)\nprint('the end')";
    let id = submit(server, &session, code);
    let job = ended(server, &id);
    assert!(job["output_chars"].as_u64().unwrap() > 4_000_000, "{job}");
    assert!(job["output_tail"].as_str().unwrap().ends_with("the end"), "{job}");
    let part = server.get(&format!("/api/v1/jobs/{id}/output?offset=70000&limit=20")).json();
    assert!(
        part["skipped"].as_u64().unwrap() > 0 && part["offset"].as_u64().unwrap() > 70_000,
        "{part}"
    );
    assert!(result(server, &id)["stdout"].as_str().unwrap().starts_with("line 0\n"));
}

#[test]
fn a_call_that_outlives_its_timeout_goes_on_as_a_job() {
    let (server, session) = (here(), unique("detach"));
    let code = "import os, time\nprint('begun', flush=True)\nkept = 1\n\
                while not os.path.exists('go'):\n    time.sleep(0.01)\nprint('done')\n41 + 1";
    let body = json!({ "code": code, "session_id": session, "timeout": 1, "on_timeout": "detach" });
    let reply = server.post("/api/v1/executions", &body).json();
    assert_eq!(reply["outcome"], "detached", "{reply}");
    assert_eq!(reply["stdout"], "begun\n", "{reply}");
    let message = reply["message"].as_str().or(reply["error_message"].as_str()).unwrap();
    let id = message.split("job ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    let running = job(server, &id);
    assert_eq!((&running["status"], &running["detached"]), (&json!("running"), &json!(true)));
    let path = format!("/api/v1/sessions/{session}/files/go");
    assert_eq!(server.request("PUT", &path, &[], b"").status, 201);
    let result = result(server, &id);
    assert_eq!((&result["result"], &result["stdout"]), (&json!(42), &json!("begun\ndone\n")));
    let reply = done(server, &session, "kept");
    assert_eq!(reply["result"], 1, "it ran in the session's own kernel: {reply}");
    let body = json!({ "code": "while True: pass", "session_id": session, "timeout": 0.2,
        "on_timeout": "detach" });
    let reply = server.post("/api/v1/executions", &body).json();
    let id = reply["hint"].as_str().unwrap().split('"').nth(1).unwrap().to_owned();
    let cancelled = server.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).json();
    assert_eq!(cancelled["status"], "cancelled", "{cancelled}");
    let wrong = json!({ "code": "1", "on_timeout": "later" });
    assert!(server.post("/execute", &wrong).refused(400).contains("`detach`"));
}

#[test]
fn a_key_makes_one_job_and_bad_arguments_are_refused() {
    let (server, session) = (here(), unique("key"));
    let key = unique("k");
    let body = json!({ "code": "1", "session_id": session });
    let send = |body: &Value| {
        let headers = [("Idempotency-Key", &*key), ("Content-Type", "application/json")];
        server.request("POST", "/api/v1/jobs", &headers, body.to_string().as_bytes())
    };
    let (first, second) = (send(&body).json(), send(&body).json());
    assert_eq!(first["job_id"], second["job_id"], "{second}");
    let other = json!({ "code": "2", "session_id": session });
    assert!(send(&other).refused(409).contains("another job"));
    for (name, value) in
        [("priority", json!(101)), ("retries", json!(11)), ("priority", json!(0.5))]
    {
        let mut body = body.clone();
        body[name] = value;
        assert!(server.post("/api/v1/jobs", &body).refused(400).contains(name));
    }
    assert!(server.post("/api/v1/jobs", &json!({ "code": " " })).refused(400).contains("empty"));
    let message = server.get("/api/v1/jobs/nope").refused(404);
    assert!(message.contains("`nope` does not exist"), "{message}");
    assert!(server.get("/api/v1/jobs?status=odd").refused(400).contains("completed"));
}

#[test]
fn jobs_of_a_deleted_session_end_with_it() {
    let (server, session) = (here(), unique("deleted"));
    let code = "print('on', flush=True)\nimport time\ntime.sleep(600)";
    let id = submit(server, &session, code);
    until_said(server, &id, "on");
    let gone = server.request("DELETE", &format!("/api/v1/sessions/{session}"), &[], b"");
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(ended(server, &id)["status"], "cancelled");
    let listed = server.get("/api/v1/sessions").text().to_owned();
    assert!(!listed.contains(&session), "the job has not brought it back");
}

#[test]
fn an_ephemeral_job_and_a_listing_in_pages() {
    let server = here();
    let session = unique("pages");
    let apart = json!({ "code": "import os; os.listdir()", "stateless": true });
    let apart = submit_with(server, &apart);
    let reply = result(server, &apart);
    assert_eq!((&reply["result"], &reply["session_id"]), (&json!([]), &Value::Null), "{reply}");
    let mut ids: Vec<String> = (0..5).map(|n| submit(server, &session, &n.to_string())).collect();
    for id in &ids {
        assert_eq!(ended(server, id)["status"], "completed");
    }
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/jobs?session_id={session}&limit=2{cursor}");
        let page = server.get(&path).json();
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 2);
        listed.extend(jobs.iter().map(|job| job["job_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    ids.reverse();
    assert_eq!(listed, ids);
}

#[test]
fn tools_tell_of_jobs_in_few_words() {
    let mcp = client(here());
    let session = unique("lean");
    let arguments = json!({ "code": "print('hi')\n7", "session_id": session });
    let mut called = mcp.call("submit_job", &arguments);
    let submitted = called["structuredContent"].take();
    let id = json!({ "job_id": submitted["job_id"], "wait": 60 });
    let mut called = mcp.call("get_job_status", &id);
    let text = called["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("completed") && text.ends_with("Output:\nhi"), "{text}");
    let status = called["structuredContent"].take();
    assert!(status.to_string().len() < 400, "{status}");
    let result = mcp.call("get_job_result", &id);
    assert_eq!(result["structuredContent"]["result"], 7, "{result}");
    let long = json!({ "code": "import time; time.sleep(600)", "session_id": session });
    let long = json!({ "job_id": mcp.call("submit_job", &long)["structuredContent"]["job_id"] });
    let text = mcp.call("get_job_result", &long)["content"][0]["text"].to_string();
    assert!(text.contains("still"), "{text}");
    let cancelled = mcp.call("cancel_job", &long);
    assert_eq!(cancelled["structuredContent"]["status"], "cancelled", "{cancelled}");
    let listed = mcp.call("list_jobs", &json!({ "session_id": session }));
    assert_eq!(listed["structuredContent"]["jobs"].as_array().unwrap().len(), 2, "{listed}");
    assert!(mcp.refused("get_job_status", &json!({ "job_id": "x" })).contains("does not exist"));
    assert!(mcp.refused("get_job_status", &json!({})).contains("job_id"));
}

#[test]
fn two_callers_share_the_places_and_nothing_else() {
    let limits = [("MAX_CONCURRENT_JOBS", "2"), ("MAX_QUEUED_JOBS", "8"), ("API_KEY", "x")];
    let keyed = Keyed::start(&limits);
    let (ann, bob) = (keyed.key("ann", &[]), keyed.key("bob", &[]));
    let (ann, bob) = (keyed.client(&ann), keyed.client(&bob));
    let wait = json!({ "code": "import time; time.sleep(600)", "stateless": true });
    let submit = |who: &Client<'_>, body: &Value| who.post("/api/v1/jobs", body);
    let mut hers = Vec::new();
    loop {
        let answer = submit(&ann, &wait);
        if answer.status != 202 {
            assert!(answer.refused(503).contains("of this caller wait"), "{}", answer.text());
            break;
        }
        hers.push(answer.json()["job_id"].as_str().unwrap().to_owned());
        if hers.len() == 1 {
            until("the first one runs", || {
                ann.get(&format!("/api/v1/jobs/{}", hers[0])).json()["status"] == "running"
            });
        }
    }
    assert_eq!(hers.len(), 8, "one runs and seven of eight places of the queue are hers");
    let his = submit(&bob, &json!({ "code": "'bob'", "stateless": true })).json();
    let his = his["job_id"].as_str().unwrap();
    let mut seen = Value::Null;
    until("his job has run beside hers", || {
        seen = bob.get(&format!("/api/v1/jobs/{his}?wait=10")).json();
        seen["status"] == "completed"
    });
    for path in ["", "/result", "/output", "/stream"] {
        ann.get(&format!("/api/v1/jobs/{his}{path}")).refused(404);
    }
    bob.post(&format!("/api/v1/jobs/{}/cancel", hers[0]), &json!({})).refused(404);
    assert_eq!(bob.get("/api/v1/jobs").json()["jobs"].as_array().unwrap().len(), 1);
    for id in &hers {
        let ended = ann.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).json();
        assert_eq!(ended["status"], "cancelled", "{ended}");
    }
}

#[test]
fn schedules_make_jobs_and_need_their_scope() {
    let keyed = Keyed::start(&[("API_KEY", "x")]);
    let (plain, allowed) =
        (keyed.key("plain", &[]), keyed.key("allowed", &["--scope", "execute,read,schedule"]));
    let (plain, allowed) = (keyed.client(&plain), keyed.client(&allowed));
    let body = json!({ "code": "print('tick')", "stateless": true, "cron": "* * * * *" });
    let message = plain.post("/api/v1/schedules", &body).refused(403);
    assert!(message.contains("`schedule`"), "{message}");
    let later = json!({ "code": "1", "stateless": true, "run_at": "2100-01-01T00:00:00Z" });
    plain.post("/api/v1/jobs", &later).refused(403);
    let waiting = allowed.post("/api/v1/jobs", &later).json();
    assert_eq!((&waiting["status"], &waiting["due_at"]), (&json!("pending"), &later["run_at"]));
    let made = allowed.post("/api/v1/schedules", &body);
    assert_eq!(made.status, 201, "{}", made.text());
    let path = format!("/api/v1/schedules/{}", made.json()["schedule_id"].as_str().unwrap());
    plain.get(&path).refused(404);
    let paused = allowed.post(&format!("{path}/pause"), &json!({})).json();
    assert_eq!((&paused["paused"], &paused["next_at"]), (&json!(true), &Value::Null), "{paused}");
    let resumed = allowed.post(&format!("{path}/resume"), &json!({})).json();
    assert_eq!(resumed["paused"], false, "{resumed}");
    assert_eq!(allowed.get("/api/v1/schedules").json()["schedules"].as_array().unwrap().len(), 1);
    assert_eq!(plain.get("/api/v1/schedules").json()["schedules"], json!([]));
    let wrong = json!({ "code": "1", "cron": "every day" });
    assert!(allowed.post("/api/v1/schedules", &wrong).refused(400).contains("`cron`"));
    // Its time comes, by the database's clock.
    let database = keyed.folder().join("woma.db");
    let sql = "UPDATE schedules SET next_at = 0";
    rusqlite::Connection::open(database).unwrap().execute(sql, []).unwrap();
    let mut seen = Value::Null;
    until("it has made a job", || {
        seen = allowed.get(&path).json();
        seen["last_job_id"].is_string()
    });
    let job = format!("/api/v1/jobs/{}?wait=60", seen["last_job_id"].as_str().unwrap());
    assert_eq!(allowed.get(&job).json()["status"], "completed");
    let deleted =
        keyed.server.request("DELETE", &path, &[("X-API-Key", allowed.key.unwrap())], b"");
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    allowed.get(&path).refused(404);
}

#[test]
fn the_command_line_lists_submits_and_cancels_jobs_of_a_running_server() {
    let home = crate::durability::Home::new();
    let server = home.start(&[]);
    let code = home.path().join("code.py");
    std::fs::write(&code, "print('from the shell')").unwrap();
    let woma = |arguments: &[&str]| {
        let output = crate::auth::woma(home.path(), &[&["jobs"], arguments].concat(), &[]);
        assert!(output.status.success(), "{}", crate::auth::said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let submitted = woma(&["submit", code.to_str().unwrap(), "--json"]);
    let submitted: Value = serde_json::from_str(&submitted).unwrap();
    let id = submitted["job_id"].as_str().unwrap();
    assert_eq!(ended(&server, id)["status"], "completed", "the server has run it");
    assert_eq!(woma(&["result", id]), "from the shell\n");
    assert!(woma(&["show", id]).contains("completed"));
    let long = submit(&server, "s", "print('on', flush=True)\nimport time\ntime.sleep(600)");
    until_said(&server, &long, "on");
    assert!(woma(&["list", "--status", "running"]).starts_with(&long));
    woma(&["cancel", &long]);
    assert_eq!(ended(&server, &long)["status"], "cancelled", "its server was told");
    assert_eq!(woma(&["list", "--owner", "key:other"]), "", "those of another caller");
}

#[test]
fn a_job_of_a_revoked_key_does_not_run() {
    let keyed = Keyed::start(&[("API_KEY", "x"), ("MAX_CONCURRENT_JOBS", "2")]);
    let gone = keyed.key("gone", &[]);
    let client = keyed.client(&gone);
    let code = "print('on', flush=True)\nimport time\ntime.sleep(600)";
    let long = client.post("/api/v1/jobs", &json!({ "code": code, "stateless": true })).json();
    let long = format!("/api/v1/jobs/{}", long["job_id"].as_str().unwrap());
    until("her one place is taken", || client.get(&long).json()["status"] == "running");
    let body = json!({ "code": "1", "stateless": true });
    let queued = client.post("/api/v1/jobs", &body).json();
    let queued = queued["job_id"].as_str().unwrap();
    assert_eq!(client.post(&format!("{long}/cancel"), &json!({})).status, 200);
    let ran = client.get(&format!("/api/v1/jobs/{queued}?wait=60")).json();
    assert_eq!(ran["status"], "completed", "{ran}");
    let later = client.post("/api/v1/jobs", &json!({ "code": code, "stateless": true })).json();
    let later = format!("/api/v1/jobs/{}", later["job_id"].as_str().unwrap());
    until("her place is taken again", || client.get(&later).json()["status"] == "running");
    let queued = client.post("/api/v1/jobs", &body).json();
    let queued = queued["job_id"].as_str().unwrap().to_owned();
    let output = crate::auth::woma(keyed.folder(), &["keys", "revoke", "gone"], &[]);
    assert!(output.status.success(), "{}", crate::auth::said(&output));
    until("the key is gone", || client.get(&later).status == 401);
    let state = |sql: &str| -> Option<String> {
        let database = rusqlite::Connection::open(keyed.folder().join("woma.db")).ok()?;
        database.query_row(sql, [&queued], |row| row.get(0)).ok()
    };
    let database = rusqlite::Connection::open(keyed.folder().join("woma.db")).unwrap();
    let cancel = "UPDATE jobs SET cancel_requested = 1 WHERE state = 'running'";
    until("the running one is told", || database.execute(cancel, []).is_ok());
    until("the queued one has failed", || {
        state("SELECT state FROM jobs WHERE id = ?1").as_deref() == Some("failed")
    });
    let error = state("SELECT error FROM jobs WHERE id = ?1").unwrap();
    assert!(error.contains("revoked"), "{error}");
}
