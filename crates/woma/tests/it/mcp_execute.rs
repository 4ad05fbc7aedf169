//! `execute_code`: parameters, outcomes, and state.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{client, full, here};
use crate::harness::{Server, unique};

fn warned(reply: &Value, about: &str) {
    let warnings = reply["warnings"].to_string();
    assert!(warnings.contains(about), "{about}: {warnings}");
}

#[test]
fn a_timeout_out_of_range_is_clamped_with_a_warning() {
    let (here, session) = (full(), unique("timeout"));
    for (asked, applied) in
        [(json!(1_000_000_000), 600.0), (json!(601), 600.0), (json!(0), 1.0), (json!(-3), 1.0)]
    {
        let reply = here.run(&json!({ "code": "1", "session_id": session, "timeout": asked }));
        assert_eq!((&reply["result"], &reply["timeout_applied"]), (&json!(1), &json!(applied)));
        warned(&reply, "out of range");
        warned(&reply, &format!("timeout {asked} s is out of range; {applied} s was applied"));
    }
    for (asked, applied) in [(json!(600), 600.0), (json!("2.5"), 2.5), (json!(null), 55.0)] {
        let reply = here.run(&json!({ "code": "1", "session_id": session, "timeout": asked }));
        assert_eq!(reply["timeout_applied"], applied);
        assert_eq!(reply["warnings"], json!([]));
    }
    // A lean reply says so only where it is not as asked.
    let asked = |timeout: u64| json!({ "code": "1", "session_id": session, "timeout": timeout });
    warned(&crate::client::here().run(&asked(601)), "600 s was applied");
    assert_eq!(crate::client::here().run(&asked(600)), json!({ "success": true, "result": 1 }));
}

#[test]
fn output_before_a_timeout_is_kept() {
    let (here, session) = (here(), unique("partial"));
    let code = "import sys\nx = 1\nprint('so far')\nprint('oh', file=sys.stderr)\nwhile True: pass";
    here.code(&session, "1");
    let started = Instant::now();
    let result =
        here.call("execute_code", &json!({ "code": code, "session_id": session, "timeout": 0.7 }));
    let time = started.elapsed().as_secs_f64();
    let reply = &result["structuredContent"];
    assert_eq!((&result["isError"], &reply["success"]), (&json!(true), &json!(false)));
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("timed_out"), &json!(124)));
    assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!("so far\n"), &json!("oh\n")));
    assert!(reply["error_message"].as_str().unwrap().contains("0.7 seconds"), "{reply}");
    assert!((0.7..30.0).contains(&time), "{time}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("so far\nStderr: oh\nTraceback "), "{text}");
    assert!(text.contains("\nError: Execution timed out after 0.7 seconds; "), "{text}");
    assert!(text.contains("\nHint: pass a larger `timeout` in seconds, at most 600"), "{text}");
    // The variables are still there, as the message says.
    assert_eq!(here.code(&session, "x")["result"], 1);
}

#[test]
fn every_outcome_has_its_exit_code() {
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
        assert_eq!(reply["success"], exit_code == 0, "{code}");
        if exit_code == 0 {
            assert_eq!((reply.get("exit_code"), reply.get("outcome")), (None, None), "{reply}");
        } else {
            let told = (&reply["exit_code"], &reply["outcome"]);
            assert_eq!(told, (&json!(exit_code), &json!(outcome)), "{code}: {reply}");
        }
        let reply = full().code(&session, code);
        let told = (reply["exit_code"].as_i64().unwrap(), reply["outcome"].as_str().unwrap());
        assert_eq!(told, (exit_code, outcome), "{code}: {reply}");
        for text in ["stdout", "stderr"] {
            assert!(reply[text].is_string(), "{code}: {reply}");
        }
    }
    let reply = here.code(&session, "1");
    assert_eq!(reply["session_restarted"], true, "its Python had ended");
    assert!(reply["restart_reason"].as_str().unwrap().contains("run before"), "{reply}");
}

#[test]
fn a_memory_limit_applies_to_one_call() {
    let (here, session) = (here(), unique("memory"));
    let hungry = "x = bytearray(400 * 1024 * 1024); len(x) >> 20";
    let call = |limit: &str| {
        here.run(&json!({ "code": hungry, "session_id": session, "memory_limit": limit }))
    };
    let reply = call("256m");
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("raised"), &json!(1)));
    assert_eq!(reply["error"]["category"], "memory", "{reply}");
    assert!(reply.to_string().contains("may use 256 MiB of memory"), "{reply}");
    assert_eq!(call("512mb")["result"], 400);
    // Memory that the session already holds counts, and is not lost.
    let reply = call("256m");
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("never_started"), &json!(125)));
    assert!(reply["error_message"].as_str().unwrap().contains("more than 256 MB"), "{reply}");
    assert_eq!(here.code(&session, "len(x) >> 20")["result"], 400);
    warned(&call("999g"), "2048 MB was applied");
}

#[test]
fn reports_a_child_killed_for_memory() {
    let (here, session) = (here(), unique("child"));
    let code = "import mmap, os\nkept = 1\nchild, blocks = os.fork(), []\n\
                while child == 0:\n    blocks.append(mmap.mmap(-1, 1 << 20))\n    \
                blocks[-1].write(bytes(1 << 20))\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1])";
    let call = json!({ "code": code, "session_id": session, "memory_limit": "256m" });
    let reply = here.run(&call);
    assert_eq!((&reply["success"], &reply["result"]), (&json!(true), &json!(-9)), "{reply}");
    warned(&reply, "A child process was killed because the session reached its memory limit");
    assert_eq!(here.code(&session, "kept")["result"], 1);
}

#[test]
fn standard_input_comes_with_the_call() {
    let (here, session) = (here(), unique("stdin"));
    let code = "import sys\ntotal = 0\nwhile (answer := input('next? ')) != 'done':\n    \
                total += int(answer)\n(total, sys.stdin.read())";
    for form in [here, full()] {
        let stdin = "1\n2\ndone\nrest";
        let reply = form.run(&json!({ "code": code, "session_id": session, "stdin": stdin }));
        assert_eq!(reply["result"], json!([3, "rest"]), "{reply}");
    }
    let body = json!({ "code": "input() + '!'", "session_id": session, "stdin": 5 });
    let answer = here.post("/execute", &body);
    assert_eq!(answer.json()["result"], "5!", "{}", answer.text());
    // More is read than was given; nothing was given.
    let reply = here.run(&json!({ "code": code, "session_id": session, "stdin": "1\n2\n" }));
    let said = reply["error_message"].as_str().unwrap();
    assert!(said.contains("all 2 lines of `stdin`"), "{said}");
    let reply = here.run(&json!({ "code": code, "session_id": session }));
    let said = reply["error_message"].as_str().unwrap();
    assert!(said.contains("`stdin` argument"), "{said}");
}

#[test]
fn standard_input_has_a_size_limit() {
    let most = "x".repeat(1024 * 1024);
    let given = json!({ "code": "len(input())", "stdin": most, "session_id": unique("most") });
    assert_eq!(here().run(&given)["result"], 1024 * 1024);
    let given = json!({ "code": "1", "stdin": most + "x" });
    let text = here().refused("execute_code", &given);
    assert!(text.contains("`stdin`") && text.contains("1048576"), "{text}");
}

#[test]
fn late_output_is_announced_by_the_next_reply() {
    let (here, session) = (here(), unique("late"));
    let code = "import threading, time, os\ndef tell():\n    \
                while not os.path.exists('go'): time.sleep(0.01)\n    print('late: ü')\n    \
                open('told', 'w').close()\nthreading.Thread(target=tell).start()\n1";
    here.code(&session, code);
    let code = "open('go', 'w').close()\nwhile not os.path.exists('told'): time.sleep(0.01)";
    let mut reply = here.code(&session, code);
    let is_told = |reply: &Value| reply.to_string().contains("9 bytes of output came after");
    // The server reads the output in its own time.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_told(&reply) {
        assert!(Instant::now() < deadline, "{reply}");
        reply = here.code(&session, "1");
    }
    let said = reply["warnings"].to_string();
    let id = said.split_once("execution_id=\\\"").unwrap().1.split_once("\\\"").unwrap().0;
    let page = here.call("read_output", &json!({ "execution_id": id, "stream": "late" }));
    assert_eq!(page["structuredContent"]["text"], "late: ü\n", "{page}");
    let answer = here.get(&format!("/api/v1/executions/{id}/output?stream=late"));
    assert_eq!(answer.json()["text"], "late: ü\n");
    assert!(!is_told(&here.code(&session, "1")), "told once");
}

#[test]
fn a_missing_name_is_found_in_another_session() {
    let (here, session, other) = (here(), unique("has"), unique("lacks"));
    let name = format!("frame_{}", session.replace('-', "_"));
    here.code(&session, &format!("{name} = [1]\n1"));
    let reply = here.code(&other, &format!("print({name})"));
    let hint =
        format!("session `{session}` has a variable `{name}`; send its session_id to run there");
    assert_eq!(reply["hint"], hint, "{reply}");
    here.call("reset_session", &json!({ "session_id": session }));
    let reply = here.code(&other, &format!("print({name})"));
    assert!(reply.get("hint").is_none(), "{reply}");
}

#[test]
fn a_network_error_that_the_code_catches_is_explained() {
    let code = "import requests\ntry:\n    requests.get('https://example.com/data.csv')\n\
                except Exception:\n    print('no data')";
    let reply = here().code(&unique("caught"), code);
    assert_eq!(reply["stdout"], "no data\n");
    assert!(reply["warnings"].to_string().contains("example.com could not be reached"), "{reply}");
}

#[test]
fn sets_variables_of_a_call() {
    let (here, session) = (here(), unique("variables"));
    let values = json!({ "a": 1, "b": [1, "zwei", null, { "c": 2.5 }], "größe": true });
    for name in ["variables", "context"] {
        let code = "(a, b, größe, type(b[3]).__name__)";
        let reply = here.run(&json!({ "code": code, "session_id": session, name: values }));
        assert!(reply["success"] == true, "{reply}");
        assert_eq!(reply["result"], json!([1, [1, "zwei", null, { "c": 2.5 }], true, "dict"]));
        // Told once.
        let told = json!({ "a": "int", "b": "list of 4", "größe": "bool" });
        let told = Some(told).filter(|_| name == "variables");
        assert_eq!(reply.get("variables"), told.as_ref());
        let reply = full().run(&json!({ "code": code, "session_id": session, name: values }));
        assert_eq!(reply["variables"], json!(["a", "b", "größe"]));
        assert_eq!(reply["variable_types"]["b"], "list");
    }
}

#[test]
fn output_can_be_omitted() {
    let (here, session) = (here(), unique("quiet"));
    let code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\n3";
    let arguments = json!({ "code": code, "session_id": session, "capture_output": false });
    let reply = here.run(&arguments);
    assert_eq!(
        reply,
        json!({ "success": true, "result": 3, "session_id": session, "session_created": true })
    );
    let reply = full().run(&arguments);
    assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!(""), &json!("")));
    assert_eq!(reply["result"], 3);
}

#[test]
fn refuses_containers_that_are_disabled() {
    let (here, session) = (here(), unique("refused"));
    let asked = json!({ "code": "x = 1", "session_id": session, "use_container": true });
    let text = here.refused("execute_code", &asked);
    assert!(text.contains("containers are disabled on this server"), "{text}");
    assert!(text.contains("SANDBOX_ENABLE_CONTAINER_MODE=true"), "{text}");
    here.server.get(&format!("/api/v1/sessions/{session}")).refused(404);
}

/// The value of the last expression, else of a variable named `result` or similar.
#[test]
fn the_result_is_the_last_value_or_the_variable() {
    let here = full();
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
}

#[test]
fn errors_name_type_and_line() {
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
    // Earlier variables are still there.
    assert_eq!(here.code(&session, "f.__name__")["result"], "f");
}

#[test]
fn session_tools_work_as_described() {
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

/// Presets decide about the session of a call that names none, and about the text format.
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
    // A named session is kept in every preset.
    here.code("mine", "x = 1");
    assert_eq!(here.code("mine", "x")["result"], 1);
}
