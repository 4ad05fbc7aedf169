//! How an execution ended, and what kind of failure it was.

use serde::{Deserialize, Serialize};
use woma_sandbox::Outcome as RunOutcome;

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The rules refused the whole program before anything ran.
    Rejected,
    /// It has outlived its call and goes on as a job.
    Detached,
    /// The sandbox ran it, or tried to.
    Ran(RunOutcome),
}

impl Outcome {
    /// `completed`, `raised`, `interrupted`, `timed_out`, `out_of_memory`, `crashed`,
    /// `never_started`, `rejected` or `detached`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Detached => "detached",
            Self::Ran(outcome) => outcome.name(),
        }
    }
}

/// The kind of a failure, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorCategory {
    Syntax,
    Runtime,
    Timeout,
    Memory,
    Interrupted,
    Resource,
    Security,
    Crash,
    Internal,
}

impl ErrorCategory {
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Runtime => "runtime",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Interrupted => "interrupted",
            Self::Resource => "resource",
            Self::Security => "security",
            Self::Crash => "crash",
            Self::Internal => "internal",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCategory, Outcome, RunOutcome};

    #[test]
    fn outcomes_have_the_names_of_the_documents() {
        assert_eq!(Outcome::Rejected.name(), "rejected");
        assert_eq!(Outcome::Ran(RunOutcome::Completed).name(), "completed");
        assert_eq!(Outcome::Ran(RunOutcome::Raised).name(), "raised");
    }

    #[test]
    fn a_category_is_serialized_under_its_name() {
        let table = [
            (ErrorCategory::Syntax, "syntax"),
            (ErrorCategory::Runtime, "runtime"),
            (ErrorCategory::Timeout, "timeout"),
            (ErrorCategory::Memory, "memory"),
            (ErrorCategory::Interrupted, "interrupted"),
            (ErrorCategory::Resource, "resource"),
            (ErrorCategory::Security, "security"),
            (ErrorCategory::Crash, "crash"),
            (ErrorCategory::Internal, "internal"),
        ];
        for (category, name) in table {
            assert_eq!(category.name(), name);
            assert_eq!(serde_json::to_value(category).unwrap(), name);
        }
    }
}
