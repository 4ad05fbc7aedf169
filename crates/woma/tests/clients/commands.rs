//! Clients that are command lines: the inspector and fastmcp.

use std::sync::Arc;

use libtest_mimic::Trial;
use serde_json::Value;
use tokio::process::Command;

use crate::programs::{fetched, node, run};
use crate::server::{Servers, data_dir, setting, stdio_command};
use crate::trial;

const INSPECTOR: &str =
    "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const TOOLS: [&str; 4] = ["execute_code", "create_session", "list_sessions", "get_sandbox_info"];
const ARGUMENTS: &str = r#"{"code": "print('seen')\n6 * 7"}"#;
const CALL: [&str; 6] =
    ["--method", "tools/call", "--tool-name", "execute_code", "--tool-args-json", ARGUMENTS];
/// Strict: a schema that some model's interface would not take is a failure.
const LIST: [&str; 3] = ["--method", "tools/list", "--strict"];

pub(crate) fn trials(servers: &Arc<Servers>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for era in ["modern", "legacy"] {
        let name = format!("the inspector lists and calls over http {era}");
        trials.push(trial(&name, servers, move |servers| async move {
            let url = format!("{}/mcp", servers.plain().await.url);
            let target = [url.as_str(), "--transport", "http", "--protocol-era", era];
            listed(&run(inspector().args(target).args(LIST)).await);
            called(&run(inspector().args(target).args(CALL)).await, "structuredContent");
        }));
    }
    trials.push(trial("the inspector lists and calls over sse", servers, |servers| async move {
        let url = format!("{}/sse", servers.plain().await.url);
        let target = [url.as_str(), "--transport", "sse"];
        listed(&run(inspector().args(target).args(LIST)).await);
        called(&run(inspector().args(target).args(CALL)).await, "structuredContent");
    }));
    trials.push(trial("the inspector lists and calls over stdio", servers, |_| async {
        let (data, config) = (data_dir(), data_dir());
        // By a file, for its command line would take our options for its own.
        let mut command = stdio_command(data.path());
        let arguments = command.split_off(1);
        let server = serde_json::json!({ "command": command[0], "args": arguments });
        let file = config.path().join("mcp.json");
        let text = serde_json::json!({ "mcpServers": { "woma": server } }).to_string();
        std::fs::write(&file, text).unwrap();
        let target = ["--config", file.to_str().unwrap(), "--server", "woma"];
        listed(&run(inspector().args(target).args(LIST)).await);
        called(&run(inspector().args(target).args(CALL)).await, "structuredContent");
    }));
    trials.extend(fastmcp(servers));
    trials
}

fn fastmcp(servers: &Arc<Servers>) -> Vec<Trial> {
    let input = ["--target", "execute_code", "--input-json", ARGUMENTS, "--json"];
    let mut trials = Vec::new();
    for path in ["/mcp", "/sse"] {
        let name = format!("fastmcp lists and calls at {path}");
        trials.push(trial(&name, servers, move |servers| async move {
            let url = format!("{}{path}", servers.plain().await.url);
            let command = || fetched("fastmcp/bin/fastmcp");
            listed(&run(command().args(["list", &url, "--json"])).await);
            called(&run(command().args(["call", &url]).args(input)).await, "structured_content");
        }));
    }
    trials.push(trial("fastmcp lists and calls over stdio", servers, move |_| async move {
        let data = data_dir();
        let server = stdio_command(data.path()).join(" ");
        let command = || fetched("fastmcp/bin/fastmcp");
        listed(&run(command().args(["list", "--command", &server, "--json"])).await);
        let call = run(command().args(["call", "--command", &server]).args(input)).await;
        called(&call, "structured_content");
    }));
    trials
}

fn inspector() -> Command {
    let mut command = node(&setting("WOMA_TEST_CLIENTS").join(INSPECTOR));
    command.arg("--cli");
    command
}

fn listed(printed: &str) {
    let reply: Value =
        serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let names: Vec<&str> = reply["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    for tool in TOOLS {
        assert!(names.contains(&tool), "{tool} is not among {names:?}");
    }
}

fn called(printed: &str, structured: &str) {
    let result: Value =
        serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("seen\nOut: 42"), "{printed}");
    let reply = &result[structured];
    assert_eq!(reply["result"], 42, "{printed}");
    assert_eq!(reply["stdout"], "seen\n", "{printed}");
}
