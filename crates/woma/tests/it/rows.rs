//! Compatibility details of older systems: effects of settings, fields of replies, habits of
//! generated code.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::client::{client, here, message, request};
use crate::harness::{Server, shared, unique, until};

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field}: {value}"))
}

/// The value of the line of `/metrics` with this beginning.
fn figure(server: &Server, name: &str) -> f64 {
    let figures = server.get("/metrics");
    let line = figures.text().lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name}: {}", figures.text())).trim().parse().unwrap()
}

#[test]
fn settings_of_files_logs_and_limits_have_their_effect() {
    let folder = tempfile::tempdir().unwrap();
    let uploads = folder.path().join("uploads");
    fs::create_dir(&uploads).unwrap();
    fs::set_permissions(&uploads, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(uploads.join("given.txt"), "given").unwrap();
    let sessions = folder.path().join("sessions");
    let server = Server::start_with(
        &["--max-kernels", "3", "--kernel-timeout", "77", "--max-execution-time", "90"],
        &[
            ("CPUS", "1"),
            ("DEBUG", "true"),
            ("MAX_MEMORY_MB", "300"),
            ("PUBLIC_BASE_URL", "https://box.example/python"),
            ("SANDBOX_DIR", sessions.to_str().unwrap()),
            ("SANDBOX_FILE_MAX_MB", "1"),
            ("SANDBOX_FILE_TTL_HOURS", "0"),
            ("SANDBOX_MAX_OUTPUT_SIZE", "2000"),
            ("SESSION_POOL_SIZE", "2"),
            ("UPLOAD_DIR", uploads.to_str().unwrap()),
        ],
    );
    until("as many sessions are warm", || {
        server.get("/health").json()["cells"]["pooled"] == json!(2)
    });
    let code = "open('small.csv', 'w').write('x'); open('large.csv', 'wb').write(bytes(2 << 20))\n\
                open('/uploads/given.txt').read()";
    let reply = server.code("files", code);
    assert_eq!(reply["result"], "given", "{reply}");
    let addresses = reply["download_urls"].as_array().unwrap();
    assert_eq!(addresses.len(), 1, "{reply}");
    assert!(reply["warnings"].to_string().contains("the limit is 1 MB"), "{reply}");
    let address = text(&addresses[0], "url").strip_prefix("https://box.example/python");
    assert_eq!(server.get(address.unwrap()).text(), "x", "{reply}");
    assert_eq!(addresses[0].get("expires_at"), None, "it never ends");
    let is_there = |entry: fs::DirEntry| entry.path().join("small.csv").exists();
    assert!(fs::read_dir(&sessions).unwrap().any(|owner| {
        let owner = owner.unwrap();
        fs::read_dir(owner.path()).unwrap().any(|entry| is_there(entry.unwrap())) || is_there(owner)
    }));
    let reply = server.code("output", "print('x' * 5000, end='')");
    assert_eq!(
        (text(&reply, "stdout").matches('x').count(), &reply["output_bytes_dropped"]),
        (2000, &json!(3000))
    );
    let info = client(&server).call("get_sandbox_info", &json!({}))["structuredContent"].take();
    assert_eq!(info["resource_limits"]["cpu_cores"], 1.0, "{info}");
    assert_eq!(info["resource_limits"]["max_output_size"], 2000, "{info}");
    assert_eq!(info["resource_limits"]["timeout_max"], 90.0, "{info}");
    assert_eq!(info["sessions"]["kernels_max"], 3, "{info}");
    assert_eq!(info["sessions"]["idle_seconds"], 77.0, "{info}");
    // Failures by category, and the metric that each of them increases.
    for (kind, body) in [
        ("syntax", json!({ "code": "x = = 1" })),
        ("runtime", json!({ "code": "1 / 0" })),
        ("timeout", json!({ "code": "while True: pass", "timeout": 0.2 })),
        ("memory", json!({ "code": "x = bytearray(400 << 20)" })),
        ("security", json!({ "code": "import json", "allowed_imports": ["math"] })),
    ] {
        let name = format!("sandbox_errors_total{{type=\"{kind}\"}}");
        let known = server.get("/metrics").text().contains(&name);
        let before = if known { figure(&server, &name) } else { 0.0 };
        let reply = server.run(&body);
        assert_eq!(reply["success"], false, "{kind}: {reply}");
        assert!((figure(&server, &name) - before - 1.0).abs() < 0.1, "{kind}: {reply}");
        if kind == "memory" {
            assert!(text(&reply, "error_message").contains("300 MiB"), "{reply}");
        }
    }
    server.stop();
    assert!(server.log().contains("Executing code: \"x = = 1\""), "{}", server.log());
}

#[test]
fn settings_of_characters_memory_and_proxies_have_their_effect() {
    let server = Server::start_with(
        &[],
        &[
            ("ALLOWED_HOSTS", "front.example"),
            ("DEBUG", "true"),
            ("LOG_LEVEL", "ERROR"),
            ("MAX_OUTPUT_SIZE", "20"),
            ("DEFAULT_MEMORY_LIMIT", "128m"),
            ("TRUST_PROXY", "true"),
        ],
    );
    let reply = server.run(&json!({ "code": "print('é' * 50, end='')" }));
    assert_eq!(text(&reply, "stdout"), "é".repeat(20), "{reply}");
    let hungry = "x = bytearray(200 << 20); len(x) >> 20";
    let reply = server.run(&json!({ "code": hungry }));
    assert_eq!(reply["outcome"], "raised", "{reply}");
    assert!(reply.to_string().contains("may use 128 MiB of memory"), "{reply}");
    let reply = server.run(&json!({ "code": hungry, "memory_limit": "512m" }));
    assert_eq!(reply["result"], 200, "{reply}");
    // Links use the address of the request; what a proxy says of the host is not
    // believed.
    let forwarded = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil.example";
    let call = |code: &str| {
        let arguments = json!({ "code": code, "session_id": "links" });
        request(1, "tools/call", &json!({ "name": "execute_code", "arguments": arguments }))
    };
    for (number, (path, more, begins)) in [
        ("/execute", "Accept: */*", "http://front.example/dl/"),
        ("/execute", forwarded, "https://front.example/dl/"),
        ("/api/v1/execute?events=full", forwarded, "https://front.example/dl/"),
        ("/mcp/sse", forwarded, "https://front.example/dl/"),
        ("/mcp", forwarded, "https://front.example/dl/"),
    ]
    .into_iter()
    .enumerate()
    {
        let code = format!("open('a.csv', 'w').write('{number}')");
        let body = match path {
            "/mcp/sse" => call(&code),
            "/mcp" => json!([call(&code)]),
            _ => json!({ "code": code, "session_id": "links" }),
        };
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: front.example\r\n{more}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut connection = server.connect();
        connection.write(format!("{head}{body}").as_bytes()).unwrap();
        let answer = connection.answer(false);
        let (_, url) = answer.text().split_once("\"url\":\"").unwrap_or_else(|| {
            panic!("{path}: {}", answer.text());
        });
        assert!(url.starts_with(begins), "{path}: {url}");
    }
    let name = json!({ "name": "list_files", "arguments": { "session_id": "links" } });
    let listed = message(&client(&server).modern("tools/call", &name, &json!({})).answer(false));
    let url = &listed["result"]["structuredContent"]["files"][0]["download_url"];
    assert!(url.as_str().is_some_and(|url| url.starts_with("http://localhost/dl/")), "{listed}");
    server.stop();
    assert!(!server.log().contains("Execution completed"), "{}", server.log());
}

/// Fields of all older systems in one reply, and the resources of the run.
#[test]
fn a_reply_has_the_fields_of_every_older_system() {
    let session = unique("fields");
    let code = "import sys, time\nimport matplotlib.pyplot as plt\nx = bytearray(100 << 20)\n\
                open('a.csv', 'w').write('1')\nplt.plot([1, 2]); plt.savefig('b.png'); plt.show()\n\
                end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n\
                print('out'); print('err', file=sys.stderr)\n1 / 0";
    let reply = shared().code(&session, code);
    for (field, value) in [
        ("success", json!(false)),
        ("stdout", json!("out\n")),
        ("stderr", json!("err\n")),
        ("result", Value::Null),
        ("exit_code", json!(1)),
        ("error_message", json!("ZeroDivisionError: division by zero")),
        ("files_created", json!(["a.csv", "b.png"])),
        ("variables", json!(["x", "end"])),
        ("variable_types", json!({ "x": "bytearray", "end": "float" })),
    ] {
        assert_eq!(reply[field], value, "{field}: {reply}");
    }
    assert!(text(&reply, "error_traceback").contains("1 / 0"), "{reply}");
    assert_eq!(reply["kernel_info"]["execution_count"], 1);
    assert_eq!(reply["kernel_info"]["session_persisted"], true);
    assert!(reply["memory_used_mb"].as_f64().unwrap() > 100.0, "{reply}");
    assert!(reply["cpu_time_ms"].as_f64().unwrap() > 250.0, "{reply}");
    let (seconds, milliseconds) = (&reply["execution_time"], &reply["execution_time_ms"]);
    assert!(milliseconds.as_f64().unwrap() > 290.0 && seconds.as_f64().unwrap() > 0.29, "{reply}");
    for (file, (name, kind, is_image)) in reply["download_urls"]
        .as_array()
        .unwrap()
        .iter()
        .zip([("a.csv", "text/csv", false), ("b.png", "image/png", true)])
    {
        assert_eq!((text(file, "filename"), &file["is_image"]), (name, &json!(is_image)));
        assert!(text(file, "mime_type").starts_with(kind), "{file}");
        assert!(text(file, "url").contains(text(file, "file_id")), "{file}");
        assert!(file["size"].as_u64().unwrap() > 0 && file["expires_at"].is_string(), "{file}");
    }
    let image = &reply["inline_images"][0];
    for field in ["url", "filename", "alt_text"] {
        assert!(!text(image, field).is_empty(), "{image}");
    }
    // The record of the run says the same.
    let id = text(&reply, "execution_id");
    let listed = || {
        let listed = shared().get(&format!("/api/v1/executions?session_id={session}")).json();
        let mut rows = listed["executions"].as_array().unwrap().clone().into_iter();
        rows.find(|row| row["execution_id"] == id && row["status"] == "finished")
    };
    until("the run is recorded", || listed().is_some());
    let row = listed().unwrap();
    assert_eq!((&row["outcome"], &row["error_category"]), (&json!("raised"), &json!("runtime")));
    assert!(row["cpu_ms"].as_u64().unwrap() >= 250, "{row}");
    assert!(row["memory_peak_bytes"].as_u64().unwrap() > 100 << 20, "{row}");
}

/// The preset of the Power Interpreter: its text, its files, its paths.
#[test]
fn the_power_interpreter_preset_replies_in_its_format() {
    let variables = [("REQUIRE_API_KEY", "false")];
    let server = Server::start_with(&["--preset", "power-interpreter"], &variables);
    let here = client(&server);
    let call = |code: &str| here.call("execute_code", &json!({ "code": code }));
    let made = call("open('/tmp/sales.csv', 'w').write('a,b')\nprint('done')\nx = 1");
    let answer = made["content"][0]["text"].as_str().unwrap();
    let url = text(&made["structuredContent"]["download_urls"][0], "url");
    assert!(answer.starts_with("done\nFile: sales.csv (3 B)\nDownload URL: "), "{answer}");
    assert!(answer.contains(&format!("Download URL: {url}\n")), "{answer}");
    assert!(answer.contains("ms | Session: 1 variables persisted (call #1)"), "{answer}");
    let chart = call("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()");
    let kinds: Vec<_> =
        chart["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["text", "image"], "{chart}");
    assert!(call("y = 2").to_string().contains("Code executed successfully (no output)."));
    let code = "class A: pass\na = A(); setattr(a, 'x', 1)\nresult = [getattr(a, 'x'), vars(a), 'x' in dir(a)]";
    assert_eq!(server.run(&json!({ "code": code }))["result"], json!([1, { "x": 1 }, true]));
    // Every path of the file leads to it.
    for path in [
        "/tmp/sales.csv",
        "/var/tmp/sales.csv",
        "/temp/sales.csv",
        r"C:\Users\me\sales.csv",
        "C:/data/sales.csv",
        "default/sales.csv",
        "/app/sandbox_data/default/sales.csv",
        "/mnt/data/sales.csv",
        "./sales.csv",
    ] {
        let code = format!(
            "with open(r'{path}') as file: text = file.read()\n\
             result = [text, list(pd.read_csv(r'{path}').columns), _normalize_path(r'{path}')]"
        );
        let reply = server.run(&json!({ "code": code }));
        assert_eq!(reply["result"][0], "a,b", "{path}: {reply}");
        assert_eq!(reply["result"][1], json!(["a", "b"]), "{path}: {reply}");
        assert!(reply["result"][2].as_str().unwrap().ends_with("sales.csv"), "{path}: {reply}");
    }
    for path in ["/app/sandbox_data/other/x.csv", "/etc/x.csv", "/home/ubuntu/uploads/x.csv"] {
        let reply = server.run(&json!({ "code": format!("open('{path}', 'w')") }));
        assert_eq!(reply["success"], false, "{path}: {reply}");
        let message = text(&reply, "error_message");
        assert!(message.contains("Write below the working directory"), "{path}: {message}");
    }
}

#[test]
fn sandbox_info_is_true_inside_a_session() {
    let info = here().call("get_sandbox_info", &json!({}))["structuredContent"].take();
    let code = "import os, platform, sys\n[platform.python_version(), sys.prefix, os.getcwd()]";
    let inside = here().code(&unique("info"), code)["result"].take();
    let told = json!([info["python_version"], info["environment_path"], info["working_directory"]]);
    assert_eq!(told, inside);
    assert_eq!((&info["status"], &info["network"]), (&json!("Initialized"), &json!("none")));
    let health = here().get("/health").json();
    for field in ["version", "executor_version"] {
        assert_eq!(text(&info, field), text(&health, field));
    }
    until("the walls were examined", || {
        let info = here().call("get_sandbox_info", &json!({}))["structuredContent"].take();
        info["isolation"]["layers"].is_array()
    });
    let info = here().call("get_sandbox_info", &json!({}))["structuredContent"].take();
    let layers = info["isolation"]["layers"].to_string();
    for wall in ["namespace", "seccomp", "landlock", "network"] {
        assert!(layers.to_lowercase().contains(wall), "{wall}: {layers}");
    }
    assert!(info["isolation"]["limits_held_by"].is_string(), "{info}");
}

/// Names, modules, folders, variables of the environment, files.
#[test]
fn stateless_calls_share_nothing() {
    let leave = "import json, os, sys\nname = 1\njson.mark = 1\nsys.path.append('/mark')\n\
                 os.mkdir('sub'); os.chdir('sub'); os.environ['MARK'] = '1'\n\
                 open('left.txt', 'w').write('x'); open('/tmp/left.txt', 'w').write('x')";
    let look = "import json, os, sys\n['name' in globals(), hasattr(json, 'mark'), \
                '/mark' in sys.path, os.getcwd(), 'MARK' in os.environ, os.listdir('/tmp')]";
    let run = |code: &str, session: Value| {
        let reply = shared().run(&match session {
            Value::Null => json!({ "code": code, "stateless": true }),
            session => json!({ "code": code, "session_id": session }),
        });
        assert_eq!(reply["success"], true, "{reply}");
        reply["result"].clone()
    };
    let nothing = json!([false, false, false, "/mnt/data", false, []]);
    run(leave, Value::Null);
    assert_eq!(run(look, Value::Null), nothing);
    // A session keeps all of it, and no other one sees it.
    let (mine, other) = (json!(unique("mine")), json!(unique("other")));
    run(leave, mine.clone());
    let kept = run(look, mine);
    assert_eq!((&kept[0], &kept[3]), (&json!(true), &json!("/mnt/data/sub")), "{kept}");
    assert_eq!(run(look, other), nothing);
    assert_eq!(run(look, Value::Null), nothing);
}

#[test]
fn files_can_have_any_name_and_any_text() {
    let session = unique("unicode");
    for name in ["with space.csv", "数据.csv", "🎉 émoji.txt", "Größe.md"] {
        let code = format!(
            "text = 'ä€数🎉'\nopen({name:?}, 'w').write(text)\nresult = open({name:?}).read() == text"
        );
        let reply = shared().code(&session, &code);
        assert_eq!(
            (&reply["result"], &reply["files_created"]),
            (&json!(true), &json!([name])),
            "{reply}"
        );
        let url = text(&reply["download_urls"][0], "url");
        let answer = shared().get(&format!("/dl/{}", url.split_once("/dl/").unwrap().1));
        assert_eq!((answer.status, answer.text()), (200, "ä€数🎉"), "{url}");
        let disposition = answer.get("content-disposition").unwrap();
        let (ascii, encoded) = disposition.split_once("filename*=UTF-8''").unwrap();
        assert!(disposition.is_ascii() && ascii.starts_with("attachment; filename=\""));
        assert!(url.ends_with(encoded), "{disposition}: {url}");
        let listed = shared().get(&format!("/api/v1/sessions/{session}/files")).json();
        assert!(listed["files"].to_string().contains(name), "{listed}");
    }
}

#[test]
fn a_plotly_figure_is_a_page_with_an_address() {
    let code = "import plotly.express as px\npx.bar(y=[1, 2]).show()";
    let reply = shared().code(&unique("plotly"), code);
    let files = reply["download_urls"].as_array().unwrap();
    let files: Vec<_> =
        files.iter().map(|file| (text(file, "filename"), text(file, "mime_type"))).collect();
    assert!(files.contains(&("plotly_001.html", "text/html")), "{reply}");
    assert!(files.iter().any(|(name, _)| *name == "plotly.min.js"), "{reply}");
    let specification = &reply["displays"][0]["data"]["application/vnd.plotly.v1+json"];
    assert_eq!(specification["data"][0]["type"], "bar", "{reply}");
}

/// Sessions have no network; an attempt fails at once with a hint.
#[test]
fn network_calls_fail_with_a_remedy() {
    let session = unique("network");
    for code in [
        "import pandas as pd\npd.read_csv('https://example.org/a.csv')",
        "import requests\nrequests.get('https://example.org')",
        "import httpx\nhttpx.get('https://example.org')",
        "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/')",
    ] {
        let body = json!({ "code": code, "session_id": session, "timeout": 30 });
        let reply = shared().run(&body);
        assert_eq!(reply["outcome"], "raised", "it did not wait: {code}: {reply}");
        let hint = reply["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("fetch_from_url"), "{code}: {reply}");
    }
}

/// Idioms of pandas 2 and numpy 1 run, or the error names the current form.
#[test]
fn outdated_idioms_run_or_are_explained() {
    let frame = "import numpy as np, pandas as pd\n\
                 d = pd.DataFrame({'a': [1.0, None]}, index=pd.date_range('2024-01-01', periods=2))\n";
    let session = unique("idioms");
    for (code, hint) in [
        ("len(d.resample('M').sum())", ""),
        ("len(pd.date_range('2024-01-01', periods=2, freq='H'))", ""),
        ("len(d.fillna(method='ffill'))", ""),
        ("len(d.applymap(str))", ""),
        ("len(pd.read_json('{\"a\": {\"0\": 1}}'))", ""),
        ("d.append(d)", "concat"),
        ("np.float_(1)", "np.float64"),
        ("np.Inf", "np.inf"),
        ("import matplotlib.pyplot as plt\nplt.style.use('seaborn')", "seaborn"),
    ] {
        let reply = shared().code(&session, &format!("{frame}{code}"));
        assert_eq!(reply["success"], hint.is_empty(), "{code}: {reply}");
        let told = reply["hint"].as_str().unwrap_or_default();
        assert!(told.contains(hint), "{code}: {reply}");
    }
}

#[test]
fn a_syntax_error_has_line_offset_text_and_caret() {
    let code = "x = 1\nprint('a' 5)\n";
    let reply = shared().code(&unique("syntax"), code);
    assert_eq!(
        (&reply["error"]["category"], &reply["error"]["line"]),
        (&json!("syntax"), &json!(2))
    );
    let lines: Vec<&str> = text(&reply, "error_traceback").lines().collect();
    let at = lines.iter().position(|line| line.trim() == "print('a' 5)").unwrap();
    let column =
        |line: &str, text: &str| line.find(text).unwrap() - line.find(|c| c != ' ').unwrap();
    assert!(lines[at - 1].contains("line 2"), "{lines:?}");
    let caret = lines[at + 1].find('^').unwrap() - lines[at].find("print").unwrap();
    assert_eq!(caret, column(lines[at], "'a'"), "{lines:?}");
    let found = shared().post("/api/v1/validate", &json!({ "code": code })).json();
    let error = &found["validation"]["syntax_error"];
    assert_eq!((&error["line"], &error["text"]), (&json!(2), &json!("print('a' 5)")), "{found}");
    assert!(error["offset"].is_u64() && error["caret"].is_string(), "{found}");
}

/// Malformed arguments as models send them.
#[test]
fn malformed_arguments_get_a_one_line_correction() {
    let run = |code: &str| shared().run(&json!({ "code": code, "stateless": true }));
    let prose = run("Sure! I will calculate the average of the numbers for you.");
    assert_eq!((&prose["success"], &prose["error"]["category"]), (&json!(false), &json!("syntax")));
    assert!(text(&prose, "hint").contains("code") && text(&prose, "hint").lines().count() == 1);
    let escaped = run("x = 2\\nprint(x)");
    assert_eq!(text(&escaped, "stdout"), "2\n", "{escaped}");
    assert!(
        text(&here().call("execute_code", &json!({}))["content"][0], "text").contains("`code`")
    );
    let twice = json!({ "name": "execute_code", "arguments": "{\"code\": \"6 * 7\"}" });
    let answer = here().rpc("tools/call", &twice);
    assert!(answer.to_string().contains("arguments"), "{answer}");
}
