//! Execution over REST: formats of requests and replies, programs of older systems, errors.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::harness::{shared, unique};

const EVERY_WAY: [&str; 4] =
    ["/execute", "/api/execute", "/api/execute/quick", "/api/v1/execute_sync"];

#[test]
fn every_route_gives_the_same_reply() {
    for path in EVERY_WAY {
        let answer = shared().post(path, &json!({ "code": "print('a')\n6 * 7" }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut reply = answer.json();
        if path.ends_with("_sync") {
            assert_eq!((&reply["resultCode"], &reply["resultMsg"]), (&json!(0), &json!("success")));
            reply = reply["data"].take();
        }
        assert_eq!(reply["success"], true);
        assert_eq!(reply["result"], 42);
        assert_eq!((&reply["stdout"], &reply["stderr"]), (&json!("a\n"), &json!("")));
        assert_eq!(reply["exit_code"], 0);
        assert!(reply["execution_time"].is_f64() && reply["execution_time_ms"].is_f64());
        assert_eq!(reply["session_id"], "default");
        assert_eq!(answer.get("x-session-id"), Some("default"));
        assert_eq!(answer.get("x-execution-id"), reply["execution_id"].as_str());
        assert_eq!(answer.get("content-type"), Some("application/json"));
    }
    let json_form = [("Accept", "application/json")];
    let answer = shared().request("POST", "/api/v1/execute", &json_form, br#"{"code": "1 + 1"}"#);
    assert_eq!(answer.json()["result"], 2);
}

/// The sample of the older system with this stream.
#[test]
fn a_print_and_a_plot_are_one_text_line_and_one_image_line() {
    let body = json!({
        "code": "print('Hello, World!')\nimport matplotlib.pyplot as plt\n\
                 plt.plot([1,2,3], [1,4,9])\nplt.show()",
        "session_id": unique("my-session"),
    });
    let answer = shared().post("/api/v1/execute", &body);
    assert_eq!(answer.get("content-type"), Some("application/x-ndjson; charset=utf-8"));
    assert_eq!(answer.get("cache-control"), Some("no-cache"));
    assert_eq!(answer.get("x-accel-buffering"), Some("no"));
    assert_eq!(answer.get("x-session-id"), body["session_id"].as_str());
    let lines = answer.lines();
    let [text, image] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(*text, json!({ "text": "Hello, World!\n" }));
    let fields = image.as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["image", "format"]);
    assert_eq!(fields["format"], "png");
    let bytes = base64::engine::general_purpose::STANDARD.decode(fields["image"].as_str().unwrap());
    assert!(bytes.unwrap().starts_with(b"\x89PNG\r\n"));
}

#[test]
fn an_exception_is_one_line_with_its_traceback_as_lines() {
    let answer = shared().post("/api/v1/execute", &json!({ "code": "undefined_var" }));
    assert_eq!(answer.status, 200);
    let lines = answer.lines();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!(line["error"], "NameError: name 'undefined_var' is not defined");
    let traceback = line["traceback"].as_array().unwrap();
    assert_eq!(traceback[0], "Traceback (most recent call last):");
    assert!(traceback.iter().all(|line| !line.as_str().unwrap().contains('\n')));
    assert_eq!(line.as_object().unwrap().len(), 2);
}

/// Programs and calls from the documentation of another older system.
#[test]
fn the_samples_of_the_plain_route_run() {
    let reply = shared().run(&json!({
        "code": "print('Hello, World!')\nresult = 2 + 2\nprint(f'2 + 2 = {result}')",
        "timeout": 10,
    }));
    assert_eq!(reply["stdout"], "Hello, World!\n2 + 2 = 4\n");
    assert_eq!((&reply["result"], &reply["timeout_applied"]), (&json!(4), &json!(10.0)));
    let pi = json!({ "code": "import math\nprint(f\"π = {math.pi}\")", "timeout": 10 });
    assert_eq!(shared().run(&pi)["stdout"], "π = 3.141592653589793\n");
    // The headers of `curl -d`, and no headers at all.
    let body = br#"{"code": "print(\"Hello from sandbox!\")"}"#;
    for headers in [
        &[("Content-Type", "application/x-www-form-urlencoded")][..],
        &[("Content-Type", "text/plain")],
        &[("Content-Type", "application/json; charset=utf-8")],
        &[],
    ] {
        let answer = shared().request("POST", "/execute", headers, body);
        assert_eq!(answer.json()["stdout"], "Hello from sandbox!\n", "{headers:?}");
    }
}

#[test]
fn failed_code_is_a_reply_and_not_an_error() {
    let reply = shared().run(&json!({ "code": "print('so far')\n1 / 0" }));
    assert_eq!((&reply["success"], &reply["stdout"]), (&json!(false), &json!("so far\n")));
    assert_eq!((&reply["exit_code"], &reply["outcome"]), (&json!(1), &json!("raised")));
    assert_eq!(reply["error_message"], "ZeroDivisionError: division by zero");
    assert_eq!(
        (&reply["error"]["type"], &reply["error"]["line"]),
        (&json!("ZeroDivisionError"), &json!(2))
    );
    assert_eq!(shared().run(&json!({ "code": "import sys; sys.exit(3)" }))["exit_code"], 3);
    let reply = shared().run(&json!({ "code": "x = (" }));
    assert_eq!(reply["error"]["category"], "syntax");
    assert_eq!(reply["error"]["line"], 1);
    let code = "print('so far', flush=True)\nwhile True: pass";
    let session = unique("timeout");
    let reply = shared().run(&json!({ "code": code, "timeout": 0.5, "session_id": session }));
    assert_eq!((&reply["stdout"], &reply["exit_code"]), (&json!("so far\n"), &json!(124)));
    let message = reply["error_message"].as_str().unwrap();
    assert!(message.starts_with("Execution timed out after 0.5 seconds"), "{message}");
}

#[test]
fn accepts_values_of_clear_meaning() {
    let session = unique("meaning");
    let run = |mut body: Value| {
        body["session_id"] = json!(session);
        shared().run(&body)
    };
    let warned = |reply: &Value, about: &str| {
        let warnings = reply["warnings"].as_array().unwrap();
        assert!(warnings.iter().any(|w| w.as_str().unwrap().contains(about)), "{warnings:?}");
    };
    let reply = run(json!({ "code": "a + b", "variables": { "a": 1, "b": 2 }, "timeout": "30" }));
    assert_eq!((&reply["result"], &reply["timeout_applied"]), (&json!(3), &json!(30.0)));
    assert_eq!(reply["warnings"], json!([]));
    assert_eq!(run(json!({ "code": "len(c)", "context": { "c": [1, 2] } }))["result"], 2);
    let nulls = json!({ "code": "1", "timeout": null, "variables": null, "memory_limit": null });
    assert_eq!(run(nulls)["warnings"], json!([]));
    let silent = run(json!({ "code": "print(1)\n2", "capture_output": false }));
    assert_eq!((&silent["stdout"], &silent["result"]), (&json!(""), &json!(2)));
    warned(&run(json!({ "code": "1", "colour": "red" })), "`colour` is not known");
    warned(&run(json!({ "code": "1", "timeout": 1e300 })), "600 s was applied");
    warned(&run(json!({ "code": "1", "timeout": -5 })), "1 s was applied");
    warned(&run(json!({ "code": "1", "memory_limit": "900g" })), "2048 MB was applied");
    for limit in [json!("256m"), json!(256), json!("1g"), json!("256MB")] {
        assert_eq!(run(json!({ "code": "1", "memory_limit": limit }))["warnings"], json!([]));
    }
    let hungry = "x = bytearray(300 * 1024 * 1024)";
    let reply = run(json!({ "code": hungry, "memory_limit": "128m" }));
    assert_eq!((&reply["success"], &reply["exit_code"]), (&json!(false), &json!(1)), "{reply}");
    let error = (&reply["error"]["type"], &reply["error"]["category"]);
    assert_eq!(error, (&json!("MemoryError"), &json!("memory")), "{reply}");
}

#[test]
fn rejects_invalid_requests_by_name() {
    for (body, status, message) in [
        (json!({}), 400, "`code` is missing: the Python code to run is needed"),
        (json!({ "code": "" }), 400, "the code is empty"),
        (json!({ "code": " \n" }), 400, "the code is empty"),
        (json!({ "code": ["1"] }), 400, "`code` must be text, not a list"),
        (json!({ "code": null }), 400, "`code` is missing: the Python code to run is needed"),
        (
            json!({ "code": "1", "timeout": "abc" }),
            400,
            "`timeout` must be a number, not the text \"abc\"",
        ),
        (
            json!({ "code": "1", "timeout": true }),
            400,
            "`timeout` must be a number, not true or false",
        ),
        (
            json!({ "code": "1", "variables": [1] }),
            400,
            "`variables` must be an object of names and values, not a list",
        ),
        (
            json!({ "code": "1", "variables": { "a b": 1 } }),
            400,
            "`a b` cannot be the name of a variable",
        ),
        (
            json!({ "code": "1", "memory_limit": "much" }),
            400,
            "`memory_limit` must be a size such as \"512m\", not the text \"much\"",
        ),
        (
            json!({ "code": "1", "use_container": true }),
            400,
            "`use_container` is not available: containers are disabled on this server",
        ),
        (
            json!({ "code": "1", "session_id": "../x" }),
            400,
            "the session id cannot be used: it has a slash",
        ),
        (
            json!({ "code": "1", "session_id": "x".repeat(129) }),
            400,
            "the session id cannot be used: it is longer than 128 bytes",
        ),
        (
            json!({ "code": "#".repeat(1_100_000) }),
            413,
            "the code is too large: it has 1100000 bytes; the limit is 1048576",
        ),
    ] {
        for path in ["/api/v1/execute", "/execute", "/api/v1/execute_sync"] {
            assert_eq!(shared().post(path, &body).refused(status), message);
        }
    }
    let hint = shared().post("/execute", &json!({})).json()["hint"].clone();
    assert_eq!(hint, "send it as {\"code\": \"…\"}");
}

#[test]
fn rejects_unsupported_accept_headers() {
    let headers = [("Accept", "text/html")];
    let answer = shared().request("POST", "/api/v1/execute", &headers, br#"{"code": "1"}"#);
    answer.refused(406);
    assert_eq!(answer.json()["code"], "not_acceptable");
}

#[test]
fn all_not_found_errors_have_one_shape() {
    let answer = shared().get("/nowhere");
    assert_eq!(answer.refused(404), "no route matches /nowhere");
    let answer = shared().request("DELETE", "/execute", &[], b"");
    answer.refused(405);
    assert_eq!(answer.json()["code"], "method_not_allowed");
    assert_eq!(answer.get("allow"), Some("POST"));
    let answer = shared().request("PATCH", "/api/v1/sessions", &[], b"");
    answer.refused(405);
    assert_eq!(answer.get("allow"), Some("GET,HEAD,POST"));
    let answer = shared().request("HEAD", "/health", &[], b"");
    assert_eq!((answer.status, answer.body.len()), (200, 0));
}

#[test]
fn every_reply_has_a_request_id() {
    let server = shared();
    let sent = server.request("GET", "/health", &[("X-Request-Id", "mine-1")], b"");
    assert_eq!(sent.get("x-request-id"), Some("mine-1"));
    let long = "x".repeat(200);
    let replaced = server.request("GET", "/nowhere", &[("X-Request-Id", &long)], b"");
    assert_eq!(replaced.get("x-request-id").unwrap().len(), 36);
}

#[test]
fn rejects_pages_of_other_origins() {
    let headers = [("Origin", "http://elsewhere.example")];
    let answer = shared().request("GET", "/health", &headers, b"");
    assert_eq!(answer.get("access-control-allow-origin"), None);
}

#[test]
fn health_has_the_fields_of_both_older_systems() {
    for path in ["/health", "/api/v1/health"] {
        let answer = shared().get(path);
        let health = answer.json();
        assert_eq!((answer.status, &health["status"]), (200, &json!("healthy")));
        assert_eq!((&health["service"], &health["database"]), (&json!("woma"), &json!("sqlite")));
        for text in ["version", "executor_version", "timestamp", "isolation"] {
            assert!(health[text].is_string(), "{text}: {health}");
        }
        assert!(health["uptime"].is_f64() && health["active_sessions"].is_u64(), "{health}");
        assert_eq!(health["zygotes"]["base"]["state"], "ready");
        // By the machine, unless it is set.
        assert!(health["kernels"]["max"].as_u64().unwrap() >= 1, "{health}");
        assert_eq!(health["queue"]["max"], 256);
        assert!(health["limits_held_by"]["who"].is_string());
        assert!(health["cells"]["live"].is_u64());
        assert!(health["memory"]["server_bytes"].as_u64().unwrap() > 1_000_000);
    }
    let home = shared().get("/").json();
    for field in ["service", "version", "description", "docs", "health"] {
        assert!(home[field].is_string(), "{home}");
    }
}

#[test]
fn metrics_have_both_formats() {
    shared().run(&json!({ "code": "1 / 0" }));
    let classic = shared().get("/metrics");
    assert_eq!(classic.get("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for name in [
        "sandbox_executions_total{outcome=\"raised\"} ",
        "sandbox_execution_duration_seconds_bucket{le=\"0.1\"} ",
        "sandbox_execution_duration_seconds_count ",
        "sandbox_package_installs_total ",
        "sandbox_errors_total{type=\"runtime\"} ",
        "sandbox_memory_usage_bytes ",
        "woma_sessions ",
        "# TYPE sandbox_executions_total counter",
    ] {
        assert!(classic.text().lines().any(|line| line.starts_with(name)), "{name}");
    }
    for line in classic.text().lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok() && !name.contains(" # "), "{line}");
    }
    assert!(!classic.text().contains("# EOF"));
    let headers = [("Accept", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")];
    let open = shared().request("GET", "/metrics", &headers, b"");
    assert!(open.get("content-type").unwrap().starts_with("application/openmetrics-text; version"));
    assert!(open.text().ends_with("# EOF\n"));
    assert!(open.text().contains(" # {execution_id=\""), "no exemplar");
}

/// Stands between the beginning and the end of output that is over its limit.
const LEFT_OUT: &str = "\n[1,951,425 bytes of output left out]\n";

#[test]
fn replies_are_bounded_and_name_the_next_offset() {
    let short = 1024 * 1024 + LEFT_OUT.len();
    for (code, stream, total, whole) in [
        ("print('x' * 3_000_000)", "stdout", short, 3_000_001),
        ("print('\"' * 900_000, end='')", "stdout", 900_000, 900_000),
        ("import sys; print('é' * 500_000, file=sys.stderr, end='')", "stderr", 500_000, 500_000),
    ] {
        let answer = shared().post("/execute", &json!({ "code": code }));
        assert!(answer.body.len() <= 1_000_000, "{}", answer.body.len());
        let reply = answer.json();
        let Some(cut) = reply["truncated"].as_array().and_then(|cut| cut.first()) else {
            // Two bytes per letter: it just fits.
            assert_eq!(stream, "stderr");
            assert_eq!(reply["stderr"].as_str().unwrap().chars().count(), total);
            continue;
        };
        assert_eq!((&cut["stream"], &cut["chars_total"]), (&json!(stream), &json!(total)));
        let kept = reply[stream].as_str().unwrap().chars().count();
        assert_eq!(cut["next_offset"], kept);
        let id = reply["execution_id"].as_str().unwrap();
        let path = format!("/api/v1/executions/{id}/output");
        let (mut offset, mut rest) = (kept as u64, String::new());
        loop {
            let answer = shared().get(&format!("{path}?stream={stream}&offset={offset}"));
            assert!(answer.body.len() <= 1_000_000);
            let page = answer.json();
            assert_eq!((&page["offset"], &page["total_chars"]), (&json!(offset), &json!(whole)));
            rest.push_str(page["text"].as_str().unwrap());
            match page["next_offset"].as_u64() {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!(kept + rest.chars().count(), whole);
    }
    let many = "import matplotlib.pyplot as plt\nimport numpy as np\nfor n in range(8):\n    \
                plt.figure(figsize=(6, 6)); plt.imshow(np.random.rand(500, 500)); plt.show()";
    let answer = shared().post("/execute", &json!({ "code": many, "session_id": unique("many") }));
    assert!(answer.body.len() <= 1_000_000, "{}", answer.body.len());
    assert_eq!(answer.json()["inline_images"].as_array().unwrap().len(), 8);
}

#[test]
fn pictures_are_served_without_running_scripts() {
    let code = "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()";
    let reply = shared().run(&json!({ "code": code, "session_id": unique("picture") }));
    let url = format!("/api/v1/executions/{}/images/1", reply["execution_id"].as_str().unwrap());
    let answer = shared().get(&url);
    assert_eq!((answer.status, answer.get("content-type")), (200, Some("image/png")));
    assert!(answer.body.starts_with(b"\x89PNG"));
    assert_eq!(answer.get("x-content-type-options"), Some("nosniff"));
    assert!(answer.get("content-security-policy").unwrap().starts_with("sandbox; default-src"));
    assert!(answer.get("cache-control").unwrap().starts_with("private"));
    let id = reply["execution_id"].as_str().unwrap();
    for number in ["0", "2", "99999999999999999999", "x", "-1"] {
        let answer = shared().get(&format!("/api/v1/executions/{id}/images/{number}"));
        assert!([400, 404].contains(&answer.status), "{number}: {}", answer.status);
        answer.refused(answer.status);
    }
    shared().get("/api/v1/executions/unknown/output").refused(404);
    let bad = format!("/api/v1/executions/{id}/output?");
    let message = shared().get(&format!("{bad}stream=stdin")).refused(400);
    assert_eq!(
        message,
        "`stream` must be stdout, stderr, traceback, result or late, not \"stdin\""
    );
    shared().get(&format!("{bad}offset=-1")).refused(400);
    shared().get(&format!("{bad}limit=many")).refused(400);
    let past = shared().get(&format!("{bad}offset=18446744073709551615&limit=0")).json();
    assert_eq!((&past["text"], &past["next_offset"]), (&json!(""), &Value::Null));
}

#[test]
fn code_may_be_in_the_query_where_an_older_system_had_it() {
    let ask =
        |query: &str, body: &Value| shared().post(&format!("/api/execute/quick?{query}"), body);
    let session = unique("quick");
    let body = json!({ "session_id": session });
    let reply = ask("code=print(6*7)%0A1%2B1", &body).json();
    assert_eq!((&reply["stdout"], &reply["result"]), (&json!("42\n"), &json!(2)), "{reply}");
    assert_eq!(reply["session_id"], session.as_str());
    let both = json!({ "code": "2", "session_id": session });
    assert!(ask("code=1", &both).refused(400).contains("in the query and in the body"));
    assert_eq!(ask("code=2", &both).json()["result"], 2);
    assert!(ask("", &body).refused(400).contains("`code` is missing"));
    // Of other routes, nothing but the body counts.
    shared().post("/execute?code=1", &body).refused(400);
    let events = shared().post("/api/v1/execute?events=some", &both);
    assert_eq!(events.refused(400), "`events` must be full");
    let archive = format!("/api/v1/sessions/{session}/files?archive=zip&limit=1");
    assert!(shared().get(&archive).refused(400).contains("do not go with `archive`"));
}
