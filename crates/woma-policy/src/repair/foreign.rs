//! Texts in other languages, including natural ones.

use super::remarks::member;

/// Lines examined to tell natural language from a program.
const LINES_MAX: usize = 200;

/// Language of the whole text, if that is certain.
pub(super) fn whole(source: &str) -> Option<String> {
    let text = source.trim();
    let lower: String = text.chars().take(20).collect::<String>().to_ascii_lowercase();
    if let Some(name) = member(text) {
        return Some(format!(
            "This is JSON with the code in its member `{name}`: send the value of `{name}` as the code."
        ));
    }
    let has_code = ["{\"code\"", "{ \"code\"", "{\n  \"code\""].iter().any(|s| text.starts_with(s));
    if has_code {
        return Some(
            "This is JSON with the code in its member `code`, and it is not complete: send the code itself."
                .to_owned(),
        );
    }
    if text.starts_with(['{', '[']) && serde_json::from_str::<serde_json::Value>(text).is_ok() {
        return Some(
            "This is JSON, not Python: put it in a string and read it with `json.loads`, or write \
             `True`, `False` and `None`."
                .to_owned(),
        );
    }
    if text.starts_with("Traceback (most recent call last)") {
        return Some("This is the report of an error, not a program: send the code.".to_owned());
    }
    let markup = ["<!doctype", "<html", "<?xml", "<svg", "<div", "<head", "<body", "<p>", "<table"];
    if markup.iter().any(|start| lower.starts_with(start)) {
        return Some(
            "This is markup, not Python: put it in a string, or write it to a file from Python."
                .to_owned(),
        );
    }
    None
}

/// Python equivalent of the line.
pub(super) fn line(line: &str) -> Option<String> {
    shell(line).or_else(|| javascript(line)).or_else(|| sql(line)).or_else(|| python2(line))
}

fn shell(line: &str) -> Option<String> {
    const COMMANDS: [&str; 30] = [
        "apt", "apt-get", "brew", "cat", "cd", "chmod", "conda", "cp", "curl", "docker", "echo",
        "export", "find", "git", "grep", "head", "ls", "mkdir", "mv", "npm", "pip", "pip3",
        "python", "python3", "rm", "sudo", "tail", "touch", "unzip", "wget",
    ];
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let (command, arguments) = line.split_once(' ')?;
    let is_call = arguments.starts_with(['=', '(', '.', '[', ',', ':', '+', '*', '%']);
    (COMMANDS.contains(&command) && !is_call)
        .then(|| format!("This is a shell command; in Python code it is written `!{line}`."))
}

fn javascript(line: &str) -> Option<String> {
    for word in ["const ", "let ", "var "] {
        if let Some(rest) = line.strip_prefix(word)
            && rest.contains('=')
        {
            let python = rest.trim_end_matches(';').trim();
            let word = word.trim();
            return Some(format!("`{word}` is JavaScript; in Python it is `{python}`."));
        }
    }
    if line.starts_with("function ") && line.contains('(') {
        return Some(
            "`function` is JavaScript; in Python it is `def name(arguments):`.".to_owned(),
        );
    }
    if line.starts_with("import ") && line.contains(" from ") {
        let (names, module) = line.strip_prefix("import ")?.split_once(" from ")?;
        let module = module.trim_matches([' ', ';', '"', '\'']);
        return Some(format!("In Python it is `from {module} import {}`.", names.trim()));
    }
    line.contains("=> {")
        .then(|| "`=>` is JavaScript; in Python it is `def` or `lambda`.".to_owned())
}

fn sql(line: &str) -> Option<String> {
    let upper = line.to_ascii_uppercase();
    let is_query = (upper.starts_with("SELECT ") && upper.len() > 10)
        || ["INSERT INTO ", "CREATE TABLE ", "DROP TABLE ", "DELETE FROM ", "ALTER TABLE "]
            .iter()
            .any(|start| upper.starts_with(start));
    is_query.then(|| {
        "This is SQL, not Python: put it in a string and give it to a database, as in `duckdb.sql(\"…\")`."
            .to_owned()
    })
}

fn python2(line: &str) -> Option<String> {
    if let Some(rest) = line.strip_prefix("print ")
        && !rest.trim_start().starts_with(['(', '=', '.', ',', '+', '['])
    {
        let python = rest.trim().trim_end_matches(',');
        return Some(format!("This is Python 2; in Python 3 it is `print({python})`."));
    }
    if let Some(rest) = line.strip_prefix("exec ")
        && rest.starts_with(['"', '\''])
    {
        return Some(format!("This is Python 2; in Python 3 it is `exec({})`.", rest.trim()));
    }
    if let Some((class, name)) = line.strip_prefix("except ").and_then(|rest| rest.split_once(','))
        && !class.contains('(')
        && line.ends_with(':')
    {
        let name = name.trim().trim_end_matches(':');
        return Some(format!("In Python 3 it is `except {} as {name}:`.", class.trim()));
    }
    if let Some((class, message)) =
        line.strip_prefix("raise ").and_then(|rest| rest.split_once(','))
        && !class.contains('(')
    {
        return Some(format!("In Python 3 it is `raise {}({})`.", class.trim(), message.trim()));
    }
    None
}

/// Words that are common in sentences and rare in code.
const COMMON: [&str; 62] = [
    "about",
    "an",
    "are",
    "be",
    "below",
    "calculate",
    "can",
    "code",
    "create",
    "das",
    "der",
    "die",
    "ein",
    "eine",
    "el",
    "est",
    "first",
    "following",
    "have",
    "here",
    "here's",
    "how",
    "i'll",
    "i'm",
    "ist",
    "it",
    "la",
    "les",
    "let's",
    "los",
    "now",
    "of",
    "on",
    "our",
    "para",
    "please",
    "program",
    "que",
    "script",
    "should",
    "sie",
    "sorry",
    "sure",
    "that",
    "the",
    "then",
    "there",
    "these",
    "this",
    "to",
    "und",
    "une",
    "using",
    "want",
    "we",
    "what",
    "which",
    "will",
    "would",
    "write",
    "you",
    "your",
];

/// Words that start a line of Python as well as a sentence.
const OPENERS: [&str; 14] = [
    "if", "for", "while", "with", "from", "import", "return", "not", "print", "assert", "del",
    "class", "try", "is",
];

/// Whether a line is a sentence.
pub(super) fn is_prose(line: &str) -> bool {
    let line =
        line.trim_start_matches(|c: char| "-*>#•".contains(c) || c.is_ascii_digit() || c == ' ');
    if line.contains(" = ") || line.contains("==") || line.contains("();") {
        return false;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let plain = words.iter().filter(|word| is_word(word)).count();
    let common = words.iter().filter(|word| COMMON.contains(&bare(word).as_str())).count();
    let wanted = match words.first() {
        Some(first) if OPENERS.contains(first) => 2,
        _ => 1,
    };
    let is_latin = words.len() >= 3 && plain * 4 >= words.len() * 3 && common >= wanted;
    let foreign = line.chars().filter(|c| !c.is_ascii() && c.is_alphabetic()).count();
    let is_foreign = foreign >= 6 && !line.contains(['=', '(', '"', '\'']);
    // `Hello world`: two words, and no statement begins with a capital letter.
    let is_capital = line.starts_with(char::is_uppercase) && words.len() >= 2;
    is_latin || is_foreign || (is_capital && plain == words.len())
}

/// Whether at least half of the lines are sentences, or the only line is made of words.
pub(super) fn is_mostly_prose(source: &str) -> bool {
    let lines: Vec<&str> =
        source.lines().map(str::trim).filter(|line| !line.is_empty()).take(LINES_MAX).collect();
    let prose = lines.iter().filter(|line| is_prose(line)).count();
    prose * 2 >= lines.len()
}

fn bare(word: &str) -> String {
    word.trim_matches(|c: char| ".,:;!?\"()*_`".contains(c)).replace('’', "'").to_lowercase()
}

fn is_word(word: &str) -> bool {
    let word = bare(word);
    !word.is_empty() && word.chars().all(|c| c.is_alphabetic() || matches!(c, '\'' | '-'))
}
