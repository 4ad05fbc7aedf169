//! The jail: a live CPython per session, behind walls that the Linux kernel keeps.
//!
//! It assumes that the code inside is hostile and that nobody has looked at it. Three processes:
//! the *steward* (small, trusted, builds the walls), the *zygote* (a warm interpreter that never
//! runs user code) and the *cell* (a fork of it in a room of its own). docs/ARCHITECTURE.md draws
//! the picture; `steward::room` and `python/zygote.py` hold the steps.
//!
//! ```text
//! Sandbox::start ─► Sandbox::open ─► Cell::run ─► Event …, Exit
//!                                └► Cell::checkpoint, in the next kernel Cell::restore
//! ```

mod cell;
mod channel;
mod checkpoint;
pub mod doctor;
mod error;
mod failure;
mod landlock;
pub mod limits;
mod log;
mod open;
mod pipes;
mod pool;
mod proof;
pub mod protocol;
mod room;
mod run;
mod sandbox;
mod seccomp;
mod spec;
pub mod steward;
mod sys;
mod tally;
mod vigil;
mod wire;
pub mod workspace;

pub use cell::{Cell, Interrupter};
pub use checkpoint::{CheckpointError, CheckpointLimits, Checkpointing, Restore};
pub use error::Error;
pub use limits::{Limits, Usage};
pub use sandbox::{Health, Sandbox, TierHealth};
pub use spec::{
    Clock, Config, Crash, Environment, Event, Exit, Guard, Interruption, Outcome, Run, Spec, State,
    Stream, Workspace,
};
pub use steward::control::Tier;
