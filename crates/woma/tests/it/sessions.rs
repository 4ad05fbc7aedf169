//! Sessions over REST: state, creation, deletion.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{shared, unique};

#[test]
fn variables_are_private_to_a_session() {
    let (one, other) = (unique("one"), unique("other"));
    let first = shared().code(&one, "x = 41\nopen('file.txt', 'w').write('kept')");
    assert_eq!((&first["session_created"], &first["success"]), (&json!(true), &json!(true)));
    let second = shared().code(&one, "x + 1, open('file.txt').read()");
    assert_eq!(second["result"], json!([42, "kept"]));
    assert_eq!((&second["session_created"], &second["variables"]), (&json!(false), &json!(["x"])));
    assert_eq!(second["kernel_info"]["execution_count"], 2);
    let elsewhere = shared().code(&other, "x");
    assert_eq!(elsewhere["error"]["type"], "NameError");
}

#[test]
fn the_list_has_the_fields_of_the_older_system() {
    let id = unique("listed");
    shared().code(&id, "1");
    let list = shared().get("/api/v1/sessions").json();
    let sessions = list["sessions"].as_object().unwrap();
    assert_eq!(list["total"], sessions.len());
    let mine = &sessions[&id];
    assert!(mine["created_at"].as_str().unwrap().ends_with('Z'), "{mine}");
    assert!(mine["last_activity"].is_string());
    assert_eq!((&mine["is_busy"], &mine["execution_count"]), (&json!(false), &json!(1)));
    let plain = shared().get("/api/sessions").json();
    let ids: Vec<&Value> = plain.as_array().unwrap().iter().map(|one| &one["session_id"]).collect();
    assert!(ids.contains(&&json!(id)), "{plain}");
}

#[test]
fn creates_shows_resets_and_deletes_sessions() {
    let made = shared().post("/api/v1/sessions", &json!({})).json();
    assert_eq!((&made["resultCode"], &made["resultMsg"]), (&json!(0), &json!("success")));
    let id = made["data"]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 36);
    shared().code(&id, "x = 1");
    let path = format!("/api/v1/sessions/{id}");
    assert_eq!(shared().get(&path).json()["execution_count"], 1);
    let emptied = shared().post(&format!("{path}/reset"), &json!({})).json();
    assert_eq!((&emptied["execution_count"], &emptied["is_live"]), (&json!(0), &json!(false)));
    assert_eq!(shared().code(&id, "x")["error"]["type"], "NameError");
    let deleted = shared().request("DELETE", &path, &[], b"").json();
    assert_eq!((&deleted["success"], &deleted["session_id"]), (&json!(true), &json!(id)));
    shared().get(&path).refused(404);
    shared().request("DELETE", &path, &[], b"").refused(404);
    shared().post(&format!("{path}/interrupt"), &json!({})).refused(404);
    shared().post(&format!("{path}/reset"), &json!({})).refused(404);
}

#[test]
fn the_older_create_route_takes_a_name_and_an_id() {
    let id = unique("named");
    let body = json!({ "name": "Sales", "description": "of May", "session_id": id });
    let made = shared().post("/api/sessions", &body).json();
    assert_eq!((&made["session_id"], &made["name"]), (&json!(id), &json!("Sales")));
    assert_eq!(
        (&made["description"], &made["sandbox_dir"]),
        (&json!("of May"), &json!("/mnt/data"))
    );
    shared().post("/api/sessions", &body).refused(409);
    assert_eq!(shared().get(&format!("/api/sessions/{id}")).json()["name"], "Sales");
    shared().post("/api/sessions", &json!({ "name": 1, "session_id": "a/b" })).refused(400);
    assert_eq!(shared().request("DELETE", &format!("/api/sessions/{id}"), &[], b"").status, 200);
    // An absent body counts as an empty one.
    let answer = shared().request("POST", "/api/sessions", &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn an_interrupt_stops_the_code_and_keeps_the_variables() {
    let id = unique("interrupted");
    let path = format!("/api/v1/sessions/{id}/interrupt");
    shared().code(&id, "x = 5");
    assert_eq!(shared().post(&path, &json!({})).json()["interrupted"], false);
    let mut connection = shared().connect();
    let body = json!({ "code": "import time\ntime.sleep(60)", "session_id": id });
    connection.send("POST", "/execute", &[], body.to_string().as_bytes());
    shared().until_busy(&id, true);
    let started = Instant::now();
    while shared().post(&path, &json!({})).json()["interrupted"] != true {
        assert!(started.elapsed() < Duration::from_secs(50), "nothing was running");
    }
    let reply = connection.answer(false).json();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!((&reply["outcome"], &reply["exit_code"]), (&json!("interrupted"), &json!(130)));
    assert_eq!(shared().code(&id, "x")["result"], 5);
}

#[test]
fn rejects_invalid_session_names() {
    for name in ["%ff", "a%2fb", "%2e%2e", "%00", &"x".repeat(200)] {
        let answer = shared().get(&format!("/api/v1/sessions/{name}"));
        answer.refused(400);
    }
    shared().get("/api/v1/sessions/%zz").refused(404);
    let id = unique("größe");
    shared().code(&id, "x = 1");
    let encoded = id.replace('ö', "%C3%B6").replace('ß', "%C3%9F");
    assert_eq!(shared().get(&format!("/api/v1/sessions/{encoded}")).json()["session_id"], id);
}
