//! Policy: checks of a program against an operator's rules, before it runs.
//!
//! Pure: no input or output, no clock; the same source and profile give the same verdict. It is a
//! help for callers and operators, not a security boundary: the sandbox contains whatever gets past
//! it.

mod assigned;
mod hints;
mod profile;
mod profiles;
mod repair;
mod review;
mod rules;
mod scopes;
mod script_header;
mod syntax;
mod verdict;

pub use crate::assigned::assigned;
pub use crate::hints::{ErrorFacts, distribution, hint};
pub use crate::profile::{Mode, Modules, Profile, Switches};
pub use crate::profiles::{ProfileError, Profiles, Tier, tiers};
pub use crate::review::{REPAIR_BYTES_MAX, VIOLATIONS_MAX, review};
pub use crate::script_header::{BadHeader, PythonRange, ScriptHeader, script_header};
pub use crate::syntax::Python;
pub use crate::verdict::{Complexity, Problem, ProblemKind, Repair, Review, Rule, Violation};
