//! The session of a call that names no session: two conversations never meet in one by accident,
//! over any transport (row 60 of the habits).

use serde_json::{Value, json};

use crate::auth::{KEY, Keyed};
use crate::client::{
    Client, Events, Spoken, client, here, initialize, initialized, message, request,
};
use crate::harness::{Server, until};

fn call(tool: &str, arguments: &Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

fn code(source: &str) -> Value {
    call("execute_code", &json!({ "code": source }))
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

/// Two clients, each of which sends a call and returns its result.
fn do_not_meet(mut one: impl FnMut(&Value) -> Value, mut other: impl FnMut(&Value) -> Value) {
    let first = one(&code("x = 'mine'\nopen('a.txt', 'w').write('1')\n1"));
    assert!(!text(&first).contains("ession"), "{first}");
    assert_eq!(first["structuredContent"].get("session_id"), None, "{first}");
    let foreign = other(&code("x"));
    assert!(text(&foreign).contains("NameError"), "{foreign}");
    let files = call("list_files", &json!({}));
    assert_eq!(other(&files)["structuredContent"]["total_count"], 0);
    other(&code("x = 'other'"));
    assert_eq!(one(&code("x"))["structuredContent"]["result"], "mine");
    let own = one(&files);
    assert_eq!(own["structuredContent"]["total_count"], 1, "{own}");
    assert_eq!(own["structuredContent"].get("session_id"), None, "{own}");
    assert_eq!(other(&code("x"))["structuredContent"]["result"], "other");
    for client in [&mut one as &mut dyn FnMut(&Value) -> Value, &mut other] {
        let listed = client(&call("list_sessions", &json!({})));
        let sessions = listed["structuredContent"]["sessions"].as_array().unwrap();
        let own: Vec<&Value> = sessions.iter().filter(|one| one["is_own"] == true).collect();
        assert_eq!((own.len(), text(&listed).matches(", your own").count()), (1, 1), "{listed}");
        // Its name leads to it as well.
        let named = json!({ "code": "x", "session_id": own[0]["session_id"] });
        let named = client(&call("execute_code", &named));
        assert_eq!(named["isError"], false, "{named}");
        // A reset means the client's own session too.
        assert_eq!(client(&call("reset_session", &json!({})))["isError"], false);
        assert!(text(&client(&code("x"))).contains("NameError"));
    }
}

fn spoken_call(spoken: &mut Spoken, params: &Value) -> Value {
    spoken.send(&request(2, "tools/call", params));
    spoken.next()["result"].take()
}

fn spoken_in(data: &str) -> Spoken {
    let mut spoken = Spoken::start(&["--data-dir", data, "stdio"], &[]);
    spoken.begin();
    spoken
}

#[test]
fn processes_on_one_data_folder_have_sessions_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let (mut one, mut other) = (spoken_in(data), spoken_in(data));
    do_not_meet(|params| spoken_call(&mut one, params), |params| spoken_call(&mut other, params));
}

fn named(tool: &str, session: &str, code: &str) -> Value {
    call(tool, &json!({ "code": code, "session_id": session }))
}

/// A name that both use is the first one's for as long as that has it open.
#[test]
fn a_process_cannot_run_reset_or_delete_a_session_that_another_has_open() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let (mut one, mut other) = (spoken_in(data), spoken_in(data));
    let made =
        spoken_call(&mut one, &named("execute_code", "work", "x = 42\nopen('a', 'w').write('1')"));
    assert_eq!(made["isError"], false, "{made}");
    for tool in ["execute_code", "reset_session", "delete_session"] {
        let refused = spoken_call(&mut other, &named(tool, "work", "x"));
        let said = text(&refused);
        assert_eq!(refused["isError"], true, "{tool}: {refused}");
        let holder = format!("open in another woma process (pid {})", one.child.id());
        assert!(said.contains(&holder), "{tool}: {said}");
        assert!(said.contains("leave `session_id` out"), "{tool}: {said}");
    }
    let again = named("execute_code", "work", "[x, open('a').read()]");
    assert_eq!(spoken_call(&mut one, &again)["structuredContent"]["result"], json!([42, "1"]));
    // Its files can be read by name: that is no accident.
    let files = spoken_call(&mut other, &call("list_files", &json!({ "session_id": "work" })));
    assert_eq!(files["structuredContent"]["total_count"], 1, "{files}");
    // Another session of the other process is not concerned.
    assert_eq!(spoken_call(&mut other, &named("execute_code", "mine", "1"))["isError"], false);
    one.hang_up();
    until("the process has ended", || one.child.try_wait().unwrap().is_some());
    assert_eq!(spoken_call(&mut other, &again)["structuredContent"]["result"], json!([42, "1"]));
    // Also if its holder was killed.
    other.child.kill().unwrap();
    other.child.wait().unwrap();
    let mut third = spoken_in(data);
    let deleted =
        spoken_call(&mut third, &call("delete_session", &json!({ "session_id": "work" })));
    assert_eq!(deleted["isError"], false, "{deleted}");
}

/// A process whose session another one has had since finds what that one has left, and not what it
/// remembers itself.
#[test]
fn a_session_that_is_taken_back_is_as_the_other_process_left_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let start = |idle: &str| {
        let settings = [("KERNEL_TIMEOUT", idle)];
        let mut spoken = Spoken::start(&["--data-dir", data, "stdio"], &settings);
        spoken.begin();
        spoken
    };
    let run = |spoken: &mut Spoken, session: &str, code: &str| {
        spoken_call(spoken, &named("execute_code", session, code))
    };
    // Its kernels end soon, are saved then, and make way for others.
    let mut one = start("1");
    for session in ["changed", "emptied", "killed"] {
        assert_eq!(run(&mut one, session, "x = 'first'")["isError"], false);
    }
    let mut other = start("300");
    for (session, change) in [("changed", "x = 'second'"), ("emptied", "x = 'second'")] {
        until("it is free", || run(&mut other, session, "x")["isError"] == false);
        let found = run(&mut other, session, "x");
        assert_eq!(found["structuredContent"]["result"], "first", "{found}");
        run(&mut other, session, change);
    }
    let reset = call("reset_session", &json!({ "session_id": "emptied" }));
    assert_eq!(spoken_call(&mut other, &reset)["isError"], false);
    other.hang_up();
    until("the process has ended", || other.child.try_wait().unwrap().is_some());
    let found = run(&mut one, "changed", "x");
    assert_eq!(found["structuredContent"]["result"], "second", "{found}");
    let found = run(&mut one, "emptied", "x");
    assert!(text(&found).contains("NameError"), "{found}");
    // Also if that process was killed after it had saved on request.
    let mut third = start("300");
    until("it is free", || run(&mut third, "killed", "x = 'third'")["isError"] == false);
    let save = call("checkpoint_session", &json!({ "session_id": "killed" }));
    let saved = spoken_call(&mut third, &save);
    assert_eq!(saved["isError"], false, "{saved}");
    third.child.kill().unwrap();
    third.child.wait().unwrap();
    let found = run(&mut one, "killed", "x");
    assert_eq!(found["structuredContent"]["result"], "third", "{found}");
}

/// The session `default`, where calls without a session use it, is one process's at a time.
#[test]
fn the_session_default_is_of_one_process_and_others_have_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let start = || {
        let settings = [("STATE_WITHOUT_SESSION", "default")];
        let mut spoken = Spoken::start(&["--data-dir", data, "stdio"], &settings);
        spoken.begin();
        spoken
    };
    let (mut one, mut other) = (start(), start());
    assert_eq!(spoken_call(&mut one, &code("x = 1"))["isError"], false);
    assert!(text(&spoken_call(&mut other, &code("x"))).contains("NameError"));
    assert_eq!(spoken_call(&mut other, &code("x = 2"))["isError"], false);
    assert_eq!(spoken_call(&mut other, &call("reset_session", &json!({})))["isError"], false);
    assert_eq!(spoken_call(&mut one, &code("x"))["structuredContent"]["result"], 1);
    one.hang_up();
    until("the process has ended", || one.child.try_wait().unwrap().is_some());
    // The next one continues where the first has left it.
    assert_eq!(spoken_call(&mut start(), &code("x"))["structuredContent"]["result"], 1);
}

#[test]
fn a_new_process_starts_empty_and_finds_the_old_session_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let mut before = spoken_in(data);
    spoken_call(&mut before, &code("x = 42\nopen('a.txt', 'w').write('1')\n1"));
    let listed = spoken_call(&mut before, &call("list_sessions", &json!({})));
    let name = listed["structuredContent"]["sessions"][0]["session_id"].clone();
    before.hang_up();
    until("the process has ended", || before.child.try_wait().unwrap().is_some());
    let mut after = spoken_in(data);
    assert!(text(&spoken_call(&mut after, &code("x"))).contains("NameError"));
    let listed = spoken_call(&mut after, &call("list_sessions", &json!({})));
    assert!(listed.to_string().contains(name.as_str().unwrap()), "{listed}");
    let again = json!({ "code": "[x, open('a.txt').read()]", "session_id": name });
    let again = spoken_call(&mut after, &call("execute_code", &again));
    assert_eq!(again["structuredContent"]["result"], json!([42, "1"]), "{again}");
}

#[test]
fn mcp_sessions_have_sessions_of_their_own() {
    let server = Server::start(&[]);
    let here = client(&server);
    let (one, other) = (here.open("2025-06-18"), here.open("2025-11-25"));
    let call = |id: &str, params: &Value| {
        let answer = here.legacy(id, &request(2, "tools/call", params)).answer(false);
        message(&answer)["result"].take()
    };
    do_not_meet(|params| call(&one, params), |params| call(&other, params));
}

struct Streamed<'a> {
    here: Client<'a>,
    events: Events,
    address: String,
}

impl<'a> Streamed<'a> {
    fn open(here: Client<'a>) -> Self {
        let (mut events, address) = here.stream("/sse");
        assert_eq!(here.post(&address, &initialize("2024-11-05")).status, 202);
        assert!(events.next().unwrap()["result"].is_object());
        assert_eq!(here.post(&address, &initialized()).status, 202);
        Self { here, events, address }
    }

    fn call(&mut self, params: &Value) -> Value {
        let sent = self.here.post(&self.address, &request(2, "tools/call", params));
        assert_eq!(sent.status, 202);
        self.events.next().unwrap()["result"].take()
    }
}

#[test]
fn event_streams_have_sessions_of_their_own() {
    let server = Server::start(&[]);
    let (mut one, mut other) = (Streamed::open(client(&server)), Streamed::open(client(&server)));
    do_not_meet(|params| one.call(params), |params| other.call(params));
}

/// The ways to call without anything that holds two calls together.
fn stateless() -> [fn(Client<'_>, &Value) -> Value; 3] {
    [
        |here, params| here.rpc("tools/call", params)["result"].take(),
        |here, params| {
            message(&here.modern("tools/call", params, &json!({})).answer(false))["result"].take()
        },
        // With a token for progress, which another reader of messages handles.
        |here, params| {
            let token = json!({ "progressToken": "p" });
            message(&here.modern("tools/call", params, &token).answer(false))["result"].take()
        },
    ]
}

/// A call without a session id is told the new session's name, and how to pass it.
fn is_told_its_session(client: Client<'_>, send: fn(Client<'_>, &Value) -> Value) {
    let first = send(client, &code("x = 1"));
    let id = first["structuredContent"]["session_id"].as_str().unwrap().to_owned();
    let told = format!("New session: pass session_id=\"{id}\" to continue in it");
    assert!(text(&first).ends_with(&told), "{first}");
    let second = send(client, &code("x"));
    assert!(text(&second).contains("NameError"), "{second}");
    assert_ne!(second["structuredContent"]["session_id"], json!(id));
    let third = send(client, &call("execute_code", &json!({ "code": "x", "session_id": id })));
    assert_eq!(text(&third), "Out: 1");
}

#[test]
fn a_stateless_call_gets_a_new_session_and_its_name() {
    for send in stateless() {
        is_told_its_session(here(), send);
        let upload = json!({ "filename": "a.txt", "content_base64": "aGk=" });
        let upload = send(here(), &call("upload_file", &upload));
        let id = upload["structuredContent"]["session_id"].as_str().unwrap();
        assert!(text(&upload).contains(&format!("in session {id}")), "{upload}");
        // Files of a session that is not named cannot be found.
        for (tool, arguments) in [
            ("list_files", json!({})),
            ("fetch_file", json!({ "path": "a.txt" })),
            ("delete_file", json!({ "path": "a.txt" })),
            ("reset_session", json!({})),
            ("interrupt_session", json!({})),
        ] {
            let refused = send(here(), &call(tool, &arguments));
            assert_eq!(refused["isError"], true, "{tool}: {refused}");
            assert!(text(&refused).contains("`session_id` is missing"), "{tool}: {refused}");
        }
    }
}

#[test]
fn stateless_calls_of_one_key_do_not_meet() {
    let keyed = Keyed::start(&[("API_KEY", KEY)]);
    for send in stateless() {
        is_told_its_session(keyed.client(KEY), send);
    }
}

#[test]
fn rest_and_the_setting_use_the_session_default() {
    let server = Server::start_with(&[], &[("STATE_WITHOUT_SESSION", "default")]);
    let here = client(&server);
    here.result("tools/call", &code("x = 1"));
    for send in stateless() {
        assert_eq!(text(&send(here, &code("x"))), "Out: 1");
    }
    let reply = server.run(&json!({ "code": "x" }));
    assert_eq!((&reply["session_id"], &reply["result"]), (&json!("default"), &json!(1)));
    let id = here.open("2025-06-18");
    let answer = here.legacy(&id, &request(2, "tools/call", &code("x"))).answer(false);
    assert_eq!(message(&answer)["result"]["structuredContent"]["result"], 1);
}

#[test]
fn the_list_of_tools_says_which_session_a_call_has() {
    let here = here();
    let said = |listed: &Value| {
        let tools = listed["tools"].as_array().unwrap();
        let execute = tools.iter().find(|tool| tool["name"] == "execute_code").unwrap();
        let session = &execute["inputSchema"]["properties"]["session_id"]["description"];
        session.as_str().unwrap().to_owned()
    };
    let list = request(2, "tools/list", &json!({}));
    let stateless = said(&here.result("tools/list", &json!({})));
    assert!(stateless.contains("a new session is made and its id is in the reply"), "{stateless}");
    let modern = message(&here.modern("tools/list", &json!({}), &json!({})).answer(false));
    assert_eq!(said(&modern["result"]), stateless);
    let id = here.open("2025-06-18");
    let connected = said(&message(&here.legacy(&id, &list).answer(false))["result"]);
    assert!(connected.contains("your own session is used"), "{connected}");
    assert!(connected.contains("a new connection starts an empty one"), "{connected}");
    let mut streamed = Streamed::open(here);
    assert_eq!(here.post(&streamed.address, &list).status, 202);
    assert_eq!(said(&streamed.events.next().unwrap()["result"]), connected);
    let info =
        |client: Value| client["structuredContent"]["sessions"]["without_session_id"].clone();
    assert_eq!(info(streamed.call(&call("get_sandbox_info", &json!({})))), "own");
    assert_eq!(info(here.call("get_sandbox_info", &json!({}))), "new");
}
