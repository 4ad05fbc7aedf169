//! A lock of what a session has: the lock of its environment, with the session's own packages in
//! place of those that they replace. Every line has its hashes, so that an environment can be made
//! of it.

use std::fmt::Write as _;

use super::names::key;
use crate::environments::Version;
use crate::model::{PackageError, PackageProblem, PackageSet};

/// The lock of a session with these packages. `base`: the lock of its environment, if that has one.
pub(crate) fn frozen(
    base: Option<&str>,
    set: &PackageSet,
    version: Version,
) -> Result<String, PackageError> {
    let unlocked: Vec<&str> = set
        .packages
        .iter()
        .filter(|package| package.sha256.is_none())
        .map(|package| package.name.as_str())
        .collect();
    if !unlocked.is_empty() {
        let names = unlocked.join(", ");
        let message =
            format!("{names} cannot be locked: built from source, without a file to name");
        return Err(PackageError::new(PackageProblem::NoSolution, message)
            .with_hint("a lock has hashes of wheels; install a version that has a wheel"));
    }
    let mut text =
        format!("# Made by `woma env freeze`, for Python {}.{}.\n", version.0, version.1);
    if base.is_none() {
        text.push_str("# The environment has no lock: these are the session's own packages.\n");
    }
    let is_replaced = |name: &str| set.packages.iter().any(|package| package.name == key(name));
    for entry in entries(base.unwrap_or_default()) {
        if !name_of(entry).is_some_and(is_replaced) {
            text.push_str(entry);
        }
    }
    for package in &set.packages {
        let sha256 = package.sha256.as_deref().unwrap_or_default();
        let pin = package.pin();
        writeln!(text, "{pin} \\\n    --hash=sha256:{sha256}").unwrap_or_default();
    }
    Ok(text)
}

/// Requirements of a lock, each with the lines that belong to it; comments are entries too.
fn entries(lock: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    let (mut start, mut end, mut goes_on) = (0, 0, false);
    for line in lock.split_inclusive('\n') {
        let is_more = goes_on || line.starts_with([' ', '\t']);
        if !is_more && end > start {
            entries.extend(lock.get(start..end));
            start = end;
        }
        end += line.len();
        goes_on = line.trim_end().ends_with('\\');
    }
    entries.extend(lock.get(start..end).filter(|rest| !rest.trim().is_empty()));
    entries
}

/// The name that a requirement begins with.
fn name_of(entry: &str) -> Option<&str> {
    let entry = entry.trim_start();
    let end = entry.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.'));
    let name = entry.get(..end.unwrap_or(entry.len()))?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionPackage;

    fn package(name: &str, version: &str, sha256: Option<&str>) -> SessionPackage {
        SessionPackage {
            name: name.to_owned(),
            version: version.to_owned(),
            sha256: sha256.map(str::to_owned),
            replaces: None,
        }
    }

    #[test]
    fn the_sessions_packages_replace_those_of_the_environment() {
        let base = "# a lock\nIPython==9 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n\
                    Ruamel_Yaml==1 ; python_version < \"3.12\" \\\n    --hash=sha256:cc\nsix==1 \\\n\
                    \x20   --hash=sha256:dd\n    # via x\n";
        let packages = vec![package("ruamel-yaml", "2", Some("ee")), package("x", "3", Some("ff"))];
        let set = PackageSet { layer: String::new(), packages };
        let text = frozen(Some(base), &set, Version(3, 11, 2)).unwrap();
        assert_eq!(
            text,
            "# Made by `woma env freeze`, for Python 3.11.\n# a lock\nIPython==9 \\\n    \
             --hash=sha256:aa \\\n    --hash=sha256:bb\nsix==1 \\\n    --hash=sha256:dd\n    # via x\n\
             ruamel-yaml==2 \\\n    --hash=sha256:ee\nx==3 \\\n    --hash=sha256:ff\n"
        );
    }

    #[test]
    fn what_was_built_from_source_cannot_be_locked() {
        let set = PackageSet { layer: String::new(), packages: vec![package("x", "3", None)] };
        let error = frozen(None, &set, Version(3, 11, 2)).unwrap_err();
        assert!(error.message.contains("x cannot be locked"), "{error}");
    }
}
