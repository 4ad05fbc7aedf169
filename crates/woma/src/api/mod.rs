//! Types and conversions that REST and MCP share: requests, arguments, replies, errors, and the
//! state of the server. Calls `woma-core` and `config`; knows no route, no tool and no transport.

pub(crate) mod arguments;
pub(crate) mod datasets;
pub(crate) mod environments;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod listing;
pub(crate) mod new_session;
pub(crate) mod packages;
pub(crate) mod pools;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod schema;
pub(crate) mod sessions;
pub(crate) mod shape;
pub(crate) mod state;
pub(crate) mod validation;
