//! The corpus in `tests/programs`: programs as models write them, each with what a model must see.
//! They run through MCP over HTTP, several at a time, and every failure is listed at the end.
//!
//! A program is a Python file. Its head are comment lines `# key: value`, which end at the first
//! empty line; the code is all that follows, byte by byte, for some of it is damaged on purpose.
//!
//! | key | meaning |
//! |---|---|
//! | `program` | required: what it does |
//! | `sees` | a text that the reply must have; ` … ` separates parts that must follow each other |
//! | `not` | a text that the reply must not have |
//! | `at most` | characters of the reply's text |
//! | `outcome` | `completed` if not given; several joined by ` or ` |
//! | `pictures` | number of images in the reply |
//! | `files` | files that the reply must link, joined by commas; each is downloaded |
//! | `timeout`, `memory` | arguments of the call |
//! | `session` | `continues NAME`: runs after that program, in its session |
//! | `habit` | rows of the table of habits in docs/COMPATIBILITY.md |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs, iter, thread};

use serde_json::{Value, json};

use crate::client::{Client, client, message, request};
use crate::harness::{Server, unique};

/// Programs that run at the same time.
const AT_ONCE: usize = 4;
/// Programs that the corpus has at least.
const PROGRAMS_MIN: usize = 100;
/// Time limit of a call, in seconds, if its head does not set one: a busy machine is slow.
const TIMEOUT: f64 = 300.0;
/// Longest wait for a reply.
const PATIENCE: Duration = Duration::from_secs(900);
/// Text that no reply may show: our own files, escapes of terminals, carriage returns.
const NEVER: [&str; 4] = ["_woma_kernel", "zygote.py", "\u{1b}[", "\r"];
const KEYS: [&str; 11] = [
    "program", "sees", "not", "at most", "outcome", "pictures", "files", "timeout", "memory",
    "session", "habit",
];

struct Program {
    name: String,
    head: Vec<(String, String)>,
    code: String,
}

impl Program {
    fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(path).unwrap();
        let (head, code) = text.split_once("\n\n").unwrap();
        let entry = |line: &str| {
            let (key, value) = line.strip_prefix("# ").unwrap().split_once(": ").unwrap();
            assert!(KEYS.contains(&key), "{name}: unknown key {key}");
            (key.to_owned(), value.to_owned())
        };
        let head = head.lines().map(entry).collect();
        Self { name, head, code: code.to_owned() }
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let of_key = self.head.iter().filter(move |(name, _)| name == key);
        of_key.map(|(_, value)| value.as_str())
    }

    fn first<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.all(key).next()
    }

    fn number(&self, key: &str) -> Option<usize> {
        self.first(key).map(|value| value.parse().unwrap())
    }

    fn continues(&self) -> Option<&str> {
        self.first("session").map(|value| value.strip_prefix("continues ").unwrap())
    }

    fn arguments(&self, session: &str) -> Value {
        let timeout = self.first("timeout").map_or(TIMEOUT, |value| value.parse().unwrap());
        let mut arguments = json!({ "code": self.code, "session_id": session, "timeout": timeout });
        if let Some(memory) = self.first("memory") {
            arguments["memory_limit"] = json!(memory);
        }
        arguments
    }

    /// Faults of the result of the call.
    fn faults(&self, client: Client<'_>, result: &Value) -> Vec<String> {
        let text = texts(result);
        let mut faults = Vec::new();
        faults.extend(
            self.all("sees")
                .filter(|part| !has(&text, part))
                .map(|part| format!("does not see: {part}")),
        );
        let banned = self.all("not").chain(NEVER).filter(|part| text.contains(part));
        faults.extend(banned.map(|part| format!("sees: {part:?}")));
        let outcome = result["structuredContent"]["outcome"].as_str().unwrap_or("completed");
        let expected = self.first("outcome").unwrap_or("completed");
        if !expected.split(" or ").any(|one| one == outcome) {
            faults.push(format!("ended {outcome}, expected {expected}"));
        }
        let length = text.chars().count();
        if self.number("at most").is_some_and(|most| length > most) {
            faults.push(format!("the text has {length} characters"));
        }
        let blocks = result["content"].as_array().into_iter().flatten();
        let pictures = blocks.filter(|block| block["type"] == "image").count();
        if self.number("pictures").is_some_and(|expected| expected != pictures) {
            faults.push(format!("{pictures} pictures"));
        }
        let files = self.first("files").into_iter().flat_map(|names| names.split(", "));
        faults.extend(
            files
                .filter(|name| !is_linked(client, &text, name))
                .map(|name| format!("no download of {name}")),
        );
        faults
    }
}

/// All text blocks of a result.
fn texts(result: &Value) -> String {
    let blocks = result["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Tells whether the parts of `expected` occur in this order.
fn has(text: &str, expected: &str) -> bool {
    let mut rest = text;
    expected.split(" … ").all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Tells whether the text links the file and the link leads to its content.
fn is_linked(client: Client<'_>, text: &str, name: &str) -> bool {
    let line = text.lines().find(|line| line.starts_with(&format!("File: {name} (")));
    let path = line.and_then(|line| line.find("/dl/").map(|start| &line[start..]));
    path.is_some_and(|path| {
        let answer = client.get(path.trim());
        answer.status == 200 && !answer.body.is_empty()
    })
}

fn corpus() -> Vec<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| Program::read(path)).collect()
}

/// Programs of one session each, in their order.
fn chains(corpus: &[Program]) -> Vec<Vec<&Program>> {
    let mut followers: BTreeMap<&str, &Program> = BTreeMap::new();
    for program in corpus {
        if let Some(name) = program.continues() {
            assert!(corpus.iter().any(|one| one.name == name), "no program {name}");
            assert!(followers.insert(name, program).is_none(), "{name} is continued twice");
        }
    }
    let heads = corpus.iter().filter(|program| program.continues().is_none());
    let follow = |program: &&Program| followers.get(program.name.as_str()).copied();
    heads.map(|head| iter::successors(Some(head), follow).collect()).collect()
}

/// Calls a tool over streamable HTTP, within a session of the protocol.
fn call(client: Client<'_>, session: &str, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let mut connection = client.legacy(session, &request(2, "tools/call", &params));
    connection.patience(PATIENCE);
    let answer = connection.answer(false);
    assert_eq!(answer.status, 200, "{}", answer.text());
    message(&answer)["result"].take()
}

/// Failures of one chain, with what was seen.
fn run(client: Client<'_>, protocol_session: &str, chain: &[&Program]) -> Vec<String> {
    let (mut failures, session) = (Vec::new(), unique("s"));
    for program in chain {
        let result = call(client, protocol_session, "execute_code", &program.arguments(&session));
        let faults = program.faults(client, &result);
        if !faults.is_empty() {
            let seen: String = texts(&result).chars().take(3_000).collect();
            failures.push(format!("== {}\n{}\n-- seen:\n{seen}", program.name, faults.join("\n")));
        }
    }
    call(client, protocol_session, "delete_session", &json!({ "session_id": session }));
    failures
}

#[test]
fn programs_of_models_show_what_they_must() {
    let server = Server::start_with(&[], &[("MAX_KERNELS", "12")]);
    let client = client(&server);
    let corpus = corpus();
    assert!(corpus.len() >= PROGRAMS_MIN, "only {} programs", corpus.len());
    let beginning = env::var_os("WOMA_TEST_PROGRAMS").unwrap_or_default();
    let beginning = beginning.to_str().unwrap();
    let mut chains = chains(&corpus);
    chains.retain(|chain| chain[0].name.starts_with(beginning));
    assert!(!chains.is_empty(), "no program's name begins with {beginning}");
    let (waiting, failures) = (Mutex::new(chains), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let protocol_session = client.open("2025-06-18");
                while let Some(chain) = { waiting.lock().unwrap().pop() } {
                    let failed = run(client, &protocol_session, &chain);
                    failures.lock().unwrap().extend(failed);
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    let count = failures.len();
    assert!(failures.is_empty(), "{count} programs failed\n{}", failures.join("\n\n"));
}

/// Every row of the table of habits exists once, and the programs that it names exist.
#[test]
fn the_table_of_habits_names_programs_that_exist() {
    const HABITS: usize = 60;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMPATIBILITY.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("# Habits of code written by models").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert_eq!(rows.len(), HABITS);
    let corpus = corpus();
    for (index, row) in rows.iter().enumerate() {
        let number = (index + 1).to_string();
        assert!(row.starts_with(&format!("| {number} |")), "{row}");
        let of_row = |program: &&Program| {
            program.first("habit").is_some_and(|rows| rows.split(", ").any(|one| one == number))
        };
        for program in corpus.iter().filter(of_row) {
            let is_named = row.contains(&format!("`{}`", program.name));
            assert!(is_named, "row {number} does not name `{}`: {row}", program.name);
        }
        let Some((_, named)) = row.split_once("programs: ") else { continue };
        for name in named.split('`').skip(1).step_by(2) {
            assert!(corpus.iter().any(|program| program.name == name), "{row}: {name}");
        }
    }
}
