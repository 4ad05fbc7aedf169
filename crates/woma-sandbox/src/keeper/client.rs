//! The server's connection to its keeper.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio::time::timeout;

use super::{Mandate, Numbered, Proof, QuickRequest, ROLE, Reply, Request};
use crate::limits::Limits;
use crate::limits::cgroup::{Cgroups, Group};
use crate::proof::Expected;
use crate::steward::client::Socket;
use crate::steward::control::{PrivilegeBounds, RoomIds};
use crate::sync::lock;
use crate::workspace::Contents;
use crate::{Error, channel};

/// Longest time that the keeper may take to reply.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

static KEEPER: OnceLock<Keeper> = OnceLock::new();

/// The keeper of this process, if it has dropped root.
pub(crate) fn of_this_process() -> Option<&'static Keeper> {
    KEEPER.get()
}

/// A running keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Taken by the first request: there is no async runtime yet when the keeper starts.
    waiting: Mutex<Option<OwnedFd>>,
    requests: OnceCell<AsyncMutex<Socket>>,
    quick: Mutex<OwnedFd>,
    cgroups: Cgroups,
    user: RoomIds,
    names: AtomicU64,
    questions: AtomicU64,
    answer_time_max: Duration,
}

/// Starts this process's keeper. Call it as root; the keeper's bounds are fixed here.
pub(crate) fn start(bounds: PrivilegeBounds) -> io::Result<()> {
    let user = bounds.server;
    let (requests, theirs) = channel::pair()?;
    let (quick, their_quick) = channel::pair()?;
    // Not waited for: it ends after us. Ctrl-C in a terminal is for the server, which lets running
    // code finish.
    Command::new("/proc/self/exe")
        .arg(ROLE)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()?;
    let mandate = Mandate { server: std::process::id(), bounds };
    for socket in [&requests, &quick] {
        limit_waiting(socket, ANSWER_TIME_MAX)?;
    }
    channel::send(&requests, &mandate, &[their_quick.as_fd()])?;
    drop(their_quick);
    let cgroups = match channel::receive(&requests)? {
        Some((Reply::Ready(cgroups), _)) => cgroups,
        other => return Err(unexpected(other.map(|(answer, _)| answer))),
    };
    let keeper = Keeper {
        waiting: Mutex::new(Some(requests)),
        requests: OnceCell::new(),
        quick: Mutex::new(quick),
        cgroups,
        user,
        names: AtomicU64::new(1),
        questions: AtomicU64::new(1),
        answer_time_max: ANSWER_TIME_MAX,
    };
    KEEPER.set(keeper).map_err(|_| io::Error::other("this process has a keeper already"))
}

fn limit_waiting(socket: &OwnedFd, time_max: Duration) -> io::Result<()> {
    for which in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(socket, which, Some(time_max))?;
    }
    Ok(())
}

fn unexpected(answer: Option<Reply>) -> io::Error {
    match answer {
        Some(Reply::TooMuch) => io::ErrorKind::OutOfMemory.into(),
        Some(Reply::Refused(reason)) => io::Error::other(reason),
        Some(other) => io::Error::other(format!("unexpected reply of the keeper: {other:?}")),
        None => io::Error::other("the keeper has ended; restart the server"),
    }
}

impl Keeper {
    pub(crate) fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// The server's user.
    pub(crate) fn user(&self) -> RoomIds {
        self.user
    }

    /// A unique name for a group.
    pub(crate) fn group_name(&self) -> String {
        format!("cell-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) async fn group(
        &'static self,
        name: &str,
        limits: &Limits,
    ) -> io::Result<Option<Group>> {
        let request = Request::Group { name: name.to_owned(), limits: limits.clone() };
        match self.ask(&request, &[]).await? {
            (Reply::Group { name, files }, join) => {
                Ok(files.map(|files| Group::from_keeper(self, name, files, join)))
            }
            (other, _) => Err(unexpected(Some(other))),
        }
    }

    /// As [`crate::proof::prove`], done by the keeper, which may read the process.
    pub(crate) async fn prove(
        &self,
        process: BorrowedFd<'_>,
        expected: &Expected<'_>,
    ) -> Result<(), Error> {
        let [_, steward] = expected.outside;
        let request = Request::Prove(Proof {
            steward: steward.clone(),
            uid: expected.uid,
            gid: expected.gid,
            cgroup: expected.cgroup.map(|(name, count)| (name.to_owned(), count)),
            own_ids: expected.own_ids,
            rung: expected.rung,
        });
        match self.ask(&request, &[process]).await? {
            (Reply::Done, _) => Ok(()),
            (Reply::Refused(what), _) => Err(Error::Unproven { what }),
            (other, _) => Err(unexpected(Some(other)).into()),
        }
    }

    async fn ask(
        &self,
        message: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        let text = serde_json::to_vec(&Numbered { number, message }).map_err(io::Error::other)?;
        let socket = self.requests.get_or_try_init(|| async { self.socket() }).await?;
        let socket = socket.lock().await;
        let exchange = async {
            socket.send(&text, fds).await?;
            loop {
                let received = socket.receive::<Numbered<Reply>>().await?;
                let (answer, fds) = received.ok_or_else(|| unexpected(None))?;
                if answer.number == number {
                    return Ok((answer.message, fds));
                }
                // Reply to a request that timed out.
                if let Reply::Group { name, .. } = answer.message {
                    self.remove(&name);
                }
            }
        };
        let silent = || io::Error::other("the privileged helper does not answer");
        timeout(self.answer_time_max, exchange).await.map_err(|_| silent())?
    }

    fn socket(&self) -> io::Result<AsyncMutex<Socket>> {
        let mut waiting = lock(&self.waiting);
        let taken = waiting
            .take()
            .ok_or_else(|| io::Error::other("the keeper's socket was taken before"))?;
        Ok(AsyncMutex::new(Socket::new(taken)?))
    }

    /// Starts a steward with these descriptors.
    pub(crate) fn steward(&self, fds: [BorrowedFd<'_>; 3]) -> io::Result<()> {
        self.ask_quick(&QuickRequest::Steward, &fds).map(drop)
    }

    /// Starts a launcher of containers with these descriptors.
    pub(crate) fn containers(&self, fds: [BorrowedFd<'_>; 2]) -> io::Result<()> {
        self.ask_quick(&QuickRequest::Containers, &fds).map(drop)
    }

    pub(crate) fn set_memory(
        &self,
        name: &str,
        limit_bytes: u64,
        soft_limit_bytes: u64,
    ) -> io::Result<()> {
        let message = QuickRequest::Memory { name: name.to_owned(), limit_bytes, soft_limit_bytes };
        self.ask_quick(&message, &[]).map(drop)
    }

    /// Deleted files that are open, and that are only mapped; `None` if the keeper does not reply.
    pub(crate) fn deleted(
        &self,
        roots: [u32; 2],
        workspace: Option<&Path>,
        with_maps: bool,
    ) -> Option<(Contents, Contents)> {
        let workspace = workspace.map(Path::to_owned);
        let contents = |(bytes, files)| Contents { bytes, files };
        match self.figure(&QuickRequest::Deleted { roots, workspace, with_maps })? {
            Reply::Deleted { open, mapped } => Some((contents(open), contents(mapped))),
            _ => None,
        }
    }

    /// Limits the memory of all sessions together.
    pub(crate) fn set_ceiling(&self, bytes: u64) -> io::Result<()> {
        self.ask_quick(&QuickRequest::Ceiling { bytes }, &[]).map(drop)
    }

    /// Number of files that these processes have open; `None` if the keeper does not reply.
    pub(crate) fn open_files(&self, pids: &BTreeSet<u32>, enough: u64) -> Option<u64> {
        match self.figure(&QuickRequest::OpenFiles { pids: pids.clone(), enough })? {
            Reply::Figure(count) => Some(count),
            _ => None,
        }
    }

    /// Memory of these processes; `None` if the keeper does not reply, and the watchdog then
    /// overestimates.
    pub(crate) fn measure_memory(&self, pids: &BTreeSet<u32>, enough: u64) -> Option<u64> {
        match self.figure(&QuickRequest::MeasureMemory { pids: pids.clone(), enough })? {
            Reply::Figure(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Requests a measurement of a session; logs an error if the keeper does not reply.
    fn figure(&self, question: &QuickRequest) -> Option<Reply> {
        let answer = self.ask_quick(question, &[]);
        answer
            .inspect_err(
                |error| tracing::error!(%error, ?question, "the privileged helper does not answer"),
            )
            .ok()
    }

    /// Has a group removed when it is empty; false if the request could not be sent.
    pub(crate) fn remove(&self, name: &str) -> bool {
        let quick = lock(&self.quick);
        let message = QuickRequest::Remove { name: name.to_owned() };
        channel::send(&*quick, &Numbered { number: 0, message }, &[]).is_ok()
    }

    fn ask_quick(&self, message: &QuickRequest, fds: &[BorrowedFd<'_>]) -> io::Result<Reply> {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        let socket = lock(&self.quick);
        channel::send(&*socket, &Numbered { number, message }, fds)?;
        loop {
            let received = channel::receive::<Numbered<Reply>>(&*socket)?;
            let (answer, _) = received.ok_or_else(|| unexpected(None))?;
            if answer.number != number {
                continue;
            }
            return match answer.message {
                answer @ (Reply::Done | Reply::Figure(_) | Reply::Deleted { .. }) => Ok(answer),
                other => Err(unexpected(Some(other))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_keeper_that_does_not_answer_is_not_waited_for() {
        let time_max = Duration::from_millis(20);
        let (requests, _silent) = channel::pair().unwrap();
        let (quick, _silent_quick) = channel::pair().unwrap();
        limit_waiting(&quick, time_max).unwrap();
        let keeper: &'static Keeper = Box::leak(Box::new(Keeper {
            waiting: Mutex::new(Some(requests)),
            requests: OnceCell::new(),
            quick: Mutex::new(quick),
            cgroups: Cgroups::Missing { why: "a test".to_owned() },
            user: RoomIds { uid: 1, gid: 1 },
            names: AtomicU64::new(1),
            questions: AtomicU64::new(1),
            answer_time_max: time_max,
        }));
        let refused = keeper.group("cell-1", &Limits::default()).await.unwrap_err();
        assert_eq!(refused.to_string(), "the privileged helper does not answer");
        let refused = keeper.set_ceiling(1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "{refused}");
        assert_eq!(keeper.open_files(&BTreeSet::new(), 1), None);
    }
}
