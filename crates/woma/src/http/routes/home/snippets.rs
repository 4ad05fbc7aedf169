//! Configurations of clients for this server: its own address, and a place for the key if it needs one.

use serde_json::{Value, json};

use crate::http::layers::browser::PageFacts;

/// Stands for the key. The page puts the key that is typed there into its place.
const KEY: &str = "YOUR_KEY";

#[derive(Debug)]
pub(super) struct Snippet {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// Place of the text, such as a file of the client.
    pub(super) place: &'static str,
    pub(super) text: String,
}

/// Snippets in the order of the page.
pub(super) fn of(facts: &PageFacts) -> Vec<Snippet> {
    let base = &*facts.base_url;
    let mcp = format!("{base}/mcp");
    let bearer = facts.needs_key.then(|| format!("Bearer {KEY}"));
    let with_key = |mut server: Value| {
        if let Some(bearer) = &bearer {
            server["headers"] = json!({ "Authorization": bearer });
        }
        server
    };
    let servers = |server: Value| pretty(&json!({ "mcpServers": { "woma": server } }));
    let header = bearer.as_ref().map(|bearer| quoted(&format!("Authorization: {bearer}")));
    let option = |name: &str| match &header {
        Some(text) => format!(" {name} {text}"),
        None => String::new(),
    };
    let row = |id, title, place, text| Snippet { id, title, place, text };
    vec![
        row(
            "claude-code",
            "Claude Code",
            "In a shell:",
            format!("claude mcp add --transport http woma {}{}", quoted(&mcp), option("--header")),
        ),
        row("cursor", "Cursor", "~/.cursor/mcp.json:", servers(with_key(json!({ "url": mcp })))),
        row(
            "vscode",
            "VS Code",
            ".vscode/mcp.json:",
            pretty(
                &json!({ "servers": { "woma": with_key(json!({ "type": "http", "url": mcp })) } }),
            ),
        ),
        row(
            "gemini",
            "Gemini CLI",
            "~/.gemini/settings.json:",
            servers(with_key(json!({ "httpUrl": mcp }))),
        ),
        row(
            "sse",
            "Older clients (HTTP+SSE), mcpo",
            "In the client's configuration:",
            servers(with_key(json!({ "type": "sse", "url": format!("{base}/sse") }))),
        ),
        row(
            "stdio",
            "Claude Desktop, and every client that starts its server",
            "A server of your own on your machine, where the program woma is installed; it needs no key:",
            servers(json!({ "command": "woma", "args": ["stdio"] })),
        ),
        row(
            "curl",
            "curl",
            "In a shell, without MCP:",
            format!(
                "curl {}{} -H 'Content-Type: application/json' -d '{{\"code\": \"print(6 * 7)\"}}'",
                quoted(&format!("{base}/api/v1/executions")),
                option("-H"),
            ),
        ),
    ]
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A word of a shell. Plain words stay as they are.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:/[]@%+,".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) && !text.contains('[') {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{KEY, PageFacts, of, quoted};

    #[test]
    fn name_the_key_only_where_one_is_needed() {
        for needs_key in [true, false] {
            let base_url = "https://woma.example/x".to_owned();
            let snippets = of(&PageFacts { base_url, needs_key, issuer: None });
            for snippet in &snippets {
                let is_own = snippet.id == "stdio";
                assert_eq!(snippet.text.contains(KEY), needs_key && !is_own, "{snippet:?}");
                assert_eq!(
                    snippet.text.contains("https://woma.example/x/"),
                    !is_own,
                    "{snippet:?}"
                );
                if snippet.text.starts_with('{') {
                    serde_json::from_str::<Value>(&snippet.text).unwrap();
                }
            }
        }
    }

    #[test]
    fn words_of_a_shell_are_quoted_where_they_must_be() {
        for (text, expected) in [
            ("http://127.0.0.1:8080/mcp", "http://127.0.0.1:8080/mcp"),
            ("http://[::1]:8080/mcp", "'http://[::1]:8080/mcp'"),
            ("Authorization: Bearer x", "'Authorization: Bearer x'"),
            ("a'$(id)`", r"'a'\''$(id)`'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
