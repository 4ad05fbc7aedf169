//! The service: what Woma does, in its own words. It knows no surface.
//!
//! Start reading in [`execute`]: one execution from request to outcome.

pub mod caller;
pub mod environments;
mod error;
mod execute;
pub mod keys;
mod model;
pub mod output;
pub mod rate;
mod service;

pub use caller::{Caller, CallerId, Quota, Scope, Scopes};
pub use error::Error;
pub use model::{Execute, Execution, Picture, Shown};
pub use service::{Service, Settings};
/// The words that core and sandbox share: what a session may use, and what it does meanwhile.
pub use woma_sandbox::{
    Cell, Event, Interrupter, Limits, Outcome, Run, Sandbox, Spec, Stream, Tier, Usage, Workspace,
};
