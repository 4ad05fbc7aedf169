//! The jail: one live CPython per session, contained by the Linux kernel.
//!
//! The code inside is assumed to be hostile and unreviewed. Three processes: the *steward* (small,
//! trusted, builds the containment), the *zygote* (a warm interpreter that never runs user code)
//! and the *cell* (a fork of the zygote in a room of its own). docs/ARCHITECTURE.md has the
//! diagram; the steps are in `steward::room` and `python/zygote.py`.
//!
//! ```text
//! Sandbox::start ─► Sandbox::open ─► Cell::run ─► Event …, Exit
//!                                └► Cell::checkpoint, in the next kernel Cell::restore
//! ```

mod advice;
pub mod allocator;
mod budget;
mod cell;
mod channel;
mod checkpoint;
pub mod container;
mod deployments;
mod disk_watch;
mod display;
pub mod doctor;
mod done;
mod error;
mod failure;
mod grace;
mod isolation;
mod json_limits;
pub mod keeper;
mod landlock;
pub mod limits;
mod log;
mod memory_pressure;
mod object_watch;
mod open;
mod pipes;
mod pool;
mod proof;
pub mod protocol;
pub mod rights;
mod room_folders;
mod room_handles;
mod room_sockets;
mod run;
mod rung;
mod sandbox;
mod seccomp;
mod spec;
pub mod steward;
pub mod sync;
mod sys;
mod wire;
pub mod workspace;

pub use cell::{Cell, Interrupter};
pub use checkpoint::{CheckpointError, CheckpointLimits, Checkpointing, Restore};
pub use container::{Runtime, RuntimeChoice};
pub use error::Error;
pub use limits::ceiling::{Machine, Pressure};
pub use limits::{Limits, Usage};
pub use room_folders::RoomFolders;
pub use room_sockets::{RoomAddress, RoomSockets};
pub use rung::Rung;
pub use sandbox::{Health, Sandbox, TierHealth};
pub use spec::{
    Clock, Config, Crash, Environment, Event, Exit, Guard, Interruption, KernelObject, Outcome,
    Run, Script, Spec, State, Stream, Workspace,
};
pub use steward::control::{Rotation, Tier};
pub use steward::template::INSTALLER_PROGRAM;
