//! The MCP tools: their descriptions and schemas, and the calls of them. A tool reads its
//! arguments, calls the service and writes content blocks; it knows nothing of the transport.

pub(crate) mod call;
pub(crate) mod catalogue;
pub(crate) mod changes;
mod content;
mod datasets;
mod files;
mod history;
mod importable;
pub(crate) mod jobs;
mod lean;
mod packages;
mod pages;
mod plain;
mod schemas;
mod sessions;
mod slim;
