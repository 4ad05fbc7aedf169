//! Resources, prompts, completions, progress and tasks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, Events, here, message, numbers};
use crate::harness::{unique, until};

fn modern(client: Client<'_>, method: &str, params: &Value, meta: &Value) -> Value {
    message(&client.modern(method, params, meta).answer(false))
}

fn text(contents: &Value) -> &str {
    contents["contents"][0]["text"].as_str().unwrap()
}

#[test]
fn sessions_and_their_logs_are_resources() {
    let (here, session) = (here(), unique("größe"));
    let code = "import threading\nthreading.Timer(0.2, lambda: print('later', flush=True)).start()";
    here.code(&session, code);
    let (mut resources, mut cursor) = (Vec::new(), json!({}));
    while !cursor.is_null() {
        let mut listed = here.result("resources/list", &cursor);
        resources.extend(listed["resources"].as_array().unwrap().iter().cloned());
        let next = listed["nextCursor"].take();
        cursor = if next.is_null() { next } else { json!({ "cursor": next }) };
    }
    let find = |ending: &str| {
        let name = session.rsplit('-').next().unwrap();
        let fits = |uri: &str| uri.contains(name) && uri.ends_with(ending);
        let found = resources.iter().find(|one| fits(one["uri"].as_str().unwrap()));
        found.unwrap_or_else(|| panic!("{resources:?}"))["uri"].clone()
    };
    let (about, log) = (find(""), find("/log"));
    let read = here.result("resources/read", &json!({ "uri": about }));
    let about: Value = serde_json::from_str(text(&read)).unwrap();
    assert_eq!((&about["session_id"], &about["execution_count"]), (&json!(session), &json!(1)));
    until("the thread has printed", || {
        text(&here.result("resources/read", &json!({ "uri": log }))) == "later\n"
    });
}

#[test]
fn outputs_are_resources_as_their_templates_say() {
    let here = here();
    let listed = here.result("resources/templates/list", &json!({}));
    let templates = listed["resourceTemplates"].as_array().unwrap();
    let uris: Vec<&str> =
        templates.iter().map(|one| one["uriTemplate"].as_str().unwrap()).collect();
    assert_eq!(
        uris,
        [
            "session://{session_id}",
            "session://{session_id}/log",
            "session://{session_id}/files/{path}",
            "execution://{execution_id}/{stream}",
            "execution://{execution_id}/images/{number}",
        ]
    );
    let code = "import sys\nfor n in range(50_000): print(n)\nprint('e', file=sys.stderr)\n1 / 0";
    let reply = here.code(&unique("outputs"), code);
    let id = reply["execution_id"].as_str().unwrap();
    let read = |what: &str| {
        let uri = json!({ "uri": format!("execution://{id}/{what}") });
        let read = modern(here, "resources/read", &uri, &json!({}));
        text(&read["result"]).to_owned()
    };
    let whole = numbers(50_000);
    assert!(read("stdout") == whole, "the output is not whole");
    assert_eq!((read("stderr").as_str(), read("result").as_str()), ("e\n", ""));
    assert!(read("traceback").ends_with("ZeroDivisionError: division by zero"));
    for uri in ["session://nobody", "execution://x/stdout", "nothing://", "execution://x/images/1"]
    {
        let uri = json!({ "uri": uri });
        let old = here.rpc("resources/read", &uri);
        assert_eq!(old["error"]["code"], -32002, "{old}");
        let new = modern(here, "resources/read", &uri, &json!({}));
        assert_eq!(new["error"]["code"], -32602, "{new}");
    }
}

#[test]
fn prompts_are_listed_filled_in_and_completed() {
    let here = here();
    let listed = here.result("prompts/list", &json!({}));
    let first = &listed["prompts"][0];
    assert_eq!(first["name"], "code_execution_prompt");
    let arguments: Vec<_> = first["arguments"].as_array().unwrap().iter().collect();
    assert_eq!(
        arguments[0],
        &json!({ "name": "task_description", "description": "The task to solve", "required": true })
    );
    assert_eq!(arguments.len(), 3);
    let get = |arguments: Value| {
        here.rpc("prompts/get", &json!({ "name": "code_execution_prompt", "arguments": arguments }))
    };
    let filled = get(json!({ "task_description": "count the stars", "code_style": "minimal" }));
    let said = filled["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(said.contains("count the stars") && said.contains("shortest"), "{said}");
    for (arguments, word) in [
        (json!({}), "`task_description`"),
        (json!({ "task_description": " " }), "`task_description`"),
        (json!({ "task_description": "x", "code_style": "baroque" }), "\"baroque\""),
    ] {
        let refused = get(arguments);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(word), "{refused}");
    }
    assert_eq!(here.rpc("prompts/get", &json!({ "name": "nope" }))["error"]["code"], -32602);
}

#[test]
fn completes_arguments() {
    let (here, session) = (here(), unique("completed"));
    here.code(&session, "1");
    let complete = |reference: Value, name: &str, value: &str| {
        let params = json!({ "ref": reference, "argument": { "name": name, "value": value } });
        here.result("completion/complete", &params)["completion"]["values"].take()
    };
    let prompt = json!({ "type": "ref/prompt", "name": "code_execution_prompt" });
    assert_eq!(complete(prompt.clone(), "code_style", "v"), json!(["verbose"]));
    assert_eq!(complete(prompt.clone(), "code_style", ""), json!(["clean", "verbose", "minimal"]));
    assert_eq!(complete(prompt, "task_description", "x"), json!([]));
    let sessions = json!({ "type": "ref/resource", "uri": "session://{session_id}" });
    assert_eq!(complete(sessions, "session_id", &session[..20]), json!([session]));
    let outputs = json!({ "type": "ref/resource", "uri": "execution://{execution_id}/{stream}" });
    assert_eq!(complete(outputs, "stream", "std"), json!(["stdout", "stderr"]));
}

#[test]
fn sends_progress_at_once_and_every_three_seconds() {
    let code = "import time\nprint('step one', flush=True)\ntime.sleep(5)\n7";
    let params = json!({
        "name": "execute_code", "arguments": { "code": code, "session_id": unique("progress") },
    });
    let mut events =
        Events::new(here().modern("tools/call", &params, &json!({ "progressToken": "p" })));
    let first = events.next().unwrap();
    assert_eq!(first["method"], "notifications/progress");
    assert_eq!(first["params"]["progressToken"], "p");
    let second = events.next().unwrap();
    let at = |beat: &Value| beat["params"]["progress"].as_f64().unwrap();
    assert!(at(&first) < 2.5, "{first}");
    assert!((2.5..30.0).contains(&(at(&second) - at(&first))), "{first} {second}");
    let said = second["params"]["message"].as_str().unwrap();
    assert!(said.starts_with("running for ") && said.ends_with(": step one"), "{said}");
    let is_result = |event: &Value| event.get("result").is_some();
    let last = std::iter::from_fn(|| events.next()).find(is_result).unwrap();
    assert_eq!(last["result"]["structuredContent"]["result"], 7, "{last}");
    assert!(events.next().is_none());
}

/// Capabilities of a client with tasks.
fn holder() -> Value {
    json!({
        "io.modelcontextprotocol/clientCapabilities":
            { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    })
}

fn long_call(session: &str, code: &str) -> Value {
    json!({ "name": "execute_code", "arguments": { "code": code, "session_id": session } })
}

#[test]
fn a_long_run_becomes_a_task_for_clients_with_tasks() {
    let (here, session) = (here(), unique("task"));
    let short = modern(here, "tools/call", &long_call(&session, "1"), &holder());
    assert_eq!(short["result"]["resultType"], "complete");
    let params = long_call(&session, "import time\nprint('a')\ntime.sleep(6.5)\n42");
    let task = modern(here, "tools/call", &params, &holder())["result"].take();
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{task}"
    );
    assert!(task["ttlMs"].is_u64() && task["pollIntervalMs"].is_u64(), "{task}");
    let id = json!({ "taskId": task["taskId"] });
    let mut seen = modern(here, "tasks/get", &id, &holder());
    assert_eq!(seen["result"]["status"], "working");
    until("the task is done", || {
        seen = modern(here, "tasks/get", &id, &holder());
        seen["result"]["status"] != "working"
    });
    let done = &seen["result"];
    assert_eq!(done["status"], "completed", "{done}");
    let reply = &done["result"]["structuredContent"];
    assert_eq!((&reply["result"], &reply["stdout"]), (&json!(42), &json!("a\n")), "{done}");
    assert_eq!(done["result"]["isError"], false);
    let unknown = modern(here, "tasks/get", &json!({ "taskId": "nope" }), &holder());
    assert_eq!(unknown["error"]["code"], -32602);
}

#[test]
fn a_cancelled_task_stops() {
    let (here, session) = (here(), unique("cancelled"));
    here.code(&session, "x = 5");
    let params = long_call(&session, "while True: pass");
    let task = modern(here, "tools/call", &params, &holder())["result"].take();
    let id = json!({ "taskId": task["taskId"] });
    let started = Instant::now();
    let cancelled = modern(here, "tasks/cancel", &id, &holder());
    assert!(cancelled.get("error").is_none(), "{cancelled}");
    let reply = here.code(&session, "x");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!((&reply["result"], reply.get("session_restarted")), (&json!(5), None));
    until("the task says so", || {
        modern(here, "tasks/get", &id, &holder())["result"]["status"] == "cancelled"
    });
}
