//! Prompt fixtures.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Value, json};

use super::from_json;
use super::tools::PNG;

/// Names, descriptions and arguments, which are all required.
const PROMPTS: &[(&str, &str, &[&str])] = &[
    ("test_simple_prompt", "A prompt without arguments", &[]),
    ("test_prompt_with_arguments", "A prompt that repeats its arguments", &["arg1", "arg2"]),
    ("test_prompt_with_embedded_resource", "A prompt with a resource in it", &["resourceUri"]),
    ("test_prompt_with_image", "A prompt with a picture in it", &[]),
    ("test_input_required_result_prompt", "A prompt that asks what it is about", &[]),
];

pub(super) fn list() -> impl Iterator<Item = Prompt> {
    PROMPTS.iter().map(|(name, description, arguments)| {
        let arguments = arguments.iter().map(|argument| {
            let what = format!("What stands for {argument}");
            PromptArgument::new(*argument).with_description(what).with_required(true)
        });
        Prompt::new(*name, Some(*description), Some(arguments.collect()))
    })
}

pub(super) fn is_known(name: &str) -> bool {
    PROMPTS.iter().any(|(known, ..)| *known == name)
}

pub(super) fn get(name: &str, arguments: &JsonObject) -> Result<GetPromptResult, ErrorData> {
    let argument = |name: &str| {
        let missing = || ErrorData::invalid_params(format!("`{name}` is missing"), None);
        arguments.get(name).and_then(Value::as_str).ok_or_else(missing)
    };
    let first = match name {
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1")?, argument("arg2")?);
            let text = format!("Prompt with arguments: arg1='{one}', arg2='{two}'");
            return Ok(of_text(&text));
        }
        "test_prompt_with_embedded_resource" => {
            let uri = argument("resourceUri")?;
            let text = "Embedded resource content for testing.";
            let resource = json!({"uri": uri, "mimeType": "text/plain", "text": text});
            json!({"type": "resource", "resource": resource})
        }
        "test_prompt_with_image" => json!({"type": "image", "data": PNG, "mimeType": "image/png"}),
        _ => return Ok(of_text("This is a simple prompt for testing.")),
    };
    let then = PromptMessage::new_text(Role::User, "Please look at the above.");
    Ok(GetPromptResult::new(vec![PromptMessage::new(Role::User, from_json(first)?), then]))
}

pub(super) fn of_text(text: &str) -> GetPromptResult {
    GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])
}
