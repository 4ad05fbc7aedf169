//! Handlers of the routes: read the request, call the service, write the reply. A handler decides
//! nothing and knows nothing of how its caller was authenticated.

pub(crate) mod datasets;
pub(crate) mod docs;
pub(crate) mod downloads;
pub(crate) mod execute;
pub(crate) mod fallback;
pub(crate) mod files;
mod fit;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod home;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod metrics;
pub(crate) mod outputs;
pub(crate) mod packages;
pub(crate) mod ports;
pub(crate) mod sessions;
mod stream;
pub(crate) mod sync;
pub(crate) mod validate;
