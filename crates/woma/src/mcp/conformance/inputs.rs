//! Fixtures that ask the client for input: by a request where the revision allows it, else by
//! results that name the missing input, over several rounds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ClientCapabilities, ContentBlock, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, JsonObject, ServerRequest,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{from_json, text};

/// Limit of stored states; a client whose state was evicted starts over.
const STATES_MAX: usize = 256;

pub(super) const TOOLS: &[(&str, &str)] = &[
    ("test_sampling", "Has the client's model answer a prompt"),
    ("test_elicitation", "Asks the user for a name and an address"),
    ("test_elicitation_sep1034_defaults", "Asks the user, with an answer for everything"),
    ("test_elicitation_sep1330_enums", "Asks the user to choose, in every way there is"),
    ("test_streaming_elicitation", "Asks for a name, without a request of its own"),
    ("test_input_required_result_elicitation", "Asks for a name"),
    ("test_input_required_result_sampling", "Asks the client's model"),
    ("test_input_required_result_list_roots", "Asks for the roots"),
    ("test_input_required_result_request_state", "Asks to confirm, and wants its state back"),
    ("test_input_required_result_multiple_inputs", "Asks three things at once"),
    ("test_input_required_result_multi_round", "Asks twice"),
    ("test_input_required_result_tampered_state", "Refuses a state that it did not give out"),
    ("test_input_required_result_capabilities", "Asks for what the client can do"),
];

/// States handed to clients. A state that comes back is only looked up, never parsed.
#[derive(Debug, Clone, Default)]
pub(super) struct Inputs {
    states: Arc<Mutex<VecDeque<State>>>,
}

#[derive(Debug)]
struct State {
    id: String,
    fixture: String,
    round: usize,
}

pub(super) enum Turn {
    Ask(InputRequiredResult),
    Answered(String),
}

impl Inputs {
    /// Next turn of a fixture with rounds; `None` for the others.
    pub(super) fn turn(
        &self,
        fixture: &str,
        capabilities: &ClientCapabilities,
        answers: &InputResponses,
        state: Option<&str>,
    ) -> Result<Option<Turn>, ErrorData> {
        let Some(rounds) = rounds(fixture, capabilities) else { return Ok(None) };
        let mut round = state.map_or(Ok(0), |state| self.look_up(fixture, state))?;
        if let Some(questions) = rounds.get(round)
            && is_answered(questions, answers)
        {
            round += 1;
        }
        let Some(questions) = rounds.get(round) else {
            let seen = if state.is_some() { "state-ok, " } else { "" };
            return Ok(Some(Turn::Answered(match person(answers) {
                Some(name) if rounds.len() == 1 => format!("Hello, {name}!"),
                _ => format!("{seen}answers: {}", json!(answers)),
            })));
        };
        let questions: InputRequests = from_json(questions.clone())?;
        let state = self.remember(fixture, round);
        Ok(Some(Turn::Ask(InputRequiredResult::new(Some(questions), Some(state)))))
    }

    fn remember(&self, fixture: &str, round: usize) -> String {
        let id = Uuid::new_v4().to_string();
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        if states.len() >= STATES_MAX {
            states.pop_front();
        }
        states.push_back(State { id: id.clone(), fixture: fixture.to_owned(), round });
        id
    }

    fn look_up(&self, fixture: &str, id: &str) -> Result<usize, ErrorData> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let found = states.iter().find(|state| state.id == id && state.fixture == fixture);
        found.map(|state| state.round).ok_or_else(|| {
            let text = "`requestState` is not one that this server gave out for this call";
            ErrorData::invalid_params(text, None)
        })
    }
}

/// Reads the answer to a question, always an object.
fn is_answered(questions: &Value, answers: &InputResponses) -> bool {
    let mut keys = questions.as_object().into_iter().flat_map(|questions| questions.keys());
    keys.all(|key| answers.get(key).is_some_and(Value::is_object))
}

/// The name in an answer, if one was asked for.
fn person(answers: &InputResponses) -> Option<&str> {
    answers.get("user_name")?.pointer("/content/name")?.as_str()
}

/// Questions of each round, by the keys of their answers.
fn rounds(fixture: &str, capabilities: &ClientCapabilities) -> Option<Vec<Value>> {
    let name = || elicit("What is your name?", "name", "string");
    let roots = || json!({"method": "roots/list", "params": {}});
    Some(match fixture {
        "test_input_required_result_elicitation"
        | "test_streaming_elicitation"
        | "test_tool_with_task" => vec![json!({"user_name": name()})],
        "test_input_required_result_sampling" => {
            vec![json!({"capital_question": sample("What is the capital of France?", 100)})]
        }
        "test_input_required_result_list_roots" => vec![json!({"client_roots": roots()})],
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => {
            vec![json!({"confirm": elicit("Please confirm", "ok", "boolean")})]
        }
        "test_input_required_result_multiple_inputs" => vec![json!({
            "user_name": name(),
            "greeting": sample("Write a short greeting.", 50),
            "client_roots": roots(),
        })],
        "test_input_required_result_multi_round" => vec![
            json!({"step1": name()}),
            json!({"step2": elicit("What is your favourite colour?", "color", "string")}),
        ],
        "test_input_required_result_capabilities" => {
            let possible = [
                (capabilities.elicitation.is_some(), "user_name", name()),
                (capabilities.sampling.is_some(), "greeting", sample("Greet me.", 50)),
                (capabilities.roots.is_some(), "client_roots", roots()),
            ];
            let able = possible.into_iter().filter(|(can, ..)| *can);
            vec![able.map(|(_, key, question)| (key.to_owned(), question)).collect()]
        }
        "test_input_required_result_prompt" => {
            let question = elicit("What should the prompt be about?", "context", "string");
            vec![json!({"user_context": question})]
        }
        _ => return None,
    })
}

fn sample(prompt: &str, tokens_max: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    let params = json!({"messages": [message], "maxTokens": tokens_max});
    json!({"method": "sampling/createMessage", "params": params})
}

/// A form with one field.
pub(super) fn elicit(message: &str, field: &str, kind: &str) -> Value {
    form(message, &json!({field: {"type": kind}}), &json!([field]))
}

fn form(message: &str, properties: &Value, required: &Value) -> Value {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    json!({"method": "elicitation/create", "params": params})
}

/// Question that a fixture sends as a request.
pub(super) fn question(fixture: &str, arguments: &JsonObject) -> Option<Value> {
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or("Well?");
    Some(match fixture {
        "test_sampling" => sample(argument("prompt"), 100),
        "test_elicitation" => {
            let fields = json!({
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            });
            form(argument("message"), &fields, &json!(["username", "email"]))
        }
        "test_elicitation_sep1034_defaults" => {
            let states = json!(["active", "inactive", "pending"]);
            let fields = json!({
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": {"type": "string", "enum": states, "default": "active"},
                "verified": {"type": "boolean", "default": true},
            });
            form("Please look these over", &fields, &json!([]))
        }
        "test_elicitation_sep1330_enums" => form("Please choose", &choices(), &json!([])),
        _ => return None,
    })
}

fn choices() -> Value {
    let plain = json!(["option1", "option2", "option3"]);
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"},
    ]);
    json!({
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}

/// Sends a question and returns the answer. A client that cannot answer makes the tool fail.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    question: Value,
) -> Result<CallToolResult, ErrorData> {
    let (request, who) = match from_json(question)? {
        InputRequest::CreateMessage(request) => {
            (ServerRequest::CreateMessageRequest(request), "LLM")
        }
        InputRequest::Elicitation(request) => (ServerRequest::ElicitRequest(request), "User"),
        _ => return Err(ErrorData::internal_error("this fixture asks nothing", None)),
    };
    Ok(match peer.send_request(request).await {
        Ok(answer) => text(format!("{who} response: {}", json!(answer))),
        Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
    })
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ClientCapabilities, InputResponses};
    use serde_json::json;

    use super::{Inputs, TOOLS, Turn, rounds};

    const TWICE: &str = "test_input_required_result_multi_round";

    fn asked(turn: Option<Turn>) -> (Vec<String>, String) {
        let Some(Turn::Ask(question)) = turn else { panic!("nothing was asked") };
        let keys = question.input_requests.unwrap().into_keys().collect();
        (keys, question.request_state.unwrap())
    }

    fn answer(key: &str) -> InputResponses {
        InputResponses::from([(key.to_owned(), json!({"action": "accept"}))])
    }

    #[test]
    fn rounds_follow_each_other() {
        let (inputs, able) = (Inputs::default(), ClientCapabilities::default());
        let turn = |answers: InputResponses, state: Option<&str>| {
            inputs.turn(TWICE, &able, &answers, state).unwrap()
        };
        let (keys, first) = asked(turn(InputResponses::new(), None));
        assert_eq!(keys, ["step1"]);
        let (keys, second) = asked(turn(answer("step1"), Some(&first)));
        assert_eq!(keys, ["step2"]);
        assert_ne!(first, second);
        // An answer to another question does not count.
        let (keys, _) = asked(turn(answer("step1"), Some(&second)));
        assert_eq!(keys, ["step2"]);
        let Some(Turn::Answered(text)) = turn(answer("step2"), Some(&second)) else { panic!() };
        assert!(text.starts_with("state-ok"), "{text}");
    }

    #[test]
    fn accepts_only_issued_states() {
        let (inputs, able) = (Inputs::default(), ClientCapabilities::default());
        let (_, state) = asked(inputs.turn(TWICE, &able, &InputResponses::new(), None).unwrap());
        let tampered = format!("{state}-TAMPERED");
        assert!(inputs.turn(TWICE, &able, &answer("step1"), Some(&tampered)).is_err());
        let other = "test_input_required_result_request_state";
        assert!(inputs.turn(other, &able, &answer("confirm"), Some(&state)).is_err());
    }

    #[test]
    fn every_question_parses() {
        let able = ClientCapabilities::default();
        for (fixture, _) in TOOLS {
            if rounds(fixture, &able).is_some_and(|rounds| rounds != [json!({})]) {
                let turn = Inputs::default().turn(fixture, &able, &InputResponses::new(), None);
                asked(turn.unwrap());
            }
        }
    }
}
