//! From texts to the [`Config`]: precedence of layers, and consistency of settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::layers::{
    self, FILE_BYTES_MAX, Origin, RawSetting, Resolved, Sources, is_absent, read_bounded,
};
use super::problem::{Problem, Problems};
use super::settings::{Config, SETTINGS};
use super::value::{Kind, Value, parse};
use super::{data, file, presets, secrets, variables};
use woma_core::OperatorSecrets;

const KEY_BYTES_MAX: u64 = 8 * 1024;

/// A parsed value of one layer.
#[derive(Debug)]
struct Candidate {
    name: &'static str,
    value: Value,
    origin: Origin,
}

/// Resolves defaults, preset, file, `.env`, environment and flags; the last one that is set wins.
pub(super) fn resolve(sources: &Sources) -> Result<Config, Problems> {
    let mut problems = Vec::new();
    let mut given = Vec::new();
    // Order matters: the first candidate of a layer wins within it.
    layers::flags(&sources.flags, &mut given, &mut problems);
    variables::environment(&sources.environment, &mut given, &mut problems);
    let mut warnings = Vec::new();
    if sources.reads_dot_env {
        variables::dot_env(&sources.directory, &mut given, &mut problems, &mut warnings);
    }
    let data_dir = default_data_dir(sources);
    read_file(sources, data_dir.as_deref(), &mut given, &mut problems);
    let mut candidates = read_values(given, &mut problems);
    let preset = winner(&candidates, "preset").map(|found| found.value.show());
    candidates.extend(preset_values(preset.as_deref().unwrap_or("default")));
    let mut resolved: Vec<Resolved> = Vec::new();
    for setting in SETTINGS {
        warn_of_disagreement(&candidates, setting.name, &mut warnings);
        let (value, origin) = match winner(&candidates, setting.name) {
            Some(found) => (found.value.clone(), found.origin.clone()),
            None => (default_value(setting.kind, setting.default), Origin::Default),
        };
        resolved.push(Resolved { setting, value, origin });
    }
    let directory = sources.directory.clone();
    let mut settled = Resolution { directory, resolved, warnings, problems };
    settled.agree(data_dir);
    settled.fill_from(&sources.machine);
    settled.warn_of_no_effect(sources.is_root);
    let Resolution { resolved, warnings, mut problems, .. } = settled;
    if problems.is_empty() {
        match Config::build(resolved, warnings) {
            Ok(mut config) => match read_secrets(&config, sources) {
                Ok(secrets) => {
                    config.secrets = secrets;
                    return Ok(config);
                }
                Err(problem) => problems.push(*problem),
            },
            Err(error) => problems.push(error.into()),
        }
    }
    Err(Problems(problems))
}

/// The operator's secrets.
fn read_secrets(config: &Config, sources: &Sources) -> Result<OperatorSecrets, Box<Problem>> {
    let Some(path) = &config.secrets_file else { return Ok(OperatorSecrets::default()) };
    let path = sources.directory.join(path);
    let found = config.resolved.iter().find(|one| one.setting.name == "secrets_file");
    let origin = found.map_or(Origin::Default, |one| one.origin.clone());
    match read_bounded(&path, secrets::FILE_BYTES_MAX) {
        Ok(text) => {
            let directory = path.parent().unwrap_or(&sources.directory);
            let place = secrets::Place { directory, environment: &sources.environment };
            let read = secrets::read(&text, &place);
            read.map_err(|reason| Box::new(Problem::BadSecrets { path, origin, reason }))
        }
        Err(cause) => Err(Box::new(Problem::Unreadable { path, origin, cause })),
    }
}

fn default_data_dir(sources: &Sources) -> Option<PathBuf> {
    let find = |name: &str| -> Option<OsString> {
        let found = sources.environment.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    data::default_folder(&find, sources.is_root)
}

/// The settings file. A named one must exist; the one in the data folder is optional.
fn read_file(
    sources: &Sources,
    default_data_dir: Option<&Path>,
    given: &mut Vec<RawSetting>,
    problems: &mut Vec<Problem>,
) {
    let highest = |name: &str| {
        let of_name = given.iter().filter(|one| one.setting.name == name);
        let of_name = of_name.filter(|one| one.origin.is_allowed(one.setting.allowed));
        // The first of the highest layer; `max_by_key` would return the last.
        of_name.rev().max_by_key(|one| one.origin.layer())
    };
    let named = highest("config").map(|one| (PathBuf::from(one.text.trim()), one.origin.clone()));
    let (path, origin) = match named {
        Some((path, origin)) => (sources.directory.join(path), Some(origin)),
        None => {
            let chosen = highest("data_dir").map(|one| sources.directory.join(one.text.trim()));
            let folder = chosen.or_else(|| default_data_dir.map(Path::to_owned));
            let Some(folder) = folder else { return };
            (folder.join("woma.toml"), None)
        }
    };
    // The server's user can write the data folder; root must not obey a file from there.
    if origin.is_none() && sources.is_root && !is_roots(&path) {
        problems.push(Problem::NotRoots { path });
        return;
    }
    match read_bounded(&path, FILE_BYTES_MAX) {
        Ok(text) => file::read(&path, &text, given, problems),
        Err(error) if origin.is_none() && is_absent(&error) => {}
        Err(cause) => {
            let origin = origin.unwrap_or(Origin::Default);
            problems.push(Problem::Unreadable { path, origin, cause });
        }
    }
}

fn is_roots(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    path.symlink_metadata().map_or(true, |found| found.uid() == 0)
}

/// Parses every text, also overridden ones: an invalid value is an error in any layer.
fn read_values(given: Vec<RawSetting>, problems: &mut Vec<Problem>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for RawSetting { setting, text, spelled, origin } in given {
        if !origin.is_allowed(setting.allowed) {
            problems.push(Problem::NotHere { spelled, origin });
            continue;
        }
        match parse(setting.kind, &text) {
            Some(value) => candidates.push(Candidate { name: setting.name, value, origin }),
            None => problems.push(Problem::BadValue {
                spelled,
                origin,
                value: layers::tell(setting, &text),
                expected: setting.kind.expected(),
            }),
        }
    }
    candidates
}

fn preset_values(name: &str) -> Vec<Candidate> {
    let Some(preset) = presets::find(name) else { return Vec::new() };
    let read = |(name, text): &(&str, &str)| {
        let setting = super::settings::find(name)?;
        let value = if text.is_empty() { Value::Unset } else { parse(setting.kind, text)? };
        Some(Candidate { name: setting.name, value, origin: Origin::Preset(preset.name) })
    };
    preset.values.iter().filter_map(read).collect()
}

fn default_value(kind: Kind, text: &str) -> Value {
    if text.is_empty() { Value::Unset } else { parse(kind, text).unwrap_or(Value::Unset) }
}

fn winner<'a>(candidates: &'a [Candidate], name: &str) -> Option<&'a Candidate> {
    let of_name = candidates.iter().filter(|candidate| candidate.name == name);
    of_name.rev().max_by_key(|candidate| candidate.origin.layer())
}

/// Warns if two variables of one setting differ.
fn warn_of_disagreement(candidates: &[Candidate], name: &str, warnings: &mut Vec<String>) {
    let Some(won) = winner(candidates, name) else { return };
    for other in candidates.iter().filter(|candidate| candidate.name == name) {
        let (Some(winning), Some(losing)) = (won.origin.variable(), other.origin.variable()) else {
            continue;
        };
        if winning == losing || won.value == other.value {
            continue;
        }
        let (used, ignored) = (won.value.show(), other.value.show());
        warnings.push(format!(
            "{winning} and {losing} are the same setting and differ: {winning} = {used} is used, \
             {losing} = {ignored} is not"
        ));
    }
}

/// Chosen values, while they are checked against each other.
#[derive(Debug)]
pub(super) struct Resolution {
    directory: PathBuf,
    resolved: Vec<Resolved>,
    warnings: Vec<String>,
    problems: Vec<Problem>,
}

impl Resolution {
    fn agree(&mut self, data_dir: Option<PathBuf>) {
        self.fill_data_dir(data_dir);
        self.read_key_file("api_key", "api_key_file");
        self.read_key_file("s3_secret_access_key", "s3_secret_access_key_file");
        self.fill("default_memory_limit", "max_memory_mb");
        self.fill("default_timeout", "max_execution_time");
        self.listen_openly_with_a_key();
        self.keep_below("default_timeout", "max_execution_time");
        self.keep_below("default_memory_limit", "max_memory_mb");
        let (debug, level) = (self.origin("debug"), self.origin("log_level"));
        let is_stronger = !level.is_explicit() || debug.layer() > level.layer();
        if self.value("debug") == Value::Bool(true) && is_stronger {
            self.set("log_level", Value::Text("debug".to_owned()), debug);
        }
        self.needs("jwt_issuer", "jwt_audience");
        self.needs("jwt_audience", "jwt_issuer");
        self.needs("jwt_jwks", "jwt_issuer");
        self.warn_of_plain_http("jwt_issuer");
        self.warn_of_plain_http("jwt_jwks");
        self.agree_on_contents();
        self.warn_of_lean_replies();
    }

    /// A setting without a value has that of another one.
    fn fill(&mut self, name: &str, from: &str) {
        if self.value(name) == Value::Unset {
            let (value, origin) = (self.value(from), self.origin(from));
            self.set(name, value, origin);
        }
    }

    /// A preset names the address of its system only for servers that may listen on it.
    fn listen_openly_with_a_key(&mut self) {
        let is_of_preset = matches!(self.origin("host"), Origin::Preset(_));
        let is_guarded =
            ["api_key", "jwt_issuer"].iter().any(|key| self.value(key) != Value::Unset);
        if is_of_preset && !is_guarded && self.value("allow_open") != Value::Bool(true) {
            let loopback = super::settings::find("host").map_or("", |setting| setting.default);
            self.set("host", Value::Text(loopback.to_owned()), Origin::Default);
        }
    }

    fn warn_of_lean_replies(&mut self) {
        let is_lean = self.value("reply").show() == "lean";
        for name in ["text_format", "stderr_traceback", "error_as_text"] {
            if is_lean && self.origin(name).is_explicit() {
                let (variable, value) = (variable(name), self.value(name).show());
                self.warnings.push(format!(
                    "{variable}={value} has no effect on replies over MCP: they are lean, and it is \
                     about full ones (REPLY=full)"
                ));
            }
        }
    }

    /// A server with a database may have another data folder after its next deployment, so contents
    /// go to the database too, unless a setting says otherwise.
    fn agree_on_contents(&mut self) {
        let has_database = self.value("database_url") != Value::Unset;
        if has_database && !self.origin("blobs_in").is_explicit() {
            let origin = self.origin("database_url");
            self.set("blobs_in", Value::Text("database".to_owned()), origin);
        }
        match self.value("blobs_in").show().as_str() {
            "database" => self.chosen("BLOBS_IN=database", &["database_url"]),
            "s3" => {
                let needed = ["s3_bucket", "s3_access_key_id", "s3_secret_access_key"];
                self.chosen("BLOBS_IN=s3", &needed);
                self.refuse_plain_http("s3_endpoint", "s3_allow_http");
            }
            _ => {}
        }
    }

    /// Reports all settings that a choice needs and that are unset.
    fn chosen(&mut self, first: &'static str, needed: &[&str]) {
        let missing = needed.iter().filter(|name| self.value(name) == Value::Unset);
        let missing: Vec<&str> = missing.map(|name| variable(name)).collect();
        if !missing.is_empty() {
            let second = missing.join(", ");
            self.problems.push(Problem::Missing { first, second });
        }
    }

    fn refuse_plain_http(&mut self, name: &str, unless: &str) {
        let Value::Text(address) = self.value(name) else { return };
        let is_plain = address.starts_with("http://") && !is_loopback(&address);
        if is_plain && self.value(unless) != Value::Bool(true) {
            let (variable, other, origin) = (variable(name), variable(unless), self.origin(name));
            self.problems.push(Problem::PlainHttp { variable, other, origin });
        }
    }

    fn fill_data_dir(&mut self, default: Option<PathBuf>) {
        if self.value("data_dir") != Value::Unset {
            return;
        }
        match default.and_then(|folder| folder.to_str().map(str::to_owned)) {
            Some(folder) => self.set("data_dir", Value::Text(folder), Origin::Default),
            None => self.problems.push(Problem::NoDataFolder),
        }
    }

    /// Reads a key from a file; it overrides the setting if the file is named in a higher layer.
    fn read_key_file(&mut self, name: &str, file_name: &str) {
        let Value::Text(path) = self.value(file_name) else { return };
        let origin = self.origin(file_name);
        if self.value(name) != Value::Unset {
            let other = self.origin(name);
            if other.layer() > origin.layer() {
                return;
            }
            if other.layer() == origin.layer() {
                let (first, second) = (variable(name), variable(file_name));
                self.problems.push(Problem::TwoKeys { first, second, origin });
                return;
            }
        }
        let path = self.directory.join(path);
        match read_bounded(&path, KEY_BYTES_MAX) {
            Ok(text) => match parse(Kind::Token, &text) {
                Some(key) => self.set(name, key, origin),
                None => self.problems.push(Problem::BadKeyFile { path, origin }),
            },
            Err(cause) => self.problems.push(Problem::Unreadable { path, origin, cause }),
        }
    }

    /// Lowers a default to its cap; an explicit value above the cap is an error.
    fn keep_below(&mut self, name: &'static str, cap_name: &'static str) {
        let (value, cap) = (self.value(name), self.value(cap_name));
        let above = match (&value, &cap) {
            (Value::Time(value), Value::Time(cap)) => value > cap,
            (Value::Bytes(value), Value::Bytes(cap)) => value > cap,
            _ => false,
        };
        if !above {
            return;
        }
        let origin = self.origin(name);
        let (first, second) = (variable(name), variable(cap_name));
        if origin.is_explicit() {
            let (value, cap) = (value.show(), cap.show());
            self.problems.push(Problem::AboveCap { first, origin, value, second, cap });
            return;
        }
        self.warnings.push(format!(
            "{first} = {} ({origin}) is lowered to {}, the maximum of {second}",
            value.show(),
            cap.show(),
        ));
        let cap_origin = self.origin(cap_name);
        self.set(name, cap, cap_origin);
    }

    fn needs(&mut self, name: &'static str, other: &'static str) {
        if self.value(name) != Value::Unset && self.value(other) == Value::Unset {
            let (first, second) = (variable(name), variable(other));
            self.problems.push(Problem::Incomplete { first, second });
        }
    }

    /// Warns of keys over plain HTTP: a man in the middle could replace them.
    fn warn_of_plain_http(&mut self, name: &str) {
        if let Value::Text(address) = self.value(name)
            && address.starts_with("http://")
        {
            let variable = variable(name);
            self.warnings.push(format!(
                "{variable} is {address}: over plain HTTP, a man in the middle can forge tokens"
            ));
        }
    }

    pub(super) fn value(&self, name: &str) -> Value {
        self.find(name).map_or(Value::Unset, |one| one.value.clone())
    }

    pub(super) fn origin(&self, name: &str) -> Origin {
        self.find(name).map_or(Origin::Default, |one| one.origin.clone())
    }

    pub(super) fn resolved(&self) -> &[Resolved] {
        &self.resolved
    }

    pub(super) fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    fn find(&self, name: &str) -> Option<&Resolved> {
        self.resolved.iter().find(|one| one.setting.name == name)
    }

    pub(super) fn set(&mut self, name: &str, value: Value, origin: Origin) {
        if let Some(one) = self.resolved.iter_mut().find(|one| one.setting.name == name) {
            one.value = value;
            one.origin = origin;
        }
    }
}

fn is_loopback(address: &str) -> bool {
    let parsed = address.parse::<axum::http::Uri>();
    let host = parsed.ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default();
    let plain = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    plain == "localhost" || plain.parse().is_ok_and(is_loopback)
}

pub(super) fn variable(name: &str) -> &'static str {
    super::settings::find(name).map_or("", |setting| setting.variable)
}
