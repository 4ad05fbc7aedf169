//! The network of a run: opened before it, told of after it.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;
use woma_sandbox::protocol::Note;
use woma_sandbox::sync::lock;
use woma_sandbox::{Clock, Outcome as RunOutcome, RoomSockets};

use super::Executor;
use super::request::Admitted;
use crate::model::{Action, Execution, Outcome, SecurityEvent, SessionId};
use crate::net::egress::Gate;
use crate::policy::Verdict;
use crate::session::state::Kernel;

/// How long before its time limit a run is looked at for servers: a tenth of it, and this at most.
const LOOK_BEFORE_MAX: Duration = Duration::from_secs(1);

impl Executor {
    /// Opens the network of a kernel, or closes it, as the rules of this run say. A kernel without a
    /// network costs nothing but a look at the rules.
    pub(super) async fn open_network(
        &self,
        kernel: &mut Kernel,
        admitted: &Admitted,
        verdict: &Verdict,
    ) -> Option<Note> {
        let mut outer = vec![self.egress.rules_of(&admitted.caller)];
        outer.extend(verdict.rules.network.iter().cloned());
        kernel.network.set_outer(outer);
        if !kernel.network.is_on() {
            kernel.gate = None;
            return None;
        }
        if kernel.gate.is_some() {
            return None;
        }
        let sockets = kernel.cell.sockets();
        let (owner, session) = (&admitted.caller.id, admitted.request.session.named());
        let session = session.as_ref().map_or("", |session| session.as_str());
        // Boxed: most runs do not need it, and each run's task would be of its size.
        let opened = Gate::open(&self.egress, sockets, &kernel.network, (owner, session));
        match Box::pin(opened).await {
            Ok(gate) => {
                kernel.gate = Some(gate);
                None
            }
            Err(error) => {
                tracing::warn!(%error, "The network of a session could not be opened");
                let text = format!("the network could not be opened for this run: {error}");
                Some(Note { code: "network_closed".to_owned(), text, subject: None, line: None })
            }
        }
    }
}

/// Adds the hosts that code did not reach to what came of its run.
pub(super) fn tell_network(kernel: &Kernel, execution: &mut Execution) {
    let Some(gate) = &kernel.gate else { return };
    execution.is_networked = true;
    // The kernel knows of no network.
    execution.notes.retain(|note| note.code != "network");
    for refused in gate.take_refused() {
        let message = refused.message;
        if let Some(event) = refused.event {
            execution.events.push(SecurityEvent {
                event,
                action: Action::Blocked,
                subject: refused.host,
                line: None,
                message,
            });
        } else {
            let subject = Some(refused.host);
            let code = "network_failed".to_owned();
            execution.notes.push(Note { code, text: message, subject, line: None });
        }
    }
}

/// Ports at which a run listened shortly before its time limit.
pub(super) struct Listening {
    seen: Arc<std::sync::Mutex<Vec<u16>>>,
    _looking: AbortOnDropHandle<()>,
}

impl Listening {
    pub(super) fn watch(sockets: RoomSockets, timeout: Duration) -> Self {
        let seen: Arc<std::sync::Mutex<Vec<u16>>> = Arc::default();
        let found = Arc::clone(&seen);
        let looking = async move {
            tokio::time::sleep(timeout.saturating_sub((timeout / 10).min(LOOK_BEFORE_MAX))).await;
            match sockets.listening().await {
                Ok(ports) => *lock(&found) = ports,
                // Its room may be gone.
                Err(error) => tracing::debug!(%error, "The ports of a run were not read"),
            }
        };
        Self { seen, _looking: AbortOnDropHandle::new(tokio::spawn(looking)) }
    }

    /// Names the ports, if the run was stopped at its time limit while a server listened.
    pub(super) fn tell(
        &self,
        session: Option<&SessionId>,
        is_reachable: bool,
        execution: &mut Execution,
    ) {
        let Outcome::Ran(RunOutcome::TimedOut(Clock::Wall { .. })) = execution.outcome else {
            return;
        };
        let ports = lock(&self.seen);
        let Some(first) = ports.first() else { return };
        let named: Vec<_> = ports.iter().map(u16::to_string).collect();
        let way = match session {
            Some(id) if is_reachable => {
                format!("; then /sessions/{id}/ports/{first}/ of this server leads to it")
            }
            _ => String::new(),
        };
        let text = format!(
            "a server listened on port {} when the time was over: start it in the background \
             (subprocess.Popen, or a thread), so that the call ends{way}",
            named.join(", ")
        );
        let code = "listening".to_owned();
        execution.notes.push(Note { code, text, subject: None, line: None });
    }
}
