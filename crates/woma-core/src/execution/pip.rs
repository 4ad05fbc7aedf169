//! The package service of a room: `pip` and `uv pip` of a session speak to it over a Unix socket.
//!
//! A request is a line of JSON, read within limits; whoever closes the connection gives up. The
//! kernel's client is `python/_woma_kernel/packages.py`.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use woma_sandbox::RoomFolders;

use super::Executor;
use super::packages::ChangeContext;
use super::request::Admitted;
use crate::error::Error;
use crate::model::caller::{Caller, CallerId};
use crate::model::{PackageAction, PackageChange, PackageReport, SessionId};
use crate::session::state::{Kernel, Label, Session};

/// Name of the service.
pub(crate) const NAME: &str = "packages";
/// Requests of one room at once.
const REQUESTS_MAX: usize = 4;
/// Size of a request, in bytes.
const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// How long a request may take to arrive.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a part of a reply may take to be read.
const REPLY_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "options of pip")]
struct Request {
    r#do: Action,
    requirements: Vec<String>,
    #[serde(default)]
    upgrade: bool,
    #[serde(default)]
    pre: bool,
    #[serde(default)]
    reinstall: bool,
    #[serde(default)]
    no_deps: bool,
    #[serde(default)]
    constraints: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Install,
    Uninstall,
}

/// The session that a room's requests are for.
#[derive(Debug, Clone)]
struct Served {
    executor: Weak<Executor>,
    owner: CallerId,
    session: SessionId,
    /// Of a run without a session, whose packages are those of `default`.
    room: Option<RoomFolders>,
}

impl Executor {
    /// Shows a session's packages to its new kernel and serves its `pip`. Returns what the session
    /// has lost.
    pub(crate) async fn furnish(
        &self,
        owner: &CallerId,
        session: &Session,
        kernel: &mut Kernel,
        is_open: bool,
    ) -> Option<String> {
        self.packages.as_ref()?;
        let room = kernel.cell.folders();
        session.packages.enter(room.clone());
        let lost = self.show_packages(owner, session, &room).await;
        // Rules that restrict code do not let it bring its own.
        let service = kernel.cell.take_service().filter(|_| is_open);
        kernel.pip = self.serve_pip(owner, &session.id, service, None);
        lost
    }

    /// Shows a session's packages to a kernel beside its own.
    pub(crate) async fn furnish_beside(
        &self,
        owner: &CallerId,
        session: &Session,
        kernel: &mut Kernel,
        is_open: bool,
    ) -> Option<String> {
        let packages = self.packages.as_ref()?;
        let room = kernel.cell.folders();
        let service = kernel.cell.take_service().filter(|_| is_open);
        kernel.pip = self.serve_pip(owner, &session.id, service, Some(room.clone()));
        let layer = packages.layers.take(owner, &session.packages.layer())?;
        let shown = room.show_packages(&layer.folder).await;
        kernel.layer = Some(layer);
        shown.err().map(|error| format!("packages ({error})"))
    }

    /// As [`Executor::furnish`], for a run without a session: it has the packages of `default`, if
    /// that has the same environment.
    pub(super) async fn furnish_once(
        &self,
        admitted: &Admitted,
        kernel: &mut Kernel,
        is_open: bool,
    ) -> Option<String> {
        let packages = self.packages.as_ref()?;
        let (caller, facts) = (&admitted.caller, &admitted.facts);
        let (id, room) = (SessionId::shared_default(), kernel.cell.folders());
        let service = kernel.cell.take_service().filter(|_| is_open);
        if packages.looks_anew(&caller.id)
            && let Err(error) = self.sessions.recall(caller, &id).await
        {
            tracing::debug!(%error, "The packages of runs without a session are not known");
        }
        let session = self.sessions.find(caller, &id).ok();
        let environment = session.as_ref().and_then(|session| session.environment.as_ref());
        if environment != facts.name.as_ref() {
            return None;
        }
        kernel.pip = self.serve_pip(&caller.id, &id, service, Some(room.clone()));
        let set = session?.packages.set();
        let layer = packages.layers.take(&caller.id, &set.layer)?;
        let shown = room.show_packages(&layer.folder).await;
        kernel.layer = Some(layer);
        shown.err().map(|error| format!("the packages could not be shown: {error}"))
    }

    /// Serves `pip` in a room, in the background, until the returned value is dropped.
    fn serve_pip(
        &self,
        owner: &CallerId,
        session: &SessionId,
        service: Option<UnixListener>,
        room: Option<RoomFolders>,
    ) -> Option<DropGuard> {
        let listener = service?;
        let stop = CancellationToken::new();
        let (executor, owner, session) = (self.me.clone(), owner.clone(), session.clone());
        let served = Served { executor, owner, session, room };
        let serving = serve(listener, served, stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Some(stop.drop_guard())
    }

    /// The session of a room's requests; for runs without one, `default`, which is made if it is not
    /// there.
    fn session_of(&self, served: &Served) -> Result<Arc<Session>, Error> {
        let caller = Caller { id: served.owner.clone(), ..Caller::local() };
        match self.sessions.find(&caller, &served.session) {
            Err(Error::NoSession(id)) if served.room.is_some() => {
                match self.sessions.create(&caller, Some(id), Label::default()) {
                    Err(Error::SessionExists(id)) => self.sessions.find(&caller, &id),
                    created => created,
                }
            }
            found => found,
        }
    }
}

async fn serve(listener: UnixListener, served: Served, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((link, _)) = listener.accept().await else { return };
        let (served, stop) = (served.clone(), stop.child_token());
        tokio::spawn(async move {
            if let Err(error) = answer(link, &served, stop).await {
                tracing::debug!(%error, "A request for packages broke off");
            }
            drop(place);
        });
    }
}

async fn answer(link: UnixStream, served: &Served, stop: CancellationToken) -> io::Result<()> {
    let (reader, mut writer) = link.into_split();
    let mut reader = BufReader::new(reader.take(REQUEST_BYTES_MAX));
    let mut line = Vec::new();
    tokio::time::timeout(REQUEST_TIME_MAX, reader.read_until(b'\n', &mut line)).await??;
    let Ok(request) = serde_json::from_slice::<Request>(&line) else {
        return say(&mut writer, &json!({"error": "the request cannot be read"})).await;
    };
    let (progress, mut told) = mpsc::unbounded_channel();
    let context = ChangeContext { stop: stop.clone(), progress: Some(progress) };
    let _given_up = stop.clone().drop_guard();
    let mut working = std::pin::pin!(change(served, request, &context));
    let mut gone = [0; 1];
    let reply = loop {
        tokio::select! {
            done = &mut working => break done,
            Some(text) = told.recv() => say(&mut writer, &json!({"progress": text})).await?,
            // Nothing more is sent: whatever comes, the client has given up.
            _ = reader.read(&mut gone) => stop.cancel(),
        }
        if stop.is_cancelled() {
            break working.await;
        }
    };
    say(&mut writer, &reply.unwrap_or_else(|error| refusal(&error))).await
}

async fn change(
    served: &Served,
    request: Request,
    context: &ChangeContext,
) -> Result<Value, Error> {
    let executor = served.executor.upgrade().ok_or(Error::ShuttingDown)?;
    let session = executor.session_of(served)?;
    let change = PackageChange {
        action: match request.r#do {
            Action::Install => PackageAction::Install,
            Action::Uninstall => PackageAction::Uninstall,
        },
        requirements: request.requirements,
        upgrade: request.upgrade,
        pre: request.pre,
        reinstall: request.reinstall,
        no_deps: request.no_deps,
        constraints: request.constraints,
        timeout: None,
    };
    let report = executor.change_packages(&served.owner, &session, &change, context).await?;
    let caller = Caller { id: served.owner.clone(), ..Caller::local() };
    executor.sessions.remember_change(&caller, &session).await;
    if let Some(room) = &served.room {
        executor.show_packages(&served.owner, &session, room).await;
    }
    Ok(told(&report))
}

fn told(report: &PackageReport) -> Value {
    let pairs = |packages: &[crate::model::SessionPackage]| -> Vec<(String, String)> {
        packages.iter().map(|one| (one.name.clone(), one.version.clone())).collect()
    };
    let satisfied: Vec<String> =
        report.satisfied.iter().map(|(text, version)| format!("{text} ({version})")).collect();
    json!({
        "installed": pairs(&report.installed),
        "removed": pairs(&report.removed),
        "satisfied": satisfied,
        "absent": report.absent,
        "notes": report.notes,
    })
}

fn refusal(error: &Error) -> Value {
    json!({"error": error.to_string(), "hint": error.hint()})
}

async fn say(writer: &mut tokio::net::unix::OwnedWriteHalf, value: &Value) -> io::Result<()> {
    let line = format!("{value}\n");
    tokio::time::timeout(REPLY_TIME_MAX, writer.write_all(line.as_bytes())).await?
}
