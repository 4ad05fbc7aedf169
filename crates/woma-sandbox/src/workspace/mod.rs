//! Access to folders that hostile code can change at any time; no other module opens them. All
//! access goes through descriptors that cannot lead out of the folder.
//!
//! The code of a session owns everything in its folder and may swap any name for a link, a FIFO or
//! another folder between two calls. So no path is checked and then used by name: it is opened
//! once, without following links or leaving the mount, and the opened file is checked. As root,
//! this is done with the rights of the folder's owner.
//!
//! Hard links need no rule: inside, only files of the same mount can be linked, and those belong to
//! the session.
//!
//! All calls block; a server makes them on a thread for blocking work.

mod allowance;
mod folder;
mod path;
pub(crate) mod projects;
mod remove;
mod reserve;
mod snapshot;
mod walk;
mod write;

#[cfg(test)]
mod tests;

pub use allowance::{Allowance, Excess, counted_max};
pub use folder::{Entry, Folder, Kind, Listing, Stillness};
pub use path::{BadPath, LEVELS_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, WorkspacePath, sanitised};
pub use remove::remove_tree;
pub use reserve::{DiskSpace, Reserve, ReserveSize};
pub use snapshot::{Changes, Digest, DigestBounds, Snapshot, diff};
pub use walk::{Bounds, Contents, measure};
pub use write::Draft;
