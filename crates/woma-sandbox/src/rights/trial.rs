//! `woma keeper try`: drops root as a server does, verifies the result, and reports what it can
//! still access. Used by the doctor, and by a test of a server's access.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::fs::{Mode, OFlags, open};
use serde::{Deserialize, Serialize};

use super::user::choose;
use super::{check, confine, switch_user};
use crate::failure::{Failure, step};
use crate::sys::SingleThreaded;

/// Second argument; the third is a [`Trial`].
pub(crate) const ARGUMENT: &str = "try";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Trial {
    user: Option<String>,
    writable: Vec<PathBuf>,
    /// Paths to open for reading.
    read: Vec<PathBuf>,
    /// Paths to open for writing, or to create.
    write: Vec<PathBuf>,
    /// Programs to start.
    run: Vec<PathBuf>,
}

/// Attempts that succeeded.
#[derive(Debug, Serialize)]
struct Accessible {
    uid: u32,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    run: Vec<PathBuf>,
}

pub(crate) fn main(argument: &[u8]) -> ExitCode {
    let report = |found| serde_json::to_writer(io::stdout(), &found);
    match attempt(argument).and_then(|found| step("report", report(found))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn attempt(argument: &[u8]) -> Result<Accessible, Failure> {
    let trial: Trial = step("read what to try", serde_json::from_slice(argument))?;
    let alone = step("check threads", SingleThreaded::prove())?;
    let root = || io::Error::other("the chosen user is root");
    let user = step("choose a user", choose(trial.user.as_deref(), Path::new("")))?;
    let user = step("choose a user", user.ok_or_else(root))?;
    switch_user(&user)?;
    confine(&[], &trial.writable)?;
    step("look at the result", check(&user, alone))?;
    let opens = |path: &PathBuf, flags| {
        open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR).is_ok()
    };
    let kept = |paths: Vec<PathBuf>, works: &dyn Fn(&PathBuf) -> bool| -> Vec<PathBuf> {
        paths.into_iter().filter(|path| works(path)).collect()
    };
    Ok(Accessible {
        uid: user.uid,
        read: kept(trial.read, &|path| opens(path, OFlags::RDONLY)),
        write: kept(trial.write, &|path| opens(path, OFlags::WRONLY | OFlags::CREATE)),
        run: kept(trial.run, &|path| Command::new(path).status().is_ok()),
    })
}
