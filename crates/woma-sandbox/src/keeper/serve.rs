//! The keeper's loop, on one thread. It ends when the server does.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};

use super::removals::Removals;
use super::{Mandate, Numbered, Proof, QuickRequest, Reply, Request};
use crate::failure::{Failure, step};
use crate::limits::cgroup::{Cgroups, Group};
use crate::limits::{Limits, deleted, objects, watchdog};
use crate::proof::{self, Expected};
use crate::room_handles::pid_of;
use crate::{channel, container, rights, steward, sys};

/// Most groups that a server can have at once.
const GROUPS_MAX: usize = 100_000;

pub(super) fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    if arguments.next().is_some_and(|argument| argument == rights::TRIAL) {
        return rights::trial(arguments.next().unwrap_or_default().as_encoded_bytes());
    }
    let Ok(requests) = sys::inherited_fd(0) else {
        eprintln!("woma keeper is started by the server, not by hand");
        return ExitCode::from(2);
    };
    match keep(&requests) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("woma keeper: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn keep(requests: &OwnedFd) -> Result<(), Failure> {
    let Some((mandate, fds)) = step("read the mandate", channel::receive::<Mandate>(requests))?
    else {
        return Ok(());
    };
    let none = || io::Error::other("the second socket is missing");
    let quick = step("read the mandate", fds.into_iter().next().ok_or_else(none))?;
    let bounds = step("read the mandate", serde_json::to_string(&mandate.bounds))?;
    let cgroups = Cgroups::prepare_for(mandate.server);
    let own_namespaces = step("read the namespaces", proof::namespaces("self"))?;
    step("report", channel::send(requests, &Reply::Ready(cgroups.clone()), &[]))?;
    let mut state = KeeperState {
        bounds,
        cgroups,
        own_namespaces,
        groups: BTreeMap::new(),
        groups_max: GROUPS_MAX,
        removals: step("start a thread", Removals::start())?,
        stewards: Vec::new(),
    };
    while state.turn(requests, &quick)? {}
    state.clear_up();
    Ok(())
}

struct KeeperState {
    /// As the argument of a steward.
    bounds: String,
    cgroups: Cgroups,
    own_namespaces: std::collections::BTreeSet<String>,
    groups: BTreeMap<String, Group>,
    groups_max: usize,
    removals: Removals,
    stewards: Vec<Child>,
}

impl KeeperState {
    /// Waits for a request and serves it. False when the server is gone.
    fn turn(&mut self, requests: &OwnedFd, quick: &OwnedFd) -> Result<bool, Failure> {
        let mut fds = [PollFd::new(requests, PollFlags::IN), PollFd::new(quick, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            other => step("wait for requests", other)?,
        };
        let [asked, asked_quick] = fds.map(|fd| !fd.revents().is_empty());
        if asked {
            let request = step("read a request", channel::receive::<Numbered<Request>>(requests))?;
            let Some((request, fds)) = request else { return Ok(false) };
            let (number, request) = (request.number, request.message);
            let (message, join) = self.answer(&request, &fds);
            let join: Vec<_> = join.iter().map(AsFd::as_fd).collect();
            step("answer", channel::send(requests, &Numbered { number, message }, &join))?;
        }
        if asked_quick {
            let request =
                step("read a request", channel::receive::<Numbered<QuickRequest>>(quick))?;
            let Some((request, fds)) = request else { return Ok(false) };
            let number = request.number;
            if let Some(message) = self.quick(request.message, fds) {
                step("answer", channel::send(quick, &Numbered { number, message }, &[]))?;
            }
        }
        self.stewards.retain_mut(|steward| matches!(steward.try_wait(), Ok(None)));
        Ok(true)
    }

    fn answer(&mut self, request: &Request, fds: &[OwnedFd]) -> (Reply, Vec<OwnedFd>) {
        match request {
            Request::Group { name, limits } => match self.make_group(name, limits) {
                Ok(made) => {
                    let files = made.as_ref().map(Group::files);
                    let mut join = Vec::new();
                    if let Some(mut group) = made {
                        join = std::mem::take(&mut group.join);
                        self.groups.insert(name.clone(), group);
                    }
                    (Reply::Group { name: name.clone(), files }, join)
                }
                Err(error) => (Reply::Refused(error.to_string()), Vec::new()),
            },
            Request::Prove(expected) => match self.prove(expected, fds) {
                Ok(()) => (Reply::Done, Vec::new()),
                Err(what) => (Reply::Refused(what), Vec::new()),
            },
        }
    }

    fn make_group(&self, name: &str, limits: &Limits) -> io::Result<Option<Group>> {
        if !is_group_name(name) || self.groups.contains_key(name) {
            return Err(io::Error::other("the name of the group is invalid or taken"));
        }
        if self.groups.len() >= self.groups_max {
            let most = self.groups_max;
            return Err(io::Error::other(format!("the server has {most} cgroups, and no more")));
        }
        self.cgroups.create(name, limits)
    }

    fn prove(&self, proof: &Proof, fds: &[OwnedFd]) -> Result<(), String> {
        let process = fds.first().ok_or("the request came without a process")?;
        let pid = pid_of(process).map_err(|error| error.to_string())?;
        let expected = Expected {
            outside: [&self.own_namespaces, &proof.steward],
            uid: proof.uid,
            gid: proof.gid,
            cgroup: proof.cgroup.as_ref().map(|(name, count)| (name.as_str(), *count)),
            own_ids: proof.own_ids,
            rung: proof.rung,
        };
        proof::check(pid, &expected)?;
        // The pid had not been reused.
        pid_of(process).map(drop).map_err(|error| error.to_string())
    }

    /// Returns `None` if no reply is due.
    fn quick(&mut self, request: QuickRequest, fds: Vec<OwnedFd>) -> Option<Reply> {
        let done = match request {
            QuickRequest::Steward => self.start_steward(fds),
            QuickRequest::Containers => self.start_containers(fds),
            QuickRequest::Memory { name, limit_bytes, soft_limit_bytes } => {
                match self.groups.get(&name) {
                    Some(group) => group.write_limits(limit_bytes, soft_limit_bytes),
                    None => Err(io::Error::other("the group does not exist")),
                }
            }
            QuickRequest::MeasureMemory { pids, enough } => {
                return Some(Reply::Figure(watchdog::memory_bytes(&pids, enough)));
            }
            QuickRequest::OpenFiles { pids, enough } => {
                return Some(Reply::Figure(objects::open_files(&pids, enough)));
            }
            QuickRequest::Deleted { roots, workspace, with_maps } => {
                let (open, mapped) = deleted::held_by(roots, workspace.as_deref(), with_maps);
                let (open, mapped) = ((open.bytes, open.files), (mapped.bytes, mapped.files));
                return Some(Reply::Deleted { open, mapped });
            }
            QuickRequest::Ceiling { bytes } => self.cgroups.set_ceiling(bytes),
            QuickRequest::Remove { name } => {
                if let Some(group) = self.groups.remove(&name) {
                    self.removals.add(group);
                }
                return None;
            }
        };
        Some(match done {
            Ok(()) => Reply::Done,
            // The session could not free enough memory.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Reply::TooMuch,
            Err(error) => Reply::Refused(error.to_string()),
        })
    }

    /// Program and bounds are ours; only the descriptors come from the server.
    fn start_steward(&mut self, fds: Vec<OwnedFd>) -> io::Result<()> {
        let [control, trees, stderr] = <[OwnedFd; 3]>::try_from(fds).map_err(|fds| {
            io::Error::other(format!("expected 3 descriptors, got {}", fds.len()))
        })?;
        self.start_role(steward::ROLE, control, Stdio::from(trees), stderr)
    }

    /// As [`Self::start_steward`].
    fn start_containers(&mut self, fds: Vec<OwnedFd>) -> io::Result<()> {
        let [control, stderr] = <[OwnedFd; 2]>::try_from(fds).map_err(|fds| {
            io::Error::other(format!("expected 2 descriptors, got {}", fds.len()))
        })?;
        self.start_role(container::ROLE, control, Stdio::null(), stderr)
    }

    fn start_role(
        &mut self,
        role: &str,
        control: OwnedFd,
        stdout: Stdio,
        stderr: OwnedFd,
    ) -> io::Result<()> {
        use std::os::unix::process::CommandExt as _;
        let child = Command::new("/proc/self/exe")
            .arg(role)
            .arg(&self.bounds)
            .env_clear()
            .stdin(Stdio::from(control))
            .stdout(stdout)
            .stderr(Stdio::from(stderr))
            .process_group(0)
            .spawn()?;
        self.stewards.push(child);
        Ok(())
    }

    /// The server has ended, and its stewards with it: their rooms end now, and the groups are soon
    /// empty. The next server removes the remaining ones.
    fn clear_up(mut self) {
        for group in std::mem::take(&mut self.groups).into_values() {
            self.removals.add(group);
        }
        self.removals.finish();
        self.cgroups.dispose();
    }
}

/// Only names of this form are accepted.
fn is_group_name(name: &str) -> bool {
    let number = name.strip_prefix("cell-").unwrap_or_default();
    !number.is_empty() && number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Cgroups, KeeperState, Limits, Removals, Reply, Request, is_group_name};

    #[test]
    fn groups_beyond_their_number_are_refused() {
        let ask = |groups_max: usize| {
            let mut state = KeeperState {
                bounds: String::new(),
                cgroups: Cgroups::Missing { why: "a test".to_owned() },
                own_namespaces: BTreeSet::new(),
                groups: BTreeMap::new(),
                groups_max,
                removals: Removals::start().unwrap(),
                stewards: Vec::new(),
            };
            let request = Request::Group { name: "cell-1".to_owned(), limits: Limits::default() };
            state.answer(&request, &[]).0
        };
        assert!(matches!(ask(1), Reply::Group { files: None, .. }), "there are no cgroups here");
        match ask(0) {
            Reply::Refused(reason) => assert!(reason.contains("0 cgroups"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn accepts_only_generated_group_names() {
        assert!(is_group_name("cell-1") && is_group_name("cell-18446744073709551615"));
        for name in
            ["", "cell-", "cell-1/..", "../cell-1", "cell-x", "cell-1 ", "woma-1", "cell-+1"]
        {
            assert!(!is_group_name(name), "{name:?}");
        }
        assert!(!is_group_name(&format!("cell-{}", "1".repeat(21))));
    }
}
