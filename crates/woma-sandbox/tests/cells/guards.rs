//! Runs under a guard: refusals are reported with subject and line, and the next run without a
//! guard is not restricted.

use std::collections::BTreeMap;
use std::sync::Arc;

use libtest_mimic::Trial;
use woma_sandbox::protocol::Note;
use woma_sandbox::{Cell, Event, Guard, Limits, Outcome, Run, State};

use crate::harness::{RunResult, run_with};
use crate::{complete, describe, open, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a guard refuses an import and tells it", imports),
        trial("a guard refuses builtins attributes and commands", refusals),
        trial("a guard that annotates lets the program go on", annotated),
        trial("a guard brings names that need no import", names),
        trial("a guard holds for its run only", one_run),
        trial("a guard does not hinder the libraries", libraries),
        trial("a guard does not flood its caller with notes", notes_are_few),
    ]
}

fn guard() -> Guard {
    let texts = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    Guard {
        imports: vec![texts(&["json", "datetime", "os.path", "pandas", "matplotlib", "pathlib"])],
        builtins: texts(&["eval", "exec", "open"]),
        attributes: texts(&["__subclasses__"]),
        commands: false,
        annotate: false,
        names: BTreeMap::new(),
    }
}

async fn under(cell: &mut Cell, guard: &Guard, source: &str) -> RunResult {
    run_with(cell, &Run { guard: Some(Arc::new(guard.clone())), ..Run::new(source) }).await
}

fn notes(result: &RunResult) -> Vec<&Note> {
    let events = result.events.iter();
    events
        .filter_map(|event| if let Event::Note(note) = event { Some(note) } else { None })
        .collect()
}

async fn imports() {
    let mut cell = open(Limits::default()).await;
    let source = "import json, os.path\nprint(json.dumps(os.path.join('a', 'b')))\nimport socket";
    let result = under(&mut cell, &guard(), source).await;
    assert_eq!((&result.exit.outcome, result.exit.state), (&Outcome::Raised, State::Preserved));
    assert_eq!(result.stdout, "\"a/b\"\n");
    let text = "[sandbox] BLOCKED: import socket (not in allowed list)";
    let error = result.exit.done.as_ref().and_then(|done| done.error.as_ref()).unwrap();
    let line = error.line;
    assert_eq!((&*error.name, &*error.message, line), ("ImportError", text, Some(3)));
    let told = Note {
        code: "blocked_import".to_owned(),
        text: text.to_owned(),
        subject: Some("socket".to_owned()),
        line: Some(3),
    };
    assert_eq!(notes(&result), [&told], "{}", describe(&result));
}

async fn refusals() {
    let mut cell = open(Limits::default()).await;
    for (source, code, subject) in [
        ("eval('1')", "blocked_builtin", "eval"),
        ("open('x', 'w')", "blocked_builtin", "open"),
        ("getattr(int, '__subclasses__')", "blocked_attribute", "__subclasses__"),
        ("import os.path\nos.system('id')", "blocked_attribute", "os.system"),
        ("!id", "blocked_command", "!id"),
        ("%%bash\nid", "blocked_command", "%%bash"),
    ] {
        let result = under(&mut cell, &guard(), source).await;
        assert_eq!(result.exit.outcome, Outcome::Raised, "{source}: {}", describe(&result));
        let told: Vec<_> =
            notes(&result).iter().map(|note| (&*note.code, note.subject.as_deref())).collect();
        assert_eq!(told, [(code, Some(subject))], "{source}");
    }
}

async fn annotated() {
    let mut cell = open(Limits::default()).await;
    let annotating = Guard { annotate: true, ..guard() };
    let source = "import socket\nfrom socket import gethostname\nprint('on')\n";
    let result = under(&mut cell, &annotating, source).await;
    assert_eq!((&result.exit.outcome, &*result.stdout), (&Outcome::Completed, "on\n"));
    assert_eq!(notes(&result).len(), 2);
    let texts: Vec<String> = notes(&result).iter().map(|n| format!("# {}\n", n.text)).collect();
    assert_eq!(result.stderr, texts.concat());
    let result = under(&mut cell, &annotating, "gethostname()").await;
    assert_eq!(result.exit.outcome, Outcome::Raised, "{}", describe(&result));
}

async fn names() {
    let mut cell = open(Limits::default()).await;
    let pairs = [("pd", "pandas"), ("Path", "pathlib:Path"), ("here", "@cwd"), ("os", "os")];
    let names = pairs.map(|(name, target)| (name.to_owned(), target.to_owned())).into();
    let named = Guard { names, ..guard() };
    let source = "x = pd.Series([1, 2]).sum()\nprint(x, Path(here).is_dir())";
    let result = under(&mut cell, &named, source).await;
    assert_eq!(result.stdout, "3 True\n", "{}", describe(&result));
    let variables = result.exit.done.as_ref().unwrap().variables.iter().map(|v| &*v.name);
    assert_eq!(variables.collect::<Vec<_>>(), ["x"]);
    let result = under(&mut cell, &named, "os").await;
    let error = result.exit.done.as_ref().and_then(|done| done.error.as_ref()).unwrap();
    assert_eq!(error.name, "NameError");
}

async fn one_run() {
    let mut cell = open(Limits::default()).await;
    under(&mut cell, &guard(), "def f():\n    import socket\n    return eval('1')").await;
    assert_eq!(under(&mut cell, &guard(), "f()").await.exit.outcome, Outcome::Raised);
    let result = complete(&mut cell, "print(f())\n!echo free").await;
    assert_eq!((&*result.stdout, notes(&result).len()), ("1\nfree\n", 0));
    assert_eq!(under(&mut cell, &guard(), "f()").await.exit.outcome, Outcome::Raised);
}

async fn libraries() {
    let mut cell = open(Limits::default()).await;
    let source = "
import datetime
import matplotlib.pyplot as plt
import pandas as pd
frame = pd.DataFrame({'day': [datetime.datetime.strptime('2024-01-02', '%Y-%m-%d')], 'n': [1]})
frame.to_csv('a.csv')
print(pd.read_csv('a.csv', parse_dates=['day']).query('n == 1').day[0].year)
frame.plot(x='day', y='n')
plt.show()
";
    let result = under(&mut cell, &guard(), source).await;
    assert_eq!((&result.exit.outcome, &*result.stdout), (&Outcome::Completed, "2024\n"));
    assert!(notes(&result).is_empty(), "{}", describe(&result));
    assert!(result.events.iter().any(|event| matches!(event, Event::Display(_))));
}

async fn notes_are_few() {
    let mut cell = open(Limits::default()).await;
    let loops = "
for number in range(100_000):
    try: import socket
    except ImportError: pass
";
    let result = under(&mut cell, &guard(), loops).await;
    assert_eq!((&result.exit.outcome, notes(&result).len()), (&Outcome::Completed, 1));
}
