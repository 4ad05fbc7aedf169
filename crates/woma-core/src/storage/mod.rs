//! Durable data: the database, contents of files, the outbox of records that wait for the database,
//! and the layout of the data folder. Calls `net`, `text` and `model`; knows rows and bytes, never
//! a live session or a run.

pub mod blobs;
pub(crate) mod claims;
pub mod db;
pub(crate) mod durable;
pub(crate) mod ephemeral;
pub(crate) mod layout;
pub(crate) mod outbox;
