//! What the table of settings is made of.

use super::value::Kind;

/// One setting: its names, its type, its default and its documentation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// The key in the file, and the name in every listing.
    pub(crate) name: &'static str,
    /// The environment variable; `WOMA_` may stand before it.
    pub(crate) variable: &'static str,
    /// Names that the older systems have for it.
    pub(crate) aliases: &'static [Alias],
    pub(crate) kind: Kind,
    /// As the operator would write it; empty when there is none.
    pub(crate) default: &'static str,
    /// The whole documentation, in sentences.
    pub(crate) about: &'static str,
    pub(crate) group: &'static str,
    pub(crate) effect: Effect,
    pub(crate) allowed: Allowed,
}

/// The places where a setting may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    Everywhere,
    /// A folder that came from elsewhere, with a `.env` in it, must not choose the programs that
    /// are run outside of the sandbox.
    NotInDotEnv,
    /// In no file at all.
    NotInFiles,
}

/// Another name of an environment variable, and how it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias(pub(crate) &'static str, pub(crate) Reading);

/// How an alias's text differs from the setting's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Same,
    /// A plain number counts characters.
    Characters,
    /// The name of a host that is reached by https.
    HttpsHost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Now,
    /// Checked and kept, for a feature that is not there yet.
    Later,
    /// Accepted because older deployments set it; there is nothing that it could change.
    Never,
}

impl Effect {
    /// What listings say beside the setting.
    pub(crate) fn note(self) -> Option<&'static str> {
        match self {
            Self::Now => None,
            Self::Later => Some("accepted, no effect yet"),
            Self::Never => Some("accepted, never has an effect"),
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

    pub(super) const fn never(self) -> Self {
        Self { effect: Effect::Never, ..self }
    }

    pub(super) const fn later(self) -> Self {
        Self { effect: Effect::Later, ..self }
    }

    pub(super) const fn documented(self, group: &'static str, about: &'static str) -> Self {
        Self { about, group, ..self }
    }

    /// The variable and its aliases, the one that wins first.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, Reading)> {
        let aliases = self.aliases.iter().map(|Alias(variable, reading)| (*variable, *reading));
        std::iter::once((self.variable, Reading::Same)).chain(aliases)
    }
}
