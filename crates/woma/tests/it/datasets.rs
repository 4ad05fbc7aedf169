//! Datasets: loaded, queried, described, listed and dropped over MCP and REST, and seen in sessions.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::client::{Client, client};
use crate::durability::Home;
use crate::harness::{Server, unique, until};

const SALES: &str = "id,region,amount,updated_at\n1,north,10.5,2024-01-01\n2,south,20,2024-01-02\n\
                     3,north,4.5,2024-02-01\n4,,7,2024-02-02\n";

/// A server with two callers.
struct Callers {
    server: Server,
    ann: String,
    bob: String,
}

fn callers() -> &'static Callers {
    static CALLERS: OnceLock<Callers> = OnceLock::new();
    CALLERS.get_or_init(|| {
        let (admin, keys) = ("an-admin-key-0123456789", ("MAX_KERNELS", "40"));
        let server = Server::start_with(&[], &[("API_KEY", admin), keys]);
        let make = |name: &str| {
            let body = json!({ "name": name, "scopes": ["execute", "read"] });
            let here = Client { server: &server, key: Some(admin) };
            let made = here.post("/api/v1/keys", &body).json();
            made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
        };
        let (ann, bob) = (make("ann"), make("bob"));
        Callers { server, ann, bob }
    })
}

fn ann() -> Client<'static> {
    let callers = callers();
    Client { key: Some(&callers.ann), ..client(&callers.server) }
}

fn bob() -> Client<'static> {
    let callers = callers();
    Client { key: Some(&callers.bob), ..client(&callers.server) }
}

/// Puts a file into a session.
fn put(here: Client<'_>, session: &str, path: &str, content: &str) {
    let body = json!({ "filename": path, "content": content, "session_id": session });
    let put = here.post("/api/files/upload", &body);
    assert!(put.status < 300, "{}", put.text());
}

fn load(here: Client<'_>, session: &str, path: &str, name: &str) -> Value {
    let body = json!({ "file_path": path, "dataset_name": name, "session_id": session });
    let loaded = here.post("/api/data/load", &body);
    assert_eq!(loaded.status, 200, "{}", loaded.text());
    loaded.json()
}

fn query(here: Client<'_>, sql: &str) -> Value {
    let answer = here.post("/api/data/query", &json!({ "sql": sql }));
    assert_eq!(answer.status, 200, "{sql}: {}", answer.text());
    answer.json()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_model_loads_queries_describes_lists_and_drops() {
    let (session, name) = (unique("model"), unique("model").replace('-', "_"));
    put(ann(), &session, "sales.csv", SALES);
    let asked = json!({ "file_path": "sales.csv", "dataset_name": name, "session_id": session });
    let loaded = ann().call("load_dataset", &asked);
    let said = text(&loaded);
    assert!(said.starts_with(&format!("Dataset {name}: 4 rows, 4 columns, ")), "{said}");
    assert!(said.contains("updated_at DATE") && said.contains("1 | north | 10.5"), "{said}");
    assert_eq!(loaded["structuredContent"]["row_count"], 4, "{loaded}");

    let sql = format!(
        "WITH t AS (SELECT region, sum(amount) AS total, max(updated_at) AS updated_at FROM {name} \
         GROUP BY region) SELECT * FROM t ORDER BY total DESC"
    );
    let result = ann().call("query_dataset", &json!({ "sql": sql, "count": true }));
    let table = "3 rows of 3\nregion | total | updated_at\nsouth | 20.0 | 2024-01-02\n\
                 north | 15.0 | 2024-02-01\nNULL | 7.0 | 2024-02-02";
    assert_eq!(text(&result), table, "{result}");
    let data = &result["structuredContent"]["data"];
    assert_eq!(data[0], json!(["south", 20.0, "2024-01-02"]), "{result}");

    let described = ann().call("describe_dataset", &json!({ "name": name.to_uppercase() }));
    let said = text(&described);
    assert!(said.contains("- region VARCHAR: ") && said.contains("1 NULL"), "{said}");
    assert!(said.contains("north ×2"), "{said}");

    let listed = ann().call("list_datasets", &json!({ "session_id": session, "limit": 200 }));
    assert!(text(&listed).lines().any(|line| line.starts_with(&format!("{name}: 4 rows"))));
    assert!(ann().call("drop_dataset", &json!({ "name": name }))["isError"] == false);
    let refused = ann().refused("query_dataset", &json!({ "sql": format!("FROM {name}") }));
    assert!(refused.contains(&name), "{refused}");
    let refused = ann().refused("drop_dataset", &json!({ "name": name }));
    assert!(refused.contains("there is no dataset") && refused.contains("Hint"), "{refused}");
}

#[test]
fn older_paths_answer_with_the_documented_fields() {
    let (session, name) = (unique("older"), unique("older").replace('-', "_"));
    put(ann(), &session, "in/sales.csv", SALES);
    let loaded = load(ann(), &session, "in/sales.csv", &name);
    for (field, value) in [
        ("name", json!(name)),
        ("format", json!("csv")),
        ("row_count", json!(4)),
        ("column_count", json!(4)),
        ("status", json!("loaded")),
        ("bad_row_count", json!(0)),
    ] {
        assert_eq!(loaded[field], value, "{field}: {loaded}");
    }
    assert_eq!(loaded["columns"][0], json!({ "name": "id", "type": "BIGINT" }), "{loaded}");
    assert_eq!(loaded["preview"][1]["region"], "south", "{loaded}");
    assert!(loaded["size_mb"].is_number(), "{loaded}");
    let table = loaded["table_name"].as_str().unwrap();
    assert!(table.starts_with("data_"), "{table}");
    // Both names work in SQL.
    let joined = format!("SELECT count(*) AS n FROM {name} JOIN {table} USING (id)");
    assert_eq!(query(ann(), &joined)["data"], json!([{ "n": 4 }]));
    let body =
        json!({ "sql": format!("SELECT id FROM {name} ORDER BY id"), "limit": 2, "offset": 1 });
    let page = ann().post("/api/data/query", &body).json();
    assert_eq!(page["data"], json!([{ "id": 2 }, { "id": 3 }]), "{page}");
    let facts = json!([
        page["columns"],
        page["row_count"],
        page["limit"],
        page["offset"],
        page["has_more"]
    ]);
    assert_eq!(facts, json!([["id"], 2, 2, 1, true]), "{page}");
    let listed = ann().get("/api/data/datasets").json();
    let mine = listed["datasets"].as_array().unwrap().iter().find(|one| one["name"] == *name);
    assert_eq!(mine.unwrap()["row_count"], 4, "{listed}");
    assert_eq!(ann().get(&format!("/api/data/datasets/{name}")).json()["source"], "in/sales.csv");
    let dropped = ann().send("DELETE", &format!("/api/data/datasets/{name}"), &[], &Value::Null);
    assert_eq!({ dropped }.answer(false).status, 200);
    ann().get(&format!("/api/data/datasets/{name}")).refused(404);
    // A file without a name for its dataset gives its own.
    let body = json!({ "file_path": "in/sales.csv", "session_id": session, "delimiter": "," });
    assert_eq!(ann().post("/api/data/load-csv", &body).json()["name"], "sales");
}

#[test]
fn the_listing_has_cursors() {
    let (session, base) = (unique("pages"), unique("zz").replace('-', "_"));
    put(bob(), &session, "a.csv", "a\n1\n");
    for number in 0..5 {
        load(bob(), &session, "a.csv", &format!("{base}_{number}"));
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = bob().get(&format!("/api/v1/datasets?limit=2{cursor}")).json();
        let rows = page["datasets"].as_array().unwrap();
        assert!(rows.len() <= 2, "{page}");
        names.extend(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    names.retain(|name| name.starts_with(&base));
    let expected: Vec<String> = (0..5).map(|number| format!("{base}_{number}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn results_come_as_files_too() {
    let (session, name) = (unique("files"), unique("files").replace('-', "_"));
    put(ann(), &session, "sales.csv", SALES);
    load(ann(), &session, "sales.csv", &name);
    let sql = format!("SELECT id, region FROM {name} ORDER BY id");
    let csv = ann().post("/api/v1/queries", &json!({ "sql": sql, "format": "csv" }));
    assert_eq!((csv.status, csv.get("x-row-count")), (200, Some("4")));
    assert!(csv.get("content-type").unwrap().starts_with("text/csv"));
    let plain = csv.text().replace('"', "");
    assert!(plain.starts_with("id,region\n1,north\n2,south\n"), "{plain}");
    let parquet = ann().post("/api/v1/queries", &json!({ "sql": sql, "format": "parquet" }));
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
    let body = json!({ "sql": sql, "save_as": "out/result.arrow", "session_id": session });
    let saved = ann().post("/api/v1/queries", &body).json();
    assert_eq!(saved["path"], "out/result.arrow", "{saved}");
    assert!(saved.get("data").is_none(), "{saved}");
    let body = json!({ "sql": sql, "save_as": "r.csv", "session_id": session });
    let saved = ann().call("query_dataset", &body);
    assert!(text(&saved).starts_with("File: r.csv (4 rows, "), "{saved}");
    let code = "import pyarrow as pa, pandas as pd\n\
                t = pa.ipc.open_file('out/result.arrow').read_all()\n\
                [t.num_rows, t.column_names, len(pd.read_csv('r.csv'))]";
    let read = ann().code(&session, code);
    assert_eq!(read["result"], json!([4, ["id", "region"], 4]), "{read}");
    let wrong = ann().post("/api/v1/queries", &json!({ "sql": sql, "format": "xml" }));
    assert!(wrong.refused(400).contains("json, csv, parquet or arrow"));
    let asked = json!({ "sql": sql, "format": "parquet" });
    assert!(ann().refused("query_dataset", &asked).contains("save_as"));
}

#[test]
fn callers_do_not_see_each_other() {
    let (session, name) = (unique("tenant"), unique("tenant").replace('-', "_"));
    let mut tables = Vec::new();
    for (here, rows) in [(ann(), "who\nann\n"), (bob(), "who\nbob\nbob\n")] {
        put(here, &session, "who.csv", rows);
        tables.push(load(here, &session, "who.csv", &name)["table_name"].clone());
    }
    let sql = format!("SELECT DISTINCT who FROM {name}");
    assert_eq!(query(ann(), &sql)["data"], json!([{ "who": "ann" }]));
    assert_eq!(query(bob(), &sql)["data"], json!([{ "who": "bob" }]));
    let theirs = format!("SELECT * FROM {}", tables[0].as_str().unwrap());
    let refused = bob().post("/api/data/query", &json!({ "sql": theirs }));
    assert!(refused.status == 404 || refused.status == 400, "{}", refused.text());
    for (here, count) in [(ann(), 1), (bob(), 2)] {
        let code = format!(
            "import os, pandas as pd\nframe = pd.read_parquet('/datasets/{name}.parquet')\n\
             [len(frame), len(datasets['{name}'])]"
        );
        assert_eq!(here.code(&session, &code)["result"], json!([count, count]));
    }
    let gone = bob().send("DELETE", &format!("/api/v1/datasets/{name}"), &[], &Value::Null);
    assert_eq!({ gone }.answer(false).status, 200);
    assert_eq!(query(ann(), &sql)["row_count"], 1);
    let seen = ann().code(&session, &format!("os.path.exists('/datasets/{name}.parquet')"));
    assert_eq!(seen["result"], true, "{seen}");
}

#[test]
fn a_live_session_gets_its_callers_first_dataset() {
    let server = Server::start(&[]);
    let here = client(&server);
    let before = here.code("live", "import os\nx = 41\nos.listdir('/datasets')");
    assert_eq!(before["result"], json!([]), "{before}");
    put(here, "live", "sales.csv", SALES);
    load(here, "live", "sales.csv", "sales");
    let code = "[x, os.listdir('/datasets'), float(datasets['sales'].amount.sum())]";
    let after = here.code("live", code);
    assert_eq!(after["result"], json!([41, ["sales.parquet"], 42.0]), "{after}");
    assert!(after.get("session_restarted").is_none(), "{after}");
    let magic = "%%sql top <<\nSELECT region, sum(amount) AS s FROM sales GROUP BY 1 ORDER BY s DESC LIMIT 1";
    let ran = here.code("live", magic);
    assert_eq!(ran["success"], true, "{ran}");
    assert_eq!(here.code("live", "top.region[0]")["result"], "south");
    // A stateless run sees them too; no run can change them.
    let once = json!({ "code": "import os\nos.listdir('/datasets')", "stateless": true });
    assert_eq!(server.run(&once)["result"], json!(["sales.parquet"]));
    let write = here.code("live", "open('/datasets/sales.parquet', 'w')");
    assert_eq!(write["success"], false, "{write}");
    // The next version and a drop are seen at once.
    put(here, "live", "sales.csv", "id,amount\n9,1\n");
    assert_eq!(load(here, "live", "sales.csv", "SALES")["replaced"], true);
    let names = here.code("live", "[os.listdir('/datasets'), len(datasets['SALES'])]");
    assert_eq!(names["result"], json!([["SALES.parquet"], 1]), "{names}");
    assert_eq!(server.request("DELETE", "/api/v1/datasets/sales", &[], b"").status, 200);
    assert_eq!(here.code("live", "os.listdir('/datasets')")["result"], json!([]));
}

#[test]
fn code_registers_datasets() {
    let (session, name) = (unique("register"), unique("register").replace('-', "_"));
    let code = format!(
        "import pandas as pd\ndatasets.register('{name}', pd.DataFrame({{'a': [1, 2, 3]}}))"
    );
    let registered = ann().call("execute_code", &json!({ "code": code, "session_id": session }));
    let said = registered.to_string();
    assert!(said.contains(&format!("the dataset `{name}` is registered: 3 rows")), "{said}");
    assert_eq!(
        query(ann(), &format!("SELECT sum(a) AS s FROM {name}"))["data"],
        json!([{ "s": 6 }])
    );
    let seen = format!(
        "import os\n[len(datasets['{name}']), os.path.exists('.woma/datasets/{name}.json')]"
    );
    assert_eq!(ann().code(&session, &seen)["result"], json!([3, false]));
    // What is not Parquet is refused, and removed.
    let bad = "import os\nos.makedirs('.woma/datasets', exist_ok=True)\n\
               for name, text in [('bad.parquet', 'no'), ('bad.json', '{\"rows\": 1}'), \
               ('a b.json', '{}'), ('link.json', '{}')]:\n    open('.woma/datasets/' + name, 'w').write(text)\n\
               os.symlink('/etc/passwd', '.woma/datasets/link.parquet')";
    let refused = ann().call("execute_code", &json!({ "code": bad, "session_id": session }));
    let said = refused.to_string();
    for expected in ["`bad` was not registered: its file is not Parquet", "`a b`", "`link` was not"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let listed = ann().get("/api/v1/datasets").text().to_owned();
    assert!(!listed.contains("\"bad\"") && !listed.contains("\"link\""), "{listed}");
}

#[test]
fn a_run_registers_sixteen_datasets_and_the_next_one_the_rest() {
    let (session, prefix) = (unique("many"), unique("many").replace('-', "_"));
    let registered = |code: &str| {
        let reply = ann().call("execute_code", &json!({ "code": code, "session_id": session }));
        text(&reply).matches("is registered").count()
    };
    let code = format!(
        "import pandas as pd\nfor i in range(17): datasets.register(f'{prefix}_{{i}}', \
         pd.DataFrame({{'a': [i]}}))"
    );
    assert_eq!(registered(&code), 16);
    assert_eq!(registered("1"), 1);
    let all = format!("SELECT sum(a) AS s FROM ({})", {
        let tables = (0..17).map(|number| format!("SELECT a FROM {prefix}_{number}"));
        tables.collect::<Vec<_>>().join(" UNION ALL ")
    });
    assert_eq!(query(ann(), &all)["data"], json!([{ "s": 136 }]));
}

#[test]
fn a_caller_has_a_thousand_datasets_at_most() {
    let home = Home::new();
    let server = home.start(&[]);
    let here = client(&server);
    put(here, "s", "a.csv", "a\n1\n2\n");
    load(here, "s", "a.csv", "first");
    // Rows like the first one, as many as leave room for one more.
    let database = rusqlite::Connection::open(home.path().join("woma.db")).unwrap();
    let names = "SELECT name FROM pragma_table_info('datasets')";
    let mut names = database.prepare(names).unwrap();
    let names: Vec<String> =
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let values = names.iter().map(|name| match name.as_str() {
        "id" => "lower(hex(randomblob(16)))".to_owned(),
        "name" | "name_key" => "'copy_' || number".to_owned(),
        other => other.to_owned(),
    });
    let copies = format!(
        "WITH RECURSIVE numbers(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers \
         WHERE number < 998) INSERT INTO datasets ({}) SELECT {} FROM datasets, numbers",
        names.join(", "),
        values.collect::<Vec<_>>().join(", ")
    );
    assert_eq!(database.execute(&copies, []).unwrap(), 998);
    let tried = std::thread::scope(|scope| {
        let load = |name: &'static str| {
            scope.spawn(move || {
                let body = json!({ "file_path": "a.csv", "dataset_name": name, "session_id": "s" });
                here.post("/api/v1/datasets", &body)
            })
        };
        [load("one"), load("two")].map(|thread| thread.join().unwrap())
    });
    let mut statuses = [tried[0].status, tried[1].status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 429], "{} {}", tried[0].text(), tried[1].text());
    let refused = tried.iter().find(|answer| answer.status == 429).unwrap().text();
    assert!(refused.contains("a caller may have 1000 datasets"), "{refused}");
    // A dataset that is there can be replaced.
    load(here, "s", "a.csv", "first");
}

#[test]
fn the_query_cell_is_hidden_counted_and_given_up() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "2")]);
    let here = client(&server);
    put(here, "s", "a.csv", "a\n1\n2\n");
    load(here, "s", "a.csv", "a");
    assert_eq!(query(here, "SELECT sum(a) AS s FROM a")["data"], json!([{ "s": 3 }]));
    let sessions = server.get("/api/v1/sessions").json();
    let names: Vec<_> = sessions["sessions"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["s"], "{sessions}");
    // Two sessions need both kernels: the query cell gives way, and comes back.
    assert_eq!(here.code("s", "x = 1")["success"], true);
    assert_eq!(here.code("t", "y = 2")["success"], true);
    assert_eq!(here.code("s", "x")["result"], 1);
    assert_eq!(query(here, "SELECT max(a) AS s FROM a")["data"], json!([{ "s": 2 }]));
}

#[test]
fn a_query_ends_at_its_limit_or_with_its_client() {
    let endless =
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";
    let body = json!({ "sql": endless, "timeout": 1 });
    let stopped = ann().post("/api/v1/queries", &body);
    assert!(stopped.refused(504).contains("stopped after 1 s"), "{}", stopped.text());
    let server = Server::start(&[]);
    let running = || {
        let metrics = server.get("/metrics").text().to_owned();
        let line =
            metrics.lines().find(|line| line.starts_with("woma_running ")).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{metrics}"))
    };
    let left = client(&server).send("POST", "/api/v1/queries", &[], &json!({ "sql": endless }));
    until("the query runs", || running() > 0.0);
    drop(left);
    until("the query has ended", || running() == 0.0);
    // The cell can be used again.
    let sum = client(&server).post("/api/v1/queries", &json!({ "sql": "SELECT 1 + 1 AS two" }));
    assert_eq!(sum.json()["data"], json!([{ "two": 2 }]));
}
