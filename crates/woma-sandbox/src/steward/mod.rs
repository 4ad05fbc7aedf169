//! The small privileged process: builds the outer sandbox, its zygotes, and the rooms.
//!
//! ```text
//! server ──► launcher (host's view, no user code ever) ──► inner (pid 1 of the outer sandbox)
//!                                                             ├─► zygotes (CPython, warm)
//!                                                             └─► init of each room (pid 1 there)
//! ```

pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod control;
mod folders;
mod inner;
pub(crate) mod launcher;
mod processes;
pub(crate) mod quota;
pub(crate) mod room;
pub(crate) mod root;
pub(crate) mod shared;
pub(crate) mod sockets;
pub(crate) mod template;
pub(crate) mod trust;
pub(crate) mod zygote;
mod zygotes;

use std::process::ExitCode;

/// The first argument that turns the binary into a steward.
pub const ROLE: &str = "steward";

/// Runs the steward's role to its end. Call it before any thread exists.
pub fn main() -> ExitCode {
    launcher::main()
}
