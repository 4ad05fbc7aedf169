//! Security events: operations that the rules or the sandbox did not allow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that was not allowed: in the reply, the log and the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityEvent {
    #[serde(rename = "security_event")]
    pub event: EventKind,
    pub action: Action,
    /// The module, builtin, attribute, command or host.
    pub subject: String,
    /// Line of the code that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub line: Option<u64>,
    pub message: String,
}

/// The kind of operation that was not allowed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum EventKind {
    BlockedImport,
    BlockedBuiltin,
    BlockedAttribute,
    BlockedCommand,
    BlockedSystemCall,
    BrokenChannel,
    /// A host that the network of the session does not lead to.
    BlockedHost,
    /// The placeholder of a secret, sent where its value may not stand.
    MisplacedSecret,
}

impl EventKind {
    /// The kind that a note of the kernel tells of.
    pub(crate) fn of_note(code: &str) -> Option<Self> {
        [Self::BlockedImport, Self::BlockedBuiltin, Self::BlockedAttribute, Self::BlockedCommand]
            .into_iter()
            .find(|kind| kind.name() == code)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::BlockedImport => "blocked_import",
            Self::BlockedBuiltin => "blocked_builtin",
            Self::BlockedAttribute => "blocked_attribute",
            Self::BlockedCommand => "blocked_command",
            Self::BlockedSystemCall => "blocked_system_call",
            Self::BrokenChannel => "broken_channel",
            Self::BlockedHost => "blocked_host",
            Self::MisplacedSecret => "misplaced_secret",
        }
    }
}

/// The reaction to an operation that is not allowed.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is in the text, and the run did not reach it.
    Found,
    /// The whole program was refused.
    Rejected,
    /// It was left out, and the run went on.
    Annotated,
    /// It was stopped while the code ran.
    Blocked,
}

impl Action {
    pub fn name(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Rejected => "rejected",
            Self::Annotated => "annotated",
            Self::Blocked => "blocked",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, EventKind};

    #[test]
    fn an_event_is_serialized_under_its_name_and_notes_tell_of_four_kinds() {
        let table = [
            (EventKind::BlockedImport, "blocked_import", true),
            (EventKind::BlockedBuiltin, "blocked_builtin", true),
            (EventKind::BlockedAttribute, "blocked_attribute", true),
            (EventKind::BlockedCommand, "blocked_command", true),
            (EventKind::BlockedSystemCall, "blocked_system_call", false),
            (EventKind::BrokenChannel, "broken_channel", false),
            (EventKind::BlockedHost, "blocked_host", false),
            (EventKind::MisplacedSecret, "misplaced_secret", false),
        ];
        for (kind, name, is_told) in table {
            assert_eq!(kind.name(), name);
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
            assert_eq!(EventKind::of_note(name), is_told.then_some(kind));
        }
        assert_eq!(EventKind::of_note("checkpoint_refused"), None);
    }

    #[test]
    fn an_action_is_serialized_under_its_name() {
        let table = [
            (Action::Found, "found"),
            (Action::Rejected, "rejected"),
            (Action::Annotated, "annotated"),
            (Action::Blocked, "blocked"),
        ];
        for (action, name) in table {
            assert_eq!(action.name(), name);
            assert_eq!(serde_json::to_value(action).unwrap(), name);
        }
    }
}
