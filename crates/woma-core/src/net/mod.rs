//! Outgoing connections: address checks against SSRF, downloads, the way out of rooms, the least
//! speed of a transfer, TLS. Calls `metrics`, `shares` and `model` only; never knows a session.

pub(crate) mod egress;
pub mod fetch;
pub mod pace;
pub(crate) mod secrets;
pub(crate) mod tls;
