//! The rules: what an operator wants allowed, answered before code runs.
//!
//! Pure: no input or output, no clock; the same source and profile give the same verdict. It is a
//! help and a convenience, never the wall: the Linux kernel holds what gets past it.

mod hints;
mod profile;
mod profiles;
mod repair;
mod review;
mod rules;
mod scopes;
mod syntax;
mod verdict;

pub use crate::hints::{ErrorFacts, distribution, hint};
pub use crate::profile::{Mode, Modules, Profile, Switches};
pub use crate::profiles::{ProfileError, Profiles, Tier, tiers};
pub use crate::review::{MENDED_BYTES_MAX, VIOLATIONS_MAX, review};
pub use crate::syntax::Python;
pub use crate::verdict::{Complexity, Problem, ProblemKind, Repair, Review, Rule, Violation};
