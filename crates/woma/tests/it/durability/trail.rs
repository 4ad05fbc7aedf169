//! The audit trail: what is recorded besides executions, and whether `woma audit verify` finds it whole.

use serde_json::{Value, json};

use super::{Home, until_recorded};
use crate::auth::{KEY, woma};
use crate::client::Client;
use crate::harness::{Server, until};

/// Exit status and output of `woma audit` with these arguments.
fn audit(home: &Home, arguments: &[&str]) -> (Option<i32>, String) {
    let output = woma(home.path(), &[&["audit"], arguments].concat(), &[]);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn intact(home: &Home) {
    let (status, said) = audit(home, &["verify"]);
    assert_eq!((status, said.lines().last()), (Some(0), Some("The audit trail is intact.")));
}

/// Rows with that action, as [owner, detail].
fn rows(server: &Server, action: &str) -> Vec<(String, Value)> {
    let operator = Client { server, key: Some(KEY) };
    let trail = operator.get(&format!("/api/v1/audit?action={action}")).json();
    let rows = trail["audit"].as_array().unwrap_or_else(|| panic!("{trail}")).clone();
    let row = |row: Value| (row["owner"].as_str().unwrap_or("").to_owned(), row["detail"].clone());
    rows.into_iter().map(row).collect()
}

#[test]
fn file_changes_exports_and_refusals_are_recorded() {
    let home = Home::new();
    let server = home.start(&[("API_KEY", KEY)]);
    let reader = home.keys(&["create", "reads", "--scope", "read"]);
    let (operator, reads) = (
        Client { server: &server, key: Some(KEY) },
        Client { server: &server, key: Some(&reader) },
    );
    until("the key is known", || reads.get("/api/v1/sessions").status == 200);
    let upload = json!({ "filename": "a.txt", "content_base64": "aGk=", "session_id": "s" });
    assert_eq!(operator.call("upload_file", &upload)["isError"], false);
    assert_eq!(operator.get("/api/v1/sessions/s/files?archive=zip").status, 200);
    assert_eq!(operator.get("/api/v1/sessions/s/notebook").status, 200);
    let mut gone = operator.send("DELETE", "/api/v1/sessions/s/files/a.txt", &[], &Value::Null);
    assert_eq!(gone.answer(false).status / 100, 2);
    let written = rows(&server, "write_file");
    assert_eq!(written, [("key:default".to_owned(), written[0].1.clone())]);
    assert_eq!((&written[0].1["path"], &written[0].1["bytes"]), (&json!("a.txt"), &json!(2)));
    assert_eq!(rows(&server, "delete_file")[0].1["path"], "a.txt");
    assert_eq!(rows(&server, "export_archive").len(), 1);
    assert_eq!(rows(&server, "export_notebook").len(), 1);

    // Requests without a key, and of a key without the scope, over REST and MCP.
    for _ in 0..5 {
        assert_eq!(server.post("/api/v1/execute", &json!({ "code": "1" })).status, 401);
        assert_eq!(reads.post("/api/v1/execute", &json!({ "code": "1" })).status, 403);
    }
    reads.refused("execute_code", &json!({ "code": "1" }));
    let refused = rows(&server, "refused");
    let of = |code: &str, request: &str| {
        let found = refused.iter().find(|(_, detail)| {
            detail["code"] == code && detail["request"] == request && detail["times"] == 1
        });
        found.unwrap_or_else(|| panic!("{request}: {refused:?}")).clone()
    };
    let (owner, detail) = of("unauthenticated", "POST /api/v1/execute");
    assert_eq!((owner.as_str(), &detail["peer"]), ("anonymous", &json!("127.0.0.1")));
    let (owner, _) = of("forbidden", "POST /api/v1/execute");
    assert!(owner.starts_with("key:") && owner != "key:default", "{owner}");
    assert_eq!(of("forbidden", "tool ExecuteCode").0, owner);
    assert_eq!(refused.len(), 3, "those that came again are counted: {refused:?}");
    // The numbers are written when the server stops, at the latest.
    server.stop();
    let again = "SELECT detail FROM audit WHERE action = 'refused' AND detail LIKE '%\"times\":4%'";
    assert_eq!(home.rows(again).len(), 2);
    intact(&home);
}

#[test]
fn a_trail_is_whole_after_kills_and_tampering_is_named() {
    let home = Home::new();
    let mut head = String::new();
    for round in 0..2 {
        let server = home.start(&[]);
        for number in 0..5 {
            super::done(&server, "s", &format!("{number}"));
        }
        if round == 0 {
            until_recorded(&server);
            head = audit(&home, &["head"]).1.trim().to_owned();
        }
        server.kill();
        intact(&home);
    }
    let server = home.start(&[]);
    until_recorded(&server);
    // Also while a server writes.
    intact(&home);
    assert_eq!(audit(&home, &["verify", "--head", &head]).0, Some(0), "{head}");
    let places = "SELECT position, seq FROM audit WHERE action = 'execute' ORDER BY seq LIMIT 1";
    let found = home.rows(places);
    let (position, seq) = (&found[0][0], &found[0][1]);
    home.rows("DROP TRIGGER audit_is_not_changed");
    home.rows(&format!("UPDATE audit SET detail = '{{}}' WHERE seq = {seq}"));
    let (status, said) = audit(&home, &["verify"]);
    assert_eq!(status, Some(1), "{said}");
    let named = format!("row {seq} of the audit trail was changed or moved (position {position}");
    assert!(said.contains(&named), "{said}");
    // A head that is not of this trail.
    let other = format!("{}0", head.get(..head.len() - 1).unwrap_or_default());
    let wrong = audit(&home, &["verify", "--head", &other]);
    assert_eq!(wrong.0, Some(1), "{}", wrong.1);
    assert_eq!(audit(&home, &["verify", "--head", "nonsense"]).0, Some(2));
    assert_eq!(audit(&home, &["--json", "verify"]).0, Some(2), "an option that would be dropped");
}
