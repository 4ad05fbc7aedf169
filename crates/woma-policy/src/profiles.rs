//! Profiles by name: the built-in ones, and those of an operator's file.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::profile::{Mode, Modules, Profile, Switches, is_module_name};

const BUILTIN: &str = include_str!("data/profiles.toml");

/// Longest chain of profiles that extend each other.
const EXTENDS_MAX: usize = 8;

/// A group of modules that is enabled as one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    pub name: String,
    /// Setting that enables it; a tier without one is always enabled.
    pub switch: Option<String>,
    pub modules: Vec<String>,
    /// Builtins that it enables.
    #[serde(default)]
    unblocks: Vec<String>,
}

/// A profile as written in a file; see `data/profiles.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProfileSpec {
    extends: Option<String>,
    tiers: Vec<String>,
    imports: Option<Vec<String>>,
    builtins: Vec<String>,
    attributes: Vec<String>,
    commands: Option<bool>,
    mode: Option<Mode>,
    names: BTreeMap<String, String>,
    network: Option<String>,
    container: Option<bool>,
}

/// Known profiles.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    tiers: Vec<Tier>,
    profiles: BTreeMap<String, ProfileSpec>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("there is no profile `{name}`; there are: {known}")]
    Unknown { name: String, known: String },
    #[error("`{module}` in {place} is not a module name")]
    Module { place: String, module: String },
    #[error("profiles.{profile}.{key}: {reason}")]
    Key { profile: String, key: &'static str, reason: String },
    #[error("the file of profiles cannot be read: {0}")]
    Toml(String),
}

/// Groups of modules, in display order.
pub fn tiers() -> &'static [Tier] {
    &Profiles::builtin().tiers
}

impl Profiles {
    pub(crate) fn builtin() -> &'static Self {
        static PROFILES: LazyLock<Profiles> = LazyLock::new(|| {
            toml::from_str(BUILTIN)
                .unwrap_or_else(|error| unreachable!("the built-in profiles: {error}"))
        });
        &PROFILES
    }

    /// Parses a file and adds the built-in profiles; validates every profile of the file.
    pub fn parse(toml: &str) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(default)]
            profiles: BTreeMap<String, ProfileSpec>,
        }
        let file: File =
            toml::from_str(toml).map_err(|error| ProfileError::Toml(error.to_string()))?;
        let mut all = Self::builtin().clone();
        let own: Vec<String> = file.profiles.keys().cloned().collect();
        for (name, spec) in file.profiles {
            if all.profiles.contains_key(&name) {
                let reason = "a built-in profile has this name; choose another".to_owned();
                return Err(ProfileError::Key { profile: name, key: "extends", reason });
            }
            all.profiles.insert(name, spec);
        }
        for name in own {
            all.named(&name, &Switches::default())?;
        }
        Ok(all)
    }

    /// Sorted alphabetically.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    pub fn named(&self, name: &str, switches: &Switches) -> Result<Profile, ProfileError> {
        let spec = self.resolved(name)?;
        self.check(name, &spec)?;
        let mut profile = Profile {
            name: name.to_owned(),
            imports: self.imports(name, &spec, switches)?,
            blocked_builtins: spec.builtins.into_iter().collect(),
            blocked_attributes: spec.attributes.into_iter().collect(),
            commands: spec.commands.unwrap_or(false),
            mode: spec.mode.unwrap_or(switches.mode),
            names: spec.names,
            network: spec.network.into_iter().collect(),
            container: spec.container.unwrap_or(false),
        };
        let is_tiered = !spec.tiers.is_empty();
        for tier in self.tiers.iter().filter(|tier| is_tiered && switches.has(&tier.name)) {
            for builtin in &tier.unblocks {
                profile.blocked_builtins.remove(builtin);
            }
        }
        profile.drop_names();
        Ok(profile)
    }

    fn imports(
        &self,
        name: &str,
        spec: &ProfileSpec,
        switches: &Switches,
    ) -> Result<Vec<Modules>, ProfileError> {
        if let Some(allowed) = &switches.allowed_imports {
            let modules = Modules::of(allowed);
            check_modules("the list of allowed imports", &modules.0)?;
            return Ok(vec![modules]);
        }
        if spec.tiers.is_empty() && spec.imports.is_none() {
            return Ok(Vec::new());
        }
        let is_on = |tier: &&Tier| {
            !spec.tiers.is_empty() && (spec.tiers.contains(&tier.name) || switches.has(&tier.name))
        };
        let of_tiers = self.tiers.iter().filter(is_on).flat_map(|tier| &tier.modules);
        let modules = Modules::of(of_tiers.chain(spec.imports.iter().flatten()));
        check_modules(&format!("profiles.{name}.imports"), &modules.0)?;
        Ok(vec![modules])
    }

    /// Merged with all profiles that it extends.
    fn resolved(&self, name: &str) -> Result<ProfileSpec, ProfileError> {
        let mut chain = vec![self.spec(name)?.clone()];
        while let Some(base) = chain.last().and_then(|spec| spec.extends.clone()) {
            let refuse =
                |reason| ProfileError::Key { profile: name.to_owned(), key: "extends", reason };
            if chain.len() > EXTENDS_MAX {
                let reason = format!(
                    "more than {EXTENDS_MAX} profiles extend each other, or they form a cycle"
                );
                return Err(refuse(reason));
            }
            chain.push(self.spec(&base).map_err(|error| refuse(error.to_string()))?.clone());
        }
        let base = chain.pop().unwrap_or_default();
        Ok(chain.into_iter().rev().fold(base, ProfileSpec::extended_by))
    }

    fn spec(&self, name: &str) -> Result<&ProfileSpec, ProfileError> {
        self.profiles.get(name).ok_or_else(|| ProfileError::Unknown {
            name: name.to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })
    }

    fn check(&self, name: &str, spec: &ProfileSpec) -> Result<(), ProfileError> {
        let refuse = |key, reason| Err(ProfileError::Key { profile: name.to_owned(), key, reason });
        for tier in &spec.tiers {
            if !self.tiers.iter().any(|known| known.name == *tier) {
                return refuse("tiers", format!("there is no tier `{tier}`"));
            }
        }
        for (key, names) in [("builtins", &spec.builtins), ("attributes", &spec.attributes)] {
            if let Some(bad) = names.iter().find(|name| !is_identifier(name)) {
                return refuse(key, format!("`{bad}` is not an identifier"));
            }
        }
        for (short, value) in &spec.names {
            let mut parts = value.splitn(2, ':');
            let module = parts.next().unwrap_or_default();
            let is_known =
                value == "@cwd" || is_module_name(module) && parts.next().is_none_or(is_identifier);
            if !is_identifier(short) || !is_known {
                return refuse(
                    "names",
                    format!("`{short} = \"{value}\"` is not a name with a module or `module:name`"),
                );
            }
        }
        Ok(())
    }
}

impl ProfileSpec {
    fn extended_by(mut self, other: Self) -> Self {
        self.tiers.extend(other.tiers);
        self.builtins.extend(other.builtins);
        self.attributes.extend(other.attributes);
        if let Some(imports) = other.imports {
            self.imports.get_or_insert_default().extend(imports);
        }
        self.commands = other.commands.or(self.commands);
        self.mode = other.mode.or(self.mode);
        self.names.extend(other.names);
        self.network = other.network.or(self.network);
        self.container = other.container.or(self.container);
        self
    }
}

fn is_identifier(name: &str) -> bool {
    is_module_name(name) && !name.contains('.')
}

fn check_modules<'a>(
    place: &str,
    modules: impl IntoIterator<Item = &'a String>,
) -> Result<(), ProfileError> {
    match modules.into_iter().find(|module| !is_module_name(module)) {
        Some(module) => {
            Err(ProfileError::Module { place: place.to_owned(), module: module.clone() })
        }
        None => Ok(()),
    }
}
