//! MCP prompts.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::Value;

const CODE_EXECUTION: &str = "code_execution_prompt";
const SAFE_EXECUTION: &str = "safe_execution_guide";
const STYLES: [&str; 3] = ["clean", "verbose", "minimal"];

pub(super) fn list() -> Vec<Prompt> {
    let argument = |name: &str, what: &str, required: bool| {
        PromptArgument::new(name).with_description(what).with_required(required)
    };
    vec![
        Prompt::new(
            CODE_EXECUTION,
            Some("Solve a task by running Python code"),
            Some(vec![
                argument("task_description", "The task to solve", true),
                argument("code_style", "clean, verbose or minimal", false),
                argument("include_comments", "true or false", false),
            ]),
        ),
        Prompt::new(
            SAFE_EXECUTION,
            Some("How to run code of unknown origin with care"),
            None::<Vec<PromptArgument>>,
        ),
    ]
}

pub(super) fn get(name: &str, arguments: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let text = match name {
        CODE_EXECUTION => code_execution(arguments)?,
        SAFE_EXECUTION => SAFE_TEXT.to_owned(),
        other => {
            let other: String = other.chars().take(64).collect();
            let text = format!(
                "unknown prompt `{other}`; there are {CODE_EXECUTION} and {SAFE_EXECUTION}"
            );
            return Err(ErrorData::invalid_params(text, None));
        }
    };
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]))
}

/// Allowed values of a prompt's argument.
pub(super) fn complete(prompt: &str, argument: &str) -> Vec<String> {
    let values: &[&str] = match (prompt, argument) {
        (CODE_EXECUTION, "code_style") => &STYLES,
        (CODE_EXECUTION, "include_comments") => &["true", "false"],
        _ => &[],
    };
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn code_execution(arguments: &JsonObject) -> Result<String, ErrorData> {
    let text = |name: &str| match arguments.get(name) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    let Some(task) = text("task_description").filter(|task| !task.trim().is_empty()) else {
        let missing = "`task_description` is missing: describe the task";
        return Err(ErrorData::invalid_params(missing, None));
    };
    let style = match text("code_style").as_deref().unwrap_or("clean") {
        "clean" => "Write clear code with good names.",
        "verbose" => "Write explicit code, one step at a time, and print what each step finds.",
        "minimal" => "Write the shortest code that does it.",
        other => {
            let other: String = other.chars().take(40).collect();
            let wrong = format!("`code_style` must be clean, verbose or minimal, not {other:?}");
            return Err(ErrorData::invalid_params(wrong, None));
        }
    };
    let comments = match text("include_comments").as_deref().unwrap_or("true") {
        "false" => "Leave comments out.",
        _ => "Explain in comments why, where it is not obvious.",
    };
    Ok(format!(
        "Solve this task by running Python with the tool execute_code:\n\n{task}\n\n{style} {comments} \
         Work in small steps in one session: variables stay between calls. Check `success` and \
         `error_message` in each reply, and fix the code before going on. Draw charts with \
         matplotlib; they come back as pictures. Print only what is needed to answer."
    ))
}

const SAFE_TEXT: &str = "When you run code that you did not write: read it first, and say what it \
does. Run it in a session of its own (create_session), with a short `timeout` and a small \
`memory_limit`. Give it only the data that it needs. Look at `outcome`, `stderr` and `warnings`, \
not only at the result. Delete the session afterwards. The sandbox keeps the code away from the \
machine and the network; it cannot judge whether an answer is right.";
