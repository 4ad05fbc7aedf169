//! The service: what Woma does, in its own words. It knows no surface.
//!
//! Start reading in [`execute`]: one execution from request to outcome.

mod admission;
mod audit;
pub mod blobs;
mod caller;
mod certificates;
mod cleaning;
mod clock;
pub mod environments;
mod error;
mod execute;
pub mod fetch;
mod files;
mod health;
mod journal;
mod kept;
pub mod keys;
mod lock;
pub mod media;
mod memory;
pub mod metrics;
mod model;
pub mod output;
mod policy;
mod quota;
pub mod rate;
mod record;
mod revival;
mod service;
mod session;
mod sessions;
mod shelf;
pub mod store;
mod transcript;
mod vault;

pub use audit::read_audit;
pub use caller::{Caller, CallerId, Quota, Scope, Scopes};
pub use error::{Code, Error};
pub use execute::Running;
pub use health::Health;
pub use model::{
    Execute, Execution, ExecutionId, FileReport, Happening, NewSession, Picture, Revival,
    SessionChoice, SessionId, SessionInfo, Shown, StoredFile,
};
pub use output::OutputStream;
pub use policy::{Action, Policies, Rules, SecurityEvent, Verdict};
pub use revival::Checkpointed;
pub use service::{Service, Settings};
pub use shelf::{
    Archive, Chart, Content, Downloaded, FileInfo, FileList, OpenedFile, Place, Upload,
    UploadState, Written,
};
pub use transcript::{LeftOut, Notebook};
pub use vault::{Contents, STORED_EXTENSIONS, VaultSettings};
/// The words of the rules, which core passes on as they are.
pub use woma_policy::{
    self as rules, Complexity, Mode, Problem, ProblemKind, Profile, Repair, Review, Rule, Violation,
};
/// The words that core and sandbox share: what a session may use, and what it does meanwhile.
pub use woma_sandbox::doctor::{Examination, Isolation, LayerState};
pub use woma_sandbox::protocol::{Missing, Note, Raised, ResultValue, Role, Variable};
pub use woma_sandbox::{
    Cell, Event, Interrupter, Limits, Outcome, Run, Sandbox, Spec, Stream, Tier, TierHealth, Usage,
    Workspace,
};
