//! The OpenAPI document matches the routes, and the pages show it without other resources.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::shared;

#[test]
fn the_document_is_the_one_in_the_repository() {
    let output = Command::new(env!("CARGO_BIN_EXE_woma")).arg("openapi").output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let pinned = std::fs::read_to_string(path).unwrap();
    assert!(printed == pinned, "the routes changed: `woma openapi > docs/openapi.json` pins them");
    assert_eq!(shared().get("/openapi.json").text(), printed);
}

fn document() -> Value {
    shared().get("/openapi.json").json()
}

/// The target of a route in the document, with names of things that do not exist.
fn target(path: &str) -> String {
    path.replace("{session_id}", "no-such-session")
        .replace("{execution_id}", "no-such-execution")
        .replace("{upload_id}", "no-such-upload")
        .replace("{key_id}", "no-such-key")
        .replace("{file_id}", "no-such-file")
        .replace("{filename}", "no-such-name")
        .replace("{path}", "no-such-path")
        .replace("{number}", "1")
}

#[test]
fn every_route_refuses_query_parameters_that_it_does_not_know() {
    // Links, pages and probes, to which other programs add parameters.
    const OPEN: [&str; 11] = [
        "/dl/{file_id}",
        "/dl/{file_id}/{filename}",
        "/charts/{session_id}/{filename}",
        "/health",
        "/api/v1/health",
        "/livez",
        "/readyz",
        "/",
        "/docs",
        "/redoc",
        "/openapi.json",
    ];
    let document = document();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let target = format!("{}?no_such_parameter=1", target(path));
            let answer = shared().request(&method.to_uppercase(), &target, &[], b"{}");
            let is_refused = answer.text().contains("`no_such_parameter` is not a query parameter");
            assert_eq!(is_refused, !OPEN.contains(&path.as_str()), "{method} {path}");
            if !is_refused {
                continue;
            }
            refused += 1;
            answer.refused(400);
            let hint = answer.json()["hint"].as_str().unwrap().to_owned();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            for parameter in parameters.iter().filter(|it| it["in"] == "query") {
                let name = format!("`{}`", parameter["name"].as_str().unwrap());
                assert!(hint.contains(&name), "{method} {path}: {hint}");
            }
        }
    }
    assert!(refused > 40, "{refused}");
    // The same below the older prefix.
    let older = shared().get("/ai/sandbox/v1/api/sessions?limitt=1");
    assert_eq!(older.refused(400), "`limitt` is not a query parameter of this route");
    assert!(older.text().contains("did you mean `limit`?"), "{}", older.text());
}

#[test]
fn every_route_in_the_document_answers_and_no_other_method_does() {
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let target = target(path);
        let methods = methods.as_object().unwrap();
        for method in methods.keys() {
            let answer = shared().request(&method.to_uppercase(), &target, &[], b"{}");
            assert_ne!(answer.status, 405, "{method} {path}");
            let is_missing = answer.status == 404 && answer.text().contains("no route matches");
            assert!(!is_missing && answer.status < 500, "{method} {path}: {}", answer.text());
        }
        let answer = shared().request("TRACE", &target, &[], b"");
        answer.refused(405);
        let allowed = answer.get("allow").unwrap().to_lowercase();
        let mut allowed: Vec<&str> =
            allowed.split(',').filter(|method| *method != "head").collect();
        allowed.sort_unstable();
        // The root also takes JSON-RPC, which the document does not list.
        if path == "/" {
            allowed.retain(|method| *method != "post");
        }
        let mut told: Vec<&str> = methods.keys().map(String::as_str).collect();
        told.sort_unstable();
        assert_eq!(allowed, told, "{path}");
    }
}

#[test]
fn routes_for_older_clients_are_marked_and_apart() {
    let document = document();
    let operation = |method: &str, path: &str| document["paths"][path][method].clone();
    for (method, path) in [
        ("post", "/execute"),
        ("post", "/api/v1/execute"),
        ("post", "/api/v1/execute_sync"),
        ("post", "/api/v1/sessions"),
        ("get", "/api/sessions"),
        ("post", "/api/files/upload"),
    ] {
        let older = operation(method, path);
        assert_eq!(older["deprecated"], true, "{path}");
        assert_eq!(older["tags"], serde_json::json!(["older"]), "{path}");
    }
    for (method, path, status) in [
        ("post", "/api/v1/executions", "201"),
        ("put", "/api/v1/sessions/{session_id}", "201"),
        ("post", "/api/v1/sessions/{session_id}/files", "201"),
        ("delete", "/api/v1/sessions/{session_id}/files/{path}", "204"),
        ("post", "/api/v1/keys", "201"),
        ("delete", "/api/v1/keys/{key_id}", "204"),
    ] {
        let ours = operation(method, path);
        assert_eq!(ours["deprecated"], Value::Null, "{path}");
        assert!(ours["responses"][status].is_object(), "{path}: {ours}");
        assert!(ours["responses"]["401"].is_object() && ours["responses"]["default"].is_null());
    }
    assert!(operation("delete", "/api/v1/keys/{key_id}")["responses"]["204"]["content"].is_null());
}

#[test]
fn references_resolve_and_names_are_unique() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|methods| methods.as_object().unwrap().values());
    let mut ids: Vec<&str> =
        operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    assert_eq!(document["openapi"], "3.1.0");
}

/// Generators of clients take a schema that is an object, and bytes by their media type only.
#[test]
fn generators_of_clients_can_read_every_schema_and_reply() {
    fn check(schema: &Value, place: &str) {
        assert!(schema.is_object(), "{place}: {schema}");
        let properties = schema["properties"].as_object().into_iter().flatten();
        properties.for_each(|(name, one)| check(one, &format!("{place}/{name}")));
        if let Some(items) = schema.get("items") {
            check(items, &format!("{place}/items"));
        }
        let choices = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.get(key));
        choices.flat_map(|all| all.as_array().unwrap()).for_each(|one| check(one, place));
    }
    let document = document();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        check(schema, name);
    }
    let mut replies = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let Some(content) = response.get("content") else { continue };
                let content = content.as_object().unwrap();
                let is_read = |kind: &str| {
                    kind.ends_with("json") || kind.starts_with("text/") || kind.ends_with("-stream")
                };
                assert!(content.keys().any(|kind| is_read(kind)), "{path} {status}");
                content.values().for_each(|media| check(&media["schema"], path));
                replies += 1;
            }
        }
    }
    assert!(replies > 100, "{replies}");
    let run = &document["paths"]["/api/v1/executions"]["post"]["responses"]["201"]["content"];
    assert_eq!(run.as_object().unwrap().keys().next().unwrap(), "application/json");
}

#[test]
fn the_pages_need_no_network() {
    for path in ["/docs", "/redoc"] {
        let answer = shared().get(path);
        assert_eq!(answer.get("content-type"), Some("text/html; charset=utf-8"));
        let policy = answer.get("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'nonce-"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap();
        let page = answer.text();
        assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
        for foreign in ["http://", "https://", "{{", " onclick=", "style=\"", "javascript:"] {
            assert!(!page.contains(foreign), "{path}: {foreign}");
        }
        assert!(page.contains("openapi.json"));
        let again = shared().get(path);
        assert_ne!(again.get("content-security-policy"), Some(policy), "a nonce is used once");
    }
}
