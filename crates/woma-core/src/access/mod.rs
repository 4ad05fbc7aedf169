//! Callers' credentials: API keys and rate limits. Calls `storage`; never knows a session or a run.

pub mod keys;
pub mod rate;
