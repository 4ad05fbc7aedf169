//! Outgoing connections: address checks against SSRF, downloads, TLS. Calls `model` only; never
//! knows a session.

pub mod fetch;
pub(crate) mod tls;
