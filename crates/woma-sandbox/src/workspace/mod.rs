//! Folders that hostile code can change under us: the only place that looks into one, and always
//! through descriptors that cannot lead out of it.
//!
//! The code of a session owns everything in its folder and may swap any name for a link, a FIFO or
//! another folder between two of our calls. So nothing is checked by name and then used by name: a
//! path is opened once, without following links or leaving the mount, and what was opened is looked
//! at. As root we do it with the rights of the folder's owner, not with ours.
//!
//! Hard links need no rule: inside, only files of the same mount can be linked, and those are the
//! session's own.
//!
//! All calls block; a server makes them on a thread that may.

mod allowance;
mod folder;
mod path;
mod remove;
mod snapshot;
mod walk;
mod write;

#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;

pub use allowance::{Allowance, counted_max};
pub use folder::{Entry, Folder, Kind, Listing, Stillness};
pub use path::{BadPath, LEVELS_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, WorkspacePath, sanitised};
pub use remove::remove_tree;
pub use snapshot::{Changes, Digest, DigestBounds, Snapshot, diff};
pub use walk::{Bounds, Contents, measure};
pub use write::Draft;
