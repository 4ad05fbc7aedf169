//! Creation, lookup, refusal and removal of environments with real `uv`, real Python, and a
//! wheelhouse of one tiny wheel, so that only the download of `uv` needs a network.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use woma_core::environments::{
    Contents, CreateOptions, DEFAULT_LOCK, Environments, Error, Progress, UV_LOCK, inspect,
};

/// Set for a copy of this test binary that only creates an environment.
const CREATE_IN: &str = "WOMA_TEST_CREATE_IN";
const MAKE_WHEEL: &str = r#"
import hashlib, sys, zipfile
from pathlib import Path
folder = Path(sys.argv[1])
wheel = folder / "ipython-9.0.0-py3-none-any.whl"
info = "ipython-9.0.0.dist-info"
with zipfile.ZipFile(wheel, "w") as archive:
    archive.writestr("IPython/__init__.py", "def shell():\n    return 1\n")
    archive.writestr("hook.pth", f"import os; open({str(folder / 'hook-ran')!r}, 'w').close()\n")
    archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ipython\nVersion: 9.0.0\n")
    tag = "Root-Is-Purelib: true\nTag: py3-none-any\n"
    archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\n" + tag)
    archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\nipython = IPython:shell\n")
    names = [f"{n},," for n in archive.namelist()] + [f"{info}/RECORD,,"]
    archive.writestr(f"{info}/RECORD", "\n".join(names) + "\n")
digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
(folder / "good.lock").write_text(f"ipython==9.0.0 --hash=sha256:{digest}\n")
(folder / "bad.lock").write_text(f"ipython==9.0.0 --hash=sha256:{'0' * 64}\n")
(folder / "empty.lock").write_text("")
(folder / "bare.lock").write_text("ipython==9.0.0\n")
"#;

/// Data directory and wheelhouse of one test.
struct Bench {
    root: TempDir,
    environments: Environments,
    options: CreateOptions,
}

impl Bench {
    /// Removes an environment. A process that another test is starting has this process's locks for
    /// a moment, until it runs its program.
    #[expect(clippy::disallowed_methods, reason = "nothing tells when the other process runs")]
    fn remove(&self, name: &str) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.environments.remove(name) {
                Err(Error::Busy(_)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                removed => return removed,
            }
        }
    }

    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let wheelhouse = root.path().join("wheels");
        fs::create_dir(&wheelhouse).unwrap();
        let made = Command::new("python3").args(["-c", MAKE_WHEEL]).arg(&wheelhouse).status();
        assert!(made.unwrap().success());
        let mut options = CreateOptions::new(search_path_with_uv());
        options.wheelhouse = Some(wheelhouse);
        let environments = Environments::open(&root.path().join("data")).unwrap();
        Self { root, environments, options }
    }

    fn create(&self, name: &str, lock: &str) -> Result<Vec<Progress>, Error> {
        let mut seen = Vec::new();
        let lock = self.root.path().join("wheels").join(lock);
        let mut report = |progress| seen.push(progress);
        self.environments.create(name, &Contents::Lock(lock), &self.options, &mut report)?;
        Ok(seen)
    }

    /// Everything in `envs` but lock files.
    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.path().join("data/envs")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| Path::new(name).extension().is_none_or(|end| end != "lock")).collect()
    }

    /// Adds a script of that name at the front of the search path.
    fn script(&mut self, name: &str, text: &str) -> PathBuf {
        let folder = self.root.path().join("scripts");
        fs::create_dir_all(&folder).unwrap();
        let path = write_script(&folder, name, text);
        let rest = std::env::split_paths(&self.options.search_path).collect::<Vec<_>>();
        self.options.search_path = std::env::join_paths([folder].into_iter().chain(rest)).unwrap();
        path
    }
}

fn write_script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Search path with `uv`, found or downloaded once for all tests and kept between runs.
fn search_path_with_uv() -> OsString {
    static SEARCH_PATH: OnceLock<OsString> = OnceLock::new();
    let found = SEARCH_PATH.get_or_init(|| {
        let shared = Environments::open(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared"));
        let path = std::env::var_os("PATH").unwrap();
        let options = CreateOptions::new(path.clone());
        let uv = shared.unwrap().uv(&options, &mut |_| ()).unwrap();
        let folders = std::iter::once(uv.parent().unwrap().to_owned());
        std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap()
    });
    found.clone()
}

/// The error with its causes, as the command line prints it.
fn sentence(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[test]
fn creates_finds_describes_and_removes_an_environment() {
    let bench = Bench::new();
    let seen = bench.create("mine", "good.lock").unwrap();
    assert!(matches!(seen.first(), Some(Progress::LookingForPython)), "{seen:?}");
    assert!(matches!(seen.last(), Some(Progress::Done { .. })), "{seen:?}");
    assert!(seen.contains(&Progress::Installing("+ ipython==9.0.0".to_owned())), "{seen:?}");
    assert_eq!(bench.entries(), ["mine"]);
    let hook_ran = bench.root.path().join("wheels/hook-ran");
    assert!(!hook_ran.exists(), "a package's start-up hook ran outside the sandbox");

    let found = bench.environments.find("mine").unwrap();
    let prefix = bench.root.path().join("data/envs/mine");
    assert_eq!(found.prefix, prefix);
    assert!(found.mounts.contains(&prefix), "{:?}", found.mounts);
    assert_eq!(found.managed.as_ref().unwrap().packages, 1);

    let info = bench.environments.info("mine").unwrap();
    let packages: Vec<_> = info.packages.iter().map(|p| (&*p.name, &*p.version)).collect();
    assert_eq!(packages, [("ipython", "9.0.0")]);
    assert!(info.bytes_on_disk > 4096);

    // A probe agrees with the record.
    let inspected = inspect(&prefix).unwrap();
    assert_eq!((&inspected.python, &inspected.mounts), (&found.python, &found.mounts));
    assert_eq!((inspected.version, inspected.base_prefix), (found.version, found.base_prefix));

    let again = bench.create("mine", "good.lock").unwrap_err();
    assert_eq!(sentence(&again), "environment `mine` already exists");
    bench.remove("mine").unwrap();
    assert_eq!(bench.entries(), [""; 0]);
    let unknown = bench.remove("mine").unwrap_err();
    assert_eq!(sentence(&unknown), "there is no environment `mine`");
}

#[test]
fn bytecode_and_scripts_name_the_final_path() {
    let bench = Bench::new();
    bench.create("mine", "good.lock").unwrap();
    let environment = bench.environments.find("mine").unwrap();
    let script = "import IPython, marshal, os; print(os.path.exists(IPython.__cached__)); \
                  print(marshal.loads(open(IPython.__cached__, 'rb').read()[16:]).co_filename)";
    let output = Command::new(&environment.python).args(["-IBc", script]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let source = environment.package_folders[0].join("IPython/__init__.py");
    assert_eq!(said, format!("True\n{}\n", source.display()));
    let entry_point = Command::new(environment.prefix.join("bin/ipython")).status().unwrap();
    assert_eq!(entry_point.code(), Some(1), "`shell` returns 1");
}

#[test]
fn finds_the_default_without_work_and_removes_stale_ones() {
    let bench = Bench::new();
    bench.create("mine", "good.lock").unwrap();
    let envs = bench.root.path().join("data/envs");
    // A default of another lock, and one of this lock.
    let record = fs::read_to_string(envs.join("mine/woma-environment.json")).unwrap();
    let digest = bench.environments.find("mine").unwrap().managed.unwrap().lock_digest;
    fs::write(bench.root.path().join("lock"), DEFAULT_LOCK).unwrap();
    let sum = Command::new("sha256sum").arg(bench.root.path().join("lock")).output().unwrap();
    let current = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
    fs::rename(envs.join("mine"), envs.join("default-000000000000")).unwrap();
    bench.create("mine", "good.lock").unwrap();
    fs::rename(envs.join("mine"), envs.join("default-111111111111")).unwrap();
    let path = envs.join("default-111111111111/woma-environment.json");
    fs::write(&path, record.replace(&digest, &current)).unwrap();

    let mut report = |progress| panic!("unexpected work: {progress:?}");
    let found = bench.environments.ensure_default(&bench.options, &mut report).unwrap();
    assert_eq!(found.prefix, envs.join("default-111111111111"));
    assert_eq!(bench.environments.find("default").unwrap(), found);
    assert_eq!(bench.environments.remove_stale().unwrap(), ["default-000000000000"]);
    assert_eq!(bench.entries(), ["default-111111111111"]);
}

#[test]
fn a_refused_lock_leaves_nothing_and_explains() {
    let bench = Bench::new();
    let table = [
        ("bad.lock", "Hash mismatch for `ipython==9.0.0`"),
        ("bare.lock", "all requirements must have"),
        ("empty.lock", "does not include `ipython`"),
        ("absent.lock", "absent.lock` cannot be read: No such file"),
    ];
    for (lock, expected) in table {
        let text = sentence(&bench.create("mine", lock).unwrap_err());
        assert!(text.contains(expected) && !text.contains('\n'), "{lock}: {text}");
        assert_eq!(bench.entries(), [""; 0], "{lock}");
    }
}

#[test]
fn concurrent_creations_create_one_environment() {
    let bench = Bench::new();
    let outcomes = std::thread::scope(|scope| {
        [(); 2]
            .map(|()| scope.spawn(|| bench.create("mine", "good.lock")))
            .map(ScopedJoinHandle::join)
    });
    let (made, refused): (Vec<_>, Vec<_>) =
        outcomes.into_iter().map(Result::unwrap).partition(Result::is_ok);
    assert_eq!(made.len(), 1);
    assert!(matches!(refused[0], Err(Error::Exists(_))), "{refused:?}");
    assert_eq!(bench.entries(), ["mine"]);
}

#[test]
fn leftovers_of_dead_processes_are_removed() {
    let bench = Bench::new();
    let envs = bench.root.path().join("data/envs");
    for leftover in [".making-mine", ".making-other", ".removing-third"] {
        fs::create_dir_all(envs.join(leftover).join("lib")).unwrap();
    }
    assert!(bench.environments.list().unwrap().is_empty());
    bench.create("mine", "good.lock").unwrap();
    assert_eq!(bench.entries(), ["mine"]);
}

/// Helper process of other tests: creates an environment if [`CREATE_IN`] is set.
#[test]
fn helper_process_creates_an_environment() {
    let Some(root) = std::env::var_os(CREATE_IN).map(PathBuf::from) else { return };
    let mut options = CreateOptions::new(std::env::var_os("PATH").unwrap());
    options.wheelhouse = Some(root.join("wheels"));
    let environments = Environments::open(&root.join("data")).unwrap();
    let lock = root.join("wheels/good.lock");
    let mut report = |progress| println!("\n{progress:?}");
    environments.create("mine", &Contents::Lock(lock), &options, &mut report).unwrap();
}

fn creator(bench: &Bench, umask: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "helper_process_creates_an_environment", "--nocapture"]);
    command.env("PATH", &bench.options.search_path).env(CREATE_IN, bench.root.path());
    command
}

#[test]
fn a_killed_creation_leaves_no_environment_and_its_child_keeps_the_lock() {
    let mut bench = Bench::new();
    let path = bench.options.search_path.clone();
    // An installer that is still busy when its parent is killed.
    let stuck = "echo stuck $$ >&2; exec sleep 1000";
    let uv = uv_on(&path);
    let uv = uv.display();
    bench.script("uv", &format!("[ \"$1\" = pip ] || exec {uv} \"$@\"\n{stuck}"));
    let mut child = creator(&bench, "022").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.into_iter().find(|line| line.contains("stuck ")).unwrap();
    let orphan: String = line.chars().filter(char::is_ascii_digit).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bench.entries(), [".making-mine"]);
    assert!(bench.environments.list().unwrap().is_empty());

    bench.options.search_path = path;
    let mut waited = false;
    let mut report = |progress| {
        if progress == Progress::WaitingForOther {
            waited = true;
            assert!(Command::new("kill").args(["-9", &orphan]).status().unwrap().success());
        }
    };
    let lock = bench.root.path().join("wheels/good.lock");
    bench
        .environments
        .create("mine", &Contents::Lock(lock.clone()), &bench.options, &mut report)
        .unwrap();
    assert!(waited, "the orphan still wrote to its folder");
    assert_eq!(bench.entries(), ["mine"]);
}

#[test]
fn a_strict_umask_keeps_files_readable() {
    let bench = Bench::new();
    assert!(creator(&bench, "077").stdout(Stdio::null()).status().unwrap().success());
    let mut folders = vec![bench.root.path().join("data/envs/mine")];
    while let Some(folder) = folders.pop() {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o755);
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let mode = entry.metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o444, 0o444, "{}", entry.path().display());
            }
        }
    }
}

#[test]
fn invalid_and_reserved_names_are_refused() {
    let bench = Bench::new();
    let long = "a".repeat(65);
    for name in ["", ".", "..", ".making-a", "-a", "A", "a/b", "a b", "ä", "a\0", &long] {
        let refused = bench.create(name, "good.lock").unwrap_err();
        assert!(matches!(refused, Error::Name(_)), "{name}: {refused:?}");
        assert!(bench.environments.remove(name).is_err());
    }
    for name in ["default", "default-1"] {
        let refused = bench.create(name, "good.lock").unwrap_err();
        assert!(matches!(refused, Error::ReservedName(_)), "{name}: {refused:?}");
    }
}

#[test]
fn a_missing_python_lists_the_candidates() {
    let mut bench = Bench::new();
    bench.options.system_pythons.clear();
    bench.options.search_path = OsString::new();
    let none = bench.create("mine", "good.lock").unwrap_err();
    assert_eq!(
        sentence(&none),
        "no CPython 3.10 to 3.14 was found (tried every `python3` on the search path): \
         install `python3` or name one with `--python`"
    );
    let old = r#"echo '{"implementation": "CPython", "version": [3, 9, 18]}'"#;
    let old = bench.script("python3", old);
    let text = sentence(&bench.create("mine", "good.lock").unwrap_err());
    assert!(text.contains(&format!("(tried `{}`: CPython 3.9.18)", old.display())), "{text}");
    bench.options.python = Some(old);
    let text = sentence(&bench.create("mine", "good.lock").unwrap_err());
    assert!(text.ends_with("is CPython 3.9.18; Woma needs CPython 3.10 or newer"), "{text}");
    bench.options.python = Some("python9".into());
    let text = sentence(&bench.create("mine", "good.lock").unwrap_err());
    assert_eq!(text, "`python9` does not exist");
    assert_eq!(bench.entries(), [""; 0]);
}

#[test]
fn missing_uv_and_pip_name_the_remedy() {
    let mut bench = Bench::new();
    let plain = plain_environment(&bench.root.path().join("plain"));
    bench.options.system_pythons = vec![plain];
    bench.options.search_path = OsString::new();
    let refused = bench.environments.uv(&bench.options, &mut |_| ()).unwrap_err();
    assert_eq!(
        sentence(&refused),
        "`uv` is not installed and no Python here has pip to download it: install `uv` or \
         `python3-pip`"
    );
    assert!(!bench.root.path().join("data/tools/uv").exists());
    assert!(UV_LOCK.starts_with("uv=="));
}

#[test]
fn an_unwritable_data_directory_is_named() {
    let root = TempDir::new().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = Environments::open(&file.join("data")).unwrap_err();
    let expected = format!("the data directory `{}/data` cannot be written: ", file.display());
    assert!(sentence(&refused).starts_with(&expected), "{}", sentence(&refused));
    assert!(Environments::open(Path::new("/proc/woma")).is_err());
}

#[test]
fn a_missing_wheelhouse_is_refused_before_any_write() {
    let mut bench = Bench::new();
    bench.options.wheelhouse = Some("/nonexistent/wheels".into());
    let refused = bench.environments.ensure_default(&bench.options, &mut |_| ()).unwrap_err();
    assert_eq!(sentence(&refused), "the wheelhouse `/nonexistent/wheels` is not a directory");
    assert_eq!(bench.entries(), [""; 0]);
}

#[test]
fn a_named_environment_that_cannot_run_says_why() {
    let root = TempDir::new().unwrap();
    let says = |path: &Path| sentence(&inspect(path).unwrap_err());
    let missing = root.path().join("missing");
    assert_eq!(says(&missing), format!("`{}` does not exist", missing.display()));

    let bin = root.path().join("bin");
    fs::create_dir(&bin).unwrap();
    assert!(says(root.path()).ends_with("is not a Python environment: it has no `bin/python`"));

    symlink("/nonexistent/python3.9", bin.join("python")).unwrap();
    assert!(
        says(root.path())
            .ends_with("links to a Python that no longer exists: create the environment again")
    );

    fs::remove_file(bin.join("python")).unwrap();
    write_script(&bin, "python", "echo 'libpython3.12.so.1.0: cannot open' >&2; exit 127");
    assert!(
        says(root.path()).ends_with("does not start as Python: libpython3.12.so.1.0: cannot open")
    );

    write_script(&bin, "python", r#"echo '{"implementation": "PyPy", "version": [3, 11, 9]}'"#);
    assert!(says(root.path()).ends_with("is PyPy 3.11.9; Woma needs CPython 3.10 or newer"));
}

#[test]
fn a_named_environment_needs_ipython() {
    let root = TempDir::new().unwrap();
    let prefix = root.path().join("plain");
    let python = plain_environment(&prefix);
    let text = sentence(&inspect(&prefix).unwrap_err());
    assert_eq!(text, sentence(&inspect(&python).unwrap_err()));
    let (prefix, python) = (prefix.display(), python.display());
    let fix = format!("`uv pip install --python {python} ipython` adds it");
    assert_eq!(text, format!("IPython is not installed in `{prefix}`: {fix}"));
}

#[test]
fn a_broken_environment_is_listed_and_can_be_removed() {
    let bench = Bench::new();
    bench.create("mine", "good.lock").unwrap();
    let python = bench.root.path().join("data/envs/mine/bin/python");
    fs::remove_file(&python).unwrap();
    symlink("/nonexistent/python3", &python).unwrap();
    let listed = bench.environments.list().unwrap();
    assert_eq!((listed.len(), &listed[0].environment), (1, &None));
    let broken = bench.environments.find("mine").unwrap_err();
    let expected = "environment `mine` is broken: remove it with `woma env remove mine` \
                    and create it again";
    assert_eq!(sentence(&broken), expected);
    bench.remove("mine").unwrap();
    assert_eq!(bench.entries(), [""; 0]);
}

/// Creates an empty environment without pip; returns its interpreter.
fn plain_environment(prefix: &Path) -> PathBuf {
    let mut command = Command::new(uv_on(&search_path_with_uv()));
    command.args(["venv", "--quiet", "--no-project"]).arg(prefix);
    assert!(command.status().unwrap().success());
    prefix.join("bin/python")
}

fn uv_on(search_path: &OsString) -> PathBuf {
    let mut candidates = std::env::split_paths(search_path).map(|folder| folder.join("uv"));
    candidates.find(|uv| uv.is_file()).unwrap()
}

#[test]
fn requirements_are_locked_with_hashes_and_made_into_an_environment() {
    let bench = Bench::new();
    let contents = Contents::Packages(vec!["ipython".to_owned()]);
    let mut seen = Vec::new();
    let mut report = |progress| seen.push(progress);
    let made = bench.environments.create("named", &contents, &bench.options, &mut report).unwrap();
    assert!(seen.contains(&Progress::Locking), "{seen:?}");
    let lock = made.lock_text().unwrap();
    assert!(lock.contains("ipython==") && lock.contains("--hash=sha256:"), "{lock}");
    let refused = Contents::Packages(vec!["woma-never-made".to_owned()]);
    let error = bench.environments.create("never", &refused, &bench.options, &mut |_| ());
    let text = sentence(&error.unwrap_err());
    assert!(
        text.contains("locking the packages failed") && text.contains("woma-never-made"),
        "{text}"
    );
    assert!(!bench.entries().iter().any(|entry| entry.contains("making")), "{:?}", bench.entries());
}
