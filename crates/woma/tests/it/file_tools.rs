//! File tools for models: plain text goes up, any kind of file comes back, and a wrong name leads to
//! the right one.

use serde_json::{Value, json};

use crate::client::{client, full, here, roomy};
use crate::files::path;
use crate::harness::{Server, shared, unique};

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[test]
fn uploads_take_plain_text_or_base64() {
    let (here, session) = (here(), unique("upload"));
    let content = "größe,n\n\"<&\",1\n";
    let arguments = json!({ "filename": "a.csv", "content": content, "session_id": session });
    let up = here.call("upload_file", &arguments);
    assert_eq!(up["structuredContent"]["size_bytes"], content.len(), "{up}");
    assert_eq!(here.code(&session, "open('a.csv').read()")["result"], content);
    let empty = json!({ "filename": "e.txt", "content": "", "session_id": session });
    assert_eq!(here.call("upload_file", &empty)["structuredContent"]["size_bytes"], 0);
    let body = json!({ "filename": "b.txt", "content": "plain" });
    let route = format!("/api/v1/sessions/{session}/files");
    assert_eq!(roomy().post(&route, &body).status, 201);
    assert_eq!(roomy().get(&path(&session, "b.txt")).text(), "plain");
    for (more, words) in [
        (json!({}), "`content` is missing"),
        (json!({ "content": "a", "content_base64": "YQ==" }), "exclude each other"),
        (json!({ "content": ["a"] }), "`content` must be text, not a list"),
        (json!({ "content_base64": "a,b" }), "send plain text as `content`"),
    ] {
        let mut arguments = json!({ "filename": "x", "session_id": session });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = here.refused("upload_file", &arguments);
        assert!(refused.contains(words), "{refused}");
        let refused = roomy().post(&route, &arguments);
        refused.refused(400);
        assert!(refused.text().contains(words), "{}", refused.text());
    }
}

#[test]
fn a_missing_file_leads_to_near_names() {
    let session = unique("near");
    let code = "import os\nos.makedirs('out')\n\
                for name in ['Report.csv', 'out/report.xlsx', 'x.bin']: open(name, 'w').close()";
    here().code(&session, code);
    let words = "there is no file `report.csv` in the session; did you mean `Report.csv` or \
                 `out/report.xlsx`?";
    for tool in ["fetch_file", "delete_file"] {
        let arguments = json!({ "path": "report.csv", "session_id": session });
        let refused = here().refused(tool, &arguments);
        assert!(refused.contains(words), "{tool}: {refused}");
    }
    let refused = roomy().get(&path(&session, "report.csv"));
    refused.refused(404);
    assert_eq!(refused.json()["message"], words);
    let uri = json!({ "uri": format!("session://{session}/files/report.csv") });
    let missing = here().rpc("resources/read", &uri);
    assert_eq!(missing["error"]["message"], words, "{missing}");
    let other = json!({ "path": "nothing.json", "session_id": session });
    let refused = here().refused("fetch_file", &other);
    assert!(!refused.contains("did you mean") && refused.contains("list_files"), "{refused}");
}

#[test]
fn every_kind_of_file_has_a_link() {
    const NAMES: [&str; 16] = [
        "a.docx",
        "a.pptx",
        "a.gif",
        "a.webp",
        "a.mp4",
        "a.ipynb",
        "a.xml",
        "a.jsonl",
        "a.py",
        "a.db",
        "a.npz",
        "a.yaml",
        "a.tar.gz",
        "a.parquet",
        "a.pkl",
        "noextension",
    ];
    let code = format!("for name in {NAMES:?}: open(name, 'wb').write(name.encode())");
    let lean = here().call("execute_code", &json!({ "code": code, "session_id": unique("kinds") }));
    let files = lean["structuredContent"]["files"].as_array().unwrap();
    assert_eq!(files.len(), NAMES.len(), "{lean}");
    let rest = shared().code(&unique("kinds"), &code);
    let links = rest["download_urls"].as_array().unwrap();
    for name in NAMES {
        let file = files.iter().find(|file| file["path"] == name).unwrap();
        let url = file["url"].as_str().unwrap_or_else(|| panic!("{file}"));
        let line = format!("File: {name} ({} B) {url}", name.len());
        assert!(text(&lean).lines().any(|own| own == line), "{name}: {}", text(&lean));
        let (_, target) = url.split_once("/dl/").unwrap();
        assert_eq!(roomy().get(&format!("/dl/{target}")).text(), name);
        assert!(links.iter().any(|link| link["filename"] == name), "{name}: {rest}");
    }
}

#[test]
fn every_text_form_names_files_without_a_link() {
    let code =
        "for n in range(25): open(f'{n:02}.csv', 'w').write('1')\nopen('.hidden', 'w').close()";
    let lean = here().call("execute_code", &json!({ "code": code, "session_id": unique("names") }));
    let lines = text(&lean).lines().filter(|line| line.starts_with("File: ")).count();
    assert_eq!(lines, 20, "{}", text(&lean));
    assert!(text(&lean).contains("5 more new or changed files are not listed"), "{}", text(&lean));
    let whole =
        full().call("execute_code", &json!({ "code": code, "session_id": unique("names") }));
    let json: Value = serde_json::from_str(text(&whole)).unwrap();
    assert_eq!(json["files_created"].as_array().unwrap().len(), 25, "{json}");
    let variables = [("REPLY", "full"), ("TEXT_FORMAT", "plain"), ("LINKED_EXTENSIONS", "csv")];
    let server = Server::start_with(&[], &variables);
    let code = format!("{code}\nfor n in range(22): open(f'{{n:02}}.docx', 'w').close()");
    let plain = client(&server).call("execute_code", &json!({ "code": code }));
    let count = |what: &str| text(&plain).lines().filter(|line| line.contains(what)).count();
    assert_eq!((count("Download URL: "), count(".docx")), (25, 20), "{}", text(&plain));
    assert!(text(&plain).contains("[2 more files are not named"), "{}", text(&plain));
}
