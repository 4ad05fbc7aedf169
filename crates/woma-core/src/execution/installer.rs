//! Requests to a cell that installs, and what is made of its reply, which is hostile.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use woma_sandbox::{Cell, Exit, Outcome, Run};

use super::environments::EnvironmentFacts;
use super::packages::ChangeContext;
use super::spine::follow;
use crate::error::Error;
use crate::model::caller::CallerId;
use crate::model::{
    ExecutionId, PackageAction, PackageChange, PackageError, PackageProblem, PackageSet,
    SessionPackage,
};
use crate::packages::Packages;
use crate::packages::gateway::{Gateway, PORT};
use crate::packages::layers::Layers;
use crate::packages::names::{Requirement, key};
use crate::packages::page::wheel;

const SOURCE: &str = "from _woma_kernel.installer import serve; serve(_request)";
/// Lines and characters of the installer's reason that a reply has.
const REASON_LINES_MAX: usize = 12;
const REASON_CHARS_MAX: usize = 1_500;
/// Replies with more characters are not read.
const REPLY_BYTES_MAX: usize = 512 * 1024;

/// Reply of the cell. Hostile.
#[derive(Debug, Deserialize)]
pub(super) struct Reply {
    pub(super) ok: bool,
    #[serde(default)]
    packages: Vec<(String, String)>,
    #[serde(default)]
    replaced: Vec<(String, String)>,
    #[serde(default)]
    pub(super) index: String,
    #[serde(default)]
    pub(super) log: String,
}

/// Request to the installer.
pub(super) struct Order<'a> {
    pub(super) owner: &'a CallerId,
    pub(super) change: &'a PackageChange,
    pub(super) wanted: &'a [Requirement],
    pub(super) earlier: &'a PackageSet,
    pub(super) deadline: Instant,
    /// The environment of the session.
    pub(super) facts: &'a EnvironmentFacts,
}

/// A change as the cell is told it.
pub(super) fn request(packages: &Packages, order: &Order<'_>, has_earlier: bool) -> Value {
    let names = |is_wanted: bool| -> Vec<&str> {
        let names = order.wanted.iter().map(|one| one.key.as_str());
        names.filter(|_| is_wanted).collect()
    };
    let texts: Vec<&str> = order.wanted.iter().map(|one| one.text.as_str()).collect();
    let action = match order.change.action {
        PackageAction::Install => "install",
        PackageAction::Uninstall => "uninstall",
    };
    json!({
        "do": action,
        "names": names(true),
        "requirements": texts,
        "has_earlier": has_earlier,
        "upgrade": names(order.change.upgrade),
        "reinstall": names(order.change.reinstall),
        "pre": order.change.pre,
        "no_deps": order.change.no_deps,
        "constraints": order.change.constraints,
        "sdist": packages.settings.allows_source,
        "index": format!("http://127.0.0.1:{PORT}/simple"),
        // More than is left: the end of the change is decided here, and told as what it is.
        "timeout": order.deadline.saturating_duration_since(Instant::now()).as_secs() + 10,
    })
}

/// Has the cell serve a request.
pub(super) async fn run(
    cell: &mut Cell,
    request: Value,
    order: &Order<'_>,
    context: &ChangeContext,
) -> Result<Reply, Error> {
    let variables = Map::from_iter([("_request".to_owned(), request)]);
    let wall = Some(order.deadline.saturating_duration_since(Instant::now()));
    let run = Run { source: SOURCE.to_owned(), wall, variables, ..Run::default() };
    let exit = follow(cell, &run, &context.stop, &mut |_| {}).await;
    reply_of(exit, order)
}

fn reply_of(exit: Exit, order: &Order<'_>) -> Result<Reply, Error> {
    match exit.outcome {
        Outcome::Completed => {
            let json = exit.done.and_then(|done| done.result).and_then(|result| result.json);
            let text = json.map(|json| json.text().to_owned()).unwrap_or_default();
            let is_short = text.len() <= REPLY_BYTES_MAX;
            let read = is_short.then(|| serde_json::from_str(&text).ok()).flatten();
            Ok(read.ok_or_else(|| installer("the installer gave no reply"))?)
        }
        Outcome::Interrupted(woma_sandbox::Interruption::Asked) => Err(Error::GivenUp),
        Outcome::Interrupted(_) => {
            let message = "the packages need more disk space than a session may have";
            Err(PackageError::new(PackageProblem::TooLarge, message).into())
        }
        Outcome::TimedOut(_) => Err(timed_out(order).into()),
        Outcome::OutOfMemory { .. } => {
            Err(installer("the installer needs more memory than one session may have").into())
        }
        Outcome::Raised => {
            let raised = exit.done.and_then(|done| done.error);
            let (name, message) =
                raised.map(|raised| (raised.name, raised.message)).unwrap_or_default();
            tracing::warn!(name, message, "The installer has failed");
            if message.contains("/opt/woma/installer") {
                let error = installer("this server has no installer");
                return Err(error.with_hint("`woma env create` fetches it").into());
            }
            Err(installer("the installer has failed").into())
        }
        Outcome::Crashed(_) | Outcome::NeverStarted { .. } => {
            Err(installer("the installer has crashed").into())
        }
    }
}

pub(super) fn installer(message: &str) -> PackageError {
    PackageError::new(PackageProblem::Installer, message)
}

pub(super) fn timed_out(order: &Order<'_>) -> PackageError {
    let names: Vec<&str> = order.wanted.iter().map(|one| one.key.as_str()).take(5).collect();
    let message = format!("the installation of {} took too long and was stopped", names.join(", "));
    PackageError::new(PackageProblem::TimedOut, message)
        .with_hint("install fewer packages at once; PACKAGE_TIMEOUT sets the limit")
}

/// The reason of a failure: the gateway's, otherwise the installer's in a few lines.
pub(super) fn failure(gateway: &Gateway, log: &str) -> PackageError {
    if let Some(error) = gateway.failure() {
        return error;
    }
    let is_error = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("error") || line.starts_with('×') || line.starts_with("hint")
    };
    let lines: Vec<&str> = log.lines().collect();
    let first = lines.iter().position(is_error).unwrap_or(0);
    let mut text = String::new();
    for line in lines.iter().skip(first).take(REASON_LINES_MAX) {
        let line = line.trim().trim_start_matches(['×', '│', '╰', '├', '─', '▶', ' ']);
        let line = line.trim_start_matches("error: ").trim_start_matches("cause: ");
        if !line.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(line);
        }
    }
    let text: String = text.chars().take(REASON_CHARS_MAX).collect();
    let is_source = text.contains("no wheels") || text.contains("building from source");
    let error = PackageError::new(
        PackageProblem::NoSolution,
        match text.is_empty() {
            true => "the installer has failed without a reason".to_owned(),
            false => text,
        },
    );
    match is_source {
        true => error.with_hint(
            "there is no wheel for this Python, and this server builds none \
             (PACKAGE_ALLOW_SOURCE): another version of the package may have one",
        ),
        false => error,
    }
}

/// Packages that the cell has installed, if it had them before or the index has sent them.
pub(super) fn checked(
    packages: &Packages,
    order: &Order<'_>,
    gateway: &Gateway,
    reply: &Reply,
) -> Result<PackageSet, PackageError> {
    let served: BTreeMap<(String, String), String> = gateway
        .served()
        .into_iter()
        .filter_map(|(file, sha256)| Some((wheel(&file)?, sha256)))
        .collect();
    let replaced: BTreeMap<&str, &str> =
        reply.replaced.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    let mut set = Vec::new();
    for (name, version) in &reply.packages {
        let (name, version) = (key(name), version.clone());
        let is_reinstalled =
            order.change.reinstall && order.wanted.iter().any(|one| one.key == name);
        let before = order.earlier.packages.iter().find(|package| package.name == name);
        let before = before.filter(|package| package.version == version && !is_reinstalled);
        if let Some(package) = before {
            set.push(package.clone());
            continue;
        }
        let sha256 = served.get(&(name.clone(), version.clone())).cloned();
        if sha256.is_none() && !packages.settings.allows_source {
            return Err(installer("the installer has left a package that the index did not send"));
        }
        let environment =
            order.facts.distributions.present.get(&name).map(|(_, version)| version.clone());
        let replaces = environment.filter(|_| replaced.contains_key(name.as_str()));
        let replaces = replaces.or_else(|| {
            let before = order.earlier.packages.iter().find(|package| package.name == name);
            before.and_then(|package| package.replaces.clone())
        });
        set.push(SessionPackage { name, version, sha256, replaces });
    }
    let most = packages.settings.count_max;
    if set.len() > most {
        let message = format!("a session may have {most} packages (PACKAGE_MAX_COUNT)");
        return Err(PackageError::new(PackageProblem::TooMany, message));
    }
    set.sort_by(|a, b| a.name.cmp(&b.name));
    set.dedup_by(|a, b| a.name == b.name);
    // What was built from source is whatever its author wanted: it is shared with nothing else.
    let salt = match set.iter().all(|package| package.sha256.is_some()) {
        true => String::new(),
        false => ExecutionId::mint().to_string(),
    };
    let layer = Layers::name(&order.facts.distributions.environment, &set, &salt);
    Ok(PackageSet { layer, packages: set })
}
