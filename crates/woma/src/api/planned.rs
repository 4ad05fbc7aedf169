//! Features of older systems that this version does not have: their tools and routes answer with
//! the version, and with what to do instead.

use woma_core::Code;

use super::error::Envelope;

/// A feature that has names in older systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planned {
    Packages,
}

impl Planned {
    /// Error for a tool or a route of this feature.
    pub(crate) fn refusal(self, asked: &str) -> Envelope {
        let (feature, instead) = match self {
            Self::Packages => (
                "packages that sessions install",
                "get_sandbox_info lists what is installed; the operator makes an environment with other \
                 packages (`woma env create NAME --requirements FILE`) and names it in WOMA_ENV",
            ),
        };
        let version = env!("CARGO_PKG_VERSION");
        let asked: String = asked.chars().take(200).collect();
        let message = format!(
            "`{asked}` is not available: Woma {version} does not have {feature} yet, and no setting \
             adds them"
        );
        Envelope::new(Code::NotFound, message).with_hint(instead)
    }
}
