//! The tool that runs code: its parameters, what it tells of every kind of end, and state.

use serde_json::{Value, json};

use crate::client::{client, here};
use crate::harness::{Server, unique};

fn warned(reply: &Value, about: &str) {
    let warnings = reply["warnings"].to_string();
    assert!(warnings.contains(about), "{about}: {warnings}");
}

#[test]
fn a_time_out_of_range_is_clamped_and_told() {
    let (here, session) = (here(), unique("timeout"));
    for (asked, applied) in
        [(json!(1e9), 600.0), (json!(601), 600.0), (json!(0), 0.1), (json!(-3), 0.1)]
    {
        let reply = here.run(&json!({ "code": "1", "session_id": session, "timeout": asked }));
        assert_eq!((&reply["result"], &reply["timeout_applied"]), (&json!(1), &json!(applied)));
        warned(&reply, "out of range");
        warned(&reply, &format!("{applied} s was applied"));
    }
    for (asked, applied) in [(json!(600), 600.0), (json!("2.5"), 2.5), (json!(null), 60.0)] {
        let reply = here.run(&json!({ "code": "1", "session_id": session, "timeout": asked }));
        assert_eq!(reply["timeout_applied"], applied);
        assert_eq!(reply["warnings"], json!([]));
    }
}

#[test]
fn what_was_printed_before_a_time_out_is_told() {
    let (here, session) = (here(), unique("partial"));
    let code = "import sys\nx = 1\nprint('so far')\nprint('oh', file=sys.stderr)\nwhile True: pass";
    let result =
        here.call("execute_code", &json!({ "code": code, "session_id": session, "timeout": 0.7 }));
    let reply = &result["structuredContent"];
    assert_eq!((&result["isError"], &reply["success"]), (&json!(true), &json!(false)));
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("timed_out"), &json!(124)));
    assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!("so far\n"), &json!("oh\n")));
    assert!(reply["error_message"].as_str().unwrap().contains("0.7 seconds"), "{reply}");
    let time = reply["execution_time"].as_f64().unwrap();
    assert!((0.7..1.7).contains(&time), "{time}");
    // The variables are still there, as the message says.
    assert_eq!(here.code(&session, "x")["result"], 1);
}

#[test]
fn every_end_has_its_exit_code() {
    let (here, session) = (here(), unique("exit"));
    for (code, exit_code, outcome) in [
        ("x = 1", 0, "completed"),
        ("import sys; sys.exit(0)", 0, "completed"),
        ("1 / 0", 1, "raised"),
        ("import sys; sys.exit(3)", 3, "raised"),
        ("import sys; sys.exit('no')", 1, "raised"),
        ("raise SystemExit(42)", 42, "raised"),
        ("x = (", 1, "raised"),
        ("import os; os._exit(9)", 9, "crashed"),
    ] {
        let reply = here.code(&session, code);
        let told = (reply["exit_code"].as_i64().unwrap(), reply["outcome"].as_str().unwrap());
        assert_eq!(told, (exit_code, outcome), "{code}: {reply}");
        assert_eq!(reply["success"], exit_code == 0, "{code}");
        for text in ["stdout", "stderr"] {
            assert!(reply[text].is_string(), "{code}: {reply}");
        }
    }
    let reply = here.code(&session, "1");
    assert_eq!(reply["session_restarted"], true, "its Python had ended");
    assert!(reply["restart_reason"].as_str().unwrap().contains("run before"), "{reply}");
}

#[test]
fn a_memory_limit_holds_for_the_one_call() {
    let (here, session) = (here(), unique("memory"));
    let hungry = "x = bytearray(400 * 1024 * 1024); len(x) >> 20";
    let call = |limit: &str| {
        here.run(&json!({ "code": hungry, "session_id": session, "memory_limit": limit }))
    };
    let reply = call("256m");
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("out_of_memory"), &json!(137)));
    assert!(reply["error_message"].as_str().unwrap().contains("256 MB"), "{reply}");
    assert_eq!(call("512mb")["result"], 400);
    // What the session holds already counts, and is not lost for it.
    let reply = call("256m");
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("never_started"), &json!(125)));
    assert!(reply["error_message"].as_str().unwrap().contains("more than 256 MB"), "{reply}");
    assert_eq!(here.code(&session, "len(x) >> 20")["result"], 400);
    warned(&call("999g"), "2048 MB was applied");
}

#[test]
fn values_come_in_as_variables() {
    let (here, session) = (here(), unique("variables"));
    let values = json!({ "a": 1, "b": [1, "zwei", null, { "c": 2.5 }], "größe": true });
    for name in ["variables", "context"] {
        let code = "(a, b, größe, type(b[3]).__name__)";
        let reply = here.run(&json!({ "code": code, "session_id": session, name: values }));
        assert!(reply["success"] == true, "{reply}");
        assert_eq!(reply["variables"], json!(["a", "b", "größe"]));
        assert_eq!(reply["result"], json!([1, [1, "zwei", null, { "c": 2.5 }], true, "dict"]));
        assert_eq!(reply["variable_types"]["b"], "list");
    }
}

#[test]
fn output_can_be_left_out() {
    let (here, session) = (here(), unique("quiet"));
    let code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\n3";
    let arguments = json!({ "code": code, "session_id": session, "capture_output": false });
    let reply = here.run(&arguments);
    assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!(""), &json!("")));
    assert_eq!(reply["result"], 3);
}

#[test]
fn what_is_not_there_is_refused_or_told() {
    let (here, session) = (here(), unique("refused"));
    let asked = json!({ "code": "x = 1", "session_id": session, "use_container": true });
    let text = here.refused("execute_code", &asked);
    assert!(text.contains("not available on this server"), "{text}");
    here.server.get(&format!("/api/v1/sessions/{session}")).refused(404);
}

/// The value of the last expression, else of a variable that is called so.
#[test]
fn the_result_is_found_where_users_put_it() {
    let here = here();
    for (code, result) in [
        ("result = 2 + 2", json!(4)),
        ("result = 1\n9", json!(9)),
        ("output = [1, 2]", json!([1, 2])),
        ("RESULT = 'x'", json!("x")),
        ("x = 5", Value::Null),
        ("None", Value::Null),
        ("print(1)", Value::Null),
        ("5;", Value::Null),
        ("{'a': (1, 2.5, True, None)}", json!({ "a": [1, 2.5, true, null] })),
        ("{1: 2}", json!("{1: 2}")),
        ("float('nan')", json!("nan")),
        ("class A:\n    def __repr__(self): return 'an A'\nA()", json!("an A")),
        ("'text'", json!("text")),
    ] {
        let reply = here.code(&unique("result"), code);
        assert_eq!(reply["result"], result, "{code}: {reply}");
    }
    let session = unique("result");
    here.code(&session, "result = 4");
    let later = here.code(&session, "y = 1");
    assert_eq!(later["result"], Value::Null, "an earlier call's result is not this one's");
    assert_eq!(later["variables"], json!(["result", "y"]));
}

#[test]
fn errors_tell_what_and_where() {
    let (here, session) = (here(), unique("errors"));
    let reply = here.code(&session, "print('a')\ndef f():\n    return 1 / 0\nf()");
    assert_eq!((&reply["stdout"], &reply["success"]), (&json!("a\n"), &json!(false)));
    assert_eq!(reply["error_message"], "ZeroDivisionError: division by zero");
    assert_eq!(
        (&reply["error"]["type"], &reply["error"]["line"]),
        (&json!("ZeroDivisionError"), &json!(3))
    );
    let traceback = reply["error_traceback"].as_str().unwrap();
    assert!(traceback.starts_with("Traceback (most recent call last):"), "{traceback}");
    assert!(traceback.contains("return 1 / 0") && !traceback.contains("kernel"), "{traceback}");
    let reply = here.code(&session, "x = (");
    assert_eq!(
        (&reply["error"]["category"], &reply["error"]["line"]),
        (&json!("syntax"), &json!(1))
    );
    // What went before is still there.
    assert_eq!(here.code(&session, "f.__name__")["result"], "f");
}

#[test]
fn sessions_are_as_the_tools_say() {
    let here = here();
    let made = here.call("create_session", &json!({ "name": "Sales" }))["structuredContent"].take();
    let id = made["session_id"].as_str().unwrap();
    assert_eq!((id.len(), &made["name"]), (36, &json!("Sales")));
    here.code(id, "x = 1");
    let again = here.refused("create_session", &json!({ "session_id": id }));
    assert!(again.contains(id), "{again}");
    let stopped = here.call("interrupt_session", &json!({ "session_id": id }));
    assert!(stopped["structuredContent"]["message"].as_str().unwrap().starts_with("No code"));
    here.call("reset_session", &json!({ "session_id": id }));
    assert_eq!(here.code(id, "x")["error"]["type"], "NameError");
    here.call("delete_session", &json!({ "session_id": id }));
    let listed = here.call("list_sessions", &json!({}));
    assert!(!listed.to_string().contains(id));
    assert!(
        here.refused("delete_session", &json!({ "session_id": id })).contains("does not exist")
    );
}

/// Presets decide what a call without a session gets, and what its text looks like.
#[test]
fn presets_decide_about_state_and_text() {
    let server = Server::start_with(&["--preset", "python-executor"], &[]);
    let here = client(&server);
    let first = here.run(&json!({ "code": "x = 1" }));
    assert!(first.get("session_id").is_none(), "{first}");
    assert_eq!(first["kernel_info"]["session_persisted"], false);
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nx";
    let result = here.call("execute_python", &json!({ "code": code }));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("out\n[STDERR]:\nerr\n"), "{text}");
    assert!(text.contains("Error: NameError: name 'x' is not defined"), "{text}");
    assert_eq!(result["structuredContent"]["timeout_applied"], 60.0);
    let silent = here.call("execute_python", &json!({ "code": "y = 1" }));
    let text = silent["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Code executed successfully (no output)."), "{text}");
    let reply = here.run(&json!({ "code": "1", "timeout": 1000 }));
    assert_eq!(reply["timeout_applied"], 300.0);
    // A session that is named is kept all the same.
    here.code("mine", "x = 1");
    assert_eq!(here.code("mine", "x")["result"], 1);
}
