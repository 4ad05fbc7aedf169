//! Callers: API keys, rate limits, replies to repeated requests. Calls `storage`; never knows a
//! session or a run.

pub mod keys;
pub mod rate;
pub mod replays;
