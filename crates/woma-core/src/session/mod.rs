//! Sessions: the table, the state of one session, its queue, checkpoints and
//! notebooks. Calls `workspace` and `storage`; does not know how a run is conducted.

pub(crate) mod checkpoint;
pub(crate) mod kernel_state;
pub(crate) mod known;
pub(crate) mod notebook;
pub(crate) mod packages;
mod queue;
pub(crate) mod state;
mod status;
pub(crate) mod table;
pub(crate) mod workers;
