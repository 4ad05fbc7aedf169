//! Markdown around the code.

use super::Repaired;
use crate::syntax::{Python, parses};

/// Most blocks that are examined; a text with more is not a program.
const BLOCKS_MAX: usize = 50;

/// Content of the only fence that contains Python.
pub(super) fn unwrap(source: &str, python: Python) -> Option<Repaired> {
    if let Some(code) = in_backticks(source) {
        return Some(Repaired::new(
            code.to_owned(),
            "fence",
            "The backticks around the code were left out.",
        ));
    }
    let blocks = blocks(source)?;
    if let [block] = blocks.as_slice()
        && !block.is_closed
        && block.content.trim().is_empty()
    {
        let text = source.get(..block.start)?.to_owned();
        return Some(Repaired::new(
            text,
            "fence",
            "The markdown fence after the code was left out.",
        ));
    }
    let candidates = python_blocks(&blocks, python);
    let [block] = candidates.as_slice() else {
        return None;
    };
    let content = match parses(block.content, python) {
        true => block.content,
        // Code that writes markdown has fences of its own.
        false => {
            outermost(source, block).filter(|text| parses(text, python)).unwrap_or(block.content)
        }
    };
    let content = without_stray_fence(content);
    let mut sentence = "The code came in a markdown fence; what is inside it was run.".to_owned();
    if blocks.len() > 1 && content.len() == block.content.len() {
        sentence.push_str(" Other blocks of the text, which are no Python, were left out.");
    }
    sentence.push_str(" Line numbers count from the first line inside the fence.");
    Some(Repaired::new(content.to_owned(), "fence", sentence))
}

/// Number of fenced blocks of Python.
pub(super) fn count(source: &str, python: Python) -> usize {
    blocks(source).map_or(0, |blocks| python_blocks(&blocks, python).len())
}

#[derive(Debug)]
struct Block<'a> {
    /// Start of the line with the opening fence.
    start: usize,
    language: String,
    content: &'a str,
    is_closed: bool,
}

/// All blocks of a text; `None` if there are none or too many.
fn blocks(source: &str) -> Option<Vec<Block<'_>>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut open: Option<(usize, usize, Fence<'_>)> = None;
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let (start, end) = (at, at + line.len());
        at = end;
        let Some(fence) = fence(line) else { continue };
        match &open {
            None => open = Some((start, end, fence)),
            Some((begin, from, opening)) if fence.closes(opening) => {
                let (language, content) = (opening.language(), source.get(*from..start)?);
                blocks.push(Block { start: *begin, language, content, is_closed: true });
                open = None;
            }
            Some(_) => {}
        }
        if blocks.len() > BLOCKS_MAX {
            return None;
        }
    }
    if let Some((start, from, opening)) = open {
        let (language, content) = (opening.language(), source.get(from..)?);
        blocks.push(Block { start, language, content, is_closed: false });
    }
    (!blocks.is_empty()).then_some(blocks)
}

struct Fence<'a> {
    sign: char,
    length: usize,
    info: &'a str,
}

fn fence(line: &str) -> Option<Fence<'_>> {
    let line = line.trim();
    let sign = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = line.trim_start_matches(sign);
    let length = line.len() - info.len();
    (length >= 3 && !info.contains('`')).then_some(Fence { sign, length, info: info.trim() })
}

impl Fence<'_> {
    fn closes(&self, opening: &Fence<'_>) -> bool {
        self.sign == opening.sign && self.length >= opening.length && self.info.is_empty()
    }

    /// `python` of `python title="a.py"`, `{python}` and `Python3`.
    fn language(&self) -> String {
        let word = self.info.trim_start_matches(['{', '.']);
        let end = word.find([' ', '}', ',', '{', ':', '\t']).unwrap_or(word.len());
        word[..end].to_ascii_lowercase()
    }
}

/// Blocks labelled as Python; without any, the unlabelled ones.
fn python_blocks<'b, 'a>(blocks: &'b [Block<'a>], python: Python) -> Vec<&'b Block<'a>> {
    let is_named = |block: &&Block<'_>| is_python(&block.language);
    let is_nameless = |block: &&Block<'_>| block.language.is_empty();
    let named = blocks.iter().any(|block| is_named(&block));
    let is_candidate = |block: &&Block<'_>| match named {
        true => is_named(block) || (is_nameless(block) && is_program(block.content, python)),
        false => is_nameless(block),
    };
    blocks.iter().filter(is_candidate).collect()
}

fn is_python(language: &str) -> bool {
    let base = language.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        base,
        "python" | "py" | "ipython" | "pycon" | "python-repl" | "pyodide" | "tool_code" | "jupyter"
    )
}

/// Whether an unlabelled block is a program rather than its output.
fn is_program(content: &str, python: Python) -> bool {
    let is_statement = |line: &str| {
        ["import ", "from ", "def ", "class ", "for ", "print("].iter().any(|w| line.starts_with(w))
            || line.contains(" = ")
    };
    content.lines().any(is_statement) && parses(content, python)
}

/// Text from the opening fence of a block to the last fence.
fn outermost<'a>(source: &'a str, block: &Block<'_>) -> Option<&'a str> {
    let rest = source.get(block.start..)?;
    let from = block.start + rest.find('\n')? + 1;
    let last = rest.trim_end().rfind('\n')? + 1 + block.start;
    fence(source.get(last..)?).filter(|fence| fence.info.is_empty())?;
    source.get(from..last)
}

/// Removes a closing fence at the end of the last line of code.
fn without_stray_fence(content: &str) -> &str {
    content.trim_end().strip_suffix("```").unwrap_or(content)
}

/// Code in one line: `` `x` `` and ```` ```python x``` ````.
fn in_backticks(source: &str) -> Option<&str> {
    let text = source.trim();
    if text.contains('\n') {
        return None;
    }
    for ticks in ["```", "``", "`"] {
        let Some(inner) = text.strip_prefix(ticks).and_then(|rest| rest.strip_suffix(ticks)) else {
            continue;
        };
        // An escaped line after the language: a fence in one line.
        if ticks.len() == 3 && inner.trim_start_matches(char::is_alphanumeric).starts_with("\\n") {
            return None;
        }
        let (word, rest) = inner.split_once(' ').unwrap_or(("", inner));
        let code = if ticks.len() == 3 && is_python(word) { rest } else { inner };
        return (!code.contains('`')).then(|| code.trim());
    }
    None
}
