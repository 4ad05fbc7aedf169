//! Server lifecycle over HTTP and standard input: privileges, logs, the service, shutdown. Calls
//! `http`, `mcp`, `api` and `config`; knows nothing of single requests and of the command line.

pub(crate) mod policies;
pub(crate) mod rights;
pub(crate) mod serve;
mod serve_lock;
pub(crate) mod start;
pub(crate) mod stdio;
pub(crate) mod telemetry;
