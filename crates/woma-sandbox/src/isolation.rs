//! The overall level of isolation, from the layers that are enforced.

use serde::Serialize;

use crate::doctor::{Layer, LayerState};
use crate::rung::Rung;

/// Layers that containment depends on.
const REQUIRED_LAYERS: [&str; 4] = ["landlock", "seccomp", "server", "cell"];

/// Overall level; with `None` the server does not start. Docs/THREATS.md says what each holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Sessions would not be contained; they are refused.
    None,
    /// As `Restricted`, on a kernel that cannot keep signals inside of a session: sessions send
    /// none.
    Minimal,
    /// Sessions share the server's namespaces; Landlock, seccomp and the watchdog contain them.
    Restricted,
    /// Containment is complete; a limit or an additional separation is enforced in part. The layers
    /// say which.
    Strong,
    /// Every layer is enforced.
    Full,
}

impl Isolation {
    /// Name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Strong => "strong",
            Self::Restricted => "restricted",
            Self::Minimal => "minimal",
            Self::None => "none",
        }
    }

    /// `None` if a required layer is missing, below `Strong` without rooms, `Full` if all are enforced.
    pub(crate) fn of(layers: &[Layer], rung: Option<Rung>) -> Self {
        let is_missing_layer = |layer: &Layer| {
            REQUIRED_LAYERS.contains(&layer.name) && layer.state == LayerState::Missing
        };
        if layers.iter().any(is_missing_layer) {
            return Self::None;
        }
        match rung {
            None => return Self::None,
            Some(Rung::Minimal) => return Self::Minimal,
            Some(Rung::Restricted) => return Self::Restricted,
            Some(Rung::Rooms) => {}
        }
        let is_enforced = |layer: &Layer| layer.state == LayerState::Enforced;
        if layers.iter().all(is_enforced) { Self::Full } else { Self::Strong }
    }
}
