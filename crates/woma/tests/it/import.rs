//! `woma import power-interpreter`: its tables as version 1.8 has them, taken over with their links.

use std::fs;
use std::process::Output;

use serde_json::json;

use crate::auth::woma;
use crate::durability::postgres::Cluster;
use crate::durability::{Home, done};
use crate::harness::Server;

/// The tables that matter, with the columns and types of Power Interpreter.
const TABLES: &str = "
CREATE TABLE sessions (id UUID PRIMARY KEY, name VARCHAR(255) NOT NULL, description TEXT,
    created_at TIMESTAMP, updated_at TIMESTAMP, is_active BOOLEAN, metadata JSONB);
CREATE TABLE sandbox_files (id UUID PRIMARY KEY, session_id VARCHAR(255) NOT NULL,
    filename VARCHAR(500) NOT NULL, mime_type VARCHAR(200), file_size BIGINT, checksum VARCHAR(64),
    content BYTEA NOT NULL, created_at TIMESTAMP, expires_at TIMESTAMP, download_count INTEGER);
CREATE TABLE jobs (id UUID PRIMARY KEY, code TEXT NOT NULL);
INSERT INTO sessions VALUES
    ('11111111-1111-4111-8111-111111111111', 'Sales', 'of June', '2026-01-02 03:04:05',
     '2026-01-03 03:04:05', TRUE, '{}'),
    ('22222222-2222-4222-8222-222222222222', 'ended', '', now(), now(), FALSE, '{}');
INSERT INTO jobs VALUES ('33333333-3333-4333-8333-333333333333', 'print(1)');
";

/// Rows of `sandbox_files`: id, session, name, content, checksum, expiry.
const FILES: &str = "
INSERT INTO sandbox_files SELECT id::uuid, session, name, 'text/csv', length(content), checksum,
    content::bytea, now() AT TIME ZONE 'UTC', now() AT TIME ZONE 'UTC' + expiry::interval, 7
FROM (VALUES
    ('a0000000-0000-4000-8000-000000000001', 'default', 'report.csv', 'a,b',
     encode(sha256('a,b'), 'hex'), '1 day'),
    ('a0000000-0000-4000-8000-000000000002', 'default', 'old.csv', 'old', NULL, '-1 day'),
    ('a0000000-0000-4000-8000-000000000003', '11111111-1111-4111-8111-111111111111', 'June 1.csv',
     'june', NULL, NULL),
    ('a0000000-0000-4000-8000-000000000004', 'not a name/here', 'loose.csv', 'loose', NULL, NULL),
    ('a0000000-0000-4000-8000-000000000005', 'default', 'bad.csv', 'bad', repeat('0', 64), NULL)
) AS row (id, session, name, content, checksum, expiry);
";

struct World {
    cluster: Cluster,
    theirs: String,
}

impl World {
    fn new(sql: &[&str]) -> Self {
        let cluster = Cluster::start_trusting();
        let theirs = cluster.fresh();
        for sql in sql {
            cluster.sql(&theirs, sql).unwrap();
        }
        Self { cluster, theirs }
    }

    fn import(&self, home: &Home, more: &[&str], variables: &[(&str, &str)]) -> Output {
        let from = self.cluster.url(&self.theirs);
        let arguments = ["import", "power-interpreter", "--from", &from];
        woma(home.path(), &[&arguments, more].concat(), variables)
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Everything that was taken over is served, with its old addresses.
fn is_served(server: &Server, has_folder: bool) {
    let link = |number: u32, name: &str| {
        server.get(&format!("/dl/a0000000-0000-4000-8000-00000000000{number}/{name}"))
    };
    let report = link(1, "report.csv");
    assert_eq!((report.status, report.text()), (200, "a,b"));
    assert!(report.get("content-type").is_some_and(|kind| kind.starts_with("text/csv")));
    link(2, "old.csv").refused(404);
    assert_eq!(link(3, "June%201.csv").text(), "june");
    assert_eq!(link(4, "loose.csv").text(), "loose");
    link(5, "bad.csv").refused(404);
    // A's links without a name work too.
    assert_eq!(server.get("/dl/a0000000-0000-4000-8000-000000000001").text(), "a,b");
    let sessions = server.get("/api/v1/sessions").json();
    let sales = &sessions["sessions"]["11111111-1111-4111-8111-111111111111"];
    assert_eq!((&sales["name"], &sales["description"]), (&json!("Sales"), &json!("of June")));
    assert!(sales["created_at"].as_str().is_some_and(|at| at.starts_with("2026-01-02T03:04:05")));
    let ended = &sessions["sessions"]["22222222-2222-4222-8222-222222222222"];
    assert!(ended.is_null(), "{sessions}");
    let reply = done(server, "default", "import os\nsorted(os.listdir())");
    let expected =
        if has_folder { json!(["notes.md", "report.csv"]) } else { json!(["report.csv"]) };
    assert_eq!(reply["result"], expected, "{reply}");
    let code = "open('June 1.csv').read()";
    let reply = done(server, "11111111-1111-4111-8111-111111111111", code);
    assert_eq!(reply["result"], "june", "{reply}");
}

#[test]
fn sessions_files_and_links_are_taken_over_once() {
    let (world, home, second) = (World::new(&[TABLES, FILES]), Home::new(), Home::new());
    let ours = world.cluster.fresh();
    let url = world.cluster.url(&ours);
    let variables = [("DATABASE_URL", url.as_str())];
    let tried = text(&world.import(&home, &["--dry-run"], &variables));
    assert!(tried.starts_with("would be taken over for local: 2 sessions, 4 files"), "{tried}");
    assert_eq!(
        world
            .cluster
            .sql(&ours, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            .unwrap()
            .trim(),
        "0"
    );

    let output = world.import(&home, &[], &variables);
    let (told, shown) = (text(&output), String::from_utf8_lossy(&output.stderr).into_owned());
    let expected = "taken over for local: 2 sessions, 3 files with their links (1 MB)\n\
                    1 files had expired\n\
                    1 files keep their links without a session: its name cannot be used here\n\
                    1 files were not taken over:\n  \
                    bad.csv: its content does not match its checksum\n\
                    left where they are: 1 rows of jobs\n";
    assert_eq!(told, expected);
    assert!(shown.contains("woma: 4 of 4 files"), "{shown}");
    let again = text(&world.import(&home, &[], &variables));
    assert!(again.starts_with("taken over for local: 0 sessions, 0 files"), "{again}");
    assert!(again.contains("3 files were there already"), "{again}");
    // A server elsewhere, with the same database.
    is_served(&second.start(&variables), false);
}

#[test]
fn files_of_a_folder_come_too_and_sqlite_is_enough() {
    let (world, home) = (World::new(&[TABLES, FILES]), Home::new());
    let folder = tempfile::TempDir::new_in("/var/tmp").unwrap();
    let session = folder.path().join("default");
    fs::create_dir_all(session.join("__pycache__")).unwrap();
    fs::write(session.join("notes.md"), "notes").unwrap();
    fs::write(session.join("report.csv"), "a,b").unwrap();
    fs::write(session.join("__pycache__/x.pyc"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", session.join("passwd")).unwrap();
    for path in [folder.path(), &session] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let files = ["--files", folder.path().to_str().unwrap()];
    let told = text(&world.import(&home, &files, &[]));
    assert!(told.starts_with("taken over for local: 2 sessions, 4 files"), "{told}");
    assert!(told.contains("1 files were there already"), "report.csv is in both: {told}");
    let again = text(&world.import(&home, &files, &[]));
    assert!(again.starts_with("taken over for local: 0 sessions, 0 files"), "{again}");
    is_served(&home.start(&[]), true);
}

#[test]
fn another_database_and_foreign_tables_are_told_apart() {
    let world = World::new(&[TABLES]);
    let home = Home::new();
    let refused = |world: &World, expected: &str| {
        let output = world.import(&home, &[], &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{said}");
        assert!(!home.path().join("woma.db").exists());
    };
    world.cluster.sql(&world.theirs, "ALTER TABLE sandbox_files DROP COLUMN checksum").unwrap();
    refused(&world, "the table `sandbox_files` has no column `checksum`");
    world.cluster.sql(&world.theirs, "DROP TABLE sandbox_files").unwrap();
    refused(&world, "the table `sandbox_files` is missing");

    // Woma's own tables need a schema of their own beside those of Power Interpreter.
    let url = world.cluster.url(&world.theirs);
    let output = woma(home.path(), &["serve", "--port", "0"], &[("DATABASE_URL", &url)]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("has a table `sessions` of another program"), "{said}");
    let apart = format!("{url}?options=-csearch_path%3Dwoma");
    let server = home.start(&[("DATABASE_URL", &apart)]);
    done(&server, "s", "1");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'woma' AND tablename = 'files'";
    assert_eq!(world.cluster.sql(&world.theirs, tables).unwrap().trim(), "1");
}
