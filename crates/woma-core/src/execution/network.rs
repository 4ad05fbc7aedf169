//! The network of a run: opened before it, told of after it.

use woma_sandbox::protocol::Note;

use super::Executor;
use super::request::Admitted;
use crate::model::{Action, EventKind, Execution, SecurityEvent};
use crate::net::egress::Gate;
use crate::policy::Verdict;
use crate::session::state::Kernel;

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
        if refused.is_security {
            execution.events.push(SecurityEvent {
                event: EventKind::BlockedHost,
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
