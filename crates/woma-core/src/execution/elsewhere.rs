//! After a `NameError`: the other session of the caller that has a variable of this name.

use super::Executor;
use crate::model::Execution;
use crate::model::caller::CallerId;
use crate::session::state::Session;

impl Executor {
    /// Sets the hint, unless there is one already.
    pub(super) fn tell_elsewhere(&self, caller: &CallerId, execution: &mut Execution) {
        let error = execution.error.as_ref();
        let Some(name) = error.and_then(|error| error.missing.as_deref()) else { return };
        let found = self.sessions.with_variable(caller, name, execution.session.as_ref());
        if let (Some(id), None) = (found, &execution.hint) {
            execution.hint = Some(format!(
                "session `{id}` has a variable `{name}`; send its session_id to run there"
            ));
        }
    }
}

/// Remembers the variables of a session for later errors of others.
pub(super) fn remember(session: &Session, execution: &Execution) {
    let names = execution.variables.iter().map(|variable| variable.name.as_str());
    match execution.state_kept {
        true => session.remember_variables(names),
        false => session.remember_variables([].into_iter()),
    }
}
