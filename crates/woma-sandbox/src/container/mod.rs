//! Sessions in containers: the same Python kernel, protocol and limits, in a room that an OCI
//! runtime has built.
//!
//! ```text
//! server ──► woma containers (launcher: writes bundles, runs the runtime, no user code)
//!               └─► crun, runc or runsc ──► woma contained (pid 1: the init of every room)
//!                                               └─► CPython (pid 2: the session's kernel)
//! ```
//!
//! The launcher shows the template of `steward::template` as the root of each container. Pid 1 is
//! this program: it serves the commands of `steward::commands` as the init of any other room does.
//! With `crun` and `runc`, the room has every property of one that the steward builds. `runsc`
//! (gVisor) has a kernel of its own: the host sees one process, and nothing can be mounted later.
//!
//! The runtime is chosen once, by the operator or by the order in [`Runtime::ALL`]. If it fails, the
//! session fails: it is never opened in another way.

mod bundle;
mod client;
mod control;
mod init;
mod launcher;
mod open;
mod probe;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

pub use probe::{Trial, try_all};

pub(crate) use client::{Containers, Launcher};

/// First argument that makes the binary the launcher of containers.
pub const ROLE: &str = "containers";
/// First argument of the program that is pid 1 in a container.
pub const INIT_ROLE: &str = "contained";

/// Folders in which runtimes are looked for. Fixed: the launcher may be root.
const FOLDERS: [&str; 5] =
    ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin", "/opt/gvisor/bin"];

/// Runs the launcher's role to its end. Call it before any thread exists.
pub fn main() -> ExitCode {
    launcher::main()
}

/// Runs the role of pid 1 in a container to its end. Call it before any thread exists.
pub fn init_main() -> ExitCode {
    init::main()
}

/// An OCI runtime that runs bundles without a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// gVisor.
    Runsc,
    Crun,
    Runc,
}

impl Runtime {
    /// In the order of preference. gVisor is last: its sandbox ends in runs that compute for a second
    /// (docs/LIMITATIONS.md).
    pub const ALL: [Self; 3] = [Self::Crun, Self::Runc, Self::Runsc];

    pub fn name(self) -> &'static str {
        match self {
            Self::Runsc => "runsc",
            Self::Crun => "crun",
            Self::Runc => "runc",
        }
    }

    /// Name of Debian's package, or of the place to get it.
    fn package(self) -> &'static str {
        self.name()
    }

    /// The program; `None` if it is not installed.
    pub fn program(self) -> Option<PathBuf> {
        let at = |folder: &&str| Path::new(folder).join(self.name());
        FOLDERS.iter().map(at).find(|program| program.is_file())
    }

    /// Whether the session has a kernel of its own. The host then sees one process, which cannot
    /// receive mounts and in which no process of the host's pid namespace is visible.
    pub(crate) fn has_own_kernel(self) -> bool {
        self == Self::Runsc
    }
}

/// Which runtime runs the containers of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RuntimeChoice {
    /// The first of [`Runtime::ALL`] that is installed and runs a session here. Chosen when the
    /// first container is needed, and kept.
    #[default]
    Auto,
    Named(Runtime),
}

impl RuntimeChoice {
    /// The runtimes to try, in order.
    pub(crate) fn candidates(self) -> &'static [Runtime] {
        match self {
            Self::Auto => &Runtime::ALL,
            Self::Named(Runtime::Runsc) => &[Runtime::Runsc],
            Self::Named(Runtime::Crun) => &[Runtime::Crun],
            Self::Named(Runtime::Runc) => &[Runtime::Runc],
        }
    }
}

/// Error of a runtime that is not installed, with the fix.
pub(crate) fn missing(runtime: Runtime) -> crate::Error {
    let name = runtime.name();
    crate::Error::Container {
        reason: format!("the runtime `{name}` is not installed"),
        fix: format!(
            "install it (`apt install {}`), or name another one in CONTAINER_RUNTIME",
            runtime.package()
        ),
    }
}
