//! The MCP transports: each carries messages between a client and the one handler of all. A
//! transport knows nothing of tools; `stateless` alone reads a tool call itself, for speed.

pub(crate) mod direct;
pub(crate) mod sse;
pub(crate) mod stateless;
pub(crate) mod stdio;
pub(crate) mod streamable;
