//! Secrets that requests give to sessions.

use std::fmt;

/// A secret, as it is asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSecret {
    /// Name of the environment variable.
    pub name: String,
    pub value: String,
    /// As in the rules of a network; an entry without ports means 443.
    pub hosts: Vec<String>,
    /// `headers`, `path`, `query`, `body`; headers if there is none.
    pub places: Vec<String>,
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NewSecret").field("name", &self.name).finish_non_exhaustive()
    }
}
