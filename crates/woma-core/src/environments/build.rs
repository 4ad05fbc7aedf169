//! Creation of one environment: a list of steps in a staging folder, then one rename. A failure in
//! between leaves no environment of that name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::lock::Held;
use super::python::{self, Facts};
use super::record::{self, Record};
use super::uv::{Uv, remove_tree, run};
use super::{CreateOptions, Environment, Error, LOCK_COPY, Progress, Report, packages};

/// Environment to create.
pub(super) struct Request<'a> {
    pub(super) name: &'a str,
    pub(super) lock_text: &'a str,
    /// The operator's lock, passed by path so that error messages of `uv` name it.
    pub(super) lock_path: Option<&'a Path>,
    pub(super) python: &'a Facts,
    pub(super) options: &'a CreateOptions,
}

/// Request with its paths and its installer, resolved before anything is written.
pub(super) struct Plan<'a> {
    pub(super) request: &'a Request<'a>,
    /// On the same file system as `destination`.
    pub(super) staging: &'a Path,
    pub(super) destination: &'a Path,
    pub(super) uv: &'a Uv,
}

/// Creates an environment; a failure leaves nothing.
pub(super) fn build(
    plan: &Plan<'_>,
    held: &Held,
    report: &mut Report<'_>,
) -> Result<Environment, Error> {
    remove_tree(plan.staging)?;
    let made = steps(plan, held, report);
    if made.is_err()
        && let Err(error) = remove_tree(plan.staging)
    {
        // The cause of the failure is returned; the next creation removes the leftover.
        tracing::warn!(%error, "An unfinished environment could not be removed");
    }
    made
}

fn steps(plan: &Plan<'_>, held: &Held, report: &mut Report<'_>) -> Result<Environment, Error> {
    report(Progress::CreatingVenv);
    let lock_path = create(plan, held)?;
    // Probed while empty: start-up hooks of packages must not run outside the sandbox.
    let facts = python::probe(&plan.staging.join("bin/python"))?;
    report(Progress::Installing(String::new()));
    install(plan, &lock_path, held, report)?;
    let site_packages =
        plan.staging.join("lib").join(facts.version.library()).join("site-packages");
    if !site_packages.join("IPython").is_dir() {
        let reason = "the lock does not include `ipython`, which the kernel needs".to_owned();
        return Err(Error::Step { doing: "installing packages", reason });
    }
    report(Progress::CompilingBytecode);
    compile(plan, &facts, &site_packages, held)?;
    let record = Record {
        python: facts.base_executable.clone(),
        version: facts.version,
        lock_digest: record::digest(plan.request.lock_text),
        created_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()),
        packages: packages::list(&[site_packages])?.len(),
        uv_version: plan.uv.version.clone(),
        base_prefix: facts.base_prefix.clone(),
        base_mounts: base_mounts(&facts),
    };
    record::write(plan.staging, &record)?;
    make_readable(plan.staging)?;
    fs::rename(plan.staging, plan.destination).map_err(Error::io("rename", plan.staging))?;
    Ok(record.environment(plan.request.name, plan.destination))
}

/// Creates an empty relocatable environment with a copy of the lock; returns the lock to install.
fn create(plan: &Plan<'_>, held: &Held) -> Result<PathBuf, Error> {
    let mut command = Command::new(&plan.uv.path);
    command.args(["venv", "--quiet", "--relocatable", "--no-project", "--python"]);
    // The resolved file, not a link such as `python3` that may point to another version later.
    command.arg(&plan.request.python.base_executable).arg(plan.staging);
    // Not the current folder: a project there would add its settings.
    command.current_dir(parent(plan.staging));
    run("creating the environment", &mut command, held, &mut |_| ())?;
    let copy = plan.staging.join(LOCK_COPY);
    fs::write(&copy, plan.request.lock_text).map_err(Error::io("write", &copy))?;
    Ok(plan.request.lock_path.map_or(copy, Path::to_owned))
}

/// Locks requirements for one interpreter: versions with their hashes, wheels only. `work`: a
/// folder for it, which is removed.
pub(super) fn lock(
    work: PathBuf,
    packages: &[String],
    (uv, python, options): (&Uv, &Facts, &CreateOptions),
    held: &Held,
) -> Result<String, Error> {
    remove_tree(&work)?;
    fs::create_dir(&work).map_err(Error::io("create", &work))?;
    let work = Work(work);
    let (wanted, locked) = (work.0.join("requirements.in"), work.0.join("requirements.txt"));
    let mut text = packages.join("\n");
    text.push_str("\nipython\n");
    fs::write(&wanted, text).map_err(Error::io("write", &wanted))?;
    let mut command = Command::new(&uv.path);
    command.args(["pip", "compile", "--quiet", "--color", "never", "--generate-hashes"]);
    command.args(["--no-header", "--no-annotate", "--only-binary", ":all:"]);
    command.arg("--python").arg(&python.base_executable);
    command.arg("--output-file").arg(&locked).arg(&wanted).current_dir(&work.0);
    if let Some(wheelhouse) = options.wheelhouse_checked()? {
        command.args(["--offline", "--no-index", "--find-links"]).arg(wheelhouse);
    }
    run("locking the packages", &mut command, held, &mut |_| ())?;
    fs::read_to_string(&locked).map_err(Error::io("read", &locked))
}

/// A folder that is removed when it is dropped.
struct Work(PathBuf);

impl Drop for Work {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0) {
            tracing::warn!(%error, "The folder of a lock could not be removed");
        }
    }
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
    command.arg("--python").arg(plan.staging.join("bin/python")).arg("-r").arg(lock_path);
    command.current_dir(parent(plan.staging));
    if let Some(wheelhouse) = plan.request.options.wheelhouse_checked()? {
        command.args(["--offline", "--no-index", "--find-links"]).arg(wheelhouse);
    }
    run("installing packages", &mut command, held, &mut |line| {
        report(Progress::Installing(line.trim().to_owned()));
    })
}

/// Compiles all modules. Sessions see the environment read-only and would compile at every start.
fn compile(plan: &Plan<'_>, facts: &Facts, site_packages: &Path, held: &Held) -> Result<(), Error> {
    let compileall = |jobs: &str| {
        // The base interpreter: that of the environment would run start-up hooks of packages.
        let mut command = Command::new(&facts.base_executable);
        command.args(["-I", "-m", "compileall", "-qq", "-j", jobs]);
        // `SOURCE_DATE_EPOCH` in the environment would select another mode.
        command.args(["--invalidation-mode", "timestamp"]);
        command
    };
    // One job if worker processes fail, as in a container without shared memory.
    for jobs in ["0", "1"] {
        let mut command = compileall(jobs);
        // Tracebacks must name the final path, not the staging folder.
        command.arg("-f").arg("-s").arg(plan.staging).arg("-p").arg(plan.destination);
        command.arg(plan.staging.join("lib"));
        let ended = run("compiling bytecode", &mut command, held, &mut |_| ());
        if site_packages.join("IPython/__pycache__").is_dir() {
            // `compileall` fails for any file of another Python version, which packages may
            // contain.
            compile_stdlib(facts, compileall("0"), held);
            return Ok(());
        }
        if jobs == "1" {
            ended?;
        }
    }
    let reason = format!("no bytecode was written to `{}`", site_packages.display());
    Err(Error::Step { doing: "compiling bytecode", reason })
}

/// Compiles the standard library of an interpreter that is not the system's.
fn compile_stdlib(facts: &Facts, mut command: Command, held: &Held) {
    if python::mounts(std::slice::from_ref(&facts.stdlib)).is_empty() {
        return;
    }
    command.args(["-x", "/(site-packages|test|tests|lib2to3)/"]).arg(&facts.stdlib);
    if let Err(error) = run("compiling the standard library", &mut command, held, &mut |_| ()) {
        tracing::debug!(%error, "Parts of the standard library were not compiled");
    }
}

/// Makes all files readable: sessions run as other users, and the operator's umask may be strict.
fn make_readable(folder: &Path) -> Result<(), Error> {
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
    // Files are hard links into the installer's cache: change only those that need it.
    if widened == mode {
        return Ok(());
    }
    let permissions = fs::Permissions::from_mode(widened);
    fs::set_permissions(path, permissions).map_err(Error::io("make readable", path))
}

/// Mounts outside the environment; its own folder is added at its destination.
fn base_mounts(facts: &Facts) -> Vec<PathBuf> {
    let is_base = |folder: &&PathBuf| !folder.starts_with(&facts.prefix);
    python::mounts(&facts.folders.iter().filter(is_base).cloned().collect::<Vec<_>>())
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}
