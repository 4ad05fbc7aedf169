//! Location on cgroup v2 at which the server may create groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cgroup::{Cgroups, mounts, own_folder, own_path, sweep};

/// Finds the parent of the sessions' groups. On v2 only leaves may have processes: the server moves
/// into a leaf, and the sessions' groups are its siblings. That needs a group without other
/// processes, as systemd's `Delegate=yes` and containers provide; without one, root may create a
/// group at the root of the hierarchy.
pub(super) fn find(server: u32) -> Result<Cgroups, String> {
    let (mount, _) = mounts("cgroup2").into_iter().next().ok_or("no cgroup v2 is mounted")?;
    let own = own_path(|line| line.strip_prefix("0::")).unwrap_or_default();
    let own = mount.join(own.trim_start_matches('/'));
    let parent = match delegated(&own, server) {
        Ok(parent) => parent,
        Err(first) => at_top(&mount, server).map_err(|second| format!("{first}; {second}"))?,
    };
    Ok(Cgroups::V2 { parent })
}

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Name of the leaf that the server moves to.
const LEAF: &str = "woma-server";

fn delegated(own: &Path, server: u32) -> Result<PathBuf, String> {
    // The server has moved already if this is a second environment, or the doctor inside a server.
    let has_moved = own.file_name().is_some_and(|name| name == LEAF);
    let own = if has_moved { own.parent().unwrap_or(own) } else { own };
    let fail = |what: &str, error: &dyn std::fmt::Display| {
        format!("cgroup v2: cannot {what} in {}: {error}", own.display())
    };
    has_controllers(own)?;
    let members = fs::read_to_string(own.join("cgroup.procs"))
        .map_err(|error| fail("list processes", &error))?;
    let ours = [std::process::id().to_string(), server.to_string()];
    let at_root = !own.join("cgroup.type").exists();
    let must_move = !at_root && !has_moved;
    if must_move && members.lines().any(|pid| !ours.iter().any(|our| our == pid)) {
        return Err(fail("make groups", &"other programs share it (use Delegate=yes)"));
    }
    sweep(own);
    let parent = own.join(own_folder(server));
    if must_move {
        let leaf = own.join(LEAF);
        create_if_missing(&leaf).map_err(|error| fail("make groups", &error))?;
        for pid in &ours {
            fs::write(leaf.join("cgroup.procs"), pid).map_err(|error| fail("move", &error))?;
        }
    }
    create_if_missing(&parent).map_err(|error| fail("make groups", &error))?;
    enable(own).map_err(|error| fail("enable controllers", &error))?;
    enable(&parent).map_err(|error| fail("enable controllers", &error))?;
    Ok(parent)
}

fn at_top(mount: &Path, server: u32) -> Result<PathBuf, String> {
    let fail = |error: io::Error| format!("cgroup v2: {}: {error}", mount.display());
    has_controllers(mount)?;
    sweep(mount);
    enable(mount).map_err(fail)?;
    let parent = mount.join(own_folder(server));
    create_if_missing(&parent).map_err(fail)?;
    enable(&parent).map_err(fail)?;
    Ok(parent)
}

fn has_controllers(group: &Path) -> Result<(), String> {
    let path = group.join("cgroup.controllers");
    let available = fs::read_to_string(&path).unwrap_or_default();
    let missing: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|wanted| !available.split_whitespace().any(|name| name == *wanted))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("cgroup v2: {} lacks {}", path.display(), missing.join(", ")))
}

fn enable(group: &Path) -> io::Result<()> {
    let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    fs::write(group.join("cgroup.subtree_control"), wanted)
}

fn create_if_missing(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    // Folders that look like cgroup v2; `make test-vm` runs against the real file system.
    use std::fs;
    use std::path::Path;

    use super::{LEAF, delegated};

    fn group(at: &Path, processes: &str) {
        fs::create_dir_all(at).unwrap();
        fs::write(at.join("cgroup.type"), "domain\n").unwrap();
        fs::write(at.join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        fs::write(at.join("cgroup.procs"), processes).unwrap();
    }

    fn read(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_server_moves_to_a_leaf_beside_the_sessions() {
        let unit = tempfile::tempdir().unwrap();
        group(unit.path(), &format!("{}\n", std::process::id()));
        let sessions = delegated(unit.path(), std::process::id()).unwrap();
        assert_eq!(sessions.parent(), Some(unit.path()));
        let moved = read(unit.path().join(LEAF).join("cgroup.procs"));
        assert_eq!(moved, std::process::id().to_string());
        for enabled in [unit.path(), &sessions] {
            assert_eq!(read(enabled.join("cgroup.subtree_control")), "+memory +pids +cpu");
        }
    }

    #[test]
    fn a_server_in_its_leaf_finds_the_parent_group() {
        let unit = tempfile::tempdir().unwrap();
        group(unit.path(), "");
        // The steward and the zygotes of the first sandbox are in the leaf as well.
        let leaf = unit.path().join(LEAF);
        group(&leaf, "1\n2\n3\n");
        let sessions = delegated(&leaf, std::process::id()).unwrap();
        assert_eq!(sessions.parent(), Some(unit.path()));
        assert!(!leaf.join(LEAF).exists());
    }

    #[test]
    fn refuses_a_group_with_other_processes() {
        let scope = tempfile::tempdir().unwrap();
        group(scope.path(), &format!("1\n{}\n", std::process::id()));
        let why = delegated(scope.path(), std::process::id()).unwrap_err();
        assert!(why.contains("Delegate=yes"), "{why}");
        assert!(!scope.path().join(LEAF).exists());
    }
}
