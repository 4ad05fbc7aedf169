//! MCP basics: framing, versions, and the list of tools.

use serde_json::{Value, json};

use crate::client::{Client, Spoken, client, full, here, message, request};
use crate::harness::{Server, unique};

/// Tools in the order of `tools/list`, each with its aliases.
const TOOLS: [(&str, &[&str]); 31] = [
    ("execute_code", &["execute_python", "execute_python_code", "run_code", "run_python_code"]),
    ("validate_code", &[]),
    ("list_files", &[]),
    ("upload_file", &[]),
    ("fetch_file", &[]),
    ("delete_file", &[]),
    ("fetch_from_url", &[]),
    ("read_output", &[]),
    ("submit_job", &[]),
    ("get_job_status", &[]),
    ("get_job_result", &[]),
    ("cancel_job", &[]),
    ("list_jobs", &[]),
    ("create_session", &["create_session_with_files"]),
    ("list_sessions", &["list_active_sessions"]),
    ("delete_session", &["terminate_session"]),
    ("interrupt_session", &[]),
    ("reset_session", &["reset_sandbox"]),
    ("change_session", &[]),
    ("checkpoint_session", &[]),
    ("restore_session", &[]),
    ("export_session", &[]),
    ("load_dataset", &[]),
    ("query_dataset", &[]),
    ("list_datasets", &[]),
    ("describe_dataset", &[]),
    ("drop_dataset", &[]),
    ("install_package", &["pip_install"]),
    ("uninstall_package", &[]),
    ("list_installed_packages", &[]),
    ("get_sandbox_info", &["list_capabilities"]),
];

/// Tools that the default list leaves out.
const UNLISTED: [&str; 9] = [
    "validate_code",
    "change_session",
    "checkpoint_session",
    "restore_session",
    "export_session",
    "drop_dataset",
    "list_jobs",
    "uninstall_package",
    "list_installed_packages",
];

/// Names in the default list, in its order.
fn usual() -> Vec<&'static str> {
    TOOLS.iter().map(|(name, _)| *name).filter(|name| !UNLISTED.contains(name)).collect()
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn failure(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn direct_json_rpc_needs_no_handshake() {
    let here = here();
    for path in ["/", "/mcp/sse"] {
        assert_eq!(here.post(path, &request(7, "ping", &json!({}))).json()["id"], 7);
        let listed = here.post(path, &request(1, "tools/list", &json!({}))).json();
        assert_eq!(names(&listed["result"]), usual());
        let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let answer = here.post(path, &notification);
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        let batch = json!([
            request(1, "ping", &json!({})),
            notification,
            { "jsonrpc": "2.0", "id": "two", "method": "tools/list" },
            { "jsonrpc": "2.0", "id": 3 },
        ]);
        let answers = here.post(path, &batch).json();
        let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [&json!(1), &json!("two"), &json!(3)]);
        assert_eq!(failure(&answers[2]), -32600);
        let answer = here.post(path, &json!([notification, notification]));
        assert_eq!(answer.status, 204);
        for (body, code) in [("{oops", -32700), ("", -32700), ("[]", -32600)] {
            let answer = here.server.request("POST", path, &[], body.as_bytes());
            assert_eq!((answer.status, failure(&answer.json())), (400, code), "{body}");
        }
        let unknown = here.post(path, &request(1, "no/such", &json!({}))).json();
        assert_eq!(failure(&unknown), -32601);
        let unknown = here.post(path, &request(1, "tools/call", &json!({ "name": "nope" }))).json();
        assert_eq!(failure(&unknown), -32601);
        let text = unknown["error"]["message"].as_str().unwrap();
        assert!(text.contains("`nope`") && text.contains("execute_code"), "{text}");
    }
}

#[test]
fn a_batch_runs_in_order_and_is_bounded() {
    let (here, session) = (here(), unique("batch"));
    let run = |id: u64, code: &str| {
        let arguments = json!({ "code": code, "session_id": session });
        request(id, "tools/call", &json!({ "name": "execute_code", "arguments": arguments }))
    };
    let answers = here.post("/", &json!([run(1, "x = 1"), run(2, "x += 1"), run(3, "x")])).json();
    assert_eq!(answers[2]["result"]["structuredContent"]["result"], 2, "{answers}");
    let many: Vec<Value> = (0..101).map(|id| request(id, "ping", &json!({}))).collect();
    assert_eq!(here.post("/", &json!(many)).status, 400);
}

#[test]
fn supports_every_protocol_revision() {
    let here = here();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let id = here.open(version);
        let answer = here.legacy(&id, &request(2, "tools/list", &json!({}))).answer(false);
        assert_eq!(names(&message(&answer)["result"]), usual(), "{version}");
        let direct = here.result("initialize", &crate::client::initialize(version)["params"]);
        assert_eq!(
            (&direct["protocolVersion"], &direct["serverInfo"]["name"]),
            (&json!(version), &json!("woma"))
        );
        let ended = here.send("DELETE", "/mcp", &[("Mcp-Session-Id", &id)], &Value::Null);
        assert!({ ended }.answer(false).status < 300);
        let gone = here.legacy(&id, &request(3, "ping", &json!({}))).answer(false);
        assert_eq!(gone.status, 404);
    }
    let discovered = message(&here.modern("server/discover", &json!({}), &json!({})).answer(false));
    let discovered = &discovered["result"];
    let versions = discovered["supportedVersions"].as_array().unwrap();
    assert_eq!((versions.len(), &discovered["resultType"]), (5, &json!("complete")));
    assert!(versions.contains(&json!("2026-07-28")));
    assert!(discovered["instructions"].as_str().unwrap().contains("execute_code"));
}

#[test]
fn the_newer_era_has_its_own_rules() {
    let here = here();
    let listed = message(&here.modern("tools/list", &json!({}), &json!({})).answer(false));
    assert_eq!(listed["result"]["resultType"], "complete");
    assert!(listed["result"]["ttlMs"].as_u64().unwrap() > 0);
    assert_eq!(listed["result"]["cacheScope"], "public");
    let unknown = here.modern("no/such", &json!({}), &json!({})).answer(false);
    assert_eq!((unknown.status, failure(&unknown.json())), (404, -32601));
    let tool = here.modern("tools/call", &json!({ "name": "nope" }), &json!({})).answer(false);
    assert_eq!(failure(&tool.json()), -32602);
    let other = json!({ "io.modelcontextprotocol/protocolVersion": "1999-01-01" });
    let answer = here.modern("tools/list", &json!({}), &other).answer(false);
    assert_eq!(answer.status, 400, "{}", answer.text());
    let meta = json!({ "name": "execute_code", "arguments": { "code": "1" } });
    let headers = [("Mcp-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    let answer =
        here.send("POST", "/mcp", &headers, &request(1, "tools/call", &meta)).answer(false);
    assert_eq!(answer.status, 400, "{}", answer.text());
}

/// Properties that every tool must have.
#[test]
fn every_tool_has_schemas_and_hints() {
    let here = here();
    let listed = here.result("tools/list", &json!({}));
    assert_eq!(names(&listed), usual());
    assert_eq!(listed, here.result("tools/list", &json!({})), "the order is fixed");
    let mut newer = message(&here.modern("tools/list", &json!({}), &json!({})).answer(false));
    assert_eq!(newer["result"]["tools"].take(), listed["tools"], "both eras show the same");
    let full = full().result("tools/list", &json!({}));
    assert_eq!(names(&full), usual());
    let tools = [&listed, &full].map(|listed| listed["tools"].as_array().unwrap());
    for tool in tools.into_iter().flatten() {
        let name = tool["name"].as_str().unwrap();
        for text in ["title", "description"] {
            assert!(tool[text].as_str().is_some_and(|text| text.len() > 5), "{name}: {text}");
        }
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{name}: {schema}");
            assert!(tool[schema]["properties"].is_object(), "{name}: {schema}");
        }
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name}: {hint}");
        }
        no_null_types(name, &tool["inputSchema"]);
        no_null_types(name, &tool["outputSchema"]);
    }
}

/// `"type": ["string", "null"]` is refused by some clients, and so is `true` as a schema.
fn no_null_types(name: &str, schema: &Value) {
    match schema {
        Value::Object(fields) => {
            assert!(!fields.get("type").is_some_and(Value::is_array), "{name}: {schema}");
            assert_ne!(fields.get("type"), Some(&json!("null")), "{name}: {schema}");
            let properties = fields.get("properties").and_then(Value::as_object);
            for property in properties.into_iter().flat_map(|properties| properties.values()) {
                assert!(property.is_object(), "{name}: {schema}");
            }
            fields.values().for_each(|inner| no_null_types(name, inner));
        }
        Value::Array(items) => items.iter().for_each(|inner| no_null_types(name, inner)),
        _ => {}
    }
}

#[test]
fn descriptions_name_the_limits_in_force() {
    let limits = [
        ("DEFAULT_TIMEOUT", "17"),
        ("MAX_EXECUTION_TIME", "71"),
        ("MAX_MEMORY_MB", "777"),
        ("KERNEL_TIMEOUT", "333"),
        ("MAX_KERNELS", "13"),
        ("CONTEXT_BUDGET_CHARS", "4321"),
        ("STATE_WITHOUT_SESSION", "new"),
    ];
    let server = Server::start_with(&[], &limits);
    let here = client(&server);
    let listed = here.result("tools/list", &json!({}));
    let tool = &listed["tools"][0];
    let text = tool["description"].as_str().unwrap();
    for said in ["17 s by default", "at most 71 s", "777 MB", "333 seconds", "13 other", "4321"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let properties = &tool["inputSchema"]["properties"];
    let session = properties["session_id"]["description"].as_str().unwrap();
    assert!(session.contains("a new session is made"), "{session}");
    assert_eq!(properties["timeout"]["default"], 17);
    assert!(properties["timeout"]["description"].as_str().unwrap().contains("71"));
    assert!(properties["memory_limit"]["description"].as_str().unwrap().contains("777m"));
    let info = here.call("get_sandbox_info", &json!({}))["structuredContent"].take();
    let told = &info["resource_limits"];
    assert_eq!((&told["timeout"], &told["timeout_max"]), (&json!(17.0), &json!(71.0)));
    assert_eq!(told["memory_limit"], "777m");
    // The described limits are enforced.
    let reply = here.run(&json!({ "code": "1", "timeout": 100 }));
    assert!(reply["warnings"].to_string().contains("71 s was applied"), "{reply}");
    assert_eq!(reply["session_id"].as_str().unwrap().len(), 36, "{reply}");
    assert_eq!(server.run(&json!({ "code": "1" }))["timeout_applied"], 17.0);
}

/// Checks a value against a schema, with as much of JSON Schema as the tools use.
fn check(path: &str, value: &Value, schema: &Value, root: &Value) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return check(path, value, target, root);
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("{path}: the type {other} is not known here"),
        None => true,
    };
    assert!(fits, "{path}: {value} is not {}", schema["type"]);
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{path}: no {name} in {value}");
    }
    if let (Some(properties), Some(fields)) = (schema["properties"].as_object(), value.as_object())
    {
        for (name, field) in fields {
            if let Some(schema) = properties.get(name) {
                check(&format!("{path}.{name}"), field, schema, root);
            }
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&format!("{path}[{index}]"), item, &schema["items"], root);
    }
}

/// Fields of a lean reply that say nothing.
fn no_empty_fields(name: &str, value: &Value) {
    for (field, inner) in value.as_object().into_iter().flatten() {
        let is_empty = match inner {
            Value::Null | Value::Bool(false) => field != "success",
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        assert!(!is_empty, "{name}: {field} in {value}");
    }
}

#[test]
fn full_replies_match_their_schemas_and_their_text() {
    tools_match_their_schemas(full(), |name, answer, text| {
        let text: Value = serde_json::from_str(text).unwrap();
        assert_eq!(text, *answer, "{name}");
    });
}

#[test]
fn lean_replies_match_their_schemas_and_have_no_empty_fields() {
    tools_match_their_schemas(here(), |name, answer, text| {
        assert!(!text.is_empty(), "{name}");
        if name != "get_sandbox_info" {
            no_empty_fields(name, answer);
            assert!(!text.starts_with('{'), "{name}: {text}");
        }
    });
}

fn tools_match_their_schemas(here: Client<'_>, inspect: fn(&str, &Value, &str)) {
    let session = unique("schema");
    let listed = here.result("tools/list", &json!({}));
    let schema = |name: &str| {
        let tools = listed["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["outputSchema"].clone()
    };
    let call = |name: &str, arguments: &Value| {
        let result = here.call(name, arguments);
        let answer = &result["structuredContent"];
        let schema = schema(name);
        check(name, answer, &schema, &schema);
        let known = schema["properties"].as_object().unwrap();
        for field in answer.as_object().unwrap().keys() {
            let is_known = known.contains_key(field) || name == "get_sandbox_info";
            assert!(is_known || field == "warnings", "{name}: {field} is not in its schema");
        }
        inspect(name, answer, result["content"][0]["text"].as_str().unwrap());
        answer.clone()
    };
    let create = json!({ "session_id": session, "name": "n", "description": "d" });
    assert_eq!(call("create_session", &create)["session_id"], json!(session));
    for code in [
        "x = 1",
        "1 / 0",
        "import sys; sys.exit(3)",
        "x = (",
        "print('a' * 100_000); [1, {'a': None}]",
        "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()",
        "import os; os._exit(9)",
        "raise KeyboardInterrupt",
    ] {
        call("execute_code", &json!({ "code": code, "session_id": session }));
    }
    let loops = json!({ "code": "while True: pass", "session_id": session, "timeout": 0.2 });
    call("execute_code", &loops);
    let long = json!({ "code": "print('long ' * 10_000)", "session_id": session });
    let reply = call("execute_code", &long);
    call("read_output", &json!({ "execution_id": reply["execution_id"] }));
    let name = json!("a.txt");
    let up = json!({ "filename": name, "content_base64": "aGk=", "session_id": session });
    assert_eq!(call("upload_file", &up)["preview"], "hi");
    call("list_files", &json!({ "session_id": session }));
    for tool in ["fetch_file", "delete_file"] {
        call(tool, &json!({ "path": name, "session_id": session }));
    }
    let sessions = call("list_sessions", &json!({ "limit": 1 }));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    for name in ["interrupt_session", "reset_session", "delete_session"] {
        call(name, &json!({ "session_id": session }));
    }
    let info = call("get_sandbox_info", &json!({}));
    assert!(info["packages"]["numpy"].is_string());
    for group in ["basic", "data_science", "network", "filesystem"] {
        let group = &info["security_profiles"][group];
        assert!(group["enabled"].is_boolean() && group["modules"].is_array());
    }
    assert_eq!(info["container_mode"]["enabled"], false);
    let level = info["isolation"]["level"].as_str().unwrap();
    assert!(["full", "strong", "examining"].contains(&level), "{level}");
}

#[test]
fn unlisted_aliases_can_be_called() {
    let here = here();
    for (name, aliases) in TOOLS {
        for alias in aliases {
            let session = unique("alias");
            if name != "create_session" {
                here.code(&session, "1");
            }
            let arguments = match name {
                "install_package" => json!({ "package": "numpy", "session_id": session }),
                _ => json!({ "code": "'ran'", "session_id": session }),
            };
            let result = here.call(alias, &arguments);
            assert_eq!(result["isError"], false, "{alias}: {result}");
            if name == "execute_code" {
                assert_eq!(result["structuredContent"]["result"], "ran", "{alias}");
            }
        }
    }
}

/// Tools of each preset, without those that do not exist yet.
const PRESETS: [(&str, &[&str]); 5] = [
    (
        "power-interpreter",
        &[
            "execute_code",
            "fetch_from_url",
            "upload_file",
            "fetch_file",
            "list_files",
            "submit_job",
            "get_job_status",
            "get_job_result",
            "load_dataset",
            "query_dataset",
            "list_datasets",
            "create_session",
            "delete_session",
        ],
    ),
    (
        "sandbox-mcp",
        &[
            "execute_python_code",
            "list_active_sessions",
            "terminate_session",
            "create_session_with_files",
        ],
    ),
    ("ibm-sandbox", &["execute_code", "validate_code", "get_sandbox_info"]),
    ("sandbox-service", &["execute_python", "pip_install"]),
    (
        "python-executor",
        &[
            "execute_python",
            "install_package",
            "list_installed_packages",
            "reset_sandbox",
            "get_sandbox_info",
        ],
    ),
];

fn listed_by(preset: &str) -> Value {
    let variables = [
        ("COMPAT_PROFILE", preset),
        ("API_KEY", "a key that is long enough"),
        ("SESSION_POOL_SIZE", "0"),
    ];
    let mut spoken = Spoken::start(&["stdio"], &variables);
    spoken.begin();
    spoken.send(&request(2, "tools/list", &json!({})));
    spoken.next()["result"].take()
}

#[test]
fn a_preset_lists_the_tools_of_its_system() {
    for (preset, expected) in PRESETS {
        let listed = listed_by(preset);
        let names = names(&listed);
        for name in expected {
            assert!(names.contains(name), "{preset}: {name} is not in {names:?}");
        }
        // The preset lists no other tools.
        let foreign: Vec<_> = TOOLS.iter().filter(|(name, _)| names.contains(name)).collect();
        assert!(foreign.iter().all(|(name, _)| expected.contains(name)), "{preset}: {names:?}");
    }
    let listed = listed_by("all");
    let mut every: Vec<&str> = TOOLS.iter().map(|(name, _)| *name).collect();
    every.extend(TOOLS.iter().flat_map(|(_, aliases)| *aliases));
    assert_eq!(names(&listed), every);
}

#[test]
fn invalid_arguments_are_explained() {
    let here = here();
    for (tool, arguments, words) in [
        ("execute_code", json!({}), &["`code`", "missing"][..]),
        ("delete_session", json!({}), &["`session_id`", "missing"]),
        ("read_output", json!({}), &["`execution_id`", "missing"]),
        ("execute_code", json!({ "code": ["1"] }), &["`code`", "text", "a list"]),
        ("execute_code", json!({ "code": "" }), &["empty"]),
        ("execute_code", json!({ "code": " \n\t" }), &["empty"]),
        (
            "execute_code",
            json!({ "code": "1", "timeout": "abc" }),
            &["`timeout`", "a number", "\"abc\""],
        ),
        (
            "execute_code",
            json!({ "code": "1", "timeout": true }),
            &["`timeout`", "a number", "true or false"],
        ),
        (
            "execute_code",
            json!({ "code": "1", "capture_output": 3 }),
            &["`capture_output`", "true or false", "3"],
        ),
        (
            "execute_code",
            json!({ "code": "1", "variables": "x" }),
            &["`variables`", "object", "\"x\""],
        ),
        ("execute_code", json!({ "code": "1", "variables": { "a-b": 1 } }), &["`a-b`", "variable"]),
        (
            "execute_code",
            json!({ "code": "1", "memory_limit": "lots" }),
            &["`memory_limit`", "\"512m\"", "\"lots\""],
        ),
        ("execute_code", json!({ "code": "1", "session_id": "../x" }), &["session id", "slash"]),
        (
            "read_output",
            json!({ "execution_id": "x", "offset": -1 }),
            &["`offset`", "not negative", "-1"],
        ),
        (
            "read_output",
            json!({ "execution_id": "x", "stream": "in" }),
            &["`stream`", "stdout", "\"in\""],
        ),
        ("read_output", json!({ "execution_id": "x" }), &["`x`"]),
        ("delete_session", json!({ "session_id": "nobody's" }), &["nobody's", "does not exist"]),
        ("execute_code", json!({ "code": "#".repeat(1_100_000) }), &["1100000", "1048576"]),
    ] {
        let text = here.refused(tool, &arguments);
        for word in words {
            assert!(text.contains(word), "{tool}: {word} is not in {text}");
        }
    }
}

#[test]
fn unknown_arguments_are_ignored_with_a_warning() {
    let here = here();
    let session = unique("unknown");
    let reply = here.run(&json!({ "code": "1", "session_id": session, "colour": "red", "n": 1 }));
    let warnings = reply["warnings"].to_string();
    assert!(warnings.contains("`colour`") && warnings.contains("`n`"), "{warnings}");
    let listed = here.call("list_sessions", &json!({ "colour": 1 }));
    assert!(listed["structuredContent"]["warnings"].to_string().contains("`colour`"), "{listed}");
    let known = here.run(&json!({ "code": "1", "session_id": session, "timeout": null }));
    assert_eq!(known.get("warnings"), None);
}

#[test]
fn a_tool_replies_alike_over_every_transport() {
    let here = here();
    let session = unique("door");
    let params =
        json!({ "name": "execute_code", "arguments": { "code": "6 * 7", "session_id": session } });
    let answers = [
        |here: Client<'_>, params: &Value| here.rpc("tools/call", params),
        |here: Client<'_>, params: &Value| {
            message(&here.modern("tools/call", params, &json!({})).answer(false))
        },
        |here: Client<'_>, params: &Value| {
            let id = here.open("2025-11-25");
            message(&here.legacy(&id, &request(1, "tools/call", params)).answer(false))
        },
    ];
    for answer in answers {
        let answer = answer(here, &params);
        assert_eq!(answer["result"]["structuredContent"]["result"], 42, "{answer}");
        assert_eq!(answer["result"]["isError"], false);
    }
}
