//! Types of the table of settings.

use super::value::Kind;

/// One setting: its names, its type, its default and its documentation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// The key in the file, and the name in every listing.
    pub(crate) name: &'static str,
    /// The environment variable, with an optional prefix `WOMA_`.
    pub(crate) variable: &'static str,
    /// Names in older systems.
    pub(crate) aliases: &'static [Alias],
    pub(crate) kind: Kind,
    /// Default as the operator would write it; empty if there is no default.
    pub(crate) default: &'static str,
    /// The whole documentation, in sentences.
    pub(crate) about: &'static str,
    pub(crate) group: &'static str,
    pub(crate) effect: Effect,
    pub(crate) allowed: Allowed,
}

/// Layers in which a setting is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    Everywhere,
    /// Not in `.env`: a foreign folder with a `.env` must not choose programs that run outside of
    /// the sandbox.
    NotInDotEnv,
    /// Not in any file.
    NotInFiles,
}

/// Alias of an environment variable, and how its text is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias(pub(crate) &'static str, pub(crate) Reading);

/// Difference between an alias's text and the setting's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Same,
    /// A plain number counts characters.
    Characters,
    /// A host name, which means `https://` and that host.
    HttpsHost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Now,
    /// Checked, for a feature that does not exist yet; with the reason for a warning.
    Later(&'static str),
    /// Accepted because older deployments set it; it has no effect, for this reason.
    Never(&'static str),
}

impl Effect {
    /// Note beside the setting in listings.
    pub(crate) fn note(self) -> Option<&'static str> {
        match self {
            Self::Now => None,
            Self::Later(_) => Some("accepted, no effect yet"),
            Self::Never(_) => Some("accepted, never has an effect"),
        }
    }

    /// Reason why the setting has no effect; completes "has no effect:".
    pub(crate) fn reason(self) -> Option<&'static str> {
        match self {
            Self::Now => None,
            Self::Later(reason) | Self::Never(reason) => Some(reason),
        }
    }
}

impl Reading {
    pub(crate) fn apply(self, text: &str) -> String {
        let text = text.trim();
        match self {
            Self::Characters if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("{text} chars")
            }
            Self::HttpsHost if !text.contains("://") => format!("https://{text}"),
            _ => text.to_owned(),
        }
    }
}

impl Setting {
    pub(super) const fn new(
        name: &'static str,
        variable: &'static str,
        kind: Kind,
        default: &'static str,
    ) -> Self {
        let (aliases, about, group): (&[Alias], _, _) = (&[], "", "");
        let (effect, allowed) = (Effect::Now, Allowed::Everywhere);
        Self { name, variable, aliases, kind, default, about, group, effect, allowed }
    }

    pub(super) const fn aliases(self, aliases: &'static [Alias]) -> Self {
        Self { aliases, ..self }
    }

    pub(super) const fn not_in_files(self) -> Self {
        Self { allowed: Allowed::NotInFiles, ..self }
    }

    pub(super) const fn not_in_dot_env(self) -> Self {
        Self { allowed: Allowed::NotInDotEnv, ..self }
    }

    pub(super) const fn never(self, reason: &'static str) -> Self {
        Self { effect: Effect::Never(reason), ..self }
    }

    pub(super) const fn later(self, reason: &'static str) -> Self {
        Self { effect: Effect::Later(reason), ..self }
    }

    pub(super) const fn documented(self, group: &'static str, about: &'static str) -> Self {
        Self { about, group, ..self }
    }

    /// The variable and its aliases, in order of precedence.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, Reading)> {
        let aliases = self.aliases.iter().map(|Alias(variable, reading)| (*variable, *reading));
        std::iter::once((self.variable, Reading::Same)).chain(aliases)
    }
}
