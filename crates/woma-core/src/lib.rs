//! The service behind every surface. It knows neither HTTP nor MCP.
//!
//! Start reading in `execution/spine.rs`: one execution from request to outcome.

mod access;
mod datasets;
pub mod environments;
mod error;
mod execution;
pub mod metrics;
mod model;
mod net;
mod packages;
mod policy;
mod service;
mod session;
pub mod shares;
mod storage;
pub mod text;
mod workspace;

pub use access::{keys, rate, replays};
pub use net::egress::{BadNetwork, EgressSettings, NetworkRules, PlacedHosts};
pub use net::secrets::{BadSecret, NotTaken, OperatorSecrets};
pub use net::{fetch, pace};
pub use storage::{blobs, db as store};
pub use workspace::media;

pub use error::{Code, Error};
pub use execution::audit::{audit_heads, check_audit, read_audit};
pub use execution::jobs::live::{OutputPart, Progress, ProgressReader};
pub use execution::jobs::offline::JobQueue;
pub use execution::jobs::webhook::{NewWebhook, webhook_signature};
pub use execution::jobs::{JobError, JobSettings};
pub use execution::request::STDIN_BYTES_MAX;
pub use execution::running::Running;
pub use model::caller::{Caller, CallerId, Forbidden, Quota, Scope, Scopes, share_of_caller};
pub use model::{
    Action, BadRow, BadRows, BadSessionId, ColumnStatistics, Cut, DatasetColumn,
    DatasetDescription, DatasetError, DatasetInfo, DatasetName, DatasetProblem, ErrorCategory,
    EventKind, Execute, Execution, ExecutionId, ExportedFile, FileReport, LoadDataset,
    LoadedDataset, NewSecret, NewSession, OnTimeout, Outcome, PackageAction, PackageChange,
    PackageError, PackageList, PackageProblem, PackageReport, PackageSet, Picture, QueryDatasets,
    QueryFormat, QueryInfo, QueryOutput, QueryResult, Representation, Revival, RunEvent,
    SaveResult, SecurityEvent, SessionChange, SessionChoice, SessionId, SessionInfo,
    SessionPackage, Shown, StoredFile,
};
pub use packages::PackageSettings;
pub use policy::{Policies, Rules, Verdict};
pub use service::environments::{freeze, stored_packages};
pub use service::health::Health;
pub use service::import::{
    ImportError, ImportProgress, ImportRequest, ImportSummary, import_power_interpreter,
};
pub use service::jobs::{JobInfo, JobPage, JobResult, JobSubmission};
pub use service::ports::PortConnection;
pub use service::refusals::RefusedRequest;
pub use service::schedules::{NewSchedule, SchedulePage};
pub use service::{Service, Settings};
pub use session::checkpoint::Checkpointed;
pub use session::notebook::{LeftOut, Notebook};
pub use storage::claims::Claim;
pub use storage::layout::{Contents, LinkedFiles, OpenError, StorageSettings};
pub use text::OutputStream;
/// Types of the rules that are part of the service's own.
pub use woma_policy::{
    self as rules, Complexity, Mode, Problem, ProblemKind, Profile, Repair, Review, Rule, Violation,
};
/// Types of the sandbox that are part of the service's own: limits, isolation, events and results.
pub use woma_sandbox::Rung;
pub use woma_sandbox::doctor::{Examination, Isolation, LayerState};
pub use woma_sandbox::protocol::{Json, Missing, Note, Raised, ResultValue, Role, Variable};
pub use woma_sandbox::workspace::{DiskSpace, ReserveSize};
pub use woma_sandbox::{
    Limits, Machine, Outcome as RunOutcome, Runtime, RuntimeChoice, Script, Stream, Tier,
    TierHealth, Usage,
};
pub use workspace::archive::Archive;
pub use workspace::files::{Destination, FileInfo, FileList, OpenedFile, Written};
pub use workspace::links::{Chart, Content, Downloaded};
pub use workspace::uploads::{Upload, UploadState};
