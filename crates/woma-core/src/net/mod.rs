//! Outgoing connections: address checks against SSRF, downloads, the least speed
//! of a transfer, TLS. Calls `shares` and `model` only; never
//! knows a session.

pub mod fetch;
pub mod pace;
pub(crate) mod tls;
