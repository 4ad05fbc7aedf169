//! The README of Python Sandbox Server, played back against its preset. Its programs are in
//! `seeds.rs`.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{Client, client};
use crate::harness::Server;

fn here() -> Client<'static> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let start = || {
        let variables = [("SANDBOX_ENABLE_DATA_SCIENCE", "true")];
        Server::start_with(&["--preset", "ibm-sandbox"], &variables)
    };
    client(SERVER.get_or_init(start))
}

/// The first block of a reply, which must be JSON in every case, as its clients read it.
fn loads(tool: &str, arguments: &Value) -> Value {
    let called = here().call(tool, arguments);
    let text = called["content"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn every_reply_is_json_with_the_error_as_text() {
    // “Basic Code Execution”, with the documented response.
    let reply = loads(
        "execute_code",
        &json!({
            "code": "result = 2 + 2\nprint(f'The answer is: {result}')",
            "timeout": 10,
            "capture_output": true,
        }),
    );
    assert_eq!((&reply["success"], &reply["result"]), (&json!(true), &json!(4)), "{reply}");
    assert_eq!(reply["stdout"], "The answer is: 4\n");
    assert_eq!((&reply["stderr"], &reply["variables"]), (&json!(""), &json!(["result"])));
    assert!(reply["execution_time"].is_number() && reply["execution_id"].is_string());
    assert!(reply.get("error").is_none(), "{reply}");
    // “Error Handling”: syntax, runtime, timeout, resources, security, and calls that are refused.
    let large = "x = 1\n".repeat(50_000);
    for (arguments, error) in [
        (json!({ "code": "result = 2 +\nprint('x')" }), "SyntaxError: invalid syntax"),
        (json!({ "code": "1 / 0" }), "division by zero"),
        (
            json!({ "code": "while True: pass", "timeout": 1 }),
            "Timeout: Execution timed out after 1 seconds",
        ),
        (json!({ "code": "x = bytearray(3 << 30)" }), "MemoryError"),
        (json!({ "code": "import os\nos.system('ls')" }), "Import 'os' is not allowed"),
        (json!({ "code": "" }), "Empty code: the code is empty"),
        (json!({ "code": large }), "the code is too large"),
        (json!({ "code": ["x"] }), "`code` must be text, not a list"),
        (json!({ "code": 5 }), "`code` must be text, not 5"),
        (json!({ "code": "1", "timeout": "soon" }), "`timeout` must be a number"),
        (json!({ "code": "1", "capture_output": 1 }), "`capture_output` must be true or false"),
        (json!({}), "`code` is missing"),
    ] {
        let reply = loads("execute_code", &arguments);
        assert_eq!(reply["success"], false, "{reply}");
        assert!(reply["error"].as_str().unwrap().contains(error), "{error}: {reply}");
    }
    let reply = loads("unknown_tool", &json!({ "some": "argument" }));
    assert_eq!(reply["success"], false, "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("Unknown tool"), "{reply}");
    // The declared schema has the text, too.
    let listed = here().result("tools/list", &json!({}));
    let schema = &listed["tools"][0]["outputSchema"]["properties"];
    assert_eq!(schema["error"]["type"], "string", "{schema}");
}

#[test]
fn memory_is_not_that_of_a_container() {
    // “Data Analysis Example”, and the numpy programs without a container: the 128m are its.
    let reply = loads(
        "execute_code",
        &json!({
            "code": "import math\ndata = [1, 2, 3, 4, 5]\nresult = sum(data) / len(data)\nprint(f'Average: {result}')",
            "allowed_imports": ["math"],
            "timeout": 15,
        }),
    );
    assert_eq!((&reply["result"], &reply["stdout"]), (&json!(3.0), &json!("Average: 3.0\n")));
    let numbers = "import numpy as np\ndata = np.ones((6000, 6000))\nresult = float(data.sum())";
    let reply = loads("execute_code", &json!({ "code": numbers }));
    assert_eq!(reply["result"], 36_000_000.0, "{reply}");
    // “Container-Based Execution” is refused while SANDBOX_ENABLE_CONTAINER_MODE is off, its default.
    let reply = loads(
        "execute_code",
        &json!({
            "code": "import numpy as np\ndata = np.array([1, 2, 3, 4, 5])\nresult = np.mean(data)",
            "use_container": true,
            "memory_limit": "256m",
            "timeout": 30,
        }),
    );
    let error = reply["error"].as_str().unwrap();
    assert!(error.contains("containers are disabled on this server"), "{error}");
    // SANDBOX_MAX_OUTPUT_SIZE is one megabyte: no reply is cut at the length of a conversation.
    let reply = loads("execute_code", &json!({ "code": "print('x' * 150000)" }));
    assert_eq!(reply["stdout"].as_str().unwrap().len(), 150_001);
}

#[test]
fn validation_and_capabilities_are_as_documented() {
    let reply = loads("validate_code", &json!({ "code": "import os\nos.system('rm -rf /')" }));
    assert_eq!(reply["validation"]["valid"], false);
    assert_eq!(reply["validation"]["errors"], json!(["Line 1: Import 'os' is not allowed"]));
    assert_eq!(reply["validation"]["message"], "Code contains restricted operations");
    let analysis = json!({ "line_count": 2, "character_count": 31, "estimated_complexity": "low" });
    assert_eq!(reply["analysis"], analysis);
    let advice = json!(["Some operations may be restricted in sandbox environment"]);
    assert_eq!(reply["recommendations"], advice);
    // Its later code has the verdict at the top.
    assert_eq!(
        (&reply["valid"], &reply["errors"]),
        (&json!(false), &reply["validation"]["errors"])
    );
    let reply = loads("validate_code", &json!({ "code": "result = sum([1, 2])\nprint(result)" }));
    assert_eq!(
        (&reply["valid"], &reply["message"]),
        (&json!(true), &json!("Code passed validation"))
    );
    for tool in ["get_sandbox_info", "list_capabilities"] {
        let info = loads(tool, &json!({}));
        assert_eq!(info["success"], true);
        let limits = &info["resource_limits"];
        assert_eq!(
            (&limits["timeout"], &limits["max_output_size"]),
            (&json!(30.0), &json!(1_048_576))
        );
        assert_eq!(limits["memory_limit"], "128m");
        assert_eq!(limits["session_memory_limit"], "2048m");
        let enabled = |name: &str| info["security_profiles"][name]["enabled"].clone();
        let all = ["basic", "data_science", "network", "filesystem"].map(enabled);
        assert_eq!(json!(all), json!([true, true, false, false]));
        assert_eq!(info["container_mode"]["enabled"], false);
        let builtins = info["safe_builtins"].as_array().unwrap();
        assert!(builtins.contains(&json!("print")) && !builtins.contains(&json!("eval")));
        for field in ["sandbox_type", "security_features", "limits", "safe_modules"] {
            assert!(info.get(field).is_some(), "{field}");
        }
    }
}

#[test]
fn the_batch_of_the_readme_runs() {
    let mut printed = Vec::new();
    for code in ["print('Hello, World!')", "result = sum(range(10))", "import math; print(math.pi)"]
    {
        let reply = loads("execute_code", &json!({ "code": code, "timeout": 5 }));
        assert_eq!(reply["success"], true, "{reply}");
        printed.push((reply["stdout"].clone(), reply["result"].clone()));
    }
    assert_eq!(printed[0].0, "Hello, World!\n");
    assert_eq!(printed[1].1, 45);
    assert_eq!(printed[2].0, "3.141592653589793\n");
    // “Validate code before execution”.
    let verdict = loads("validate_code", &json!({ "code": "import os; os.system('ls')" }));
    assert_eq!(verdict["validation"]["valid"], false);
}
