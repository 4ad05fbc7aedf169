//! Sessions in containers, through each runtime that is installed: the rows CO1 to CO8.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use woma_sandbox::Runtime;

use crate::client::{initialize, initialized};
use crate::harness::{BASE, Server, environment, unique, until};

const ENABLED: (&str, &str) = ("SANDBOX_ENABLE_CONTAINER_MODE", "true");

fn server(runtime: &str) -> Server {
    Server::start_with(&[], &[ENABLED, ("CONTAINER_RUNTIME", runtime), BASE])
}

fn contained(server: &Server, session: &str, code: &str) -> Value {
    server.run(&json!({ "code": code, "session_id": session, "use_container": true }))
}

/// Checks that hold in every container.
fn serves(runtime: &str) -> Server {
    let server = server(runtime);
    let session = unique(runtime);
    // CO8, with its value; and the variables stay.
    let mean = "import numpy as np\ndata = np.array([1, 2, 3, 4, 5])\nresult = np.mean(data)";
    let reply = contained(&server, &session, mean);
    assert_eq!((&reply["success"], &reply["result"]), (&json!(true), &json!(3.0)), "{reply:#}");
    until("the log names the runtime", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("containers run by this runtime"));
        line.is_some_and(|line| line.contains(runtime))
    });
    let reply = server.code(&session, "int(data.sum())");
    assert_eq!(reply["result"], 15, "the session stays in its container: {reply:#}");
    // CO3: another user than root, nothing to write to but its own folders, no network.
    let reply = contained(&server, &session, WALLS);
    assert_eq!(reply["result"], json!([]), "{reply:#}");
    // Files are the session's, on the server too.
    let reply = contained(&server, &session, "open('kept.txt', 'w').write('kept')");
    assert_eq!(reply["success"], true, "{reply:#}");
    let listed = server.get(&format!("/api/v1/sessions/{session}/files")).json();
    assert!(listed.to_string().contains("kept.txt"), "{listed:#}");
    let figure = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])";
    let reply = contained(&server, &session, figure);
    assert!(reply.to_string().contains("image/png"), "{reply:#}");
    // CO4: the time of one call, and the memory.
    let body = json!({
        "code": "while True: pass", "session_id": session, "use_container": true, "timeout": 1,
    });
    let reply = server.run(&body);
    assert_eq!(reply["outcome"], "timed_out", "{reply:#}");
    let body = json!({
        "code": "x = bytearray(1 << 30)", "use_container": true, "stateless": true,
        "memory_limit": "512m",
    });
    let reply = server.run(&body);
    let is_told = matches!(reply["outcome"].as_str(), Some("raised" | "out_of_memory"));
    assert!(is_told && reply["success"] == false, "{reply:#}");
    server
}

/// Whatever of it succeeds is in the list.
const WALLS: &str = r#"
import os, socket
found = []
if os.getuid() == 0 or os.geteuid() == 0:
    found.append("root")
for path in ("/", "/usr", "/etc", "/opt", "/dev"):
    try:
        open(path + "/planted", "w")
        found.append("wrote " + path)
    except OSError:
        pass
for address in ("1.1.1.1", "169.254.169.254"):
    try:
        socket.create_connection((address, 80), 2)
        found.append("reached " + address)
    except OSError:
        pass
for name in ("CapEff", "CapPrm", "CapBnd"):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    if int(line.split()[1], 16):
        found.append(line.strip())
if os.path.exists("/root/.ssh") or os.path.exists("/work"):
    found.append("the host's folders")
found
"#;

#[test]
fn crun_serves_sessions_in_containers() {
    let server = serves("crun");
    let version = server.run(&json!({
        "code": "open('/proc/version').read()", "use_container": true, "stateless": true,
    }));
    assert!(!version["result"].to_string().contains("gVisor"), "{version:#}");
}

#[test]
fn runc_serves_sessions_in_containers() {
    serves("runc");
}

#[test]
fn runsc_serves_sessions_with_a_kernel_of_their_own() {
    let server = server("runsc");
    let session = unique("runsc");
    let mean = "import numpy as np\ndata = np.array([1, 2, 3, 4, 5])\nresult = np.mean(data)";
    let reply = contained(&server, &session, mean);
    assert_eq!((&reply["success"], &reply["result"]), (&json!(true), &json!(3.0)), "{reply:#}");
    // gVisor's own version, not the host's.
    let reply = contained(&server, &session, "import os\nos.uname().release");
    assert_eq!(reply["result"], "4.4.0", "{reply:#}");
}

#[test]
fn a_session_stays_what_it_is() {
    let server = server("crun");
    let plain = unique("plain");
    server.code(&plain, "x = 1");
    let asked = json!({ "code": "x", "session_id": plain, "use_container": true });
    let refused = server.post("/api/v1/execute", &asked).refused(400);
    assert!(refused.contains("is not in a container, and a session stays what it is"), "{refused}");
    // One that was created for containers runs in one without being asked.
    let made = json!({ "session_id": unique("made"), "use_container": true });
    let made = server.post("/api/v1/sessions", &made).json();
    let session = made["data"]["session_id"].as_str().unwrap_or_else(|| panic!("{made:#}"));
    let again = contained(&server, session, "1");
    assert_eq!(again["success"], true, "{again:#}");
}

/// This program in a mount namespace in which a runtime is not there.
fn without(runtime: &str, arguments: &[&str]) -> Command {
    let program = Runtime::ALL.into_iter().find(|found| found.name() == runtime).unwrap();
    let program = program.program().unwrap_or_else(|| panic!("{runtime} must be installed"));
    let hide = format!("mount --bind /dev/null {} && exec \"$@\"", program.display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &hide, "sh", env!("CARGO_BIN_EXE_woma")]);
    command.arg("--env").arg(environment()).args(arguments).envs([BASE, ENABLED]);
    command
}

#[test]
fn a_runtime_that_is_missing_is_named_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mut server = without("runc", &["--data-dir", place, "stdio"])
        .env("CONTAINER_RUNTIME", "runc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let call = |id: u32, arguments: Value| {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "execute_code", "arguments": arguments },
        })
    };
    let code = json!({ "code": "6 * 7", "stateless": true, "use_container": true });
    writeln!(input, "{}\n{}\n{}", initialize("2025-06-18"), initialized(), call(7, code)).unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap()).lines();
    let answer = output.find(|line| line.as_ref().unwrap().contains("\"id\":7")).unwrap().unwrap();
    drop(input);
    server.wait().unwrap();
    assert!(answer.contains("the runtime `runc` is not installed"), "{answer}");
    assert!(answer.contains("apt install runc"), "{answer}");
    assert!(!answer.contains("42"), "it ran elsewhere: {answer}");
}

/// `woma doctor` tries each runtime: it says which one works, and why another does not.
#[test]
fn the_doctor_tries_every_runtime() {
    let output = without("runc", &["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = report["containers"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let of = |name: &str| trials.iter().find(|trial| trial["runtime"] == name).unwrap();
    for name in ["crun", "runsc"] {
        let trial = of(name);
        let answered = trial["detail"].as_str().unwrap().contains("answered after");
        assert!(trial["works"] == true && answered, "{trial:#}");
    }
    let missing = of("runc");
    assert_eq!(missing["works"], false);
    assert_eq!(missing["detail"], "the runtime `runc` is not installed");
    assert!(missing["fix"].as_str().unwrap().contains("apt install runc"), "{missing:#}");
}
