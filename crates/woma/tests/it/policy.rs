//! Code policies from outside: before a run, during it, and by validation only.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::auth::{Keyed, said, woma};
use crate::client::client;
use crate::harness::{Server, unique, until};

const BASIC: &str = "math random statistics decimal fractions collections itertools functools heapq \
    bisect string textwrap re difflib unicodedata base64 binascii hashlib hmac secrets json csv \
    html.parser xml.etree urllib.parse datetime uuid calendar dataclasses enum typing time operator \
    copy cmath html configparser abc contextlib types xml.etree.ElementTree";
const DATA_SCIENCE: &str = "numpy pandas scipy matplotlib seaborn sklearn statsmodels plotly sympy";
const NETWORK: &str = "httpx requests urllib.request aiohttp websocket email smtplib ftplib";
const FILESYSTEM: &str = "pathlib os.path tempfile shutil glob zipfile tarfile";
const TIERS: [(&str, &str); 4] = [
    ("", BASIC),
    ("SANDBOX_ENABLE_DATA_SCIENCE", DATA_SCIENCE),
    ("SANDBOX_ENABLE_NETWORK", NETWORK),
    ("SANDBOX_ENABLE_FILESYSTEM", FILESYSTEM),
];
const POWER_LAZY: &str = "matplotlib seaborn plotly scipy scipy.stats scipy.optimize \
    scipy.interpolate sklearn statsmodels openpyxl openpyxl.styles openpyxl.chart xlsxwriter \
    pdfplumber reportlab reportlab.platypus reportlab.pdfgen reportlab.pdfgen.canvas requests \
    tabulate textwrap string struct decimal fractions random time calendar pprint dataclasses \
    pathlib os urllib shutil glob";

/// Rules that raise at the line.
fn raising() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start_with(&[], &[("SANDBOX_POLICY", "tiers")]))
}

/// Rules that reject the whole program, like the older system.
fn rejecting() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&["--preset", "ibm-sandbox"]))
}

/// Rules that annotate blocked imports.
fn annotating() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let variables = [("REQUIRE_API_KEY", "false")];
    SERVER.get_or_init(|| Server::start_with(&["--preset", "power-interpreter"], &variables))
}

fn validate(server: &Server, code: &str) -> Value {
    server.post("/api/v1/validate", &json!({ "code": code })).json()
}

fn imports(modules: &str) -> String {
    let lines = modules.split_whitespace().map(|module| format!("import {module}\n"));
    lines.collect()
}

/// A program that tries each import and returns those that were refused.
fn tries(modules: &str) -> String {
    let attempt = |module: &str| {
        format!(
            "try:\n    import {module}\nexcept ImportError as error:\n    \
             assert str(error) == '[sandbox] BLOCKED: import {module} (not in allowed list)', error\n    \
             refused.append({module:?})\n"
        )
    };
    let attempts: String = modules.split_whitespace().map(attempt).collect();
    format!("refused = []\n{attempts}result = refused")
}

#[test]
fn every_module_is_importable_in_its_tier_and_blocked_outside_it() {
    for (switch, _) in TIERS {
        let mut variables = vec![("SANDBOX_POLICY", "tiers")];
        if !switch.is_empty() {
            variables.push((switch, "true"));
        }
        let server = Server::start_with(&[], &variables);
        for (other, others) in TIERS {
            let is_on = other.is_empty() || other == switch;
            let wanted: Vec<&str> =
                if is_on { Vec::new() } else { others.split_whitespace().collect() };
            let reply = server.run(&json!({ "code": tries(others), "stateless": true }));
            assert_eq!(reply["result"], json!(wanted), "{switch} {other}: {reply}");
            let found = validate(&server, &imports(others));
            let refused = found["validation"]["errors"].as_array().unwrap();
            assert_eq!(refused.len(), wanted.len(), "{switch} {other}: {found}");
        }
        let info = client(&server).call("get_sandbox_info", &json!({}));
        let groups = ["basic", "data_science", "network", "filesystem"];
        for (group, (other, _)) in groups.iter().zip(TIERS) {
            let enabled = &info["structuredContent"]["security_profiles"][group]["enabled"];
            assert_eq!(*enabled, json!(other.is_empty() || other == switch), "{group} {info}");
        }
        // The rest is in no tier.
        let reply =
            server.run(&json!({ "code": tries("os sys subprocess socket ctypes builtins") }));
        assert_eq!(reply["result"].as_array().unwrap().len(), 6, "{reply}");
    }
}

#[test]
fn a_list_of_modules_replaces_all_tiers() {
    let server = Server::start_with(&[], &[("SANDBOX_ALLOWED_IMPORTS", "json, xml.etree")]);
    let reply = server.run(&json!({ "code": tries("json xml.etree.ElementTree math xml.dom") }));
    assert_eq!(reply["result"], json!(["math", "xml.dom"]), "{reply}");
    let info = client(&server).call("get_sandbox_info", &json!({}));
    assert_eq!(info["structuredContent"]["allowed_imports"], json!(["json", "xml.etree"]));
}

#[test]
fn a_program_that_violates_the_rules_is_rejected_as_a_whole() {
    let server = rejecting();
    let answer = client(server).call("execute_code", &json!({ "code": "print('x')\nimport os" }));
    assert_eq!(answer["isError"], true, "{answer}");
    let reply = &answer["structuredContent"];
    assert_eq!(reply["outcome"], "rejected", "{reply}");
    assert_eq!((&reply["success"], &reply["stdout"]), (&json!(false), &json!("")));
    assert_eq!(
        reply["error_message"],
        "Code contains restricted operations: Line 2: Import 'os' is not allowed"
    );
    let event = &reply["security_events"][0];
    assert_eq!(event["security_event"], "blocked_import", "{reply}");
    assert_eq!((&event["action"], &event["line"]), (&json!("rejected"), &json!(2)), "{reply}");
    assert_eq!(reply["security_warnings"], json!(["Line 2: Import 'os' is not allowed"]));
    let id = reply["execution_id"].as_str().unwrap();
    until("the log tells of it", || {
        let log = server.log();
        let mut lines = log.lines().filter(|line| line.contains("Security event"));
        lines.any(|line| line.contains(id) && line.contains("blocked_import"))
    });
    let metrics = server.get("/metrics");
    let counted = "woma_security_events_total{event=\"blocked_import\",action=\"rejected\"}";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[test]
fn a_rejected_program_leaves_its_session_unchanged() {
    let server = rejecting();
    let session = unique("refused");
    assert_eq!(server.code(&session, "x = 41")["success"], true);
    let refused = server.code(&session, "x = 0\nimport subprocess");
    assert_eq!(refused["outcome"], "rejected", "{refused}");
    assert_eq!(refused["session_restarted"], false);
    assert_eq!(server.code(&session, "x + 1")["result"], 42);
}

#[test]
fn violations_hidden_from_the_review_are_blocked_at_run_time() {
    let server = rejecting();
    // A name that is assembled at run time: the review cannot know it.
    let code = "name = 'o' + 's'\nf = [].__class__.__mro__ if False else None\nprint(1)";
    assert_eq!(server.run(&json!({ "code": code }))["outcome"], "rejected");
    let sly =
        "import json\ndef get(module):\n    return getattr(json, module)\nget('__' + 'loader__')";
    let reply = server.run(&json!({ "code": sly }));
    assert_eq!(reply["outcome"], "raised", "{reply}");
    assert_eq!(reply["error_detail"]["category"], "security", "{reply}");
    assert_eq!(reply["security_events"][0]["security_event"], "blocked_attribute", "{reply}");
    assert_eq!(reply["security_events"][0]["action"], "blocked", "{reply}");
}

#[test]
fn a_blocked_import_raises_at_its_line_and_can_be_caught() {
    let server = raising();
    let reply = server.run(&json!({ "code": "print('before')\nimport os\nprint('after')" }));
    assert_eq!((&reply["outcome"], &reply["stdout"]), (&json!("raised"), &json!("before\n")));
    assert_eq!(reply["error"]["type"], "ImportError", "{reply}");
    assert_eq!(reply["error"]["message"], "[sandbox] BLOCKED: import os (not in allowed list)");
    assert_eq!(
        (&reply["error"]["line"], &reply["error"]["category"]),
        (&json!(2), &json!("security"))
    );
    assert!(
        reply["hint"].as_str().is_some_and(|hint| hint.contains("get_sandbox_info")),
        "{reply}"
    );
    let event = &reply["security_events"][0];
    assert_eq!(reply["security_events"].as_array().unwrap().len(), 1, "{reply}");
    assert_eq!((&event["action"], &event["subject"]), (&json!("blocked"), &json!("os")), "{reply}");
    let caught = "try:\n    import os\nexcept ImportError:\n    os = None\nresult = os is None";
    let reply = server.run(&json!({ "code": caught }));
    assert_eq!((&reply["success"], &reply["result"]), (&json!(true), &json!(true)), "{reply}");
    assert_eq!(reply["security_events"][0]["action"], "blocked", "{reply}");
    let unreached = "def never():\n    import os\nresult = 1";
    let reply = server.run(&json!({ "code": unreached }));
    assert_eq!(reply["security_events"][0]["action"], "found", "{reply}");
    assert_eq!(reply["success"], true);
    let from = server.run(&json!({ "code": "from os import getcwd" }));
    let message = "[sandbox] BLOCKED: from os import getcwd (module os not in allowed list)";
    assert_eq!(from["error"]["message"], message);
}

#[test]
fn blocked_builtins_raise_named_errors_that_can_be_caught() {
    for name in "eval exec compile __import__ globals locals exit quit breakpoint input".split(' ')
    {
        let code = format!(
            "try:\n    {name}('1')\nexcept PermissionError as error:\n    result = str(error)"
        );
        let reply = annotating().run(&json!({ "code": code, "stateless": true }));
        let wanted = format!("[sandbox] BLOCKED: {name}() (not allowed by this server's policy)");
        assert_eq!(reply["result"], wanted, "{name}: {reply}");
    }
    let code =
        "result = [getattr(1, 'real'), len(dir([])) > 3, vars(type('X', (), {'a': 1}))['a']]";
    let reply = annotating().run(&json!({ "code": code }));
    assert_eq!(reply["result"], json!([1, true, 1]), "{reply}");
}

#[test]
fn an_annotated_import_does_not_stop_the_program() {
    let code =
        "import os\nimport antigravity_x\nfrom nowhere import (a,\n    b)\nprint('after', os.sep)";
    let reply = annotating().run(&json!({ "code": code }));
    assert_eq!(
        (&reply["success"], &reply["stdout"]),
        (&json!(true), &json!("after /\n")),
        "{reply}"
    );
    let told = reply["stderr"].as_str().unwrap();
    assert!(
        told.contains("# [sandbox] BLOCKED: import antigravity_x (not in allowed list)"),
        "{told}"
    );
    assert!(told.contains("(module nowhere not in allowed list)"), "{told}");
    for event in reply["security_events"].as_array().unwrap() {
        assert_eq!(event["action"], "annotated", "{reply}");
    }
    let used = annotating().run(&json!({ "code": "import subprocess\nsubprocess.run(['ls'])" }));
    assert_eq!((&used["success"], &used["error"]["line"]), (&json!(false), &json!(2)), "{used}");
    assert!(used["error"]["message"].as_str().unwrap().contains("BLOCKED"), "{used}");
}

#[test]
fn names_of_the_power_interpreter_need_no_import() {
    let table = "
pandas.DataFrame is pd.DataFrame
numpy.array is np.array
json.loads('1') == 1
csv.reader is not None
math.pi > 3
statistics.mean([1, 3]) == 2
datetime.datetime(2024, 1, 1).year == 2024
timedelta(days=1).days == 1
timezone.utc is not None
date(2024, 1, 1).year == 2024
collections.Counter('aa')['a'] == 2
list(itertools.chain([1], [2])) == [1, 2]
functools.reduce is not None
re.match('a', 'a') is not None
io.StringIO('x').read() == 'x'
copy.copy([1]) == [1]
hashlib.sha256(b'').hexdigest()[:4] == 'e3b0'
base64.b64encode(b'a') == b'YQ=='
Path('a').name == 'a'
Decimal('1') == 1
Fraction(1, 2) == 0.5
[Dict, List, Optional, Tuple, Set, Any] is not None
dataclass is not None and field is not None and asdict is not None
plt.figure is not None
sns.lineplot is not None
px.line is not None and go.Figure is not None
sm.OLS is not None
isinstance(SANDBOX_DIR, str)
";
    for line in table.trim().lines() {
        let code = format!("result = bool({line})");
        let reply = annotating().run(&json!({ "code": code, "stateless": true }));
        assert_eq!(reply["result"], true, "{line}: {reply}");
        let names = json!({ "result": "bool" });
        assert_eq!(reply["variables"], names, "{line}: they are not the user's");
    }
    let reply = annotating().run(&json!({ "code": tries(POWER_LAZY), "stateless": true }));
    assert_eq!(reply["result"], json!([]), "{reply}");
    // Ordinary Python decides what a name means later on.
    let session = unique("datetime");
    let run = |code: &str| annotating().code(&session, code);
    assert_eq!(run("from datetime import datetime\ndatetime.now().year > 2000")["result"], true);
    assert_eq!(run("import datetime\ndatetime.timezone.utc is not None")["result"], true);
    let chart = "from matplotlib.backends.backend_pdf import PdfPages\nimport matplotlib.pyplot as plt\n\
                 import plotly.graph_objects as go\nfig, ax = plt.subplots()\nax.plot([1, 2])\nplt.show()";
    let reply = run(chart);
    assert_eq!(reply["inline_images"].as_array().map(Vec::len), Some(1), "{reply}");
}

#[test]
fn a_call_may_narrow_the_rules_and_never_widen_them() {
    let open = Server::start(&[]);
    let run = |server: &Server, code: &str, allowed: Value| {
        server.run(&json!({ "code": code, "allowed_imports": allowed, "stateless": true }))
    };
    let average = "import math\nresult = sum([1, 2, 3, 4, 5]) / 5";
    assert_eq!(run(&open, average, json!(["math"]))["result"], 3.0);
    let refused = run(&open, "import json", json!(["math"]));
    assert_eq!(refused["error"]["message"], "[sandbox] BLOCKED: import json (not in allowed list)");
    // An empty list does not allow everything.
    assert_eq!(run(&open, "import math", json!([]))["success"], false);
    // Imports of libraries are not restricted.
    let frame = "import pandas as pd\nresult = pd.DataFrame({'a': [1, 2]}).to_csv(index=False)";
    assert_eq!(run(&open, frame, json!(["pandas"]))["result"], "a\n1\n2\n");
    // The next call of the same session is unrestricted again.
    let session = unique("narrow");
    let code = |allowed: Value| {
        open.run(
            &json!({ "code": "import json\n1", "session_id": session, "allowed_imports": allowed }),
        )
    };
    assert_eq!(code(json!(["math"]))["success"], false);
    assert_eq!(open.code(&session, "import json\njson.loads('2')")["result"], 2);
    let hint = code(json!(["math"]))["hint"].take();
    assert_eq!(hint, "`json` is not in the list of imports that this run allows");
    let wider = run(raising(), "import os", json!(["os"]));
    assert_eq!(wider["error"]["message"], "[sandbox] BLOCKED: import os (not in allowed list)");
}

#[test]
fn a_session_may_have_stricter_rules_and_never_wider_ones() {
    let open = Server::start(&[]);
    let made = open.post("/api/sessions", &json!({ "name": "strict", "policy": "tiers" })).json();
    assert_eq!(made["policy"], "tiers", "{made}");
    let id = made["session_id"].as_str().unwrap();
    assert_eq!(open.code(id, "import os")["error"]["category"], "security");
    assert_eq!(open.code("other", "import os\nos.sep")["result"], "/");
    let found = open.post("/api/v1/validate", &json!({ "code": "import os", "session_id": id }));
    assert_eq!(found.json()["validation"]["valid"], false);
    open.post("/api/sessions", &json!({ "policy": "lax" })).refused(400);
    let wide = client(raising()).call("create_session", &json!({ "policy": "open" }));
    let id = wide["structuredContent"]["session_id"].as_str().unwrap();
    assert_eq!(raising().code(id, "import os")["error"]["category"], "security", "{wide}");
    assert_eq!(wide["structuredContent"]["policy"], "tiers", "{wide}");
}

/// `validate_code` predicts the run: (program, valid under a policy that raises).
const VERDICTS: &[(&str, bool)] = &[
    ("print(1)", true),
    ("import os", false),
    ("import math, json\nprint(math.pi)", true),
    ("from collections import (OrderedDict,\n    deque)\nprint(deque())", true),
    ("text = '''\nimport os\n'''\n# import subprocess\nprint(text)", true),
    ("def f():\n    import subprocess\nf()", false),
    ("try:\n    import numpy\nexcept ImportError:\n    numpy = None\nprint(numpy)", true),
    ("import urllib.parse\nprint(urllib.parse.quote('a b'))", true),
    ("import urllib.request", false),
    ("from xml.etree import ElementTree as ET\nprint(ET.fromstring('<a/>').tag)", true),
    ("import re\nprint(re.compile('a').match('a'))", true),
    ("eval('1')", false),
    ("def compile(x):\n    return x\nprint(compile(1))", true),
    ("[].__class__.__base__.__subclasses__()", false),
    (
        "class A:\n    def __init__(self):\n        self.n = self.__class__.__name__\nprint(A().n)",
        true,
    ),
    (
        "def f(n):\n    return 1 if n < 2 else n * f(n - 1)\nx = 0\nx += f(5)\na, *b = [1, 2, 3]\nprint(x, b)",
        true,
    ),
    ("print('unfinished'", false),
    ("return 5", false),
    ("await_me = 1\nimport math as m\nprint(f'{m.pi:.2f}')", true),
    ("open('x.txt', 'w')", false),
    ("import random\nrandom._os.sep", false),
    ("from random import _os\n_os.sep", false),
    ("import random\ngetattr(random, '_os').sep", false),
    ("{]\n;", false),
    ("lambda \n??", false),
    ("%pip list", true),
    ("%run x.py", false),
    ("%%writefile x.py\nx = 1", false),
    ("%matplotlib inline\nprint(1)", true),
];

#[test]
fn the_verdict_of_a_validation_matches_the_execution() {
    for server in [raising(), rejecting()] {
        for (code, is_valid) in VERDICTS {
            let found = validate(server, code);
            let reply = server.run(&json!({ "code": code, "stateless": true }));
            let is_caught = code.starts_with("try:");
            let is_rejecting = std::ptr::eq(server, rejecting());
            let wanted = *is_valid && !(is_caught && is_rejecting);
            assert_eq!(found["validation"]["valid"], wanted, "{code}: {found}");
            assert_eq!(reply["success"], wanted, "{code}: {reply}");
        }
    }
}

/// A program with a serious violation behind more violations than a reply lists.
#[test]
fn many_violations_do_not_hide_a_serious_one() {
    let dead = "    import os\n".repeat(150);
    let code = format!("if False:\n{dead}print(().__class__.__base__.__subclasses__())");
    let reply = raising().run(&json!({ "code": code, "stateless": true }));
    assert_eq!((&reply["outcome"], &reply["stdout"]), (&json!("rejected"), &json!("")), "{reply}");
}

#[test]
fn blocked_modules_come_with_advice() {
    let reply = raising().run(&json!({ "code": "x = 1\nimport numpy", "stateless": true }));
    let hint = reply["hint"].as_str().unwrap();
    assert!(hint.contains("SANDBOX_ENABLE_DATA_SCIENCE=true"), "{hint}");
}

#[test]
fn module_not_found_does_not_catch_a_blocked_import() {
    let code = "try:\n    import os\nexcept ModuleNotFoundError:\n    os = None";
    assert_eq!(validate(raising(), code)["validation"]["valid"], false);
    assert_eq!(raising().run(&json!({ "code": code, "stateless": true }))["success"], false);
}

#[test]
fn a_key_has_rules_of_its_own_and_sees_them() {
    let keyed = Keyed::start(&[]);
    let (strict, free) = (keyed.key("strict", &["--policy", "tiers"]), keyed.key("free", &[]));
    let lost = keyed.key("lost", &["--policy", "no_such_rules"]);
    let info = |key: &str| {
        keyed.client(key).call("get_sandbox_info", &json!({}))["structuredContent"].take()
    };
    let told = info(&strict);
    assert_eq!((&told["policy"], &told["commands_allowed"]), (&json!("tiers"), &json!(false)));
    assert!(told["allowed_imports"].as_array().is_some_and(|list| list.contains(&json!("math"))));
    assert!(told["blocked_attributes"].as_array().is_some_and(|list| !list.is_empty()), "{told}");
    let told = info(&free);
    assert_eq!((&told["policy"], &told["allowed_imports"]), (&json!("open"), &Value::Null));
    let run = |key: &str| {
        let code = json!({ "code": "import os\nos.sep" });
        keyed.client(key).call("execute_code", &code)["structuredContent"].take()
    };
    assert_eq!(run(&strict)["error"]["category"], "security");
    assert_eq!(run(&free)["result"], "/");
    // Missing rules allow nothing.
    assert_ne!(run(&lost)["success"], true);
}

#[test]
fn a_validation_has_the_fields_of_the_older_system() {
    let code = "import os\nos.system('rm -rf /')";
    assert_eq!(code.len(), 31);
    let answer = client(rejecting()).call("validate_code", &json!({ "code": code }));
    assert_ne!(answer["isError"], true, "{answer}");
    let found = &answer["structuredContent"];
    assert_eq!(found["validation"]["valid"], false);
    assert_eq!(found["validation"]["errors"][0], "Line 1: Import 'os' is not allowed");
    assert_eq!(found["validation"]["message"], "Code contains restricted operations");
    assert_eq!(found["analysis"]["line_count"], 2, "{found}");
    assert_eq!(found["analysis"]["character_count"], 31, "{found}");
    assert_eq!(found["analysis"]["estimated_complexity"], "low", "{found}");
    let advice = "Some operations may be restricted in sandbox environment";
    assert_eq!(found["recommendations"], json!([advice]), "{found}");
    let text: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["validation"]["valid"], false);
    let fine = validate(rejecting(), "for i in range(3):\n    print(i)");
    assert_eq!(fine["validation"]["message"], "Code passed validation");
    assert_eq!(fine["recommendations"], json!(["Output will be captured automatically"]));
    assert_eq!(fine["analysis"]["estimated_complexity"], "medium");
    let long = validate(rejecting(), &"x = 1\n".repeat(60));
    let advice = "Consider breaking large code blocks into smaller functions";
    assert_eq!(long["recommendations"], json!([advice]));
    let broken = validate(rejecting(), "x = 1\nprint('a' 5)\n");
    let error = &broken["validation"]["syntax_error"];
    assert_eq!((&error["line"], &error["text"]), (&json!(2), &json!("print('a' 5)")), "{broken}");
    assert!(error["offset"].as_u64().unwrap() > 1, "{broken}");
    assert!(error["caret"].as_str().unwrap().ends_with('^'), "{broken}");
    assert_eq!(broken["validation"]["message"], "Code has a syntax error");
    client(rejecting()).refused("validate_code", &json!({}));
    client(rejecting()).refused("validate_code", &json!({ "code": "  \n" }));
}

/// Code as models send it: (code, its output, the warning).
const MENDED: &[(&str, &str, &str)] = &[
    ("```python\nprint('a')\n```", "a\n", "fence"),
    ("Here is the code:\n\n```py\nprint('b')\n```\nIt prints b.", "b\n", "fence"),
    ("    x = 1\n    print('c', x)\n", "c 1\n", "indented"),
    ("print(“d’s”)", "d’s\n", "quotes"),
    ("print('e')\u{a0}\u{200b}", "e\n", "characters"),
    ("x = 'f'\\nprint(x)", "f\n", "escaped"),
];

#[test]
fn repairs_code_if_that_cannot_change_its_meaning() {
    let server = crate::harness::shared();
    for (code, printed, _) in MENDED {
        let reply = server.run(&json!({ "code": code, "stateless": true }));
        assert_eq!(reply["stdout"], *printed, "{code:?}: {reply}");
        assert!(!reply["warnings"].as_array().unwrap().is_empty(), "{code:?}: {reply}");
        assert_eq!(validate(server, code)["validation"]["valid"], true, "{code:?}");
    }
    // Valid Python is not changed.
    let quoted = "text = '''```python\n“x”\n```'''\nprint(text)";
    let reply = server.run(&json!({ "code": quoted, "stateless": true }));
    assert_eq!(reply["stdout"], "```python\n“x”\n```\n");
    assert_eq!(reply["warnings"], json!([]));
}

/// Failures with a hint: (code, a word of the hint).
const ADVISED: &[(&str, &str)] = &[
    ("def f(x):\n    return [1,\n", "truncated"),
    ("for i in range(3):", "truncated"),
    ("text = '''never", "truncated"),
    ("Sure! I will calculate the average of the numbers for you.", "code"),
    ("import cv2", "opencv-python"),
    ("import yamlx\n", "%pip install yamlx"),
    ("int('x')", ""),
    ("pd.DataFrame()", "import pandas as pd"),
    ("import pandas as pd\npd.DataFrame({'a': [1]}).append({'a': 2})", "concat"),
    ("import urllib.request\nurllib.request.urlopen('https://example.org')", "network"),
    ("import requests\nrequests.get('https://example.org')", "network"),
    ("import numpy as np\nnp.float_(1)", "np.float64"),
];

#[test]
fn known_failures_come_with_advice() {
    let server = crate::harness::shared();
    for (code, advice) in ADVISED {
        let reply = server.run(&json!({ "code": code, "stateless": true }));
        assert_eq!(reply["success"], false, "{code:?}: {reply}");
        let hint = reply["hint"].as_str().unwrap_or_default();
        assert!(hint.contains(advice), "{code:?}: {hint:?} {reply}");
        if advice.is_empty() {
            assert_eq!(reply.get("hint"), None, "{code:?}: {hint:?}");
        }
    }
    let plain = annotating().run(&json!({ "code": "1 / 0" }));
    assert_eq!(plain.get("hint"), None, "{plain}");
}

#[test]
fn misspelt_rules_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |variables: &[(&str, &str)], word: &str| {
        let output = woma(folder.path(), &["serve", "--port", "0"], variables);
        assert!(!output.status.success());
        assert!(said(&output).contains(word), "{}", said(&output));
    };
    refused(&[("SANDBOX_POLICY", "teirs")], "teirs");
    refused(&[("SANDBOX_ALLOWED_IMPORTS", "os;sys")], "os;sys");
    refused(&[("IMPORT_BLOCK_MODE", "ignore")], "ignore");
    refused(&[("POLICY_FILE", "/nonexistent/rules.toml")], "/nonexistent/rules.toml");
}

#[test]
fn reads_custom_rules_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let text = "[profiles.school]\nextends = \"tiers\"\nimports = [\"turtle_math\", \"math\"]\n\
                builtins = [\"print\"]\n";
    std::fs::write(&path, text).unwrap();
    let variables = [("POLICY_FILE", path.to_str().unwrap()), ("SANDBOX_POLICY", "school")];
    let server = Server::start_with(&[], &variables);
    let reply = server.run(&json!({ "code": "import math\nmath.sqrt(16)" }));
    assert_eq!(reply["result"], 4.0, "{reply}");
    assert_eq!(server.run(&json!({ "code": "import json\njson.loads('3')" }))["result"], 3);
    assert_eq!(server.run(&json!({ "code": "import os" }))["error"]["category"], "security");
    assert_eq!(server.run(&json!({ "code": "print(1)" }))["error"]["category"], "security");
}
