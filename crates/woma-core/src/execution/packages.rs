//! One change of a session's packages: solved, downloaded and unpacked in a cell of its own, and
//! shown to the session as `/packages`.
//!
//! The cell sees an index on a port of its room and nothing else of the network. What it leaves is
//! hostile: it becomes a layer only if it has what the index has sent.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use woma_sandbox::{Cell, Limits, RoomAddress, RoomFolders, Sandbox, Spec, Workspace};

use super::Executor;
use super::environments::EnvironmentFacts;
use super::installer::{Order, Reply, checked, failure, installer, request, run, timed_out};
use crate::error::Error;
use crate::model::caller::CallerId;
use crate::model::{
    Execution, ExecutionId, PackageAction, PackageChange, PackageError, PackageProblem,
    PackageReport, PackageSet, SessionPackage,
};
use crate::packages::gateway::{Gateway, PORT};
use crate::packages::layers::size_of;
use crate::packages::names::{self, Requirement, key};
use crate::packages::{Distributions, Packages};
use crate::session::state::Session;
use crate::storage::layout::session_folder;
use crate::workspace::changes::Passing;
use crate::workspace::files::blocking;
use crate::workspace::quota::Grant;

/// Error of an import that finds nothing.
const MISSING: &str = "ModuleNotFoundError";
/// Name of the folder that the cell leaves.
const LAYER: &str = "layer";
/// Disk space of a cell that installs, as a multiple of what a session may have: the packages before
/// and after the change.
const DISK_FACTOR: u64 = 2;
/// Files of such a cell.
const FILES_MAX: u64 = 400_000;
/// Time that a cell has beyond the limit of a change, to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// The environment of one change.
pub(crate) struct ChangeContext {
    pub(crate) stop: CancellationToken,
    /// Learns what is being downloaded.
    pub(crate) progress: Option<mpsc::UnboundedSender<String>>,
}

impl Executor {
    pub(crate) fn package_room(&self) -> Result<&Arc<Packages>, Error> {
        let packages = self.packages.as_ref().filter(|packages| packages.settings.is_on);
        Ok(packages.ok_or_else(Packages::off)?)
    }

    /// Changes the packages of a session, and shows the new ones to its kernel.
    pub(crate) async fn change_packages(
        &self,
        owner: &CallerId,
        session: &Arc<Session>,
        change: &PackageChange,
        context: &ChangeContext,
    ) -> Result<PackageReport, Error> {
        let began = Instant::now();
        let done = self.change_in_turn(owner, session, change, context, began).await;
        self.metrics.record_packages(done.is_ok());
        if let Err(Error::Package(refused)) = &done
            && refused.problem == PackageProblem::Blocked
        {
            tracing::warn!(
                target: "woma::audit",
                caller = %owner,
                session = %session.id,
                "Blocked suspicious package: {}",
                refused.message
            );
        }
        let mut report = done?;
        report.took = began.elapsed();
        Ok(report)
    }

    async fn change_in_turn(
        &self,
        owner: &CallerId,
        session: &Arc<Session>,
        change: &PackageChange,
        context: &ChangeContext,
        began: Instant,
    ) -> Result<PackageReport, Error> {
        let packages = self.package_room()?;
        let wanted = names::requirements(&change.requirements, &packages.settings.blocked)?;
        names::check_constraints(&change.constraints)?;
        let limit = packages.settings.timeout;
        let deadline = began + change.timeout.unwrap_or(limit).min(limit);
        let _turn = tokio::select! {
            turn = session.packages.turn() => turn,
            () = context.stop.cancelled() => return Err(Error::GivenUp),
        };
        let earlier = session.packages.set();
        let facts = self.facts_of(session)?;
        let base = &facts.distributions;
        let mut report = report_of(session);
        let left = match change.action {
            PackageAction::Install => unmet(base, &earlier, change, wanted, &mut report),
            PackageAction::Uninstall => present(base, &earlier, wanted, &mut report)?,
        };
        if left.is_empty() {
            return Ok(report);
        }
        let facts = &*facts;
        let order = Order { owner, change, wanted: &left, earlier: &earlier, deadline, facts };
        let request = request_key(&order);
        let set = match packages.solved(&request) {
            Some(set) => set,
            None => {
                packages.check_rate(owner).map_err(|retry_after| Error::InstallsLimited {
                    per_minute: packages.settings.per_minute,
                    retry_after,
                })?;
                let set = self.install(packages, session, &order, context).await?;
                packages.remember(request, set.clone());
                set
            }
        };
        tell_changes(&earlier, &set, &mut report);
        if change.action == PackageAction::Install {
            tell_met(base, &set, &left, &mut report);
        }
        session.packages.change(set);
        if let Some(room) = session.packages.room() {
            self.show_packages(owner, session, &room).await;
        }
        Ok(report)
    }

    /// Shows a session's packages in a room; says so if it has lost them.
    pub(crate) async fn show_packages(
        &self,
        owner: &CallerId,
        session: &Session,
        room: &RoomFolders,
    ) -> Option<String> {
        let set = session.packages.set();
        if set.layer.is_empty() {
            return None;
        }
        let packages = self.packages.as_ref()?;
        let lost = |why: &str| {
            let pins: Vec<String> = set.packages.iter().map(SessionPackage::pin).collect();
            (!pins.is_empty()).then(|| {
                format!("{why}; install again what is needed: pip install {}", pins.join(" "))
            })
        };
        let Some(layer) = packages.layers.take(owner, &set.layer) else {
            session.packages.change(PackageSet::default());
            return lost("the packages of this session are not on this server any more");
        };
        match room.show_packages(&layer.folder).await {
            Ok(()) => {
                session.packages.hold(layer);
                None
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Packages cannot be shown"
                );
                lost("the packages of this session could not be shown")
            }
        }
    }

    async fn install(
        &self,
        packages: &Arc<Packages>,
        session: &Session,
        order: &Order<'_>,
        context: &ChangeContext,
    ) -> Result<PackageSet, Error> {
        let left = || order.deadline.saturating_duration_since(Instant::now());
        let place = tokio::select! {
            place = packages.installs.acquire(order.owner) => place?,
            () = context.stop.cancelled() => return Err(Error::GivenUp),
            () = tokio::time::sleep(left()) => {
                let limit = packages.installs.most(order.owner);
                return Err(Error::PoolBusy { what: "installations", limit });
            }
        };
        let workspaces = self.workspaces.as_ref().ok_or(Error::KeepsNoFiles)?;
        if workspaces.storage.sessions_reserve.refuses(0) {
            return Err(Error::DiskReserve);
        }
        let passing = Passing(workspaces.storage.ephemeral_folder(&ExecutionId::mint()));
        let gateway =
            Gateway::new(Arc::clone(packages), order.owner.clone(), context.progress.clone());
        let worked = tokio::select! {
            worked = self.work(packages, order, &passing, &gateway, context) => worked,
            () = tokio::time::sleep(left() + GRACE) => Err(timed_out(order).into()),
        };
        let reply = worked?;
        if !reply.ok {
            return Err(failure(&gateway, &reply.log).into());
        }
        let set = checked(packages, order, &gateway, &reply)?;
        let bytes = {
            let folder = passing.0.join(LAYER);
            blocking(move || Ok(size_of(&folder)?)).await?
        };
        if bytes > packages.settings.bytes_max {
            return Err(too_large(packages).into());
        }
        let limit = session.home.as_ref().and_then(|home| home.storage);
        let grant = workspaces.grant(order.owner, limit, bytes).await?;
        let (room, owner) = (Arc::clone(packages), order.owner.clone());
        let (layer, folder) = (set.layer.clone(), passing.0.join(LAYER));
        blocking(move || Ok(room.layers.adopt(&owner, &layer, &folder, bytes)?)).await?;
        grant.into_iter().for_each(Grant::stored);
        drop((passing, place));
        Ok(set)
    }

    /// Has a new cell do the work; the cell is gone when this returns.
    async fn work(
        &self,
        packages: &Arc<Packages>,
        order: &Order<'_>,
        passing: &Passing,
        gateway: &Arc<Gateway>,
        context: &ChangeContext,
    ) -> Result<Reply, Error> {
        let path = passing.0.clone();
        blocking(move || Ok(session_folder(&path).map(drop)?)).await?;
        // Held: a sandbox ends with its last user.
        let sandbox = self.environments.sandbox(order.facts).await?;
        let mut cell = self.open_installer(&sandbox, packages, passing, order).await?;
        let worked = self.work_in(&mut cell, packages, order, gateway, context).await;
        if let Err(error) = cell.close().await {
            tracing::warn!(%error, "The end of an installation could not be awaited");
        }
        worked
    }

    async fn work_in(
        &self,
        cell: &mut Cell,
        packages: &Arc<Packages>,
        order: &Order<'_>,
        gateway: &Arc<Gateway>,
        context: &ChangeContext,
    ) -> Result<Reply, Error> {
        let has_earlier = !order.earlier.packages.is_empty();
        if has_earlier {
            let layer = packages.layers.take(order.owner, &order.earlier.layer);
            let layer = layer.ok_or_else(|| installer("the session's packages are gone"))?;
            cell.folders().show_packages(&layer.folder).await?;
        }
        if packages.index.is_unknown() {
            let found = run(cell, json!({"do": "index"}), order, context).await?;
            packages.index.set_default(&found.index)?;
        }
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT);
        let listener =
            std::net::TcpListener::from(cell.sockets().listen(&RoomAddress::Tcp(at)).await?);
        let listener = TcpListener::from_std(listener)?;
        let _serving = AbortOnDropHandle::new(tokio::spawn(Arc::clone(gateway).serve(listener)));
        run(cell, request(packages, order, has_earlier), order, context).await
    }

    async fn open_installer(
        &self,
        sandbox: &Sandbox,
        packages: &Packages,
        passing: &Passing,
        order: &Order<'_>,
    ) -> Result<Cell, Error> {
        let settings = &self.settings.limits;
        let limits = Limits {
            wall: order.deadline.saturating_duration_since(Instant::now()).min(settings.wall),
            workspace_bytes: packages.settings.bytes_max.saturating_mul(DISK_FACTOR),
            workspace_files: FILES_MAX,
            file_bytes: packages.settings.bytes_max,
            ..settings.clone()
        };
        let workspace = Workspace::Folder(passing.0.clone());
        let mut cell = sandbox.open(&Spec { limits, workspace, ..Spec::default() }).await?;
        // Nothing in it is served but the index.
        drop(cell.take_service());
        Ok(cell)
    }
}

impl Executor {
    /// Adds to the advice on a missing module how to install it.
    pub(super) fn tell_install(&self, facts: &EnvironmentFacts, execution: &mut Execution) {
        if self.package_room().is_err() {
            return;
        }
        let present = &facts.distributions.present;
        let Some(error) = execution.error.as_ref().filter(|error| error.name == MISSING) else {
            return;
        };
        let module = error.message.strip_prefix("No module named '");
        let Some(module) = module.and_then(|rest| rest.strip_suffix('\'')) else { return };
        // Of one that is there, only a submodule is missing.
        let known =
            woma_policy::distribution(module).filter(|known| !present.contains_key(&key(known)));
        let is_name = module.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        execution.hint = match (execution.hint.take(), known) {
            (hint, Some(package)) => {
                let hint = hint.map(|hint| hint + " ").unwrap_or_default();
                Some(format!("{hint}Install it: %pip install {package}"))
            }
            (None, None) if is_name && names::requirements(&[module.to_owned()], &[]).is_ok() => {
                Some(format!(
                    "If a package of that name is what you need, install it: %pip install {module}"
                ))
            }
            (hint, _) => hint,
        };
    }
}

fn report_of(session: &Session) -> PackageReport {
    PackageReport {
        session: session.id.clone(),
        installed: Vec::new(),
        removed: Vec::new(),
        satisfied: Vec::new(),
        absent: Vec::new(),
        notes: Vec::new(),
        took: Duration::ZERO,
    }
}

/// The requirements that are left for the installer. A name, or a name with the very version that is
/// there, is met; ranges are the installer's to judge.
fn unmet(
    base: &Distributions,
    set: &PackageSet,
    change: &PackageChange,
    wanted: Vec<Requirement>,
    report: &mut PackageReport,
) -> Vec<Requirement> {
    // Constraints are the installer's to judge.
    let is_forced = change.upgrade || change.reinstall || !change.constraints.is_empty();
    let version = |name: &str| {
        let own = set.packages.iter().find(|package| package.name == name);
        let own = own.map(|package| package.version.clone());
        own.or_else(|| base.present.get(name).map(|(_, version)| version.clone()))
    };
    wanted
        .into_iter()
        .filter(|one| match version(&one.key) {
            Some(there) if !is_forced && (one.is_bare || one.exact.as_deref() == Some(&there)) => {
                report.satisfied.push((one.text.clone(), there));
                false
            }
            _ => true,
        })
        .collect()
}

/// The packages to remove that the session has.
fn present(
    base: &Distributions,
    set: &PackageSet,
    wanted: Vec<Requirement>,
    report: &mut PackageReport,
) -> Result<Vec<Requirement>, PackageError> {
    let mut found = Vec::new();
    for one in wanted {
        if set.packages.iter().any(|package| package.name == one.key) {
            found.push(one);
        } else if base.present.contains_key(&one.key) {
            let message = format!(
                "`{}` belongs to the environment of all sessions and cannot be removed",
                one.key
            );
            return Err(PackageError::new(PackageProblem::Blocked, message));
        } else {
            report.absent.push(one.key);
        }
    }
    Ok(found)
}

fn request_key(order: &Order<'_>) -> (CallerId, String, String) {
    let PackageChange { action, upgrade, pre, reinstall, no_deps, constraints, .. } = order.change;
    let mut texts: Vec<&str> = order.wanted.iter().map(|one| one.text.as_str()).collect();
    texts.sort_unstable();
    let texts = [texts.join("\n"), constraints.join("\n")].join("\n\n");
    let flags = format!("{action:?} {upgrade} {pre} {reinstall} {no_deps} {texts}");
    let before = format!("{} {}", order.facts.distributions.environment, order.earlier.layer);
    (order.owner.clone(), before, flags)
}

fn too_large(packages: &Packages) -> PackageError {
    let megabytes = packages.settings.bytes_max / (1024 * 1024);
    let message = format!("the packages of a session may have {megabytes} MB (PACKAGE_MAX_MB)");
    PackageError::new(PackageProblem::TooLarge, message)
}

/// Adds the requirements that the installer has found met.
fn tell_met(
    base: &Distributions,
    set: &PackageSet,
    wanted: &[Requirement],
    report: &mut PackageReport,
) {
    for one in wanted {
        let is_named = |package: &&SessionPackage| package.name == one.key;
        if report.installed.iter().any(|package| package.name == one.key) {
            continue;
        }
        let own = set.packages.iter().find(is_named).map(|package| package.version.clone());
        let version = own.or_else(|| base.present.get(&one.key).map(|(_, v)| v.clone()));
        if let Some(version) = version {
            report.satisfied.push((one.text.clone(), version));
        }
    }
}

fn tell_changes(before: &PackageSet, after: &PackageSet, report: &mut PackageReport) {
    for package in &after.packages {
        if before.packages.contains(package) {
            continue;
        }
        if let Some(version) = &package.replaces {
            report.notes.push(format!(
                "{} {} replaces {version} of the environment; code that has it imported already \
                 keeps that until the session is reset",
                package.name, package.version
            ));
        }
        report.installed.push(package.clone());
    }
    let is_gone = |one: &&SessionPackage| !after.packages.iter().any(|now| now.name == one.name);
    report.removed.extend(before.packages.iter().filter(is_gone).cloned());
}
