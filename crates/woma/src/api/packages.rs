//! Packages of sessions: arguments of their requests, and replies.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use woma_core::{
    Caller, Code, PackageAction, PackageChange, PackageReport, SessionId, SessionPackage,
};

use super::arguments::{Arguments, Problem};
use super::error::Envelope;
use super::schema::session_id_field;
use super::state::AppState;

/// Names of the argument that has the packages.
pub(crate) const NAMES: &[&str] = &["packages", "package", "package_names", "package_name", "name"];
/// The version of a request for the latest one.
const LATEST: &str = "latest";

/// Packages to install or to remove.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what is read field by field")]
pub(crate) struct PackagesBody {
    /// Names with their versions, as for pip, such as `requests>=2.28.0`: a list, or a text with
    /// spaces between them.
    #[schemars(with = "Vec<String>")]
    packages: Vec<String>,
    /// Version of the one package that is named; `latest`, if it is left out.
    #[schemars(with = "String")]
    version: Option<String>,
    /// Installs the latest version of what is installed already.
    #[schemars(with = "bool")]
    upgrade: Option<bool>,
    /// Allows versions before a release.
    #[schemars(with = "bool")]
    pre: Option<bool>,
    /// Session; `default`, if neither the path nor this names one.
    #[schemars(schema_with = "session_id_field")]
    session_id: Option<String>,
    /// Seconds until the installation is stopped.
    #[schemars(with = "f64")]
    timeout: Option<f64>,
}

/// A package of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct PackageBody {
    pub(crate) name: String,
    pub(crate) version: String,
    /// SHA-256 of the file that it was installed from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) sha256: Option<String>,
    /// Version of the environment's package that it replaces in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) replaces: Option<String>,
}

impl From<SessionPackage> for PackageBody {
    fn from(package: SessionPackage) -> Self {
        let SessionPackage { name, version, sha256, replaces } = package;
        Self { name, version, sha256, replaces }
    }
}

/// Result of an installation or of a removal.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct PackagesReply {
    pub(crate) success: bool,
    pub(crate) message: String,
    /// Version of the first package that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(crate) installed_version: Option<String>,
    /// Seconds.
    pub(crate) installation_time: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "session_id_field")]
    pub(crate) session_id: Option<String>,
    /// Packages that were installed, with dependencies.
    pub(crate) installed: Vec<PackageBody>,
    pub(crate) removed: Vec<PackageBody>,
    /// Requirements that were met already.
    pub(crate) already_installed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// All packages of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct PackageTable {
    pub(crate) session_id: String,
    /// Packages that the session has installed.
    pub(crate) session: Vec<PackageBody>,
    /// Packages of every session.
    pub(crate) environment: Vec<PackageBody>,
    pub(crate) total: usize,
}

/// Changes the packages of a session. `named`: the session, if the path has it.
pub(crate) async fn change(
    state: &AppState,
    caller: &Caller,
    action: PackageAction,
    mut arguments: Arguments,
    named: Option<SessionId>,
    progress: Option<mpsc::UnboundedSender<String>>,
) -> Result<PackagesReply, Envelope> {
    let own = arguments.text(&["session_id"])?;
    let session = match named {
        Some(session) => session,
        None => state.existing_session(own.as_deref())?,
    };
    let change = read(action, &mut arguments)?;
    let first = change.requirements.first().cloned().unwrap_or_default();
    let report = state.service.change_packages(caller, &session, change, progress).await?;
    let mut reply = PackagesReply::new(report, &first);
    reply.warnings.extend(arguments.unknown());
    Ok(reply)
}

fn read(action: PackageAction, arguments: &mut Arguments) -> Result<PackageChange, Envelope> {
    let what = match action {
        PackageAction::Install => "the packages to install",
        PackageAction::Uninstall => "the packages to remove",
    };
    let mut requirements = match arguments.value(NAMES)? {
        Some(Value::String(text)) if !text.trim().is_empty() => vec![text],
        Some(Value::Array(items)) if !items.is_empty() => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().ok_or_else(|| wrong("a list of texts"))?
        }
        Some(Value::String(_) | Value::Array(_)) | None => {
            return Err(Problem::Missing { name: "packages", what }.into());
        }
        Some(_) => return Err(wrong("a text or a list of texts").into()),
    };
    let version = arguments.text(&["version"])?.filter(|text| !text.trim().is_empty());
    if let Some(version) = version.filter(|version| !version.eq_ignore_ascii_case(LATEST)) {
        let [only] = requirements.as_mut_slice() else {
            let message = "`version` is for one package: write `name==version` for several";
            return Err(Envelope::new(Code::InvalidArgument, message));
        };
        let version = version.trim();
        let has_operator = version.starts_with(['=', '<', '>', '!', '~']);
        *only = format!("{}{}{version}", only.trim(), if has_operator { "" } else { "==" });
    }
    Ok(PackageChange {
        action,
        requirements,
        upgrade: arguments.flag(&["upgrade"])?.unwrap_or(false),
        pre: arguments.flag(&["pre"])?.unwrap_or(false),
        timeout: arguments
            .number(&["timeout"])?
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .filter(|timeout| !timeout.is_zero()),
        ..PackageChange::default()
    })
}

fn wrong(expected: &'static str) -> Problem {
    Problem::Wrong { name: "packages", expected, got: "something else".to_owned() }
}

impl PackagesReply {
    fn new(report: PackageReport, first: &str) -> Self {
        let is_of_first = |name: &str| {
            let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '.'], "-");
            let end = first.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
            plain(first.get(..end.unwrap_or(first.len())).unwrap_or_default()) == plain(name)
        };
        let installed_version = {
            let own = report.installed.iter().find(|package| is_of_first(&package.name));
            own.map(|package| package.version.clone())
                .or_else(|| report.satisfied.first().map(|(_, version)| version.clone()))
        };
        let pins = |packages: &[SessionPackage]| {
            packages.iter().map(SessionPackage::pin).collect::<Vec<_>>().join(" ")
        };
        let already_installed: Vec<String> =
            report.satisfied.iter().map(|(text, version)| format!("{text} ({version})")).collect();
        let mut parts = Vec::new();
        if !report.installed.is_empty() {
            parts.push(format!("Installed {}.", pins(&report.installed)));
        }
        if !report.removed.is_empty() {
            parts.push(format!("Removed {}.", pins(&report.removed)));
        }
        if !already_installed.is_empty() {
            parts.push(format!("Already installed: {}.", already_installed.join(", ")));
        }
        if !report.absent.is_empty() {
            parts.push(format!("Not installed: {}.", report.absent.join(", ")));
        }
        if parts.is_empty() {
            parts.push("There was nothing to do.".to_owned());
        }
        Self {
            success: true,
            message: parts.join(" "),
            installed_version,
            installation_time: (report.took.as_secs_f64() * 1000.0).round() / 1000.0,
            session_id: Some(report.session.to_string()),
            installed: report.installed.into_iter().map(PackageBody::from).collect(),
            removed: report.removed.into_iter().map(PackageBody::from).collect(),
            already_installed,
            warnings: report.notes,
        }
    }

    /// A refusal in the shape of an older system.
    pub(crate) fn refusal(message: String) -> Self {
        Self {
            success: false,
            message,
            installed_version: None,
            installation_time: 0.0,
            session_id: None,
            installed: Vec::new(),
            removed: Vec::new(),
            already_installed: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

pub(crate) async fn list(
    state: &AppState,
    caller: &Caller,
    session: &SessionId,
) -> Result<PackageTable, Envelope> {
    let listed = state.service.packages(caller, session).await?;
    let environment = listed.environment.into_iter().map(|(name, version)| PackageBody {
        name,
        version,
        sha256: None,
        replaces: None,
    });
    let session_packages: Vec<PackageBody> =
        listed.session.into_iter().map(PackageBody::from).collect();
    let environment: Vec<PackageBody> = environment.collect();
    Ok(PackageTable {
        session_id: session.to_string(),
        total: session_packages.len() + environment.len(),
        session: session_packages,
        environment,
    })
}
