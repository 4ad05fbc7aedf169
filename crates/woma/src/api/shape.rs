//! Differences between the replies of older systems that no union of their fields can have: one
//! name with two meanings. Settings choose, so that presets stay data.

use serde_json::{Map, Value, json};

use super::reply::Reply;

/// Meanings of the fields that older systems disagree about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// `stderr` ends with the traceback, or with the reason why the run was stopped.
    pub(crate) stderr_traceback: bool,
    /// `error` is a text, and `error_detail` has the details.
    pub(crate) error_as_text: bool,
    /// `variables` has names and types over REST.
    pub(crate) variables_as_types: bool,
}

impl Shape {
    /// Adds to standard error what a Python process would write there. Must precede every cut.
    pub(crate) fn complete(self, reply: &mut Reply) {
        if !self.stderr_traceback || reply.success {
            return;
        }
        let traceback = reply.error_traceback.as_deref().unwrap_or_default();
        let reason = reply.error_message.as_deref().unwrap_or_default();
        let reason = if traceback.contains(reason) { "" } else { reason };
        for text in [traceback, reason].into_iter().filter(|text| !text.is_empty()) {
            if !reply.stderr.is_empty() && !reply.stderr.ends_with('\n') {
                reply.stderr.push('\n');
            }
            reply.stderr.push_str(text);
            reply.stderr.push('\n');
        }
    }

    /// Whether a reply over REST differs from what its type says.
    pub(crate) fn is_special(self) -> bool {
        self.error_as_text || self.variables_as_types
    }

    /// The reply over REST.
    pub(crate) fn over_rest(self, mut reply: Value) -> Value {
        if self.variables_as_types
            && let Some(types) = reply.get("variable_types").cloned()
            && let Some(fields) = reply.as_object_mut()
        {
            fields.insert("variables".to_owned(), types);
        }
        self.over_mcp(reply)
    }

    /// The reply over MCP.
    pub(crate) fn over_mcp(self, mut reply: Value) -> Value {
        let Some(fields) = reply.as_object_mut().filter(|_| self.error_as_text) else {
            return reply;
        };
        if let Some(detail) = fields.remove("error") {
            fields.insert("error_detail".to_owned(), detail);
        }
        let is_timeout = fields.get("outcome").is_some_and(|outcome| outcome == "timed_out");
        if let Some(message) = fields.get("error_message").and_then(Value::as_str) {
            // Its clients look for the word.
            let told = if is_timeout { "Timeout: " } else { "" };
            fields.insert("error".to_owned(), format!("{told}{message}").into());
        }
        reply
    }

    /// The text of an error of a tool, for a reply that is JSON.
    pub(crate) fn refusal(self, message: &str) -> String {
        let is_empty = message == woma_core::Error::EmptyCode.to_string();
        match self.error_as_text && is_empty {
            // Its clients look for these words.
            true => format!("Empty code: {message}"),
            false => message.to_owned(),
        }
    }

    /// The output schema of a reply over MCP.
    pub(crate) fn schema(self, schema: &mut Map<String, Value>) {
        let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        if self.error_as_text
            && let Some(detail) = fields.remove("error")
        {
            let text = json!({"type": "string", "description": "The same as `error_message`."});
            fields.insert("error".to_owned(), text);
            fields.insert("error_detail".to_owned(), detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Shape;

    const PLAIN: Shape =
        Shape { stderr_traceback: false, error_as_text: false, variables_as_types: false };

    #[test]
    fn one_name_has_the_meaning_that_was_chosen() {
        let reply = json!({
            "error": {"type": "E"}, "error_message": "E: x",
            "variables": ["a"], "variable_types": {"a": "int"},
        });
        assert_eq!(PLAIN.over_rest(reply.clone()), reply);
        let typed = Shape { variables_as_types: true, ..PLAIN };
        assert_eq!(typed.over_rest(reply.clone())["variables"], json!({"a": "int"}));
        assert_eq!(typed.over_mcp(reply.clone()), reply);
        let text = Shape { error_as_text: true, ..PLAIN };
        for shaped in [text.over_rest(reply.clone()), text.over_mcp(reply)] {
            assert_eq!(
                (&shaped["error"], &shaped["error_detail"]["type"]),
                (&json!("E: x"), &json!("E"))
            );
            assert_eq!(shaped["variables"], json!(["a"]));
        }
        assert_eq!(text.over_rest(json!({"success": true})), json!({"success": true}));
        let late = json!({"outcome": "timed_out", "error_message": "It took 2 s."});
        assert_eq!(text.over_mcp(late.clone())["error"], "Timeout: It took 2 s.");
        assert_eq!(PLAIN.over_mcp(late.clone()), late);
        let empty = woma_core::Error::EmptyCode.to_string();
        assert_eq!(text.refusal(&empty), format!("Empty code: {empty}"));
        assert_eq!((text.refusal("x"), PLAIN.refusal(&empty)), ("x".to_owned(), empty));
    }
}
