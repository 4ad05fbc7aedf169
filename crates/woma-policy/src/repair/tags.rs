//! Tags of chats and tools around the code.

use super::Repaired;

/// Most tags examined at either end.
const TAGS_MAX: usize = 6;

/// Names of tags that wrap code. Others, such as HTML's, may be part of the content.
const NAMES: [&str; 27] = [
    "answer",
    "code",
    "code_interpreter",
    "execute",
    "execute_code",
    "execute_python",
    "final",
    "function",
    "function_call",
    "invoke",
    "ipython",
    "parameter",
    "pre",
    "py",
    "python",
    "python_code",
    "pythoncode",
    "run",
    "s",
    "script",
    "snippet",
    "solution",
    "source",
    "tool",
    "tool_call",
    "tool_code",
    "tool_use",
];

pub(super) fn strip(source: &str) -> Option<Repaired> {
    let mut text = source;
    for _ in 0..TAGS_MAX {
        let Some(rest) = leading(text) else { break };
        text = rest;
    }
    let start = text;
    for _ in 0..TAGS_MAX {
        let Some(rest) = trailing(text) else { break };
        text = rest;
    }
    // Only the surroundings are removed: the first line keeps its indentation.
    let text =
        if start.len() == source.len() { text } else { text.trim_start_matches(['\n', '\r']) };
    let sentence = "The tags around the code were left out.";
    (text.len() != source.len()).then(|| Repaired::new(text.to_owned(), "tags", sentence))
}

fn leading(text: &str) -> Option<&str> {
    let trimmed = text.trim_start();
    if let Some(rest) = trimmed.strip_prefix("<![CDATA[") {
        return Some(rest);
    }
    let (open, close) = if trimmed.starts_with('[') { ('[', ']') } else { ('<', '>') };
    let (tag, rest) = trimmed.strip_prefix(open)?.split_once(close)?;
    is_wrapper(tag, open).then_some(rest)
}

fn trailing(text: &str) -> Option<&str> {
    let trimmed = text.trim_end();
    if let Some(rest) = trimmed.strip_suffix("]]>") {
        return Some(rest);
    }
    let (open, close) = if trimmed.ends_with(']') { ('[', ']') } else { ('<', '>') };
    let (rest, tag) = trimmed.strip_suffix(close)?.rsplit_once(open)?;
    let is_closing = tag.starts_with('/') || tag.starts_with('|');
    (is_closing && is_wrapper(tag, open)).then_some(rest)
}

fn is_wrapper(tag: &str, open: char) -> bool {
    let tag = tag.trim_start_matches('/');
    if open == '[' {
        return matches!(tag, "PYTHON" | "CODE" | "python" | "code");
    }
    if tag.starts_with('|') && tag.ends_with('|') && tag.len() > 2 {
        return tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '|' | '_'));
    }
    let name = tag.split([' ', '=', ':']).next().unwrap_or_default();
    NAMES.contains(&name.to_ascii_lowercase().as_str())
}
