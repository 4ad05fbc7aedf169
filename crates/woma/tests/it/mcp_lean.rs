//! Lean replies: the text that a model reads, the data beside it, pages of listings, and the table
//! of costs in docs/CLIENTS.md.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Client, client, full, here};
use crate::harness::{Server, unique};

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

fn chars(value: &Value) -> usize {
    value.to_string().chars().count()
}

#[test]
fn an_error_shows_the_frames_of_the_user() {
    let session = unique("frames");
    let code = "import json\ndef read(text):\n    return json.loads(text)\nread('x')";
    let result = here().call("execute_code", &json!({ "code": code, "session_id": session }));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("line 3, in read"), "{text}");
    assert!(text.contains("frames in the standard library"), "{text}");
    assert!(!text.contains("decoder.py"), "{text}");
    assert_eq!(text.matches("Expecting value").count(), 1, "{text}");
    let id = result["structuredContent"]["execution_id"].as_str().unwrap();
    let whole = json!({ "execution_id": id, "stream": "traceback" });
    let whole = here().call("read_output", &whole).to_string();
    assert!(whole.contains("decoder.py"), "{whole}");
}

#[test]
fn the_message_of_an_error_appears_once() {
    let frame = "import pandas as pd\ndf = pd.DataFrame({'region ': [1]})\n";
    for (code, message) in [
        ("print(missing_name)", "name 'missing_name' is not defined"),
        ("open('no.csv')", "No such file or directory"),
        (&format!("{frame}df['Region']"), "KeyError: 'Region'"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("raise ValueError('two\\nlines')", "two\nlines"),
        ("int('x')", "invalid literal for int()"),
        ("x = = 1", "invalid syntax"),
        ("print('a", "unterminated string literal"),
    ] {
        let arguments = json!({ "code": code, "session_id": unique("once") });
        let result = here().call("execute_code", &arguments);
        assert_eq!(text(&result).matches(message).count(), 1, "{}", text(&result));
    }
}

#[test]
fn text_has_what_a_person_would_read() {
    let (here, session) = (here(), unique("lean"));
    let call = |code: &str| {
        let result = here.call("execute_code", &json!({ "code": code, "session_id": session }));
        text(&result).to_owned()
    };
    assert_eq!(call("6*7"), format!("Out: 42\nNew session: {session}"));
    assert_eq!(call("6*7"), "Out: 42");
    assert_eq!(call("print('a')\nprint('b')"), "a\nb");
    assert_eq!(call("x = 1;"), "Variables: x: int");
    assert_eq!(call("x = 2;"), "(no output)");
    assert_eq!(call("x = 'text';"), "Variables: x: str");
    let code = "import sys\nfrom math import sqrt\nprint('out')\nprint('err', file=sys.stderr)\n\
                def own(): return sqrt(4)\nown()";
    assert_eq!(call(code), "out\nOut: 2.0\nStderr: err\nVariables: own: function");
    assert_eq!(
        call("1 / 0"),
        "Traceback (most recent call last):\n  File \"<cell 8>\", line 1, in <module>\n    1 / 0\n    \
         ~~^~~\nZeroDivisionError: division by zero"
    );
    assert_eq!(call("import numpy as np\nnp.eye(2)"), "Out:\narray([[1., 0.],\n       [0., 1.]])");
    assert_eq!(call("result = 5; print(result)"), "5\nVariables: result: int");
    assert_eq!(call("result = result + 1"), "Out: 6");
    assert_eq!(call("output = result + 1\noutput"), "Out: 7\nVariables: output: int");
    assert_eq!(call("import sys; sys.exit(3)"), "Error: the program ended with status 3");
}

#[test]
fn a_star_import_costs_nothing() {
    let (here, session) = (here(), unique("star"));
    let call = |code: &str| {
        let arguments = json!({ "code": code, "session_id": session });
        here.call("execute_code", &arguments)
    };
    call("1");
    let first = call("from math import *\nhalf = pi / 2");
    assert_eq!(text(&first), "Variables: half: float");
    assert_eq!(call("from sympy import *")["structuredContent"], json!({ "success": true }));
    assert_eq!(text(&call("6*7")), "Out: 42");
}

#[test]
fn variables_are_described_once() {
    let (here, session) = (here(), unique("described"));
    let call = |code: &str| {
        let result = here.call("execute_code", &json!({ "code": code, "session_id": session }));
        text(&result).to_owned()
    };
    call("1");
    let code = "import pandas as pd, numpy as np\nfrom pathlib import Path\n\
                df = pd.DataFrame({'region': ['north', 'south'], 'sales': [1, 2]})\n\
                a = np.zeros((3, 4))\nxs = [1] * 10";
    assert_eq!(
        call(code),
        "Variables: a: ndarray (3, 4) float64; df: DataFrame 2x2 (region object, sales int64); \
         xs: list of 10"
    );
    assert_eq!(call("a += 1\nlen(df)"), "Out: 2");
    assert_eq!(
        call("df['half'] = df.sales / 2"),
        "Variables: df: DataFrame 2x3 (region object, sales int64, half float64)"
    );
}

#[test]
fn new_variables_are_found_among_many() {
    let (here, session) = (here(), unique("among"));
    let many = "for n in range(500): globals()[f'v{n}'] = n\ndel n";
    let reply = here.code(&session, many);
    assert_eq!(reply["variables"].as_object().unwrap().len(), 20);
    assert_eq!(reply["warnings"], json!(["480 more new variables are not listed"]));
    assert_eq!(here.code(&session, "late = 1")["variables"], json!({ "late": "int" }));
    assert_eq!(here.code(&session, "v3 = 'x'")["variables"], json!({ "v3": "str" }));
    assert!(here.code(&session, "1").get("variables").is_none());
    let answer = here.post("/execute", &json!({ "code": "1", "session_id": session })).json();
    assert_eq!(answer["kernel_info"]["variable_count"], 501, "{answer}");
    assert_eq!(answer["variables"].as_array().unwrap().len(), 200);
}

#[test]
fn charts_are_marked_where_they_appeared() {
    let code = "import matplotlib.pyplot as plt\nprint('first')\nplt.plot([1])\nplt.show()\n\
                print('second')\ndisplay([1, 2])\nprint('third', end='')\nplt.plot([2])\nplt.show()\n\
                print('last')\nplt.plot([3])";
    let (here, session) = (here(), unique("order"));
    here.code(&session, "1");
    let result = here.call("execute_code", &json!({ "code": code, "session_id": session }));
    let reply = &result["structuredContent"];
    let stdout = "first\n[chart 1]\nsecond\n[1, 2]\nthird\n[chart 2]\nlast\n[chart 3]\n";
    assert_eq!(reply["stdout"], stdout, "{reply}");
    let blocks = result["content"].as_array().unwrap();
    let kinds: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "image", "image"]);
    // A full reply has displayed text at the end, and no marks.
    let reply = full().code(&session, code);
    assert_eq!(reply["stdout"], "first\nsecond\nthirdlast\n[1, 2]");
}

#[test]
fn a_marked_output_can_be_read_on() {
    let code = "import matplotlib.pyplot as plt\nprint('a' * 20_000)\nplt.plot([1])\nplt.show()\n\
                print('b' * 20_000)";
    let (here, session) = (here(), unique("marked"));
    let reply = here.code(&session, code);
    let cut = &reply["truncated"][0];
    let whole = format!("{}\n[chart 1]\n{}\n", "a".repeat(20_000), "b".repeat(20_000));
    assert_eq!(cut["chars_total"], whole.len());
    let next = cut["next_offset"].as_u64().unwrap();
    let page = here.call(
        "read_output",
        &json!({ "execution_id": reply["execution_id"], "offset": next, "limit": 25_000 }),
    );
    let page = page["structuredContent"]["text"].as_str().unwrap();
    let next = usize::try_from(next).unwrap();
    assert_eq!(page, &whole[next..next + page.len()]);
    assert!(page.contains("[chart 1]"));
}

#[test]
fn files_are_told_with_size_and_link() {
    let (here, session) = (here(), unique("made"));
    here.code(&session, "open('old.txt', 'w').write('1')\nopen('gone.txt', 'w').write('1')\n1");
    let code = "import os\nopen('new.csv', 'w').write('a,b')\nopen('old.txt', 'w').write('22')\n\
                os.remove('gone.txt')";
    let result = here.call("execute_code", &json!({ "code": code, "session_id": session }));
    let reply = &result["structuredContent"];
    let [new, old] = [0, 1].map(|index| reply["files"][index]["url"].as_str().unwrap());
    let files = json!([
        { "path": "new.csv", "size": 3, "url": new },
        { "path": "old.txt", "size": 2, "url": old, "modified": true },
    ]);
    let expected = json!({ "success": true, "files": files, "files_deleted": ["gone.txt"] });
    assert_eq!(*reply, expected);
    let told =
        format!("File: new.csv (3 B) {new}\nFile: old.txt (2 B, changed) {old}\nDeleted: gone.txt");
    assert_eq!(text(&result), told);
    let path = &new[new.find("/dl/").unwrap()..];
    assert_eq!(here.get(path).body, b"a,b");
}

#[test]
fn variables_of_a_new_kernel_are_told_again() {
    let (here, session) = (here(), unique("again"));
    assert_eq!(here.code(&session, "x = 1\n0")["variables"], json!({ "x": "int" }));
    here.call("reset_session", &json!({ "session_id": session }));
    let reply = here.code(&session, "x = 1\n0");
    assert_eq!(reply["variables"], json!({ "x": "int" }), "{reply}");
    here.code(&session, "import os; os._exit(1)");
    let reply = here.code(&session, "x = 2\n0");
    let restored = reply["session_restored"]["restored"].to_string().contains("\"x\"");
    assert_eq!(reply.get("variables").is_some(), !restored, "{reply}");
}

#[test]
fn only_available_arguments_are_listed() {
    let arguments = |client: Client<'_>| {
        let listed = client.result("tools/list", &json!({}));
        let properties = &listed["tools"][0]["inputSchema"]["properties"];
        properties.as_object().unwrap().contains_key("use_container")
    };
    assert!(!arguments(here()));
    assert!(arguments(full()));
}

#[test]
fn the_list_of_tools_follows_the_setting() {
    let server = Server::start_with(&[], &[("LISTED_TOOLS", "canonical")]);
    let listed = client(&server).result("tools/list", &json!({}));
    assert_eq!(listed["tools"].as_array().unwrap().len(), 31);
    let said = listed.to_string();
    assert_eq!(said.matches("other sessions push it out").count(), 1, "told once");
}

/// Listings have pages that fit the budget and add up to everything.
#[test]
fn listings_are_paged_within_the_budget() {
    const BUDGET: usize = 2_000;
    for form in ["lean", "full"] {
        let variables = [("CONTEXT_BUDGET_CHARS", "2000"), ("REPLY", form)];
        let server = Server::start_with(&[], &variables);
        let here = client(&server);
        here.code("many", "for n in range(60): open(f'file-{n:03}.txt', 'w').write('x')");
        for n in 0..30 {
            let name = "n".repeat(100);
            here.call("create_session", &json!({ "session_id": format!("s{n}"), "name": name }));
        }
        for (tool, field, session, total) in
            [("list_files", "files", "many", 60), ("list_sessions", "sessions", "", 31)]
        {
            let (mut offset, mut found, mut pages) = (json!(0), Vec::new(), 0);
            loop {
                let mut arguments = json!({ "offset": offset });
                if !session.is_empty() {
                    arguments["session_id"] = json!(session);
                }
                let result = here.call(tool, &arguments);
                let answer = &result["structuredContent"];
                assert!(chars(answer) <= BUDGET, "{form} {tool}: {}", chars(answer));
                assert!(text(&result).chars().count() <= BUDGET, "{form} {tool}");
                let name = if field == "files" { "path" } else { "session_id" };
                let rows = answer[field].as_array().unwrap();
                found.extend(rows.iter().map(|row| row[name].as_str().unwrap().to_owned()));
                pages += 1;
                match answer.get("next_offset") {
                    Some(next) => offset = next.clone(),
                    None => break,
                }
            }
            assert_eq!(found.len(), total, "{form} {tool}");
            found.sort();
            found.dedup();
            assert_eq!(found.len(), total, "{form} {tool}: no entry comes twice");
            assert!(pages > 2, "{form} {tool}: {pages}");
        }
        resources_are_paged(here, BUDGET);
    }
}

fn resources_are_paged(here: Client<'_>, budget: usize) {
    let (mut params, mut found) = (json!({}), 0);
    loop {
        let listed = here.result("resources/list", &params);
        assert!(chars(&listed["resources"]) <= budget, "{}", chars(&listed["resources"]));
        found += listed["resources"].as_array().unwrap().len();
        match listed.get("nextCursor") {
            Some(next) => params = json!({ "cursor": next }),
            None => break,
        }
    }
    assert_eq!(found, 2 * 31);
    let wrong = here.rpc("resources/list", &json!({ "cursor": "x" }));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
}

/// The calls of the table, in its order.
fn usual_calls() -> Vec<(&'static str, &'static str, Value)> {
    let run = |code: &str| json!({ "code": code });
    let frame = "import pandas as pd\ndf = pd.DataFrame({'region': ['north', 'south'] * 10, \
                 'sales': range(20)})\ndf.head()";
    let chart = "import matplotlib.pyplot as plt\nprint('before')\nplt.plot([1, 4, 9])\n\
                 plt.show()\nprint('after')";
    let fails = "def ratio(a, b):\n    return a / b\nratio(1, 0)";
    vec![
        ("`6*7`", "execute_code", run("6*7")),
        ("a printed line", "execute_code", run("print('hello')")),
        ("three variables", "execute_code", run("a = 1\nb = 'text'\nc = [1, 2, 3]")),
        ("the head of a DataFrame", "execute_code", run(frame)),
        ("a chart", "execute_code", run(chart)),
        ("a file", "execute_code", run("df.to_csv('sales.csv', index=False)\nprint('saved')")),
        ("an exception", "execute_code", run(fails)),
        ("`6*7` after `from sympy import *`", "execute_code", run("6*7")),
        ("`list_files`", "list_files", json!({})),
        ("`list_sessions`", "list_sessions", json!({})),
    ]
}

/// A run has these fields if it was long enough to be measured: on a busy machine, any run.
fn without_usage(reply: &mut Value) {
    if let Some(fields) = reply.as_object_mut() {
        fields.retain(|name, _| !["memory_used_mb", "cpu_time_ms"].contains(&name.as_str()));
    }
}

/// The text without them, if it is a reply as JSON.
fn unmeasured(text: &str) -> String {
    match serde_json::from_str(text) {
        Ok(mut reply @ Value::Object(_)) => {
            without_usage(&mut reply);
            reply.to_string()
        }
        _ => text.to_owned(),
    }
}

/// Characters of text and of structured content, for each of the usual calls.
fn costs(form: &str) -> Vec<(&'static str, usize)> {
    let variables = [("REPLY", form), ("STATE_WITHOUT_SESSION", "default")];
    let server = Server::start_with(&[], &variables);
    let here = client(&server);
    here.call("execute_code", &json!({ "code": "1" }));
    let mut costs = Vec::new();
    for (name, tool, arguments) in usual_calls() {
        if name.contains("sympy") {
            here.call("execute_code", &json!({ "code": "from sympy import *" }));
        }
        let mut result = here.call(tool, &arguments);
        let blocks = result["content"].as_array().unwrap().iter();
        let texts = blocks.filter_map(|block| block["text"].as_str());
        let text: usize = texts.map(|text| unmeasured(text).chars().count()).sum();
        if form == "lean" && name == "`6*7`" {
            assert!(text <= 40, "{text}");
        }
        without_usage(&mut result["structuredContent"]);
        costs.push((name, text + chars(&result["structuredContent"])));
    }
    costs
}

/// The table in docs/CLIENTS.md: call, characters of a full reply, of a lean one.
fn documented() -> Vec<(String, usize, usize)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CLIENTS.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| call | full | lean |\n|---|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, full, lean] = cells[..] else { panic!("{line}") };
        (name.to_owned(), full.parse().unwrap(), lean.parse().unwrap())
    };
    rows.map(row).collect()
}

#[test]
fn lean_replies_cost_what_the_table_says() {
    let (full, lean) = (costs("full"), costs("lean"));
    for ((name, full), (_, lean)) in full.iter().zip(&lean) {
        println!("| {name} | {full} | {lean} |");
    }
    let table = documented();
    let names: Vec<&str> = table.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, usual_calls().iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for (((name, said_full, said_lean), (_, full)), (_, lean)) in table.iter().zip(&full).zip(&lean)
    {
        // Times and ports have more digits on some days.
        let is_close = |said: usize, measured: usize| said.abs_diff(measured) <= 12 + said / 50;
        assert!(is_close(*said_full, *full), "{name}: a full reply has {full} characters");
        assert!(is_close(*said_lean, *lean), "{name}: a lean reply has {lean} characters");
        assert!(lean * 10 <= full * 4, "{name}: {lean} of {full} characters");
    }
}
