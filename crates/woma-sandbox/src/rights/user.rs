//! Choice of the user that a server started as root switches to.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::steward::launcher::unused_id;

/// Conventional user of a server, created by packages and operators.
const USUAL_NAME: &str = "woma";
const PASSWORDS: &str = "/etc/passwd";

/// A user of this machine, or an id without a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    name: Option<String>,
}

impl fmt::Display for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(formatter, "the user {name}"),
            None => write!(formatter, "the user {}", self.uid),
        }
    }
}

/// Chooses the given user, by name or id; otherwise the owner of the data folder, then a user
/// `woma`, then an unused id. `None` if root was given.
pub fn choose(named: Option<&str>, data_folder: &Path) -> io::Result<Option<User>> {
    let known = fs::read_to_string(PASSWORDS).unwrap_or_default();
    if let Some(named) = named {
        let found = find(&known, named);
        let unknown = || io::Error::other(format!("there is no user `{named}` in {PASSWORDS}"));
        return Ok(Some(found.ok_or_else(unknown)?).filter(|user| user.uid != 0));
    }
    if let Ok(folder) = fs::metadata(data_folder)
        && folder.uid() != 0
    {
        let found = listed(&known, &folder.uid().to_string());
        let owner = User { uid: folder.uid(), gid: folder.gid(), name: None };
        return Ok(Some(found.unwrap_or(owner)));
    }
    if let Some(user) = find(&known, USUAL_NAME).filter(|user| user.uid != 0) {
        return Ok(Some(user));
    }
    let id = unused_id()?;
    Ok(Some(User { uid: id, gid: id, name: None }))
}

/// An unlisted id is a user without a name, whose group has the same id.
fn find(known: &str, named: &str) -> Option<User> {
    let unlisted = |number| User { uid: number, gid: number, name: None };
    listed(known, named).or_else(|| number(named).map(unlisted))
}

fn number(named: &str) -> Option<u32> {
    named.parse().ok().filter(|number| *number != u32::MAX)
}

fn listed(known: &str, named: &str) -> Option<User> {
    let number = number(named);
    let line = |line: &str| -> Option<User> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        let is_meant = name == named || number == Some(uid);
        is_meant.then(|| User { uid, gid, name: Some(name.to_owned()) })
    };
    known.lines().find_map(line)
}

#[cfg(test)]
impl User {
    pub(super) fn of(uid: u32, gid: u32) -> Self {
        Self { uid, gid, name: None }
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    const KNOWN: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:7:8::/:/bin/sh\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        for named in ["ann", "7"] {
            let found = find(KNOWN, named).unwrap();
            assert_eq!((found.uid, found.gid, found.to_string().as_str()), (7, 8, "the user ann"));
        }
        let unknown = find(KNOWN, "12345").unwrap();
        assert_eq!((unknown.uid, unknown.gid), (12_345, 12_345));
        assert_eq!(unknown.to_string(), "the user 12345");
        for named in ["", "bob", "broken", "-1", "4294967295"] {
            assert_eq!(find(KNOWN, named), None, "{named}");
        }
        assert_eq!(find(KNOWN, "root").unwrap().uid, 0);
    }
}
