//! Making one environment: a straight list of steps in a folder of its own, and one rename at the
//! end. Whatever stops it in between, nothing bears the environment's name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::lock::Held;
use super::python::{self, Facts};
use super::record::{self, Record};
use super::uv::{Uv, remove_tree, run};
use super::{CreateOptions, Environment, Error, Progress, Report, packages};

/// What to make, decided before anything is written.
pub(super) struct Plan<'a> {
    pub(super) name: &'a str,
    /// Where it is made, and where it then belongs; both on one file system.
    pub(super) making: &'a Path,
    pub(super) place: &'a Path,
    pub(super) python: &'a Facts,
    pub(super) uv: &'a Uv,
    pub(super) lock_text: &'a str,
    /// The operator's own lock, named so that complaints speak of it.
    pub(super) lock_path: Option<&'a Path>,
    pub(super) options: &'a CreateOptions,
}

/// Makes it, or leaves nothing.
pub(super) fn build(
    plan: &Plan<'_>,
    held: &Held,
    report: &mut Report<'_>,
) -> Result<Environment, Error> {
    remove_tree(plan.making)?;
    let made = steps(plan, held, report);
    if made.is_err()
        && let Err(error) = remove_tree(plan.making)
    {
        // The reason for the failure matters more; the next creation sweeps what is left.
        tracing::warn!(%error, "An unfinished environment could not be removed");
    }
    made
}

fn steps(plan: &Plan<'_>, held: &Held, report: &mut Report<'_>) -> Result<Environment, Error> {
    report(Progress::CreatingVenv);
    let lock_path = create(plan, held)?;
    // Asked while it is empty: a package's start-up hooks must not run outside of the sandbox.
    let facts = python::probe(&plan.making.join("bin/python"))?;
    report(Progress::Installing(String::new()));
    install(plan, &lock_path, held, report)?;
    let site_packages = plan.making.join("lib").join(facts.version.library()).join("site-packages");
    if !site_packages.join("IPython").is_dir() {
        let reason = "the lock does not include `ipython`, which the kernel needs".to_owned();
        return Err(Error::Step { doing: "installing packages", reason });
    }
    report(Progress::CompilingBytecode);
    compile(plan, &facts, &site_packages, held)?;
    let record = Record {
        python: facts.base_executable.clone(),
        version: facts.version,
        lock_digest: record::digest(plan.lock_text),
        created_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()),
        packages: packages::list(&[site_packages])?.len(),
        uv_version: plan.uv.version.clone(),
        base_prefix: facts.base_prefix.clone(),
        base_mounts: base_mounts(&facts),
    };
    record::write(plan.making, &record)?;
    open_to_all(plan.making)?;
    fs::rename(plan.making, plan.place).map_err(Error::io("rename", plan.making))?;
    Ok(record.environment(plan.name, plan.place))
}

/// An empty environment that can be moved, and the lock it is filled from, kept inside it.
fn create(plan: &Plan<'_>, held: &Held) -> Result<PathBuf, Error> {
    let mut command = Command::new(&plan.uv.path);
    command.args(["venv", "--quiet", "--relocatable", "--no-project", "--python"]);
    // The real file, not a link such as `python3` that another version may take over one day.
    command.arg(&plan.python.base_executable).arg(plan.making);
    // Not where the operator stands: a project there would lend us its settings.
    command.current_dir(parent(plan.making));
    run("creating the environment", &mut command, held, &mut |_| ())?;
    let kept = plan.making.join("woma-environment.lock");
    fs::write(&kept, plan.lock_text).map_err(Error::io("write", &kept))?;
    Ok(plan.lock_path.map_or(kept, Path::to_owned))
}

fn install(
    plan: &Plan<'_>,
    lock_path: &Path,
    held: &Held,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let mut command = Command::new(&plan.uv.path);
    command.args([
        "pip",
        "install",
        "--color",
        "never",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]);
    command.arg("--python").arg(plan.making.join("bin/python")).arg("-r").arg(lock_path);
    command.current_dir(parent(plan.making));
    if let Some(wheelhouse) = plan.options.wheelhouse_checked()? {
        command.args(["--offline", "--no-index", "--find-links"]).arg(wheelhouse);
    }
    run("installing packages", &mut command, held, &mut |line| {
        report(Progress::Installing(line.trim().to_owned()));
    })
}

/// Sessions see the environment read-only: what is not compiled now is compiled at every start.
fn compile(plan: &Plan<'_>, facts: &Facts, site_packages: &Path, held: &Held) -> Result<(), Error> {
    let compileall = |jobs: &str| {
        // Not the environment's own, which would run the start-up hooks of its packages.
        let mut command = Command::new(&facts.base_executable);
        command.args(["-I", "-m", "compileall", "-qq", "-j", jobs]);
        // A source date in the caller's environment would otherwise choose another kind.
        command.args(["--invalidation-mode", "timestamp"]);
        command
    };
    // One job where worker processes cannot be had (a container without shared memory).
    for jobs in ["0", "1"] {
        let mut command = compileall(jobs);
        // Tracebacks must name the place where the files will be, not where they are made.
        command.arg("-f").arg("-s").arg(plan.making).arg("-p").arg(plan.place);
        command.arg(plan.making.join("lib"));
        let ended = run("compiling bytecode", &mut command, held, &mut |_| ());
        if site_packages.join("IPython/__pycache__").is_dir() {
            // It fails for any file that is no Python of this version, and packages ship such.
            compile_stdlib(facts, compileall("0"), held);
            return Ok(());
        }
        if jobs == "1" {
            ended?;
        }
    }
    let reason = format!("`{}` holds none afterwards", site_packages.display());
    Err(Error::Step { doing: "compiling bytecode", reason })
}

/// Some interpreters come without their own bytecode; a package manager's is its own affair.
fn compile_stdlib(facts: &Facts, mut command: Command, held: &Held) {
    if python::mounts(std::slice::from_ref(&facts.stdlib)).is_empty() {
        return;
    }
    command.args(["-x", "/(site-packages|test|tests|lib2to3)/"]).arg(&facts.stdlib);
    if let Err(error) = run("compiling the standard library", &mut command, held, &mut |_| ()) {
        tracing::debug!(%error, "Some of the standard library was not compiled");
    }
}

/// Sessions run as other users; a strict umask of the operator must not shut them out.
fn open_to_all(folder: &Path) -> Result<(), Error> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        widen(&folder, 0o555)?;
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let entry = entry.map_err(Error::io("read", &folder))?;
            let kind = entry.file_type().map_err(Error::io("read", entry.path()))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                widen(&entry.path(), 0o444)?;
            }
        }
    }
    Ok(())
}

fn widen(path: &Path, wanted: u32) -> Result<(), Error> {
    let mode = fs::metadata(path).map_err(Error::io("read", path))?.permissions().mode();
    let executable = if mode & 0o100 != 0 { 0o111 } else { 0 };
    let widened = mode | wanted | executable;
    // Files are shared with the installer's cache: touch only those that need it.
    if widened == mode {
        return Ok(());
    }
    let permissions = fs::Permissions::from_mode(widened);
    fs::set_permissions(path, permissions).map_err(Error::io("open to all", path))
}

/// What lies outside of the environment; its own folder is added where it then is.
fn base_mounts(facts: &Facts) -> Vec<PathBuf> {
    let is_base = |folder: &&PathBuf| !folder.starts_with(&facts.prefix);
    python::mounts(&facts.folders.iter().filter(is_base).cloned().collect::<Vec<_>>())
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}
